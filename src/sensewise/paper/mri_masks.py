"""`mri-masks`: Tables recon-gain and mri-main, and the figures of every row mask under every reconstructor."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from sensewise.evaluate.evaluate import Published, published, spend
from sensewise.evaluate.experiment import Experiment, Setup
from sensewise.evaluate.judges import MagnitudeJudge
from sensewise.evaluate.method import Method
from sensewise.evaluate.results import Arrays, Results
from sensewise.evaluate.rows import Row
from sensewise.evaluate.task import Task, row_task
from sensewise.kspace import magnitude
from sensewise.metrics import nmse
from sensewise.paper.mri_models import Masks, MRIModels, heuristics, static_methods
from sensewise.reconstruct.base import Reconstructor
from sensewise.reconstruct.zero_filled import ZeroFilled
from sensewise.report import metrics
from sensewise.report.figures import curves
from sensewise.report.figures.rows import MAIN_ROWS, rows_by_budget, slice_examples
from sensewise.report.figures.style import SHEET_DPI
from sensewise.report.metrics import REFERENCE
from sensewise.report.section import Picture, Section
from sensewise.report.table import Table, table

EXAMPLE_BUDGET = 0.25
BUDGETS = (0.25, 0.40, 0.50, 0.75)
JUDGE = "unet-b"
JUDGES = {
    JUDGE: "the judge, U-Net B",
    "cs-wavelet": "compressed sensing, which nothing was trained for",
    "zero-filled": "zero filling",
    "unet-a": "U-Net A, which masks are optimised against",
}
"""Reconstructors in the order of the tables, and what captions call them."""
_GAIN = {  # Table recon-gain: zero-filled and U-Net B at s = 0.25
    ("acs-equispaced", 1): (0.03820, 0.02623),
    ("acs-random", 1): (0.03819, 0.02696),
    ("static-search", 1): (0.03283, 0.02389),
    ("acs-variable-density", 1): (0.03382, 0.02474),
    ("learned-static", 1): (0.03431, 0.02887),
    ("learned-adaptive", 1): (0.03337, 0.02840),
    ("energy-oracle", 1): (0.03147, 0.02715),
}
_MAIN = {  # Table mri-main: U-Net B
    ("static-search", 1, "nmse"): (0.02389, 0.01860, 0.01523, 0.00751),
    ("acs-variable-density", 1, "nmse"): (0.02471, 0.01889, 0.01546, 0.00764),
    ("loupe", 1, "nmse"): (0.02759, 0.02213, 0.01995, 0.00966),
    ("sequential-entropy", 16, "nmse"): (0.02589, 0.01992, 0.01559, 0.00807),
}
_ZERO_FILLED = {(method, steps, "nmse"): [value] for (method, steps), (value, _) in _GAIN.items()}
_UNET_B = {(method, steps, "nmse"): [value] for (method, steps), (_, value) in _GAIN.items()}
PAPER = {
    **published((0.25,), _ZERO_FILLED, "zero-filled"),
    **published((0.25,), _UNET_B, JUDGE),
    **published(BUDGETS, _MAIN, JUDGE),
}
"""On fastMRI; where both tables have a value, that of mri-main."""


def judge_of(task: Task) -> Reconstructor:
    """U-Net B, which no mask was made with."""
    judge = task.judges[JUDGE]
    assert isinstance(judge, MagnitudeJudge)
    return judge.reconstruct


def run(setup: Setup) -> Results:
    """Every mask at every budget on the held-out slices, and two slices to look at."""
    models = MRIModels(setup.preset)
    judges = models.judges()
    train, val = models.scenes()
    masks = models.energy_oracle(train.values) | models.static()
    learned = models.one_shot() + models.nearest() + models.by_profile((16,)) + models.planned((1,))[:1]
    results = measure(setup, "mri-masks", models, row_task(val, judges, models.mri.acs), masks, learned, PAPER)
    return results.adding(rows=models.how_masks_were_made(masks, train))


def measure(
    setup: Setup,
    name: str,
    models: MRIModels,
    task: Task,
    masks: Masks,
    learned: Sequence[Method],
    paper: Published | None = None,
) -> Results:
    """Heuristics, static masks and learned methods on some slices, with everything that the figures show."""
    controls = [method for method in learned if "scout" in method.columns]
    others = [method for method in learned if "scout" not in method.columns]
    methods = [*heuristics(), *static_methods(masks), *others]
    seed, budgets = setup.seeds[0], models.mri.budgets
    rows = setup.evaluate(task, methods, budgets, paper)
    rows += setup.evaluate(task.judged_by(set(task.judges) - {"cs-wavelet"}), controls, budgets)
    arrays: Arrays = {
        f"rows/{method}/{budget:g}": mask.numpy() for method, found in masks.items() for budget, mask in found.items()
    }
    (density,) = heuristics(("variable-density",))
    for budget in budgets:
        arrays[f"rows/{density.name}/{budget:g}"] = spend(task.first(1), density, budget, seed).mask[0].numpy()
    arrays |= slice_arrays(task, methods, seed)
    return Results(name, setup.preset, task.name, rows, models.weights, models.notes, arrays)


def difficulty(task: Task, seed: int) -> Tensor:
    """Slices from easy to hard for ACS + variable density at s = 0.25, `(n,)`."""
    (density,) = heuristics(("variable-density",))
    taken = spend(task, density, EXAMPLE_BUDGET, seed)
    return nmse(judge_of(task)(taken.observation, taken.mask), magnitude(task.values)).argsort()


def slice_arrays(task: Task, methods: Sequence[Method], seed: int) -> Arrays:
    """Reconstructions by the judge of a slice of median difficulty and one of the 75th percentile, at s = 0.25."""
    order, judge = difficulty(task, seed), judge_of(task)
    arrays: Arrays = {}
    for name, place in (("median", 0.5), ("p75", 0.75)):
        number = int(order[int(place * (len(order) - 1))])
        one = task.part(slice(number, number + 1))
        x = magnitude(one.values)
        arrays[f"example/{name}/target"] = _small(x / x.max())
        for method in methods:
            taken = spend(one, method, EXAMPLE_BUDGET, seed)
            drawn = judge(taken.observation, taken.mask)
            arrays[f"example/{name}/{method.name}"] = _small(drawn / x.max())
            if method.name == "acs-variable-density":
                zero_filled = ZeroFilled()(taken.observation, taken.mask)
                arrays[f"example/{name}/zero-filled"] = _small(zero_filled / x.max())
    return arrays


def _small(image: Tensor) -> np.ndarray:
    return image[0].to(torch.float16).numpy()


RULE = (
    "Bold: the lowest NMSE of a budget, and whatever is within two standard deviations of it, measured by the seed "
    "spread of ACS + variable density."
)
EXAMPLE = (
    "A held-out slice of {} difficulty at s = 0.25, reconstructed by the judge, with a detail and the absolute error "
    "(dark blue: a quarter of the 99.5th-percentile intensity)."
)
DRAWN = (
    REFERENCE,
    "static-search",
    "loupe",
    "relaxed-profile",
    "energy-oracle",
    "sequential-entropy",
    "sequential-value",
)
"""Lines of Figures mri-judge, mri-cs and mri-zf."""
BANDS = (
    "Bands: two standard deviations over seeds. Squares: the paper's gains, on fastMRI. Methods far below the others "
    "are cut, with a note."
)
MADE = {
    "accepted-swaps": "Swaps that the static search accepted",
    "start-share": "Share of the static search's gain on redrawn variable density that its start has (U-Net A)",
    "from-start": "LOUPE's rows beside the ACS block that were in its random first mask",
}
OF_ROWS = {
    "entropy": "Entropy that the coarse prior has left, nats per row: beside NMSE, what the surrogate is worth",
    "mirrored-pairs": "Mirrored pairs of rows beside the ACS block",
    "different-masks": "Different masks among the slices: 1 is a static mask",
}
CURVES = (
    (
        "judge",
        JUDGE,
        ("sequential-entropy",),
        f"The main masks under the judge; below, gains on ACS + variable density. {BANDS} All are in the tables.",
    ),
    ("cs", "cs-wavelet", ("sequential-entropy",), f"The same masks under compressed sensing. {BANDS}"),
    ("zf", "zero-filled", ("sequential-entropy",), f"The same masks under zero filling. {BANDS}"),
)
"""Figures of quality against the budget: name, reconstructor, methods that may be cut, caption."""
QUALITY = ("nmse", "psnr", "ssim", "nmse-gain", "psnr-gain", "ssim-gain")


def describe_data(results: Results) -> str:
    """What was measured, and that the paper's numbers are of other data."""
    count = max(row.images for row in results.rows)
    text = f"Data: {results.dataset}, {count} held-out slices; the paper's numbers are on fastMRI."
    if results.dataset == "fastmri":
        return text
    return f"{text} k-space of {results.dataset} is simulated from magnitudes."


def _quality(results: Results, reconstructor: str, aside: Sequence[str]) -> Figure:
    """Quality above, gains on ACS + variable density below; of some methods, the others stand in the tables."""
    rows = metrics.pick(results.rows, reconstructor=reconstructor, scout=None, method=DRAWN)
    gains = metrics.compared(rows, metrics.pick(rows, method=REFERENCE), with_spread=True)
    ours = [replace(row, paper=None) for row in rows]  # the paper's are of other data: only gains can be compared
    return curves.against_budget([*ours, *gains], QUALITY, columns=3, aside=aside)


def by_method(rows: Sequence[Row], caption: str, metric: str = "nmse", *, mark_best: bool = True) -> list[Table]:
    """One metric of some rows, a line per method; no table where nothing of it was measured."""
    shown = metrics.pick(rows, metric=metric)
    return [table(shown, caption, metric, mark_best=mark_best, corner="method")] if shown else []


def under_judges(rows: Sequence[Row], judges: Sequence[str] = tuple(JUDGES), where: str = "") -> list[Table]:
    """NMSE of some rows under one reconstructor after another; `where` says on which slices."""
    found = (by_method(metrics.pick(rows, reconstructor=name), f"NMSE under {JUDGES[name]}{where}") for name in judges)
    return [made for tables in found for made in tables]


def section(results: Results) -> Section:
    """Tables recon-gain and mri-main; Figures mri-rows, mri-examples, mri-judge, mri-cs, mri-zf, and larger ones."""
    rows, arrays = results.rows, results.arrays
    judged = metrics.pick(rows, reconstructor=JUDGE)
    before = metrics.pick(rows, reconstructor="zero-filled", metric="nmse")
    gains = metrics.compared(metrics.pick(judged, metric="nmse"), before, "method", "steps", "form", "scout")
    on_rows = metrics.pick(rows, reconstructor=("rows", "row-prior"))
    tables = [
        *under_judges(rows),
        *by_method(gains, "Gain from zero filling to U-Net B: NMSE lower by per cent", "nmse-gain", mark_best=False),
        *by_method(judged, "PSNR under U-Net B, dB", "psnr"),
        *by_method(judged, "SSIM x 100 under U-Net B", "ssim"),
        *(made for metric, title in OF_ROWS.items() for made in by_method(on_rows, title, metric)),
        *(
            made
            for metric, title in MADE.items()
            for made in by_method(metrics.pick(rows, split="train"), title, metric)
        ),
    ]
    known = {row.reconstructor for row in rows}
    figures = [
        Picture("mri-rows.png", rows_by_budget(arrays, MAIN_ROWS), "Rows sampled by each mask."),
        Picture("mri-examples.png", slice_examples(arrays, "median"), EXAMPLE.format("median"), SHEET_DPI),
        *(
            Picture(f"mri-{name}.png", _quality(results, judge, aside), caption)
            for name, judge, aside, caption in CURVES
            if judge in known
        ),
        Picture("mri-rows-all.png", rows_by_budget(arrays), "Rows sampled by every static mask."),
        Picture("mri-examples-p75.png", slice_examples(arrays, "p75"), EXAMPLE.format("75th-percentile"), SHEET_DPI),
    ]
    paragraphs = [describe_data(results), RULE, *results.notes]
    return Section("MRI, masks of k-space rows", paragraphs, tables, figures, results)


EXPERIMENT = Experiment("mri-masks", run, section)
