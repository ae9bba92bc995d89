"""`cifar10-one-shot`: Table cifar-open of the paper: the trained designer against random masks at four budgets.

`one-shot` is the paper's: no label, its decoder, the mean raw entropy. Our extensions see the label and decide on every
pixel: `one-shot-variance` minimises the variance, `one-shot-entropy` the entropy. Beside them top-k masks and the plain
draw of each: off the budget, it only seems to gain. The main rows are repeated with the prior before its on-policy
stage.
"""

from collections.abc import Mapping

from sensewise.data.cifar10 import NUM_STATES
from sensewise.data.scenes import Scenes
from sensewise.evaluate.evaluate import published
from sensewise.evaluate.examples import example_arrays
from sensewise.evaluate.experiment import Experiment, Setup
from sensewise.evaluate.method import Method, PlainDraw, spread_variance
from sensewise.evaluate.results import Arrays, Results
from sensewise.evaluate.rows import Row
from sensewise.evaluate.task import pixel_task
from sensewise.networks.decoders import MaskDesigner
from sensewise.paper import cifar10_sequential, models, scenes
from sensewise.paper.cifar10_sequential import BUDGETS
from sensewise.paper.mnist_one_shot import log_arrays
from sensewise.policies.one_shot import OneShot
from sensewise.policies.simple import Random
from sensewise.priors.base import Prior
from sensewise.report import metrics
from sensewise.report.section import STAGES, Section, examples_picture, last_stage
from sensewise.report.table import method_and_budget, metric_head, table

METRICS = (*cifar10_sequential.METRICS, "entropy-raw")
PAPER = published(
    BUDGETS,
    {
        ("one-shot", 1, "entropy-raw"): (0.790, 0.420, 0.236, 0.116),
        ("one-shot", 1, "accuracy"): (0.675, 0.824, 0.901, 0.951),
        ("one-shot", 1, "nonblack-recovery"): (0.676, 0.824, 0.901, 0.951),
        ("one-shot", 1, "psnr"): (20.45, 24.80, 28.01, 31.54),
        ("random", 1, "entropy-raw"): (0.786, 0.435, 0.250, 0.126),
        ("random", 1, "accuracy"): (0.670, 0.816, 0.894, 0.946),
        ("random", 1, "nonblack-recovery"): (0.670, 0.815, 0.893, 0.946),
        ("random", 1, "psnr"): (20.14, 24.33, 27.47, 30.87),
    },
)
"""Table cifar-open."""


def measure(
    setup: Setup, priors: Mapping[str, Prior], designers: Mapping[str, MaskDesigner], images: Scenes
) -> Results:
    """Rows for the given images, and example masks of the last prior.

    Args:
        priors: those that reconstruct, by stage; all designers were trained against the last one.
        designers: by method.
    """
    random = Method("random", Random())
    learned = [Method(name, OneShot(designer)) for name, designer in designers.items()]
    best = [Method(f"{name}-topk", OneShot(designer, sampled=False)) for name, designer in designers.items()]
    rows: list[Row] = []
    *before, (stage, prior) = priors.items()
    for earlier, judge in before:
        rows += setup.evaluate(pixel_task(images, judge, METRICS, prior=earlier), [random, *learned], BUDGETS, PAPER)
    task = pixel_task(images, prior, METRICS, prior=stage)
    rows += setup.evaluate(task, [random, *learned, *best], BUDGETS, PAPER)
    for name, drawn in designers.items():
        rows += setup.evaluate(task, [PlainDraw(f"{name}-bernoulli", drawn)], BUDGETS)
    shown = [random, *learned, spread_variance("spread-variance-greedy", prior, 16)]
    arrays: Arrays = {}
    for budget in (0.1, 0.3):
        arrays |= example_arrays(task, shown, budget, setup.seeds[0], f"example-{budget:g}")
    weights = models.fingerprints(**priors, **designers)
    return Results("cifar10-one-shot", setup.preset, images.name, rows, weights, arrays=arrays)


def run(setup: Setup) -> Results:
    """2,560 test images."""
    preset, notes = setup.preset, list[str]()
    priors = models.priors(preset, "cifar10", notes, setup.engine)
    designers = models.photograph_designers(preset, list(priors.values())[-1], notes)
    results = measure(setup, priors, designers, scenes.photographs(notes))
    first = models.PHOTOGRAPH_DESIGNERS[next(iter(designers))]
    return results.adding(notes=notes, arrays=log_arrays(models.designer_folder(preset, "cifar10", first)))


def section(results: Results) -> Section:
    """Table cifar-open."""
    rows = last_stage(results.rows)
    main = sorted(metrics.pick(rows, method=("one-shot", "one-shot-variance", "random")), key=lambda row: row.budget)
    psnr = metrics.pick(rows, metric="psnr")
    gains = metrics.compared(psnr, metrics.pick(psnr, method="random"))
    tables = [
        table(main, "Learned and random masks", line=method_and_budget, column=metric_head, mark_best=False),
        table(psnr, "PSNR in dB of every way to draw a mask", "psnr"),
        table(gains, "PSNR above random masks in dB", "psnr-gain"),
        table(metrics.densities(psnr), "Density of the masks: a plain draw is not on budget", "density"),
    ]
    earlier = metrics.pick(results.rows, prior="random-masks", metric="psnr")
    if earlier and earlier[0] not in rows:
        tables.append(table(earlier, f"PSNR in dB, prior trained on {STAGES['random-masks']}", "psnr"))
    paragraphs = [
        "“one-shot” is the paper's generator: it chooses the whole mask from an 8 x 8 grey summary and the budget, and "
        "is trained on the entropy. Our extensions see the label as well and decide on every pixel; “variance” is "
        "trained on the variance of the intensities. Masks are drawn on budget; mean ± standard deviation over the "
        "seeds. In the paper a plain draw at s = 0.1 has a density of 0.187 and is 2.6 dB above random masks. “raw” "
        "counts observed pixels as the network predicts them, as the paper does.",
        *results.notes,
    ]
    figures = [
        examples_picture(f"cifar10-one-shot-examples-{s}.png", results, NUM_STATES, f"example-{s}")
        for s in ("0.1", "0.3")
    ]
    return Section("CIFAR-10, one-shot masks", paragraphs, tables, figures, results)


EXPERIMENT = Experiment("cifar10-one-shot", run, section)
