"""Speed, as ratios measured in one run on one machine: contenders take turns, medians are compared."""

import copy
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from sensewise.data.scenes import Scenes
from sensewise.evaluate import method
from sensewise.evaluate.rows import Speed
from sensewise.loop import Trajectory, acquire
from sensewise.metrics import errors
from sensewise.networks.conv import PaperConv
from sensewise.networks.unet import UNet
from sensewise.policies.base import Choice, Policy
from sensewise.policies.greedy import Greedy
from sensewise.policies.sampling import PosteriorSampling
from sensewise.predictions import Categorical, Prediction
from sensewise.priors.absorbing import AbsorbingPrior
from sensewise.priors.base import Prior
from sensewise.reconstruct.prior import Mode
from sensewise.sensors.base import Side
from sensewise.sensors.pixels import PixelSensor
from sensewise.session import Session

BUDGET, STEPS = 0.1, 16
Job = Callable[[], object]


def seconds(*jobs: Job, repeats: int = 7) -> list[float]:
    """The median time of each job; they take turns, so that a slow moment of the machine meets all of them."""
    for job in jobs:
        job()  # to warm up
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


def _first_state(prediction: Prediction) -> Tensor:
    assert isinstance(prediction, Categorical)
    return prediction.log_probs[..., 0]


def _pass(prior: Prior, y: Tensor, label: Tensor | None) -> Job:
    return partial(prior.in_chunks, _first_state, y, label)


def acquire_all(
    policy: Policy, x: Tensor, label: Tensor | None, steps: int | None = None, choose: Choice | None = None
) -> Trajectory:
    """One acquisition of all images, in 16 steps unless others are given."""
    return acquire(policy, PixelSensor(x), BUDGET, side=Side(label=label), steps=steps or STEPS, choose=choose)


def _tenth(x: Tensor) -> Tensor:
    """Tokens with a random tenth of them observed."""
    return torch.where(torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < BUDGET, x, 0)


def pass_vs_paper(prior: Prior, scenes: Scenes, name: str = "pass-vs-paper-network", at_least: float = 60) -> Speed:
    """One pass of the paper's network over one of ours, batch 64; beside it the same for a single image."""
    x, label = scenes.first(64)[slice(None)]
    y, one_label = _tenth(x), None if label is None else label[:1]
    network = PaperConv(prior.channels, prior.num_states, prior.num_labels)
    theirs = AbsorbingPrior(network, prior.channels, prior.num_states, prior.num_labels, size=prior.size)
    theirs.eval().requires_grad_(False)
    ours, paper = seconds(_pass(prior, y, label), _pass(theirs, y, label), repeats=3)
    one, other = seconds(_pass(prior, y[:1], one_label), _pass(theirs, y[:1], one_label), repeats=15)
    details = {"ours_s": ours, "paper_s": paper, "single": other / one, "ours_single_s": one, "paper_single_s": other}
    return Speed(name, paper / ours, at_least=at_least, details=details)


def acquire_vs_sampling(prior: Prior, scenes: Scenes, images: int = 8) -> Speed:
    """The same acquisition with entropies from joint samples over ours, and the errors of both."""
    x, label = scenes.first(images)[slice(None)]
    policies: dict[str, Policy] = {"ours": Greedy(prior), "sampling": PosteriorSampling(prior, samples=16)}
    times, wrong = {}, {}
    for name, policy in policies.items():
        begun = time.perf_counter()
        taken = acquire_all(policy, x, label)
        times[name] = time.perf_counter() - begun
        x_hat = Mode(prior)(taken.observation, taken.mask, Side(label=label))
        wrong[name] = errors(x_hat, x).mean().item()
    times["ours"] = seconds(partial(acquire_all, policies["ours"], x, label))[0]
    details = {"images": len(x), "errors_ours": wrong["ours"], "errors_sampling": wrong["sampling"]}
    ratio = times["sampling"] / times["ours"]
    return Speed("acquire-vs-posterior-sampling", ratio, at_least=100, details=details)


def gemm_fraction(prior: Prior, scenes: Scenes) -> Speed:
    """FLOP/s of a pass over those of a large matrix product on the same threads."""
    x, label = scenes.first(128)[slice(None)]
    with FlopCounterMode(display=False) as counter:
        prior(x[:1], None if label is None else label[:1])
    one = counter.get_total_flops()
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    forward, product = seconds(_pass(prior, x, label), partial(torch.matmul, a, b))
    ours, large = len(x) * one / forward, 2 * 2048**3 / product
    details = {"pass_gflops": ours / 1e9, "gemm_gflops": large / 1e9, "mflop_per_pass": one / 1e6}
    return Speed("gemm-fraction", ours / large, at_least=0.6, details=details)


def latency(prior: Prior, scenes: Scenes) -> Speed:
    """One decision for a single image, in ms: the median, and the 99th percentile beside it."""
    taken = _decisions(Greedy(prior), prior, scenes)
    return Speed("latency", float(np.median(taken)), at_most=6, details={"p99_ms": float(np.quantile(taken, 0.99))})


def amortised(prior: Prior, guide: Prior, scenes: Scenes, name: str = "decision-amortised") -> Speed:
    """When a small prior decides: time per decision over the full prior's own, batch 64, both with PyTorch."""
    x, label = scenes.first(64)[slice(None)]
    methods = [method.amortised(prior, guide, STEPS), method.spread_out(prior, STEPS)]
    jobs = [partial(acquire_all, one.policy, x, label, None, one.choose) for one in methods]
    ours, full = seconds(*jobs, repeats=3)
    details = {"ours_ms": 1e3 * ours / len(x) / STEPS, "full_ms": 1e3 * full / len(x) / STEPS}
    return Speed(name, ours / full, at_most=0.25, details=details)


def latency_amortised(prior: Prior, guide: Prior, scenes: Scenes) -> Speed:
    """One decision of a small prior for a single image, in ms, with the fastest engine that is installed."""
    assert isinstance(guide, AbsorbingPrior)
    quick = copy.copy(guide)
    quick.run_with("fastest")
    one = method.amortised(prior, quick, STEPS)
    taken = _decisions(one.policy, prior, scenes, one.choose)
    details = {"p99_ms": float(np.quantile(taken, 0.99)), "engine": quick.engine}
    return Speed("latency-amortised", float(np.median(taken)), at_most=1.5, details=details)


def _decisions(policy: Policy, prior: Prior, scenes: Scenes, choose: Choice | None = None) -> list[float]:
    """Milliseconds of every decision in the sessions of 20 single images."""
    x, label = scenes.first(20)[slice(None)]
    taken = []
    for number in range(len(x)):
        known = None if label is None else int(label[number])
        session = Session(policy, prior.shape, BUDGET, steps=STEPS, label=known, choose=choose)
        while True:
            begun = time.perf_counter()
            pixels = session.ask()
            if pixels is None:
                break
            taken.append(1e3 * (time.perf_counter() - begun))
            session.tell(x[number, :, pixels[:, 0], pixels[:, 1]].T)
    return taken


def overhead(prior: Prior, scenes: Scenes) -> Speed:
    """Acquisition and reconstruction over their R + 1 passes alone."""
    x, label = scenes.first(128)[slice(None)]
    forward = _pass(prior, x, label)

    def whole() -> None:
        taken = acquire_all(Greedy(prior), x, label)
        Mode(prior)(taken.observation, taken.mask, Side(label=label))

    def passes() -> None:
        for _ in range(STEPS + 1):
            forward()

    total, alone = seconds(whole, passes)
    return Speed("overhead", total / alone, at_most=1.1, details={"acquire_s": total, "passes_s": alone})


def scaling_pixels() -> Speed:
    """How time grows with the number of pixels, for an untrained prior of each size."""
    sides, times = (32, 64, 128, 256), []
    for side in sides:
        prior = AbsorbingPrior(UNet(1, 2, None), 1, 2, None, size=(side, side)).eval().requires_grad_(False)
        x = torch.ones(4, 1, side, side, dtype=torch.int64)
        times += seconds(partial(acquire_all, Greedy(prior), x, None, 4), repeats=3)
    pixels = exponent([side**2 for side in sides], times)
    return Speed("scaling-pixels", pixels, at_most=1.1, details={"sides": sides, "seconds": times})


def scaling_images(prior: Prior, scenes: Scenes) -> Speed:
    """How time grows with the number of images."""
    counts, policy = (64, 128, 256, 512), Greedy(prior)
    times = [seconds(partial(acquire_all, policy, *scenes.first(n)[slice(None)], 4), repeats=3)[0] for n in counts]
    details = {"images": counts, "seconds": times}
    return Speed("scaling-images", exponent(counts, times), at_most=1.1, details=details)


def scaling_steps(prior: Prior, scenes: Scenes) -> Speed:
    """How time grows with the number of steps."""
    steps, policy = (4, 8, 16, 32), Greedy(prior)
    times = [seconds(partial(acquire_all, policy, *scenes.first(64)[slice(None)], r), repeats=3)[0] for r in steps]
    return Speed("scaling-steps", exponent(steps, times), at_most=1.1, details={"steps": steps, "seconds": times})


def onnx(prior: Prior, scenes: Scenes, export: Callable[[Any, Path], Path]) -> Speed:
    """One pass of the exported prior in onnxruntime over one of ours, batch 64, and how far their answers differ.

    Args:
        export: a prior and a path to the ONNX file.
    """
    import onnxruntime  # type: ignore[import-untyped]

    x, label = scenes.first(64)[slice(None)]
    assert label is not None
    y = _tenth(x)
    with TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        path = export(prior, Path(folder) / "prior.onnx")
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    inputs = {"tokens": y.numpy(), "label": label.numpy()}
    ours, theirs = seconds(_pass(prior, y, label), partial(session.run, None, inputs))
    prediction = prior(y, label)
    assert isinstance(prediction, Categorical)
    found = session.run(["probabilities"], inputs)[0]
    apart = float(np.abs(found - prediction.log_probs.exp().numpy()).max())
    return Speed("onnx-vs-torch", theirs / ours, details={"largest_difference": apart})


def engine_onnx(prior: Prior, scenes: Scenes) -> Speed:
    """One pass with the engine onnx over one with PyTorch, batch 64; also for one image, and how far they differ."""
    assert isinstance(prior, AbsorbingPrior)
    x, label = scenes.first(64)[slice(None)]
    y, one = _tenth(x), None if label is None else label[:1]
    other = copy.copy(prior)  # the same weights
    other.run_with("onnx")
    ours, theirs = seconds(_pass(prior, y, label), _pass(other, y, label))
    single, single_onnx = seconds(_pass(prior, y[:1], one), _pass(other, y[:1], one), repeats=15)
    found = [p.in_chunks(_first_state, y, label).exp() for p in (prior, other)]
    apart = float((found[0] - found[1]).abs().max())
    details = {"torch_s": ours, "onnx_s": theirs, "single": single_onnx / single, "largest_difference": apart}
    return Speed("engine-onnx", theirs / ours, at_most=0.7, details=details)
