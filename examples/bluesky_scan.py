"""An adaptive scan under bluesky, beside a raster of as many points; stage, detector and picture are ophyd-async's own.

    python examples/bluesky_scan.py [SIDE]

The stage has SIDE x SIDE positions (64 by default). At most 15% of them are read; the scan stops earlier once the prior
expects to be 30 dB from the truth. Needs the extra `bluesky`.
"""

import sys
from dataclasses import replace

import bluesky.plan_stubs as bps
import bluesky.plans as bp
import numpy as np
import torch
from bluesky.run_engine import RunEngine
from bluesky_adaptive.plans import optimize
from bluesky_adaptive.protocols import OptimizationProblem
from ophyd_async.core import init_devices
from ophyd_async.sim import PatternGenerator, SimPointDetector, SimStage

import sensewise
from sensewise.evaluate.method import reading_methods
from sensewise.instruments.bluesky import RunReadings, ScanOptimizer
from sensewise.instruments.scan import Scan
from sensewise.metrics import psnr
from sensewise.policies import travel
from sensewise.policies.stops import ExpectedPSNR
from sensewise.tokens import pack

SIDE = int(sys.argv[1]) if len(sys.argv) > 1 else 64
BUDGET, STEPS, DECIBEL = 0.15, 16, 30.0
EXPOSURE = 0.01  # seconds
COUNTS = 10_000 * EXPOSURE  # of the simulated detector where the picture is white
POSITIONS = np.linspace(-3, 3, SIDE)
VALUE = "detector-channel-1-value"


def picture(generator: PatternGenerator) -> torch.Tensor:
    """The truth, straight from the simulator, `(1, 1, H, W)`; the scans never see it."""
    values = np.empty((SIDE, SIDE))
    for row, y in enumerate(POSITIONS):
        for column, x in enumerate(POSITIONS):
            generator.set_x(x)
            generator.set_y(y)
            values[row, column] = generator.generate_point()
    return torch.from_numpy(values).float()[None, None]


def raster(count: int) -> np.ndarray:
    """About `count` pixels on a regular grid, there and back, never fewer; `(n, 2)`."""
    lines = int(np.ceil(np.sqrt(count)))
    ticks = np.linspace(0, SIDE - 1, lines).round().astype(int)
    return np.array([(row, column) for i, row in enumerate(ticks) for column in ticks[:: -1 if i % 2 else 1]])


engine = RunEngine()
generator = PatternGenerator()
with init_devices():
    stage = SimStage(generator, name="stage")
    detector = SimPointDetector(generator, name="detector")


def instant():
    """Motors that are at once where they should be, and a short exposure: only the way is of interest here."""
    yield from bps.mv(stage.x.velocity, 0.0, stage.y.velocity, 0.0, detector.acquire_time, EXPOSURE)


engine(instant())

prior = sensewise.load_prior("any-grey")
method = reading_methods(prior, STEPS)["spread-variance-greedy"]
session = sensewise.Session(
    method.policy,
    (1, SIDE, SIDE),
    BUDGET,
    steps=STEPS,
    choose=replace(method.choose, travel=1.0),
    stop=ExpectedPSNR(above=DECIBEL),
)
scan = Scan(session, POSITIONS, POSITIONS, high=COUNTS, sigma=12**-0.5)
optimizer = ScanOptimizer(scan, "stage-y", "stage-x", "counts")
readings = RunReadings(VALUE, "counts")
heard = engine.subscribe(readings.listen)
problem = OptimizationProblem(optimizer, [stage.y, stage.x], [detector], readings)
engine(optimize(problem, iterations=None, n_points=SIDE * SIDE))
engine.unsubscribe(heard)
read = int(session.mask.sum())

pixels = raster(read)
counts: list[float] = []
engine(
    bp.list_scan([detector], stage.y, POSITIONS[pixels[:, 0]], stage.x, POSITIONS[pixels[:, 1]]),
    {"event": lambda name, document: counts.append(document["data"][VALUE])},
)
values = torch.full((SIDE, SIDE), torch.nan)
values[pixels[:, 0], pixels[:, 1]] = torch.tensor(counts) / COUNTS
noise = torch.full((1, 1, SIDE, SIDE), 12**-0.5 / COUNTS)
with torch.inference_mode():
    mean = prior(pack(values[None, None], noise)).mean()
grid = values[np.unique(pixels[:, 0])][:, np.unique(pixels[:, 1])][None, None]
plain = torch.nn.functional.interpolate(grid, (SIDE, SIDE), mode="bilinear", align_corners=True)

truth = picture(generator)
adaptive = float(psnr(session.mean[None], truth))
print(f"adaptive: {read} of {SIDE**2} points, a path of {session.travel:.0f}, then {optimizer.should_stop()[1]}")
print(f"          {adaptive:.1f} dB, {session.expected_psnr:.1f} expected")
print(f"raster:   {len(pixels)} points, a path of {travel.length(pixels):.0f}")
print(
    f"          {float(psnr(mean, truth)):.1f} dB with the same prior, {float(psnr(plain, truth)):.1f} dB interpolated"
)
