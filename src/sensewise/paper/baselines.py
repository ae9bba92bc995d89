"""`baselines`: Figure baselines: every way to spend a budget, reconstructed by the same prior, on both data sets.

LOUPE is shown at the better of its top-k and its budget-exact sampled masks at each budget (column `better`), once with
the prior and once with its own U-Net, as the paper does. Rows on CIFAR-10 say in `prior` which stage of the prior
reconstructs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sensewise import predictions
from sensewise.data.cifar10 import NUM_STATES
from sensewise.data.scenes import Scenes
from sensewise.errors import CheckpointError
from sensewise.evaluate.evaluate import Published
from sensewise.evaluate.examples import example_arrays
from sensewise.evaluate.experiment import Experiment, Setup
from sensewise.evaluate.judges import IntensityJudge
from sensewise.evaluate.method import Method, spread_entropy, spread_variance
from sensewise.evaluate.results import Arrays, Results
from sensewise.evaluate.rows import Row
from sensewise.evaluate.task import Task, pixel_task
from sensewise.files import fingerprint
from sensewise.networks.decoders import MaskDesigner
from sensewise.networks.loupe import Loupe
from sensewise.paper import (
    cifar10_one_shot,
    cifar10_sequential,
    mnist_one_shot,
    mnist_sequential,
    models,
    scenes,
    side_information,
)
from sensewise.policies.greedy import Greedy
from sensewise.policies.one_shot import OneShot
from sensewise.policies.simple import Random, VariableDensity
from sensewise.priors.base import Prior
from sensewise.reconstruct.unet import LoupeReconstructor
from sensewise.report import metrics
from sensewise.report.section import STAGES, Picture, Section, examples_picture
from sensewise.report.table import Table, table

SKETCHED = ("variance-greedy",)  # left out with the prior before its on-policy stage: one of each kind is enough


@dataclass(frozen=True)
class Part:
    """One data set of the figure.

    Attributes:
        prefix: of its weights and examples in the results.
        budgets: on its horizontal axis.
        examples: budgets at which masks are shown.
        metrics: the first one is compared.
        low: whether less of it is better.
        paper: the paper's values; its figure gives no numbers of its own.
        greedy: names of its sequential methods.
    """

    prefix: str
    budgets: tuple[float, ...]
    examples: tuple[float, ...]
    metrics: tuple[str, ...]
    low: bool
    paper: Published
    greedy: tuple[str, ...]


PARTS = {
    "mnist": Part(
        prefix="",
        budgets=(0.05, 0.1, 0.2, 0.3),
        examples=(0.1, 0.2),
        metrics=("errors", "exact", "foreground-recovery", "informative"),
        low=True,
        paper=mnist_one_shot.PAPER | mnist_sequential.PAPER,
        greedy=("label-greedy", "spread-greedy"),
    ),
    "cifar10": Part(
        prefix="cifar10-",
        budgets=cifar10_sequential.BUDGETS,
        examples=(0.1, 0.3),
        metrics=cifar10_sequential.METRICS,
        low=False,
        paper=cifar10_sequential.PAPER | cifar10_one_shot.PAPER,
        greedy=("variance-greedy", "spread-variance-greedy"),
    ),
}


def methods(part: Part, prior: Prior, designers: Mapping[str, MaskDesigner]) -> list[Method]:
    """Everything but LOUPE."""
    greedy = Greedy(prior)
    sequential = [
        Method("label-greedy", greedy, 16),
        spread_entropy("spread-greedy", prior, 16),
        Method("variance-greedy", Greedy(prior, predictions.variance), 16),
        spread_variance("spread-variance-greedy", prior, 16),
    ]
    return [
        Method("random", Random()),
        Method("variable-density", VariableDensity()),
        *(Method(name, OneShot(designer)) for name, designer in designers.items()),
        *(method for method in sequential if method.name in part.greedy),
    ]


def own_unet(task: Task, loupe: Loupe, part: Part) -> Task:
    """The same task, reconstructed by LOUPE's own U-Net."""
    judge = IntensityJudge(LoupeReconstructor(loupe), loupe.num_states, part.metrics)
    return replace(task, judges={"loupe": judge})


def mark_better(rows: Sequence[Row], metric: str, low: bool) -> list[Row]:
    """Rows that say in `better` which kind of LOUPE's masks is better by a metric, for each method and budget."""
    means = {(r.method, r.budget, r.masks): r.mean for r in rows if r.metric == metric and r.mean is not None}
    marked = []
    for row in rows:
        rivals = [mean for (method, budget, _), mean in means.items() if (method, budget) == (row.method, row.budget)]
        best = (min(rivals) if low else max(rivals)) if rivals else None
        marked.append(replace(row, better=means.get((row.method, row.budget, row.masks)) == best))
    return marked


def loupe_rows(setup: Setup, task: Task, loupe: Loupe, part: Part, *, own: bool) -> list[Row]:
    """Both kinds of masks of one trained LOUPE at its own budget, with the prior and, if `own`, its own U-Net."""
    rows: list[Row] = []
    for kind, sampled in (("top-k", False), ("sampled", True)):
        method = Method("loupe", OneShot(loupe, sampled=sampled), columns={"masks": kind})
        rows += setup.evaluate(task, [method], (loupe.map.budget,))
        if own:
            alone = replace(method, name="loupe-own-unet")
            rows += setup.evaluate(own_unet(task, loupe, part), [alone], (loupe.map.budget,))
    return mark_better(rows, part.metrics[0], part.low)


def measure(
    setup: Setup,
    part: Part,
    priors: Mapping[str, Prior],
    designers: Mapping[str, MaskDesigner],
    loupes: Sequence[Loupe],
    images: Scenes,
) -> tuple[list[Row], Arrays]:
    """Rows of one data set for every stage of its prior, and example masks of the last one.

    Args:
        priors: by stage; rows name those of `STAGES`.
    """
    rows: list[Row] = []
    arrays: Arrays = {}
    for number, (stage, prior) in enumerate(priors.items(), start=1):
        named = {"prior": stage} if stage in STAGES else {}
        task, last = pixel_task(images, prior, part.metrics, **named), number == len(priors)
        compared = methods(part, prior, designers)
        measured = [method for method in compared if last or method.name not in SKETCHED]
        rows += setup.evaluate(task, measured, part.budgets, part.paper)
        for loupe in loupes:
            rows += loupe_rows(setup, task, loupe, part, own=last)
    for budget in part.examples:
        place, seed = f"{part.prefix}example-{budget:g}", setup.seeds[0]
        arrays |= example_arrays(task, compared[:2], budget, seed, place)
        for loupe in (loupe for loupe in loupes if loupe.map.budget == budget):
            drawn = Method("loupe", OneShot(loupe))
            arrays |= example_arrays(task, [drawn], budget, seed, place)
            alone = replace(drawn, name="loupe-own-unet")
            arrays |= example_arrays(own_unet(task, loupe, part), [alone], budget, seed, place)
        arrays |= example_arrays(task, compared[2:], budget, seed, place)
    return rows, arrays


def _loupes(preset: str, dataset: str, shape: tuple[int, int, int], notes: list[str]) -> list[Loupe]:
    """LOUPE at the budgets that have been trained."""
    found = []
    for budget in PARTS[dataset].budgets:
        try:
            found.append(models.loupe(preset, dataset, shape, budget))
        except CheckpointError as error:
            notes.append(f"LOUPE at s = {budget:g} was left out: {error}")
    return found


def _models(setup: Setup, dataset: str, notes: list[str]) -> tuple[dict[str, Prior], dict[str, MaskDesigner]]:
    """Priors of a data set and designers by method; of MNIST, the last stage and the main designer alone."""
    preset, engine = setup.preset, setup.engine
    last = models.prior(preset, dataset, engine=engine)
    if dataset == "mnist":
        return {"prior": last}, {"one-shot": models.designer(preset, dataset, last)}
    designers = models.photograph_designers(preset, last, notes, side_information.PHOTOGRAPHS)
    return {**models.priors(preset, dataset, notes, engine)}, designers


def run(setup: Setup) -> Results:
    """2,560 test images of each data set."""
    notes: list[str] = []
    rows: list[Row] = []
    arrays: Arrays = {}
    weights: dict[str, str] = {}
    for dataset, part in PARTS.items():
        try:
            priors, designers = _models(setup, dataset, notes)
        except CheckpointError as error:
            if dataset == "mnist":
                raise
            notes.append(f"CIFAR-10 was left out: {error}")
            break
        shape = next(iter(designers.values())).shape
        loupes = _loupes(setup.preset, dataset, shape, notes)
        used = {**priors, **designers, **{f"loupe-{loupe.map.budget:g}": loupe for loupe in loupes}}
        weights |= {f"{part.prefix}{name}": fingerprint(model) for name, model in used.items()}
        images = scenes.digits() if dataset == "mnist" else scenes.photographs(notes)
        more, drawn = measure(setup, part, priors, designers, loupes, images)
        rows += more
        arrays |= drawn
    return Results("baselines", setup.preset, "mnist", rows, weights, notes, arrays)


def section(results: Results) -> Section:
    """The numbers of Figure baselines, with example masks; the figure itself is in `together`."""
    shown = metrics.pick(results.rows, better=(None, True))
    digits = metrics.pick(shown, dataset="mnist")
    chosen = [f"{row.masks} at s = {row.budget:g}" for row in metrics.pick(digits, metric="errors", method="loupe")]
    paragraphs = [
        "Every mask is reconstructed by the same prior, except “LOUPE, own U-Net”. LOUPE is trained for each budget "
        "and shown at the better of its top-k and its budget-exact sampled masks"
        + (f" ({', '.join(chosen)} with the prior)." if chosen else "."),
        *results.notes,
    ]
    tables: list[Table] = []
    figures: list[Picture] = []
    if digits:
        tables.append(table(digits, "MNIST, errors per image", "errors", corner="method"))
        figures += [
            examples_picture("baselines-examples-0.1.png", results, 2, "example-0.1"),
            examples_picture("baselines-examples-0.2.png", results, 2, "example-0.2"),
        ]
    for stage, words in STAGES.items():
        psnr = metrics.pick(shown, dataset="cifar10", metric="psnr", prior=stage)
        if not psnr:
            continue
        gains = metrics.compared(psnr, metrics.pick(psnr, method="random"))
        tables.append(table(psnr, f"CIFAR-10, PSNR in dB, prior trained on {words}", "psnr", corner="method"))
        if not any(picture.name.startswith("baselines-cifar10") for picture in figures):
            caption = "CIFAR-10, PSNR above random masks in dB, the same prior"
            tables.append(table(gains, caption, "psnr-gain", corner="method"))
            figures += [
                examples_picture("baselines-cifar10-examples-0.1.png", results, NUM_STATES, "cifar10-example-0.1"),
                examples_picture("baselines-cifar10-examples-0.3.png", results, NUM_STATES, "cifar10-example-0.3"),
            ]
    return Section("Baselines", paragraphs, tables, figures, results)


EXPERIMENT = Experiment("baselines", run, section)
