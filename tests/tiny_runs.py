"""Tiny trainings and experiments in processes of their own, for the tests of faults and of several processes."""

import os
import sys
from pathlib import Path

import numpy as np

from sensewise.data import import_images

PRESET = """
[prior.imported.mixed]
batch_size = 4
[prior.imported.mixed.network]
widths = [8, 8]
blocks = [1, 1]
embedding = 8
[prior.imported.mixed.curriculum]
on_policy = 0.5
[prior.imported.mixed.fit]
steps = {steps}
save_minutes = {save_minutes}
validate_every = {steps}
"""
EXPERIMENT = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from rich.progress import Progress
from conftest import make_absorbing
from sensewise.data import bundled_mnist
from sensewise.experiments import EXPERIMENTS, evaluation
from sensewise.experiments.runner import run_experiment, run_on_devices
from sensewise.experiments.results import Results
from sensewise.policies import Greedy, Random

prior, digits = make_absorbing(shape=(1, 32, 32)), bundled_mnist(16)
strategies = [evaluation.Strategy("random", Random()), evaluation.Strategy("probe-greedy", Greedy(prior), 4)]

def run(preset, seeds, progress):
    results = Results("tiny", preset, "mnist")
    results.rows = evaluation.evaluate(
        prior, digits, strategies, (0.05, 0.1), seeds, ("errors",), lambda *_: None, progress, {{}}
    )
    return results

EXPERIMENTS["tiny"] = run
with Progress(disable=True) as progress:
    if {devices} == 1:
        run_experiment("tiny", "cpu", range({seeds}), Path({folder!r}), progress)
    else:
        run_on_devices("tiny", "cpu", range({seeds}), Path({folder!r}), progress, {devices})
"""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def prepare_training(folder: Path, steps: int, save_minutes: float = 0.0) -> None:
    """A data set of 40 images in `data`, and a preset `own.toml`."""
    np.save(folder / "images.npy", np.random.default_rng(0).integers(0, 255, (40, 24, 24), dtype=np.uint8))
    import_images(folder / "images.npy", folder / "data", size=24, levels=2)
    (folder / "own.toml").write_text(PRESET.format(steps=steps, save_minutes=save_minutes))


def training(folder: Path, name: str, *options: str) -> list[str]:
    """The command that trains in `folder/name`, or goes on there."""
    run = folder / name
    given = ["--data", folder / "data", "--preset", folder / "own.toml", "--out", run]
    resume = ["--resume"] if (run / "config.json").exists() else []
    return [sys.executable, "-m", "sensewise", "train", "prior", *map(str, given), *resume, *options]


def experiment(folder: Path, seeds: int, devices: int = 1) -> str:
    """A script that runs an experiment named tiny and writes its results into `folder`."""
    return EXPERIMENT.format(tests=str(Path(__file__).parent), seeds=seeds, folder=str(folder), devices=devices)
