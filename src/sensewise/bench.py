"""Speed, as ratios measured in one run on one machine: contenders take turns, medians are compared."""

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import Progress
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from sensewise.acquire import Session, acquire
from sensewise.checkpoint import fingerprint, load_prior
from sensewise.data import bundled_mnist
from sensewise.experiments.results import Results
from sensewise.metrics import errors
from sensewise.networks.conv import PaperConv
from sensewise.networks.unet import UNet
from sensewise.policies import Greedy, Policy, PosteriorSampling
from sensewise.priors import AbsorbingPrior, Prior
from sensewise.reconstruct import Argmax
from sensewise.sensors import PixelSensor, Side

BUDGET, STEPS = 0.1, 16


@dataclass(frozen=True)
class Measurement:
    """One row of the table.

    Attributes:
        name: of the row.
        value: what was measured.
        bound: what it should be at least, or at most; None where it is only reported.
        highest: whether the bound is an upper one.
        details: what the value was made from.
    """

    name: str
    value: float
    bound: float | None
    highest: bool
    details: dict[str, Any]

    @property
    def holds(self) -> bool | None:
        if self.bound is None:
            return None
        return self.value <= self.bound if self.highest else self.value >= self.bound

    def row(self) -> dict[str, Any]:
        wanted = {"at_most" if self.highest else "at_least": self.bound}
        return {"row": self.name, "value": round(self.value, 4), **wanted, "holds": self.holds, **self.details}


def seconds(*jobs: Callable[[], object], repeats: int = 7, warm: bool = True) -> list[float]:
    """The median time of each job; they take turns, so that a slow moment of the machine meets all of them."""
    if warm:
        for job in jobs:
            job()
    times: list[list[float]] = [[] for _ in jobs]
    for _ in range(repeats):
        for job, found in zip(jobs, times, strict=True):
            begun = time.perf_counter()
            job()
            found.append(time.perf_counter() - begun)
    return [statistics.median(found) for found in times]


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """The slope of log time against log size."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def _pass(prior: Prior, y: Tensor, label: Tensor) -> Callable[[], Tensor]:
    return lambda: prior.read(lambda log_probs: log_probs[..., 0], y, label)


def _acquisition(policy: Policy, x: Tensor, label: Tensor, steps: int | None = None) -> Callable[[], Any]:
    return lambda: acquire(policy, PixelSensor(x), BUDGET, side=Side(label=label), steps=steps or STEPS)


def pass_vs_paper(prior: Prior) -> Measurement:
    """One pass of the paper's network over one of ours, batch 64; beside it the same for a single image."""
    x, label = _digits(64)
    y = torch.where(torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < BUDGET, x, 0)
    theirs = AbsorbingPrior(PaperConv(1, 2, 10), prior.shape, 2, 10).eval().requires_grad_(False)
    ours, paper = seconds(_pass(prior, y, label), _pass(theirs, y, label), repeats=3)
    one, other = seconds(_pass(prior, y[:1], label[:1]), _pass(theirs, y[:1], label[:1]), repeats=15)
    details = {"ours_s": ours, "paper_s": paper, "single": other / one, "ours_single_s": one, "paper_single_s": other}
    return Measurement("pass-vs-paper-network", paper / ours, 60, False, details)


def acquire_vs_sampling(prior: Prior, images: int = 8) -> Measurement:
    """The same acquisition with entropies from joint samples over ours, and the errors of both."""
    x, label = _digits(images)
    policies = {"ours": Greedy(prior), "sampling": PosteriorSampling(prior, samples=16)}
    times, wrong = {}, {}
    for name, policy in policies.items():
        begun = time.perf_counter()
        taken = _acquisition(policy, x, label)()
        times[name] = time.perf_counter() - begun
        x_hat = Argmax(prior)(taken.observation, taken.mask, Side(label=label))
        wrong[name] = errors(x_hat, x).mean().item()
    times["ours"] = seconds(_acquisition(policies["ours"], x, label))[0]
    details = {"images": len(x), "errors_ours": wrong["ours"], "errors_sampling": wrong["sampling"]}
    return Measurement("acquire-vs-posterior-sampling", times["sampling"] / times["ours"], 100, False, details)


def gemm_fraction(prior: Prior) -> Measurement:
    """FLOP/s of a pass over those of a large matrix product on the same threads."""
    x, label = _digits(128)
    with FlopCounterMode(display=False) as counter:
        prior(x[:1], label[:1])
    one = counter.get_total_flops()
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    forward, product = seconds(_pass(prior, x, label), lambda: a @ b)
    ours, large = len(x) * one / forward, 2 * 2048**3 / product
    details = {"pass_gflops": ours / 1e9, "gemm_gflops": large / 1e9, "mflop_per_pass": one / 1e6}
    return Measurement("gemm-fraction", ours / large, 0.6, False, details)


def onnx(prior: AbsorbingPrior) -> Measurement:
    """One pass of the exported prior in onnxruntime over one of ours, batch 64, and how far their answers differ."""
    import onnxruntime  # type: ignore[import-untyped]

    from sensewise.export import export_onnx

    x, label = _digits(64)
    y = torch.where(torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < BUDGET, x, 0)
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        path = export_onnx(prior, Path(folder) / "prior.onnx")
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    inputs = {"tokens": y.numpy(), "label": label.numpy()}
    ours, theirs = seconds(_pass(prior, y, label), lambda: session.run(None, inputs))
    apart = float(np.abs(session.run(["probabilities"], inputs)[0] - prior(y, label).exp().numpy()).max())
    return Measurement("onnx-vs-torch", theirs / ours, None, True, {"largest_difference": apart})


def latency(prior: Prior) -> Measurement:
    """One decision for a single image, in ms: the median, and the 99th percentile beside it."""
    x, label = _digits(20)
    taken = []
    for number in range(len(x)):
        session = Session(prior, BUDGET, steps=STEPS, label=int(label[number]))
        while True:
            begun = time.perf_counter()
            pixels = session.ask()
            if pixels is None:
                break
            taken.append(1e3 * (time.perf_counter() - begun))
            session.tell(x[number, 0, pixels[:, 0], pixels[:, 1]])
    return Measurement("latency", float(np.median(taken)), 6, True, {"p99_ms": float(np.quantile(taken, 0.99))})


def overhead(prior: Prior) -> Measurement:
    """Acquisition and reconstruction over their R + 1 passes alone."""
    x, label = _digits(128)
    forward = _pass(prior, x, label)

    def whole() -> None:
        taken = _acquisition(Greedy(prior), x, label)()
        Argmax(prior)(taken.observation, taken.mask, Side(label=label))

    def passes() -> None:
        for _ in range(STEPS + 1):
            forward()

    total, alone = seconds(whole, passes)
    return Measurement("overhead", total / alone, 1.1, True, {"acquire_s": total, "passes_s": alone})


def scaling(prior: Prior) -> list[Measurement]:
    """How time grows with pixels (an untrained prior of each size), images and steps."""
    sides, times = (32, 64, 128, 256), []
    for side in sides:
        large = AbsorbingPrior(UNet(1, 2, None), (1, side, side), 2, None).eval().requires_grad_(False)
        x = torch.ones(4, 1, side, side, dtype=torch.int64)
        times += seconds(lambda p=large, x=x: acquire(Greedy(p), PixelSensor(x), BUDGET, steps=4), repeats=3)  # type: ignore[misc]
    pixels = exponent([side**2 for side in sides], times)
    counts, steps, (x, label) = (64, 128, 256, 512), (4, 8, 16, 32), _digits(512)
    by_images = [seconds(_acquisition(Greedy(prior), x[:n], label[:n], 4), repeats=3)[0] for n in counts]
    by_steps = [seconds(_acquisition(Greedy(prior), x[:64], label[:64], r), repeats=3)[0] for r in steps]
    return [
        Measurement("scaling-pixels", pixels, 1.1, True, {"sides": sides, "seconds": times}),
        Measurement("scaling-images", exponent(counts, by_images), 1.1, True, {"images": counts, "seconds": by_images}),
        Measurement("scaling-steps", exponent(steps, by_steps), 1.1, True, {"steps": steps, "seconds": by_steps}),
    ]


_MEMORY = """
from sensewise.bench import peak_of_digits
print(peak_of_digits())
"""


def peak_of_digits() -> float:
    """Acquire all bundled digits and tell the largest memory of this process, in GB."""
    prior, (x, label) = load_prior("mnist"), _digits(2560)
    _acquisition(Greedy(prior), x, label)()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def memory() -> Measurement:
    """Peak memory of acquiring 2,560 digits in 16 steps, in GB, in a process of its own."""
    found = subprocess.run([sys.executable, "-c", _MEMORY], capture_output=True, text=True, check=True)
    return Measurement("memory", float(found.stdout), 1.5, True, {"images": 2560, "steps": STEPS})


def _digits(count: int) -> tuple[Tensor, Tensor]:
    x, label = bundled_mnist(count)[slice(None)]
    assert label is not None
    return x, label


def run(progress: Progress) -> Results:
    """Every row, one after the other; nothing else should run on the machine."""
    prior = load_prior("mnist")
    results = Results("bench", "cpu", "mnist", weights={"prior": fingerprint(prior)})
    jobs: list[Callable[[], Measurement | list[Measurement]]] = [
        lambda: pass_vs_paper(prior),
        lambda: acquire_vs_sampling(prior),
        lambda: gemm_fraction(prior),
        lambda: latency(prior),
        lambda: overhead(prior),
        lambda: scaling(prior),
        lambda: onnx(prior),
        memory,
    ]
    bar = progress.add_task("bench", total=len(jobs))
    for job in jobs:
        found = job()
        results.rows += [one.row() for one in (found if isinstance(found, list) else [found])]
        progress.advance(bar)
    return results
