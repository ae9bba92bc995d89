"""Score acquisition strategies on images: the same images, probes and random masks for all, several seeds."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import torch
from rich.progress import Progress
from torch import Tensor

from sensewise import information, masks
from sensewise.acquire import Trajectory, acquire
from sensewise.data import Images
from sensewise.experiments.journal import recall, weights_of
from sensewise.experiments.results import row
from sensewise.generator import MaskGenerator
from sensewise.metrics import TOKEN_METRICS, psnr
from sensewise.policies import Greedy, Policy, Random, SpreadGreedy, Start, VariableDensity, random_probe
from sensewise.priors import Prior
from sensewise.reconstruct import Reconstructor
from sensewise.sensors import PixelSensor, Side
from sensewise.tokens import dequantize, observe, quantize

BLOCK = 2560  # images measured at once


@dataclass(frozen=True)
class Strategy:
    """A named way to spend a budget.

    Attributes:
        method: its name in results.
        policy: scores the actions.
        steps: `R`.
        start: a probe, or None.
        random: whether the seed changes anything.
        passes: passes of the prior for one image, the reconstruction included.
        reconstructor: another one than the prior; gives intensities, and has no entropy.
    """

    method: str
    policy: Policy
    steps: int = 1
    start: Start | None = None
    random: bool = True
    passes: int = 1
    reconstructor: Reconstructor | None = None


def mnist_strategies(prior: Prior, extra_steps: Sequence[int] = ()) -> list[Strategy]:
    """Every strategy of Table closed, variable density, and greedy steps whose pixels keep their distance."""
    _, height, width = prior.shape
    greedy, probe = Greedy(prior), random_probe(height * width)
    return [
        Strategy("random", Random()),
        Strategy("variable-density", VariableDensity((height, width))),
        Strategy("probe-greedy", greedy, 1, probe, passes=2),
        Strategy("probe-greedy", greedy, 16, probe, passes=17),
        *(Strategy("label-greedy", greedy, r, random=False, passes=r + 1) for r in (4, 16, *extra_steps)),
        Strategy("spread-greedy", SpreadGreedy(prior), 16, random=False, passes=17),
    ]


def spend(strategy: Strategy, x: Tensor, side: Side, budget: float, seed: int) -> Trajectory:
    """One acquisition of a batch; the seed alone decides probes and random masks."""
    generator = torch.Generator().manual_seed(seed)
    return acquire(
        strategy.policy,
        PixelSensor(x),
        budget,
        side=side,
        steps=strategy.steps,
        start=strategy.start,
        generator=generator,
    )


def known_side(x: Tensor, label: Tensor | None, levels: int) -> Side:
    """The side information of test images: their labels and their own 8 x 8 summaries."""
    return Side(label=label, summary=PixelSensor(x).summary(levels))


def judge(prior: Prior, x: Tensor, y: Tensor, mask: Tensor, side: Side, metrics: Sequence[str]) -> dict[str, float]:
    """Means over images of the metrics of one acquisition, all from one pass of the prior.

    Args:
        x: the true tokens, with shape `(B, C, H, W)`.
        y: what was observed, same shape.
        mask: True where measured, with shape `(B, K)`.
    """
    levels = torch.linspace(0, 1, prior.num_states)

    def everything(log_probs: Tensor) -> Tensor:
        mean = (log_probs.exp() * levels).sum(-1)
        return torch.stack([log_probs.argmax(-1) + 1.0, information.entropy(log_probs), mean])  # (3, b, C, H, W)

    read = prior.read(lambda log_probs: everything(log_probs).movedim(0, 1), y, side.label)  # (B, 3, C, H, W)
    x_hat, entropy, mean = read[:, 0].long(), read[:, 1], read[:, 2]
    values = {name: TOKEN_METRICS[name](x_hat, x, mask) for name in metrics if name in TOKEN_METRICS}
    values["entropy"] = entropy.mean(dim=(1, 2, 3))
    values["psnr"] = psnr(mean, dequantize(x, prior.num_states))
    return {name: values[name].nanmean().item() for name in metrics}


def score(
    prior: Prior, strategy: Strategy, x: Tensor, side: Side, budget: float, seed: int, metrics: Sequence[str]
) -> dict[str, float]:
    """Metrics and realised density (key "density") of one strategy at one budget with one seed."""
    taken = spend(strategy, x, side, budget, seed)
    density = {"density": taken.density.mean().item()}
    if strategy.reconstructor is None:
        return density | judge(prior, x, taken.observation, taken.mask, side, metrics)
    mean = strategy.reconstructor(taken.observation, taken.mask, side)
    x_hat = quantize(mean, prior.num_states)
    found = {name: TOKEN_METRICS[name](x_hat, x, taken.mask) for name in metrics if name in TOKEN_METRICS}
    found["psnr"] = psnr(mean, dequantize(x, prior.num_states))
    return density | {name: found[name].nanmean().item() if name in found else math.nan for name in metrics}


class _Block:
    """Some images and what is known about them; measured together, and found again by name in a journal."""

    def __init__(self, images: Images, start: int, side: Side | None) -> None:
        part = slice(start, start + BLOCK)
        self.start, (self.x, label) = start, images[part]
        self.side = known_side(self.x, label, images.num_states) if side is None else _cut(side, part)
        self.name = [images.name, images.split, start, len(self.x)]


def _cut(side: Side, part: slice) -> Side:
    def some(value: Tensor | None) -> Tensor | None:
        return None if value is None else value[part]

    return replace(side, label=some(side.label), summary=some(side.summary), scout=some(side.scout))


def evaluate(
    prior: Prior,
    images: Images,
    strategies: Iterable[Strategy],
    budgets: Sequence[float],
    seeds: Sequence[int],
    metrics: Sequence[str],
    paper: Callable[[str, int, float, str], float | None],
    progress: Progress,
    columns: dict[str, Any],
    side: Side | None = None,
) -> list[dict[str, Any]]:
    """Rows for every strategy, budget and metric; reconstruction by the prior's argmax.

    A strategy without randomness is run once and counts for every seed, with a spread of exactly 0.

    Args:
        seeds: of the probes and random masks.
        paper: the paper's value for (method, steps, budget, metric), or None.
        columns: further columns of every row.
        side: what is known beforehand; by default the images' own labels and summaries.
    """
    blocks = [_Block(images, start, side) for start in range(0, len(images), BLOCK)]
    runs = [(s, budget, seeds if s.random else seeds[:1]) for budget, s in product(budgets, strategies)]
    total = sum(s.passes * len(r) for s, _, r in runs) * len(images)
    bar = progress.add_task(f"{len(images)} images", total=total)
    rows = []
    for strategy, budget, used_seeds in runs:
        found, method, steps = [], strategy.method, strategy.steps
        weights = weights_of(prior, strategy.policy, strategy.reconstructor)
        for seed in used_seeds:
            progress.update(bar, description=f"{method} {steps} s={budget}")
            parts = []
            for block in blocks:
                key = [method, steps, budget, seed, *block.name, columns, weights]
                measure = partial(score, prior, strategy, block.x, block.side, budget, seed + block.start, metrics)
                parts.append((recall(key, ("density", *metrics), measure), len(block.x) / len(images)))
                progress.advance(bar, strategy.passes * len(block.x))
            found.append({name: sum(part[name] * share for part, share in parts) for name in ("density", *metrics)})
        density = sum(values["density"] for values in found) / len(found)
        for metric in metrics:
            per_seed = [values[metric] for values in found] * (1 if strategy.random else len(seeds))
            reference = paper(method, steps, budget, metric)
            rows.append(row(method, steps, budget, density, metric, per_seed, len(images), reference, **columns))
    progress.remove_task(bar)
    return rows


def plain_draw_rows(
    prior: Prior,
    generator: MaskGenerator,
    images: Images,
    budgets: Sequence[float],
    seeds: Sequence[int],
    metrics: Sequence[str],
    method: str,
    columns: dict[str, Any],
) -> list[dict[str, Any]]:
    """A generator without the exact budget: independent draws, with the density that they happen to have."""
    x, label = images[slice(None)]
    side = known_side(x, label, images.num_states)
    rows = []
    for budget in budgets:
        logits = generator.keep_logits(replace(side, budget=budget), len(x))
        found, density = [], 0.0
        for seed in seeds:
            mask = masks.bernoulli(logits, torch.Generator().manual_seed(seed))
            density += mask.float().mean().item() / len(seeds)
            found.append(judge(prior, x, observe(x, mask), mask, side, metrics))
        for metric in metrics:
            values = [value[metric] for value in found]
            rows.append(row(f"{method}-bernoulli", 1, budget, density, metric, values, len(images), None, **columns))
    return rows
