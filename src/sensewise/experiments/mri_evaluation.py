"""Score row strategies on held-out slices: the same slices and seeds for all, every reconstructor, exact budgets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from rich.progress import Progress
from torch import Generator, Tensor

from sensewise.acquire import Trajectory, acquire
from sensewise.experiments.journal import recall, weights_of
from sensewise.experiments.results import row
from sensewise.metrics import SLICE_METRICS
from sensewise.mri.kspace import magnitude
from sensewise.mri.row_masks import Family, FixedRows, acs_start, count_rows
from sensewise.policies import Policy, Start
from sensewise.reconstruct import Reconstructor
from sensewise.sensors import KSpaceRowSensor, Side

Paper = Callable[[str, int, float, str, str], float | None]
"""The paper's value for (method, steps, budget, reconstructor, metric), or None."""


@dataclass(frozen=True)
class RowStrategy:
    """A named way to spend a budget of rows.

    Attributes:
        method: its name in results.
        policy: the policy at a budget, given the slices (only the oracle looks at them).
        steps: at most so many; fewer where the budget leaves fewer rows.
        start: the rows measured first at a budget; None for the ACS block.
        random: whether the seed changes anything.
        other_scout: show the policy another slice's scout, as a control.
        columns: further columns of its rows in the results.
    """

    method: str
    policy: Callable[[float], Policy]
    steps: int = 1
    start: Callable[[float], Start] | None = None
    random: bool = False
    other_scout: bool = False
    columns: dict[str, Any] = field(default_factory=dict)


def heuristics(names: Sequence[str] = ("random", "equispaced", "variable-density")) -> list[RowStrategy]:
    """The ACS block and a family of rows, redrawn for each slice and seed."""
    return [RowStrategy(f"acs-{name}", lambda _, name=name: Family(name), random=True) for name in names]  # type: ignore[misc]


def fixed(method: str, masks: dict[float, Tensor]) -> RowStrategy:
    """One static mask a budget."""
    return RowStrategy(method, lambda budget: FixedRows(masks[budget]))


def derangement(count: int, generator: Generator) -> Tensor:
    """Every slice another one's number, far away in file order, `(n,)`: neighbours may come from one patient."""
    low, high = max(1, count // 4), max(2, count - count // 4)
    shift = int(torch.randint(low, high, (), generator=generator))
    return torch.arange(count).roll(shift)


def spend(strategy: RowStrategy, kspace: Tensor, acs: int, budget: float, seed: int, **options: Any) -> Trajectory:
    """One acquisition of all slices; the seed alone decides what is random."""
    generator = torch.Generator().manual_seed(seed)
    sensor = KSpaceRowSensor(kspace)
    scout = sensor.scout(acs)
    if strategy.other_scout:
        scout = scout[derangement(len(kspace), generator)]
    start = acs_start(kspace.shape[1], acs) if strategy.start is None else strategy.start(budget)
    k = count_rows(budget, kspace.shape[1], acs)
    left = k - int(start(1, k, torch.Generator())[0].sum())
    steps = max(1, min(strategy.steps, left))
    policy = strategy.policy(budget)
    return acquire(policy, sensor, k, side=Side(scout=scout), steps=steps, start=start, generator=generator, **options)


def score_rows(
    strategy: RowStrategy,
    kspace: Tensor,
    x: Tensor,
    acs: int,
    budget: float,
    seed: int,
    judges: dict[str, Reconstructor],
) -> dict[str, float]:
    """Density and the mean over slices of every "JUDGE METRIC", for one strategy at one budget with one seed."""
    taken = spend(strategy, kspace, acs, budget, seed)
    found = {"density": taken.density.mean().item()}
    for judge, reconstruct in judges.items():
        x_hat = reconstruct(taken.observation, taken.mask, Side())
        for metric, measure in SLICE_METRICS.items():
            found[f"{judge} {metric}"] = measure(x_hat, x).mean().item()
    return found


def evaluate_rows(
    kspace: Tensor,
    acs: int,
    judges: dict[str, Reconstructor],
    strategies: Sequence[RowStrategy],
    budgets: Sequence[float],
    seeds: Sequence[int],
    paper: Paper,
    progress: Progress,
    **columns: Any,
) -> list[dict[str, Any]]:
    """Rows for every strategy, budget, reconstructor and metric.

    A strategy without randomness is run once and counts for every seed, with a spread of exactly 0. Masks are made
    before any judge is asked.
    """
    x = magnitude(kspace)
    runs = [
        (s, budget, list(seeds) if s.random or s.other_scout else [seeds[0]]) for budget in budgets for s in strategies
    ]
    bar = progress.add_task(f"{len(kspace)} slices", total=sum(len(used) for _, _, used in runs))
    rows = []
    scored = {f"{judge} {metric}": (judge, metric) for judge in judges for metric in SLICE_METRICS}
    slices = [len(kspace), kspace.abs().double().sum().item()]
    for strategy, budget, used in runs:
        values = []
        weights = weights_of(strategy.policy(budget), *judges.values())
        for seed in used:
            progress.update(bar, description=f"{strategy.method} {strategy.steps} s={budget:g}")
            more = {"scout": strategy.other_scout, **strategy.columns, **columns}
            key = [strategy.method, strategy.steps, budget, seed, slices, more, weights]
            measure = partial(score_rows, strategy, kspace, x, acs, budget, seed, judges)
            values.append(recall(key, ("density", *scored), measure))
            progress.advance(bar)
        density = values[-1]["density"]
        for name, (judge, metric) in scored.items():
            found = [value[name] for value in values]
            per_seed = found if len(found) > 1 else found * len(seeds)
            reference = None if strategy.other_scout else paper(strategy.method, strategy.steps, budget, judge, metric)
            more = {"reconstructor": judge, **strategy.columns, **columns}
            if strategy.other_scout:
                more["scout"] = "another slice's"
            rows.append(
                row(strategy.method, strategy.steps, budget, density, metric, per_seed, len(kspace), reference, **more)
            )
    progress.remove_task(bar)
    return add_margins(rows)


def add_margins(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each NMSE's distance below ACS + variable density, in standard deviations of its seeds: 2 and more is a win."""
    reference = {
        (r["budget"], r["reconstructor"]): r
        for r in rows
        if r["method"] == "acs-variable-density" and r["metric"] == "nmse"
    }
    for one in rows:
        base = reference.get((one["budget"], one["reconstructor"]))
        if one["metric"] == "nmse" and base is not None and base["sd"] and one is not base:
            one["margin_sd"] = round((base["mean"] - one["mean"]) / base["sd"], 2)
    return rows
