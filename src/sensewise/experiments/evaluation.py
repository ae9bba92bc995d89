"""Score acquisition strategies on images: the same images, probes and random masks for all, several seeds."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.progress import Progress
from torch import Tensor

from sensewise.acquire import Trajectory, acquire
from sensewise.data import Images
from sensewise.experiments.results import row
from sensewise.metrics import TOKEN_METRICS
from sensewise.policies import Greedy, Policy, Random, Start, VariableDensity, random_probe
from sensewise.priors import Prior
from sensewise.reconstruct import Argmax
from sensewise.sensors import PixelSensor, Side


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
    """

    method: str
    policy: Policy
    steps: int = 1
    start: Start | None = None
    random: bool = True
    passes: int = 1


def mnist_strategies(prior: Prior, extra_steps: Sequence[int] = ()) -> list[Strategy]:
    """Every strategy of Table closed, and variable density."""
    _, height, width = prior.shape
    greedy, probe = Greedy(prior), random_probe(height * width)
    return [
        Strategy("random", Random()),
        Strategy("variable-density", VariableDensity((height, width))),
        Strategy("probe-greedy", greedy, 1, probe, passes=2),
        Strategy("probe-greedy", greedy, 16, probe, passes=17),
        *(Strategy("label-greedy", greedy, r, random=False, passes=r + 1) for r in (4, 16, *extra_steps)),
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
) -> list[dict[str, Any]]:
    """Rows for every strategy, budget and metric; reconstruction by the prior's argmax.

    A strategy without randomness is run once and counts for every seed, with a spread of exactly 0.

    Args:
        seeds: of the probes and random masks.
        paper: the paper's value for (method, steps, budget, metric), or None.
        columns: further columns of every row.
    """
    x, label = images[slice(None)]
    side = Side(label=label)
    argmax = Argmax(prior)
    strategies = list(strategies)
    runs = [(s, budget, seeds if s.random else seeds[:1]) for budget in budgets for s in strategies]
    bar = progress.add_task(f"{len(images)} images", total=sum(s.passes * len(r) for s, _, r in runs))
    rows = []
    for strategy, budget, used_seeds in runs:
        values: dict[str, list[float]] = {metric: [] for metric in metrics}
        density = 0.0
        for seed in used_seeds:
            progress.update(bar, description=f"{strategy.method} {strategy.steps} s={budget}")
            taken = spend(strategy, x, side, budget, seed)
            x_hat = argmax(taken.observation, taken.mask, side)
            density = taken.density.mean().item()
            for metric in metrics:
                values[metric].append(TOKEN_METRICS[metric](x_hat, x, taken.mask).nanmean().item())
            progress.advance(bar, strategy.passes)
        for metric in metrics:
            per_seed = values[metric] * (1 if strategy.random else len(seeds))
            reference = paper(strategy.method, strategy.steps, budget, metric)
            rows.append(
                row(
                    strategy.method,
                    strategy.steps,
                    budget,
                    density,
                    metric,
                    per_seed,
                    len(images),
                    reference,
                    **columns,
                )
            )
    progress.remove_task(bar)
    return rows
