"""`mri-sequential`: Table mri-closed, and beyond the paper the value of a row with its one-step ceiling."""

from dataclasses import replace

import torch

from sensewise.evaluate.evaluate import published
from sensewise.evaluate.experiment import Experiment, Setup
from sensewise.evaluate.method import Method
from sensewise.evaluate.results import Arrays, Results
from sensewise.evaluate.task import Task, row_task
from sensewise.kspace import keep_rows, magnitude
from sensewise.paper.mri_masks import (
    BUDGETS,
    EXAMPLE_BUDGET,
    JUDGE,
    RULE,
    by_method,
    describe_data,
    difficulty,
    judge_of,
    under_judges,
)
from sensewise.paper.mri_models import MRIModels, heuristics, static_methods
from sensewise.policies.value import OneStepOracle
from sensewise.report import metrics
from sensewise.report.figures.rows import step_by_step
from sensewise.report.figures.style import SHEET_DPI
from sensewise.report.methods import info
from sensewise.report.section import Picture, Section

PAPER = published(
    BUDGETS,
    {
        ("acs-variable-density", 1, "nmse"): (0.02471, 0.01889, 0.01546, 0.00764),
        ("static-search", 1, "nmse"): (0.02389, 0.01860, 0.01523, 0.00751),
        ("sequential-entropy", 1, "nmse"): (0.03031, 0.02571, 0.02061, 0.00751),
        ("sequential-entropy", 4, "nmse"): (0.02670, 0.02254, 0.01916, 0.00941),
        ("sequential-entropy", 16, "nmse"): (0.02589, 0.01992, 0.01559, 0.00807),
        ("sequential-energy", 1, "nmse"): (0.03359, 0.02928, 0.02381, 0.01145),
        ("sequential-energy", 4, "nmse"): (0.02982, 0.02438, 0.01940, 0.01209),
        ("sequential-energy", 16, "nmse"): (0.02699, 0.02122, 0.01790, 0.00966),
    },
    JUDGE,
)
"""Table mri-closed, on fastMRI."""


IMAGINED_JUDGES = (JUDGE, "unet-a", "cs-wavelet")
IMAGINED = 64  # slices on which images are imagined, at the smallest budget: that takes seconds per slice
SCORES = {
    "sequential-entropy": "entropy of a row (nats)",
    "sequential-energy": "expected energy",
    "sequential-value": "value of a row",
}
"""What a method follows, on the axis of its figure."""


def run(setup: Setup) -> Results:
    """Every sequential variant on all held-out slices, then the oracle beside them on the first few."""
    models = MRIModels(setup.preset)
    budgets, judges = models.mri.budgets, models.judges()
    train, val = models.scenes()
    task = row_task(val, judges, models.mri.acs, slices="all")
    base = heuristics(("variable-density",)) + static_methods(models.static(("static-search",))) + models.nearest()[:1]
    by_profile, planned = models.by_profile(), models.planned()
    by_value = planned + models.by_value()
    rows = setup.evaluate(task, [*base, *by_profile, *by_value], budgets, PAPER)
    few = replace(task.first(models.mri.oracle_slices), columns={"slices": "oracle"}).judged_by((JUDGE, "unet-a"))
    rows += setup.evaluate(few, [*base, *by_value, _oracle(models, few)], budgets)
    imagined = replace(task.first(IMAGINED), columns={"slices": "samples"}).judged_by(IMAGINED_JUDGES)
    samples = models.by_samples(train.values)
    rows += setup.evaluate(imagined, [*base, *samples, _oracle(models, imagined)], budgets[:1])
    number = int(difficulty(task, setup.seeds[0])[(len(val) - 1) // 2])
    one = task.part(slice(number, number + 1))
    arrays: Arrays = {}
    for method in [*(m for m in by_profile if m.steps == 16), *(m for m in planned if m.steps == 4)]:
        arrays |= step_arrays(one, method, setup.seeds[0])
    return Results("mri-sequential", setup.preset, task.name, rows, models.weights, models.notes, arrays)


def _oracle(models: MRIModels, task: Task) -> Method:
    return Method("oracle-one-step", OneStepOracle(models.reconstructor("unet-a"), task.values), 16)


def step_arrays(task: Task, method: Method, seed: int) -> Arrays:
    """One slice step by step: `story/METHOD/scores`, `mask`, `reconstruction` and `target`."""
    kspace = task.values
    generator = torch.Generator().manual_seed(seed)
    taken = method.spend(
        task.sensor(kspace),
        EXAMPLE_BUDGET,
        side=task.side,
        start=task.start,
        generator=generator,
        keep_scores=True,
    )
    mask = torch.cat([taken.mask_after(r) for r in range(taken.steps + 1)])  # (R + 1, H)
    x, scale = magnitude(kspace), magnitude(kspace).max()
    drawn = judge_of(task)(keep_rows(kspace.expand(len(mask), -1, -1), mask), mask)
    place = f"story/{method.name}"
    return {
        f"{place}/target": (x[0] / scale).half().numpy(),
        f"{place}/scores": torch.cat(taken.scores).float().numpy(),
        f"{place}/mask": mask.numpy(),
        f"{place}/reconstruction": (drawn / scale).half().numpy(),
    }


def section(results: Results) -> Section:
    """Table mri-closed, the value of a row, the oracle, and Figure mri-sequential."""
    everywhere = metrics.pick(results.rows, slices="all")
    beside = metrics.pick(results.rows, slices="oracle", metric="nmse")
    gains = metrics.compared(beside, metrics.pick(beside, method="static-search"), "reconstructor")
    imagined = metrics.pick(results.rows, slices="samples")
    tables = [
        *under_judges(everywhere, (JUDGE, "cs-wavelet"), ", all held-out slices"),
        *under_judges(beside, (JUDGE, "unet-a"), ", beside the one-step oracle, on the slices that it was run on"),
        *by_method(
            metrics.pick(gains, reconstructor=JUDGE),
            "The same: NMSE under U-Net B lower than that of the static search by per cent",
            "nmse-gain",
        ),
        *under_judges(imagined, IMAGINED_JUDGES, f", rows by imagined images, the first {IMAGINED} slices"),
    ]
    figures = []
    for place in dict.fromkeys(key.rpartition("/")[0] for key in results.arrays if key.startswith("story/")):
        method = place.partition("/")[2]
        name = "mri-sequential.png" if method == "sequential-entropy" else f"mri-{method}.png"
        caption = (
            f"{info(method).label} on one slice at s = 0.25, from its start on: score of each row before a step "
            "(blue: measured), reconstruction after it."
        )
        start = "its static core" if method == "sequential-value" else "ACS alone"
        drawn = step_by_step(results.arrays, place, method, SCORES.get(method, "score of a row"), start)
        figures.append(Picture(name, drawn, caption, SHEET_DPI))
    paragraphs = [
        describe_data(results),
        RULE,
        "The oracle knows the truth: it is the ceiling of looking one step ahead with U-Net A, and does not compete.",
        "A method takes at most the number of steps that is given: fewer where the budget leaves fewer rows.",
        *results.notes,
    ]
    return Section("MRI, sequential rows", paragraphs, tables, figures, results)


EXPERIMENT = Experiment("mri-sequential", run, section)
