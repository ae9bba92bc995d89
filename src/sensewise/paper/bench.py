"""`bench`: how quick the bundled priors are, row by row. Let nothing else run on the machine meanwhile."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import Progress

from sensewise import hub, predictions
from sensewise.data.drawn import fractal
from sensewise.data.mnist import bundled_mnist
from sensewise.data.scenes import Scenes
from sensewise.errors import ConfigError, ProcessError
from sensewise.evaluate import speed
from sensewise.evaluate.results import Results
from sensewise.evaluate.rows import Speed
from sensewise.files import fingerprint
from sensewise.metrics import psnr
from sensewise.policies.base import Context
from sensewise.policies.choose import SPREAD_READINGS
from sensewise.policies.greedy import Greedy, greedy_readings
from sensewise.priors.base import Prior
from sensewise.sensors.base import Side
from sensewise.session import Session

PRIOR, TINY, ANY_SIZE = "mnist", "mnist-tiny", "any-grey"
APART_SECONDS = 1800
SIDE, STEPS = 512, 32  # of the large picture


def memory_gb() -> float:
    """The largest memory of this process so far, in GB."""
    try:
        import resource
    except ImportError as error:
        raise ConfigError("bench measures memory in a way that Windows does not have: run it elsewhere") from error
    unit = 1 if sys.platform == "darwin" else 1024  # bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def digits_apart() -> dict[str, float]:
    """Acquire all bundled digits."""
    prior, (x, label) = hub.load_prior(PRIOR), bundled_mnist()[slice(None)]
    speed.acquire_all(Greedy(prior), x, label)
    return {"memory_gb": memory_gb()}


def picture_apart(side: int = SIDE, steps: int = STEPS) -> dict[str, float]:
    """Acquire one large picture with a session, then time its parts, in seconds."""
    prior, picture = hub.load_prior(ANY_SIZE), fractal(np.random.default_rng(0), side, 2.0).astype(np.float32)
    policy = greedy_readings(prior)
    begun = time.perf_counter()
    session = Session(policy, (1, side, side), 0.1, steps=steps, choose=SPREAD_READINGS)
    first = None
    while (pixels := session.ask()) is not None:
        first = first or time.perf_counter() - begun
        session.tell(picture[pixels[:, 0], pixels[:, 1]])
    mean = session.mean
    found = {"seconds": time.perf_counter() - begun, "first_s": first or 0.0, "memory_gb": memory_gb()}
    return found | {"psnr": float(psnr(mean, torch.from_numpy(picture)[None]))} | _parts(session, policy, side, steps)


def _parts(session: Session, policy: Greedy, side: int, steps: int) -> dict[str, float]:
    """Seconds of one pass and of one choice, for what a session has seen in the end."""
    y, mask = session.observation[None], session.mask.view(1, -1)
    context = Context(Side(), mask.shape[1], torch.Generator(), steps, (side, side))
    scores = policy.scores(y, mask, context).masked_fill(mask, -torch.inf)
    count = round(0.1 * mask.shape[1] / steps)
    one_pass, choosing = speed.seconds(
        partial(policy.prior.in_chunks, predictions.variance, y, None), partial(SPREAD_READINGS, scores, count, context)
    )
    return {"pass_s": one_pass, "choose_s": choosing}


def apart(function: Callable[[], dict[str, float]]) -> dict[str, float]:
    """What a function of this module finds in a process of its own."""
    name = function.__name__
    command = [sys.executable, "-c", f"import json; from {__name__} import {name}; print(json.dumps({name}()))"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=APART_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise ProcessError(
            f"{name} took more than {APART_SECONDS / 60:g} minutes: let nothing else run, and measure again"
        ) from error
    return json.loads(found.stdout)


def memory() -> list[Speed]:
    """Peak memory of acquiring 2,560 digits in 16 steps, in GB, in a process of its own."""
    found, details = apart(digits_apart), {"images": 2560, "steps": speed.STEPS}
    return [Speed("memory", found["memory_gb"], at_most=1.5, details=details)]


def picture() -> list[Speed]:
    """512 x 512 pixels at s = 0.1 in 32 steps: seconds in all, to the first decision, GB, and choosing per pass."""
    found = apart(picture_apart)
    return [
        Speed("picture-512", found["seconds"], at_most=25, details=found),
        Speed("picture-512-first", found["first_s"], at_most=1),
        Speed("picture-512-memory", found["memory_gb"], at_most=1),
        Speed("picture-512-choose", found["choose_s"] / found["pass_s"], at_most=1),
    ]


def picture_256() -> list[Speed]:
    """One picture of 256 x 256: the time of a step, everything in it, over that of one pass."""
    steps, found = 16, picture_apart(side=256, steps=16)
    step = found["seconds"] / (steps + 1)  # the last pass makes the picture
    return [Speed("image-256", step / found["pass_s"], at_most=1.5, details=found)]


def small_priors(prior: Prior, digits: Scenes) -> list[Speed]:
    """A pass of the smallest prior over one of the paper's network, and decisions by the small ones that guide."""
    tiny, guide = hub.load_prior(TINY), hub.load_guide(prior)
    return [
        speed.pass_vs_paper(tiny, digits, "tiny-vs-paper-network", 100),
        speed.amortised(prior, guide, digits),
        speed.latency_amortised(prior, guide, digits),
    ]


def run(path: Path, export: Callable[[Any, Path], Path], progress: Progress | None = None) -> list[Speed]:
    """Measure every row, one after the other, and write `path`.

    Args:
        export: a prior and a path to an ONNX file, as `apps.onnx.export_onnx`.
    """
    begun, prior, digits = time.monotonic(), hub.load_prior(PRIOR), bundled_mnist()
    jobs: list[Callable[[], Speed]] = [
        *(partial(row, prior, digits) for row in (speed.pass_vs_paper, speed.acquire_vs_sampling)),
        *(partial(row, prior, digits) for row in (speed.gemm_fraction, speed.latency, speed.overhead)),
        speed.scaling_pixels,
        *(partial(row, prior, digits) for row in (speed.scaling_images, speed.scaling_steps)),
        partial(speed.onnx, prior, digits, export),
        partial(speed.engine_onnx, prior, digits),
    ]
    show = progress or Progress(disable=True)
    found = [job() for job in show.track(jobs, description="bench")]
    several: list[Callable[[], list[Speed]]] = [partial(small_priors, prior, digits), memory, picture_256, picture]
    found += [row for job in show.track(several, description="large") for row in job()]
    weights = {"prior": fingerprint(prior)}
    seconds = time.monotonic() - begun
    Results("bench", hub.SHIPPED, "mnist", weights=weights, seconds=seconds).write_speeds(path, found)
    return found
