"""`cifar10-sequential`: Section 6 and Appendix C of the paper on CIFAR-10, for both stages of the prior.

A class label says little about where a photograph is uncertain, so entropy from the label alone is compared with
variance (levels are ordered): alone, after a probe, with the pixels of a step spread out, and with a prior that is
asked about the mirror image too. Hidden pixels are reconstructed at the posterior mean.
"""

from collections.abc import Mapping
from dataclasses import replace

from sensewise import predictions
from sensewise.data.cifar10 import NUM_STATES
from sensewise.data.scenes import Scenes
from sensewise.evaluate.evaluate import published
from sensewise.evaluate.examples import example_arrays
from sensewise.evaluate.experiment import Experiment, Setup
from sensewise.evaluate.method import Method, amortised, spread_variance
from sensewise.evaluate.results import Arrays, Results
from sensewise.evaluate.rows import Row
from sensewise.evaluate.task import pixel_task
from sensewise.paper import models, scenes
from sensewise.paper.mnist_sequential import FEW, FEW_SPLIT, SAMPLED, sampled
from sensewise.policies.choose import JOINT_VARIANCE
from sensewise.policies.greedy import Greedy
from sensewise.policies.simple import Random, VariableDensity
from sensewise.policies.starts import GridProbe, RandomProbe
from sensewise.priors.base import Prior
from sensewise.priors.mirrored import MirroredPrior
from sensewise.report import metrics
from sensewise.report.figures import curves
from sensewise.report.section import STAGES, Picture, Section, examples_picture
from sensewise.report.table import Table, table

BUDGETS = (0.1, 0.3, 0.5, 0.7)
SAMPLED_BUDGETS = (0.1, 0.3)
METRICS = ("psnr", "accuracy", "nonblack-recovery", "entropy")
STEPS = (4, 16)
DRAWN = (
    ("random", 1),
    ("label-greedy", 16),
    ("variance-greedy", 16),
    ("probe-greedy", 16),
    ("grid-variance-greedy", 16),
    ("spread-variance-greedy", 16),
)
"""Lines of the figure; the others stand in the tables."""
COMPARED = ("random", "label-greedy", "variance-greedy", "spread-variance-greedy")  # between the two stages
PAPER = published(
    BUDGETS,
    {
        ("random", 1, "psnr"): (20.14, 24.33, 27.47, 30.87),
        ("label-greedy", 16, "psnr"): (20.0, 24.4, None, None),
        ("probe-greedy", 16, "psnr"): (21.1, 26.4, None, None),
        ("grid-variance-greedy", 16, "psnr"): (21.6, 26.8, 30.9, None),
    },
)
"""As the text gives them; its sequential numbers stand beside the jittered-grid probe."""


def methods(prior: Prior) -> list[Method]:
    """Every method of the section; `probe-greedy` and `joint-greedy` follow the variance here."""
    entropy, variance = Greedy(prior), Greedy(prior, predictions.variance)
    found = [Method("random", Random()), Method("variable-density", VariableDensity())]
    for steps in STEPS:
        found += [
            Method("label-greedy", entropy, steps),
            Method("variance-greedy", variance, steps),
            Method("probe-greedy", variance, steps, start=RandomProbe()),
            Method("grid-variance-greedy", variance, steps, start=GridProbe()),
            spread_variance("spread-variance-greedy", prior, steps),
            Method("joint-greedy", Greedy(prior, predictions.variance, reach=0.6), steps, choose=JOINT_VARIANCE),
        ]
    return found


def in_one_or_sixteen(prior: Prior) -> list[Method]:
    """Those in 16 steps, and those that need one."""
    return [method for method in methods(prior) if method.steps in (1, 16)]


def measure(setup: Setup, priors: Mapping[str, Prior], images: Scenes, guide: Prior | None = None) -> Results:
    """Rows for the given images: all methods with the last prior, the main ones with those before; example masks.

    Args:
        guide: a small prior that decides for the last one, if there is one.
    """
    rows: list[Row] = []
    *before, (stage, prior) = priors.items()
    for earlier, judge in before:
        compared = [method for method in in_one_or_sixteen(judge) if method.name in COMPARED]
        rows += setup.evaluate(pixel_task(images, judge, METRICS, prior=earlier), compared, BUDGETS, PAPER)
    task = pixel_task(images, prior, METRICS, prior=stage)
    guided = [] if guide is None else [amortised(prior, guide, 16)]
    rows += setup.evaluate(task, [*methods(prior), *guided], BUDGETS, PAPER)
    few = pixel_task(images.first(FEW), prior, METRICS, prior=stage, split=FEW_SPLIT)
    rows += replace(setup, seeds=setup.seeds[:1]).evaluate(few, sampled(prior), SAMPLED_BUDGETS)
    twice = MirroredPrior(prior)
    mirrored = [Method("mirrored-random", Random()), spread_variance("mirrored-variance-greedy", twice, 16)]
    rows += setup.evaluate(pixel_task(images, twice, METRICS, prior=stage), mirrored, BUDGETS, PAPER)
    arrays: Arrays = {}
    for budget in (0.1, 0.3):
        arrays |= example_arrays(task, in_one_or_sixteen(prior), budget, setup.seeds[0], f"example-{budget:g}")
    weights = models.fingerprints(**priors, **({} if guide is None else {"guide": guide}))
    return Results("cifar10-sequential", setup.preset, images.name, rows, weights, arrays=arrays)


def run(setup: Setup) -> Results:
    """2,560 test images."""
    notes: list[str] = []
    images = scenes.photographs(notes)
    guide = models.small_priors(setup.preset, "cifar10", notes, engine=setup.engine).get("guide")
    priors = models.priors(setup.preset, "cifar10", notes, setup.engine)
    return measure(setup, priors, images, guide).adding(notes=notes)


def section(results: Results) -> Section:
    """Section 6 and Appendix C on CIFAR-10."""
    tables: list[Table] = []
    figures: list[Picture] = []
    for stage, words in STAGES.items():
        psnr = metrics.pick(results.rows, metric="psnr", prior=stage, split=None)
        if not psnr:
            continue
        gains = metrics.compared(psnr, metrics.pick(psnr, method="random"))
        caption = f"{psnr[0].images:,} test images, prior trained on {words}"
        tables.append(table(psnr, f"PSNR in dB, {caption}", "psnr", corner="method"))
        tables.append(table(gains, f"PSNR above random masks in dB, {caption}", "psnr-gain", corner="method"))
        if not figures:
            lines = [row for row in [*psnr, *gains] if (row.method, row.steps) in DRAWN]
            drawn = curves.against_budget(lines, ("psnr", "psnr-gain"))
            caption = "PSNR against the budget, and above random masks; the methods that matter, all are in the tables."
            figures.append(Picture("cifar10-sequential.png", drawn, caption))
    if few := metrics.pick(results.rows, metric="psnr", split=FEW_SPLIT):
        caption = f"PSNR in dB, the first {few[0].images} test images: {SAMPLED}"
        tables.append(table(few, caption, "psnr", corner="method"))
    figures += [
        examples_picture(f"cifar10-examples-{s}.png", results, NUM_STATES, f"example-{s}") for s in ("0.1", "0.3")
    ]
    paragraphs = [
        "PSNR against the 8-level target, hidden pixels at the posterior mean; mean ± standard deviation over "
        f"{results.rows[0].seeds} seeds. A mask hides all three channels of a pixel. “probe + greedy” is a random "
        "probe of 20% of the budget, then variance-greedy steps. “spread” scores a pixel by the variance around it, "
        "and keeps the pixels of a step apart; “joint” chooses them one by one, by what the picks before leave of the "
        "variance in a Gaussian whose correlation falls with the distance. “mirrored” averages the prior's answers for "
        "the picture and its mirror image, in two passes instead of one.",
        *results.notes,
    ]
    return Section("CIFAR-10, sequential acquisition", paragraphs, tables, figures, results)


EXPERIMENT = Experiment("cifar10-sequential", run, section)
