"""`bench`: how quick the bundled prior of digits is, row by row. Let nothing else run on the machine meanwhile."""

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.progress import Progress

from sensewise import hub
from sensewise.data.mnist import bundled_mnist
from sensewise.evaluate import speed
from sensewise.evaluate.results import Results
from sensewise.evaluate.rows import Speed
from sensewise.files import fingerprint
from sensewise.policies.greedy import Greedy

PRIOR = "mnist"
_MEMORY = "from sensewise.paper.bench import peak_memory; print(peak_memory())"


def peak_memory() -> float:
    """Acquire all bundled digits; the largest memory of this process, in GB."""
    import resource  # not on Windows

    prior, (x, label) = hub.load_prior(PRIOR), bundled_mnist()[slice(None)]
    speed.acquire_all(Greedy(prior), x, label)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def memory() -> Speed:
    """Peak memory of acquiring 2,560 digits in 16 steps, in GB, in a process of its own."""
    found = subprocess.run([sys.executable, "-c", _MEMORY], capture_output=True, text=True, check=True)
    return Speed("memory", float(found.stdout), at_most=1.5, details={"images": 2560, "steps": speed.STEPS})


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
        memory,
    ]
    found = [job() for job in (progress or Progress(disable=True)).track(jobs, description="bench")]
    weights = {"prior": fingerprint(prior)}
    seconds = time.monotonic() - begun
    Results("bench", hub.SHIPPED, "mnist", weights=weights, seconds=seconds).write_speeds(path, found)
    return found
