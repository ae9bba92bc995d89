"""Every method on every scene at every budget: the same scenes, starts and random masks for all, several seeds."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product

import torch
from rich.progress import Progress

from sensewise.evaluate.journal import Journal, Value, digest_of
from sensewise.evaluate.kept import Kept
from sensewise.evaluate.method import Contender
from sensewise.evaluate.rows import Row, summarise
from sensewise.evaluate.task import Task
from sensewise.loop import Trajectory

BLOCK = 2560  # scenes measured at once
Published = Mapping[tuple[str, int, float, str, str | None], float]
"""The paper's values by method, steps, budget, metric and reconstructor (None where a task has one judge)."""


def published(
    budgets: Sequence[float],
    table: Mapping[tuple[str, int, str], Sequence[float | None]],
    reconstructor: str | None = None,
) -> dict[tuple[str, int, float, str, str | None], float]:
    """The paper's values as `evaluate` takes them, from lines of a table.

    Args:
        table: (method, steps, metric) to one value per budget, None where the paper gives none.
    """
    return {
        (method, steps, budget, metric, reconstructor): value
        for (method, steps, metric), line in table.items()
        for budget, value in zip(budgets, line, strict=True)
        if value is not None
    }


def spend(task: Task, method: Contender, budget: float, seed: int) -> Trajectory:
    """One acquisition of all scenes of a task; the seed alone decides what is random."""
    generator = torch.Generator().manual_seed(seed)
    return method.spend(task.make_sensor(seed), budget, side=task.side, start=task.start, generator=generator)


def score(task: Task, method: Contender, budget: float, seed: int) -> Value:
    """The realised density, and the mean over scenes of every "JUDGE METRIC", of one acquisition."""
    begun = time.process_time()
    taken = spend(task, method, budget, seed)
    found = {"density": taken.density.mean().item()}
    for name, judge in task.judges.items():
        values = judge(taken.observation, taken.mask, task.side, task.values)
        found |= {f"{name} {metric}": per_scene.nanmean().item() for metric, per_scene in values.items()}
    if "seconds" in task.also:
        found["seconds"] = (time.process_time() - begun) / len(task.scenes)
    if "travel" in task.also:
        found["travel"] = taken.travel.mean().item()
    return found


def _used(task: Task, method: Contender, seeds: Sequence[int]) -> Sequence[int]:
    """The seeds that make a difference."""
    return seeds if task.noisy or method.is_random(task.start) else seeds[:1]


def measure(
    task: Task, method: Contender, budget: float, seeds: Sequence[int], journal: Journal | None = None
) -> list[Value] | None:
    """The scores of one method at one budget, one for each seed that makes a difference.

    Scenes are measured in blocks, each with random numbers of its own.

    Returns:
        As `score`, over all scenes; None where a measurement is another shard's.
    """
    journal = journal or Journal()
    used = _used(task, method, seeds)
    blocks = [task.part(slice(i, i + BLOCK)) for i in range(0, len(task.scenes), BLOCK)]
    whole = digest_of([task.describe(), method.describe()])
    found: list[Value | None] = []
    for seed in used:
        parts: list[tuple[Value | None, float]] = []
        for number, block in enumerate(blocks):
            first = number * BLOCK
            key = f"{method.name} {method.steps} s={budget:g} seed={seed} from={first} n={len(block.scenes)} {whole}"
            value = journal.recall(key, partial(score, block, method, budget, seed + first))
            parts.append((value, len(block.scenes) / len(task.scenes)))
        found.append(_over_blocks(parts))
    complete = [value for value in found if value is not None]
    return complete if len(complete) == len(found) else None


def _over_blocks(parts: Sequence[tuple[Value | None, float]]) -> Value | None:
    """Means weighted by the blocks' shares of the scenes; None where a block is missing."""
    known = [(value, share) for value, share in parts if value is not None]
    if len(known) < len(parts):
        return None
    return {name: sum(value[name] * share for value, share in known) for name in known[0][0]}


def evaluate(
    task: Task,
    methods: Sequence[Contender],
    budgets: Sequence[float],
    seeds: Sequence[int],
    *,
    journal: Journal | None = None,
    progress: Progress | None = None,
    paper: Published | None = None,
    kept: Kept | None = None,
) -> list[Row]:
    """Rows for every method, budget, judge and metric.

    A method without randomness is run once where readings have no noise, and its rows say so: one seed, a spread of 0.

    Args:
        seeds: of the starts, random masks and noise.
        journal: remembers measurements; what another shard has to measure has no rows.
        paper: the paper's values; they belong to methods without further columns.
        kept: rows of an earlier file, which are not measured again.
    """
    progress = progress or Progress(disable=True)
    bar = progress.add_task(task.name, total=len(budgets) * sum(method.steps + 1 for method in methods))
    rows: list[Row] = []
    for budget, method in product(budgets, methods):
        progress.update(bar, description=f"{task.name}: {method.name} {method.steps} s={budget:g}")
        known = {} if method.columns else paper or {}
        found = kept and kept(_rows(task, method, budget, [], known), len(_used(task, method, seeds)))
        if not found and (values := measure(task, method, budget, seeds, journal)) is not None:
            found = _rows(task, method, budget, values, known)
        rows += found or []
        progress.advance(bar, method.steps + 1)
    progress.remove_task(bar)
    return rows


def _rows(task: Task, method: Contender, budget: float, values: Sequence[Value], paper: Published) -> list[Row]:
    """Rows of the values of every seed; without values, rows that are only named."""
    density = sum(value["density"] for value in values) / max(1, len(values))
    rows = []
    for name, metrics in {**{name: judge.metrics for name, judge in task.judges.items()}, "": task.also}.items():
        reconstructor = name if name and len(task.judges) > 1 else None
        for metric in metrics:
            found = [value[f"{name} {metric}".strip()] for value in values]
            mean, sd = summarise(found) if found else (None, None)
            rows.append(
                Row(
                    dataset=task.name,
                    method=method.name,
                    steps=method.steps,
                    budget=budget,
                    density=round(density, 6),
                    metric=metric,
                    mean=mean,
                    sd=sd,
                    images=len(task.scenes),
                    seeds=len(values),
                    paper=paper.get((method.name, method.steps, budget, metric, reconstructor)),
                    reconstructor=reconstructor,
                    **task.columns,
                    **method.columns,
                )
            )
    return rows
