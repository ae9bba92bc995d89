"""`mnist-one-shot`: Table mnist-open, Figures pipeline, examples-mnist, divergence and metrics-vs-budget (MNIST parts).

The trained designer against random masks at four budgets, all nine metrics. Beside it the same designer drawn plainly
(off budget), its top-k masks, and the controls: the observed-pixel surrogate and the straight-through gradient.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from sensewise import information
from sensewise.data.scenes import Scenes
from sensewise.diffusion import AbsorbingProcess, crossing
from sensewise.errors import CheckpointError
from sensewise.estimators import antithetic_pair
from sensewise.evaluate.evaluate import published
from sensewise.evaluate.examples import example_arrays, small
from sensewise.evaluate.experiment import Experiment, Setup
from sensewise.evaluate.judges import TOKEN_METRICS
from sensewise.evaluate.method import Method, PlainDraw, pixel_methods
from sensewise.evaluate.record import record
from sensewise.evaluate.recording import read_recording
from sensewise.evaluate.results import Arrays, Results
from sensewise.evaluate.rows import Row
from sensewise.evaluate.task import pixel_task
from sensewise.networks.decoders import MaskDesigner
from sensewise.paper import models, scenes
from sensewise.policies.greedy import Greedy
from sensewise.policies.one_shot import OneShot
from sensewise.policies.simple import Random
from sensewise.priors.base import Prior
from sensewise.report import metrics
from sensewise.report.figures import one_shot
from sensewise.report.figures.style import SHEET_DPI
from sensewise.report.section import Picture, Section, examples_picture
from sensewise.report.table import method_and_budget, metric_head, table
from sensewise.tokens import observe, summary
from sensewise.train.designer import DesignerLoss

BUDGETS = (0.1, 0.3, 0.5, 0.7)
METRICS = tuple(name for name in TOKEN_METRICS if name not in ("nonblack-recovery", "psnr"))
"""The PSNR of digits says little: one digit without an error counts 100 dB."""
CONTROLS = ("observed", "observed-weak", "straight-through", "paper-decoder")
PAPER = published(
    BUDGETS,
    {
        ("one-shot", 1, "entropy-raw"): (0.0564, 0.0495, 0.0476, 0.0467),
        ("one-shot", 1, "accuracy"): (0.978, 0.995, 0.999, 1.000),
        ("one-shot", 1, "foreground-recovery"): (0.903, 0.978, 0.996, 1.000),
        ("one-shot", 1, "informative"): (0.41, 0.28, 0.19, 0.13),
        ("one-shot", 1, "hidden-foreground-accuracy"): (0.829, 0.813, 0.734, 0.578),
        ("one-shot", 1, "errors"): (23.0, 4.74, 0.68, 0.06),
        ("random", 1, "entropy-raw"): (0.0685, 0.0527, 0.0488, 0.0471),
        ("random", 1, "accuracy"): (0.954, 0.977, 0.986, 0.992),
        ("random", 1, "foreground-recovery"): (0.777, 0.894, 0.939, 0.968),
        ("random", 1, "informative"): (0.09, 0.09, 0.09, 0.09),
        ("random", 1, "hidden-foreground-accuracy"): (0.753, 0.849, 0.879, 0.893),
        ("random", 1, "errors"): (46.7, 24.0, 14.4, 7.88),
    },
)
"""Table mnist-open."""
PAPER_TIMESTEP = 935  # t(0.1), Section 4.1: the step before the survival passes s


def log_arrays(folder: Path) -> Arrays:
    """The validation log of a training run: `checkpoints/step` and one series per logged name, if there is a log."""
    path = folder / "log.jsonl"
    if not path.is_file():
        return {}
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    names = [name for name in entries[0] if all(name in entry for entry in entries)] if entries else []
    return {f"checkpoints/{name}": np.array([entry[name] for entry in entries]) for name in names}


@torch.inference_mode()
def pipeline_arrays(prior: Prior, designer: MaskDesigner, images: Scenes, budget: float) -> Arrays:
    """One digit through the designer, as in training: an antithetic pair of masks, and the prior's entropy at t(s)."""
    x, label = images[slice(0, 1)]
    first_look = summary(x, prior.num_states)
    logits = designer.keep_logits(first_look, label, torch.tensor([budget]))
    u = torch.rand(logits.shape, generator=torch.Generator().manual_seed(0))
    y = observe(x.expand(2, -1, -1, -1), torch.cat(antithetic_pair(logits, u)))
    t = AbsorbingProcess().timestep_for(budget)
    sites = prior(y, prior.check(y, None if label is None else label.expand(2)), t.expand(2)).entropy()
    return {
        "pipeline/target": small(x[0, 0]),
        "pipeline/summary": first_look[0, 0].numpy(),
        "pipeline/probs": torch.sigmoid(logits[0]).view(x.shape[2:]).numpy(),
        "pipeline/pair": small(y[:, 0]),
        "pipeline/pair-entropy": information.per_pixel(sites).view(2, *x.shape[2:]).numpy(),
        "pipeline/label": np.array(-1 if label is None else int(label)),
        "pipeline/budget": np.array(budget),
        "pipeline/t": t.numpy(),
        "pipeline/sparsity": np.array(DesignerLoss().sparsity),
    }


def measure(setup: Setup, prior: Prior, designers: Mapping[str, MaskDesigner], images: Scenes) -> Results:
    """Rows and arrays for the given images; `designers` by method, "one-shot" and the controls."""
    ours, task, seed = designers["one-shot"], pixel_task(images, prior, METRICS), setup.seeds[0]
    random = Method("random", Random())
    learned = [Method(name, OneShot(designer)) for name, designer in designers.items()]
    best = Method("one-shot-topk", OneShot(ours, sampled=False))
    rows = setup.evaluate(task, [random, *learned, best], BUDGETS, PAPER)
    for name, designer in designers.items():
        rows += setup.evaluate(task, [PlainDraw(f"{name}-bernoulli", designer)], BUDGETS)
    shown = [random, learned[0], Method("label-greedy", Greedy(prior), 16)]
    arrays: Arrays = {}
    for budget in (0.1, 0.3):
        arrays |= example_arrays(task, shown, budget, seed, f"example-{budget:g}")
    arrays |= example_arrays(task, [random, *learned], 0.1, seed, "example-controls")
    arrays |= pipeline_arrays(prior, ours, images, 0.1)
    arrays |= record(prior, pixel_methods(prior, 16)["greedy"], *images[slice(0, 1)], 0.1).store()
    weights = models.fingerprints(prior=prior, **designers)
    return Results("mnist-one-shot", setup.preset, images.name, rows, weights, arrays=arrays)


def timestep_rows(images: Scenes) -> list[Row]:
    """When the survival is s: measured as the paper does it, 20 batches at every tenth step, and in closed form."""
    process = AbsorbingProcess()
    batches = list(torch.split(images.values.long(), 128))
    curves = {
        "survival-monte-carlo": process.survival_monte_carlo(batches, torch.Generator().manual_seed(0)),
        "survival-closed-form": process.survival_curve,
    }
    return [
        Row(
            dataset=images.name,
            method=method,
            steps=1,
            budget=budget,
            density=budget,
            metric="timestep",
            mean=round(crossing(curve, budget), 2),
            sd=0.0,
            images=len(images),
            seeds=1,
            paper=PAPER_TIMESTEP if (method, budget) == ("survival-monte-carlo", 0.1) else None,
        )
        for method, curve in curves.items()
        for budget in BUDGETS
    ]


def run(setup: Setup) -> Results:
    """2,560 test digits."""
    prior, notes = models.prior(setup.preset, "mnist", engine=setup.engine), list[str]()
    designers = {"one-shot": models.designer(setup.preset, "mnist", prior)}
    for name in CONTROLS:
        try:
            designers[f"one-shot-{name}"] = models.designer(setup.preset, "mnist", prior, name)
        except CheckpointError as error:
            notes.append(f"The control {name} was left out: {error}")
    digits = scenes.digits()
    results = measure(setup, prior, designers, digits).adding(rows=timestep_rows(digits))
    log = log_arrays(models.designer_folder(setup.preset, "mnist"))
    return results.adding(notes=notes, arrays=log)


def section(results: Results) -> Section:
    """Table mnist-open, Figures pipeline, examples-mnist, divergence and metrics-vs-budget."""
    rows, arrays = results.rows, results.arrays
    main = metrics.pick(rows, method=("one-shot", "random"))
    errors = metrics.pick(rows, metric="errors")
    learned = metrics.pick(errors, method=("one-shot", "one-shot-topk"))
    ratios = metrics.compared(learned, metrics.pick(errors, method="random"))
    every = dict.fromkeys(row.metric for row in main)
    ordered = [row for name in metrics.METRICS if name in every for row in metrics.pick(main, metric=name)]
    by_budget = sorted(main, key=lambda row: row.budget)
    lines = list(dict.fromkeys(map(method_and_budget, by_budget)))
    tables = [
        table(
            ordered,
            "All nine metrics, learned and random",
            line=method_and_budget,
            column=metric_head,
            lines=lines,
            mark_best=False,
        ),
        table(rows, "Errors per image, every way to train and to draw", "errors"),
        table(ratios, "How many times fewer errors than random masks", "errors-ratio", mark_best=False),
        table(metrics.densities(errors), "Density of the masks: a plain draw is not on budget", "density"),
    ]
    if timesteps := metrics.pick(rows, metric="timestep"):
        tables.append(table(timesteps, "The timestep t(s) of a budget, of T = 1000", "timestep", mark_best=False))
    paragraphs = [
        "The generator chooses the whole mask from an 8 x 8 summary, the label and the budget, before anything is "
        "measured. Masks are drawn on budget; mean ± standard deviation over the seeds. The paper's entropy counts "
        "observed pixels as its network predicts them (“raw”); in the other column they are certain. "
        "Accuracy on hidden pixels is biased against a mask that measures what is hard.",
        *results.notes,
    ]
    figures = [
        Picture(
            "pipeline.png",
            one_shot.pipeline(arrays, read_recording(results.arrays)),
            "The two uses of the prior on one test digit at s = 0.1, real outputs. (a) The one-shot generator: an "
            "antithetic pair of masks, the prior's entropies at t(s), loss and budget penalty of each. (b) Sequential "
            "acquisition with the same prior.",
            SHEET_DPI,
        ),
        examples_picture("one-shot-examples-0.1.png", results, 2, "example-0.1"),
        examples_picture("one-shot-examples-0.3.png", results, 2, "example-0.3"),
        examples_picture(
            "one-shot-controls.png", results, 2, "example-controls", "The same generator trained in other ways,"
        ),
    ]
    return Section("MNIST, one-shot masks", paragraphs, tables, figures, results)


EXPERIMENT = Experiment("mnist-one-shot", run, section)
