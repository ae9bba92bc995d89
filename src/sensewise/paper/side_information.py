"""`side-information`: Table side-info: what the designer gets from the summary, on MNIST and on CIFAR-10.

The same designer sees the target's own 8 x 8 summary, another test image's, or none (all zero). The label, where a
designer sees one, is always the image's own. Rows on CIFAR-10 say in `prior` which stage of the prior reconstructs;
there `one-shot` is the paper's designer, without a label, and `one-shot-variance` our extension.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from sensewise.errors import CheckpointError
from sensewise.evaluate.evaluate import Published, published
from sensewise.evaluate.experiment import Experiment, Setup
from sensewise.evaluate.method import Method
from sensewise.evaluate.results import Results
from sensewise.evaluate.rows import Row
from sensewise.evaluate.task import Task, pixel_task
from sensewise.networks.base import MaskNetwork
from sensewise.paper import cifar10_sequential, models, scenes
from sensewise.policies.one_shot import OneShot
from sensewise.policies.simple import Random
from sensewise.report import metrics
from sensewise.report.section import STAGES, Section
from sensewise.report.table import table
from sensewise.sensors.base import Side

BUDGETS = (0.1, 0.3, 0.5, 0.7)
MNIST_METRICS = ("errors", "exact", "foreground-recovery", "informative")
PHOTOGRAPHS = ("one-shot", "one-shot-variance")  # on CIFAR-10


def _own(summary: Tensor) -> Tensor:
    return summary


def _another(summary: Tensor) -> Tensor:
    """Each image the summary of the one before it: none keeps its own."""
    return summary.roll(1, 0)


SUMMARIES: dict[str, Callable[[Tensor], Tensor]] = {"own": _own, "another": _another, "none": torch.zeros_like}


def _values(table: Mapping[tuple[str, str], Sequence[float | None]], metric: str) -> dict[str, Published]:
    """The paper's values by kind of summary, from lines (method, kind)."""
    found: dict[str, Published] = {}
    for (method, kind), line in table.items():
        found[kind] = {**found.get(kind, {}), **published(BUDGETS, {(method, 1, metric): line})}
    return found


PAPER = {
    "mnist": _values(
        {
            ("one-shot", "own"): (23.0, 4.74, None, None),
            ("one-shot", "another"): (26.8, 5.22, None, None),
            ("one-shot", "none"): (26.4, 5.31, None, None),
            ("one-shot-topk", "own"): (27.6, None, None, None),
            ("one-shot-topk", "another"): (39.7, None, None, None),
            ("one-shot-topk", "none"): (42.1, None, None, None),
            ("random", "unused"): (46.7, 24.0, None, None),
        },
        "errors",
    ),
    "cifar10": _values(
        {
            ("one-shot", "own"): (20.45, 24.80, 28.01, None),
            ("one-shot", "another"): (20.12, 24.25, 27.40, None),
            ("one-shot", "none"): (19.89, 23.78, 26.42, None),
            ("random", "unused"): (20.14, 24.33, 27.47, None),
        },
        "psnr",
    ),
}
"""Table side-info and the text beside it, by data set and kind of summary."""


def measure(
    setup: Setup, task: Task, designers: Mapping[str, MaskNetwork], paper: Mapping[str, Published]
) -> list[Row]:
    """Rows for every designer, by method, and every kind of summary, and for random masks, which use none."""
    learned: list[Method] = []
    for name, designer in designers.items():
        learned.append(Method(name, OneShot(designer)))
        learned.append(Method(f"{name}-topk", OneShot(designer, sampled=False)))
    summary = task.side.summary
    assert summary is not None
    rows: list[Row] = []
    for name, change in SUMMARIES.items():
        side = Side(task.side.label, change(summary))
        changed = replace(task, side=side, columns={**task.columns, "summary": name})
        rows += setup.evaluate(changed, learned, BUDGETS, paper[name])
    unused = replace(task, columns={**task.columns, "summary": "unused"})
    return rows + setup.evaluate(unused, [Method("random", Random())], BUDGETS, paper["unused"])


def run(setup: Setup) -> Results:
    """2,560 test images of each data set."""
    notes: list[str] = []
    prior = models.prior(setup.preset, "mnist", engine=setup.engine)
    designer = models.designer(setup.preset, "mnist", prior)
    weights = models.fingerprints(prior=prior, generator=designer)
    task = pixel_task(scenes.digits(), prior, MNIST_METRICS)
    rows = measure(setup, task, {"one-shot": designer}, PAPER["mnist"])
    try:
        priors = models.priors(setup.preset, "cifar10", notes, setup.engine)
        designers = models.photograph_designers(setup.preset, list(priors.values())[-1], notes, PHOTOGRAPHS)
    except CheckpointError as error:
        notes.append(f"CIFAR-10 was left out: {error}")
        return Results("side-information", setup.preset, "mnist", rows, weights, notes)
    found = models.fingerprints(**priors, **designers)
    weights |= {f"cifar10-{name}": value for name, value in found.items()}
    images = scenes.photographs(notes)
    for stage, judge in priors.items():
        task = pixel_task(images, judge, cifar10_sequential.METRICS, prior=stage)
        rows += measure(setup, task, designers, PAPER["cifar10"])
    return Results("side-information", setup.preset, "mnist", rows, weights, notes)


SUMMARY_NAMES = {"own": "the target's own", "another": "another image's", "none": "none", "unused": "random masks"}
DRAWS = {
    "one-shot": "sampled masks",
    "one-shot-topk": "top-k masks",
    "one-shot-variance": "variance surrogate and label, sampled masks",
    "one-shot-variance-topk": "variance surrogate and label, top-k masks",
}


def _summary(row: Row) -> str:
    return SUMMARY_NAMES[row.summary or "unused"]


def section(results: Results) -> Section:
    """Table side-info, both data sets."""
    digits = metrics.pick(results.rows, dataset="mnist")
    photographs = metrics.pick(results.rows, dataset="cifar10")
    parts = [(digits, "MNIST, errors per image", "errors")]
    for stage, words in STAGES.items():
        part = metrics.pick(photographs, prior=stage)
        parts.append((part, f"CIFAR-10, PSNR in dB, prior trained on {words}", "psnr"))
    tables = []
    for rows, what, metric in parts:
        for method, how in DRAWS.items():
            part = metrics.pick(rows, method=(method, "random"))
            if metrics.pick(part, method=method):
                lines = list(SUMMARY_NAMES.values())
                tables.append(table(part, f"{what}, {how}", metric, line=_summary, lines=lines, corner="summary"))
    paragraphs = [
        "The same generator with the target's own summary, with another test image's, and with an all-zero one.",
        *results.notes,
    ]
    return Section("What the side information gives", paragraphs, tables, source=results)


EXPERIMENT = Experiment("side-information", run, section)
