"""sensewise decides what to measure.

A sensor reveals what an action measures. A prior predicts every hidden site from what has been seen. A policy scores
the actions not yet taken. `acquire` measures the best ones until the budget is spent. A reconstructor fills in the
rest. A metric nobody optimised judges the result.
"""

from sensewise.acquire import Session, Trajectory, acquire
from sensewise.checkpoint import load_prior
from sensewise.diffusion import AbsorbingProcess, sample
from sensewise.errors import SensewiseError
from sensewise.generator import MaskGenerator, load_generator
from sensewise.policies import (
    Greedy,
    OneShot,
    Policy,
    Random,
    SpreadGreedy,
    VariableDensity,
    grid_probe,
    random_probe,
    spread_variance,
)
from sensewise.priors import AbsorbingPrior, EmpiricalPrior, MirroredPrior, Prior
from sensewise.reconstruct import Argmax, PosteriorMean, Reconstructor, UNetReconstructor, ZeroFilled
from sensewise.sensors import KSpaceRowSensor, PixelSensor, Sensor, Side
from sensewise.tokens import MASK, dequantize, observe, quantize, summary

__version__ = "0.1.0"

__all__ = [
    "MASK",
    "AbsorbingPrior",
    "AbsorbingProcess",
    "Argmax",
    "EmpiricalPrior",
    "Greedy",
    "KSpaceRowSensor",
    "MaskGenerator",
    "MirroredPrior",
    "OneShot",
    "PixelSensor",
    "Policy",
    "PosteriorMean",
    "Prior",
    "Random",
    "Reconstructor",
    "SensewiseError",
    "Sensor",
    "Session",
    "Side",
    "SpreadGreedy",
    "Trajectory",
    "UNetReconstructor",
    "VariableDensity",
    "ZeroFilled",
    "acquire",
    "dequantize",
    "grid_probe",
    "load_generator",
    "load_prior",
    "observe",
    "quantize",
    "random_probe",
    "sample",
    "spread_variance",
    "summary",
]
