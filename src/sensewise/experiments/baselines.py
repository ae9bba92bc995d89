"""`baselines`: Figure baselines: every way to spend a budget, reconstructed by the same prior, on both data sets.

LOUPE is shown at the better of its top-k and its budget-exact sampled masks at each budget (column `better`), once with
the prior and once with its own U-Net, as the paper does. Rows on CIFAR-10 say so in the column `dataset`, and
in `prior` which stage of the prior reconstructs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.progress import Progress

from sensewise.checkpoint import fingerprint, load_prior
from sensewise.data import Images, bundled_mnist
from sensewise.errors import CheckpointError
from sensewise.experiments import cifar10_one_shot, cifar10_sequential, mnist_one_shot, mnist_sequential
from sensewise.experiments.evaluation import Strategy, evaluate
from sensewise.experiments.examples import example_arrays
from sensewise.experiments.results import Results
from sensewise.generator import MaskGenerator, load_generator
from sensewise.loupe import Loupe, LoupeReconstructor, load_loupe
from sensewise.policies import Greedy, OneShot, Random, SpreadGreedy, VariableDensity, spread_variance
from sensewise.priors import AbsorbingPrior
from sensewise.train_loupe import run_name


def paper(method: str, steps: int, budget: float, metric: str) -> float | None:
    """The paper's value from Table closed or Table mnist-open; its figure gives no numbers of its own."""
    known = mnist_sequential.paper(method, steps, budget, metric)
    return mnist_one_shot.paper(method, steps, budget, metric) if known is None else known


def cifar10_paper(method: str, steps: int, budget: float, metric: str) -> float | None:
    """The paper's value from Table cifar-open or from its text on sequential acquisition."""
    known = cifar10_one_shot.paper(method, steps, budget, metric)
    return cifar10_sequential.paper(method, steps, budget, metric) if known is None else known


def _mnist_greedy(prior: AbsorbingPrior) -> list[Strategy]:
    return [
        Strategy("label-greedy", Greedy(prior), 16, random=False, passes=17),
        Strategy("spread-greedy", SpreadGreedy(prior), 16, random=False, passes=17),
    ]


def _cifar10_greedy(prior: AbsorbingPrior) -> list[Strategy]:
    return [
        Strategy("variance-greedy", Greedy(prior, "variance"), 16, random=False, passes=17),
        Strategy("spread-variance-greedy", spread_variance(prior), 16, random=False, passes=17),
    ]


@dataclass(frozen=True)
class Part:
    """One data set of the figure.

    Attributes:
        budgets: on its horizontal axis.
        examples: budgets at which masks are shown.
        metrics: the first one is compared.
        low: whether less of it is better.
        paper: the paper's value for (method, steps, budget, metric), or None.
        greedy: its sequential methods.
    """

    budgets: tuple[float, ...]
    examples: tuple[float, ...]
    metrics: tuple[str, ...]
    low: bool
    paper: Callable[[str, int, float, str], float | None]
    greedy: Callable[[AbsorbingPrior], list[Strategy]]


PARTS = {
    "mnist": Part(
        (0.05, 0.1, 0.2, 0.3),
        (0.1, 0.2),
        ("errors", "exact", "foreground-recovery", "informative"),
        True,
        paper,
        _mnist_greedy,
    ),
    "cifar10": Part(
        cifar10_sequential.BUDGETS,
        (0.1, 0.3),
        cifar10_sequential.METRICS,
        False,
        cifar10_paper,
        _cifar10_greedy,
    ),
}


def loupe_strategies(loupe: Loupe, sampled: bool) -> list[Strategy]:
    """LOUPE's masks with the prior, and with its own U-Net."""
    policy = OneShot(loupe.keep_logits, sampled=sampled)
    return [
        Strategy("loupe", policy, random=sampled),
        Strategy("loupe-own-unet", policy, random=sampled, reconstructor=LoupeReconstructor(loupe)),
    ]


def mark_better(rows: list[dict[str, Any]], metric: str, low: bool) -> None:
    """Say in column `better` which kind of LOUPE's masks is better by a metric, for each method and budget."""
    best = min if low else max
    for row in rows:
        rivals = [r for r in rows if r["metric"] == metric and all(r[key] == row[key] for key in ("method", "budget"))]
        own = next(rival["mean"] for rival in rivals if rival["masks"] == row["masks"])
        row["better"] = own == best(rival["mean"] for rival in rivals)


def loupe_rows(
    prior: AbsorbingPrior,
    loupe: Loupe,
    images: Images,
    part: Part,
    seeds: Sequence[int],
    progress: Progress,
    where: dict[str, Any],
) -> list[dict[str, Any]]:
    """Both kinds of masks of one trained LOUPE, at its own budget."""
    rows = []
    for kind, sampled in (("top-k", False), ("sampled", True)):
        budgets, columns = (loupe.map.budget,), {"masks": kind, **where}
        strategies = _measured(loupe_strategies(loupe, sampled), where)
        rows += evaluate(prior, images, strategies, budgets, seeds, part.metrics, part.paper, progress, columns)
    mark_better(rows, part.metrics[0], part.low)
    return rows


def _measured(strategies: list[Strategy], where: dict[str, Any]) -> list[Strategy]:
    """All of them; with the prior before its on-policy stage, one of each kind."""
    left_out = ("variance-greedy", "loupe-own-unet") if where.get("prior") == "random-masks" else ()
    return [strategy for strategy in strategies if strategy.method not in left_out]


def measure(
    results: Results,
    dataset: str,
    prior: AbsorbingPrior,
    generator: MaskGenerator,
    loupes: Sequence[Loupe],
    images: Images,
    seeds: Sequence[int],
    progress: Progress,
    where: dict[str, Any],
) -> None:
    """Add the rows of one data set and one prior, with the columns `where`, and its example masks."""
    part = PARTS[dataset]
    strategies = [
        Strategy("random", Random()),
        Strategy("variable-density", VariableDensity((prior.shape[1], prior.shape[2]))),
        Strategy("one-shot", OneShot(generator.keep_logits)),
        *part.greedy(prior),
    ]
    measured = _measured(strategies, where)
    results.rows += evaluate(prior, images, measured, part.budgets, seeds, part.metrics, part.paper, progress, where)
    by_budget = {loupe.map.budget: loupe for loupe in loupes}
    for loupe in loupes:
        results.rows += loupe_rows(prior, loupe, images, part, seeds, progress, where)
    prefix = "" if dataset == "mnist" else f"{dataset}-"
    for budget in part.examples:
        shown = [*strategies[:2], *(loupe_strategies(by_budget[budget], True) if budget in by_budget else [])]
        shown += strategies[2:]
        place = f"{prefix}example-{budget:g}"
        results.arrays |= example_arrays(prior, images.first(3), shown, budget, seeds[0], place)


def _add(
    results: Results,
    dataset: str,
    priors: dict[str, AbsorbingPrior],
    generator: MaskGenerator,
    images: Images,
    seeds: Sequence[int],
    progress: Progress,
) -> None:
    """Measure one data set, with LOUPE at the budgets that have been trained; examples are the last prior's."""
    loupes = []
    for budget in PARTS[dataset].budgets:
        try:
            loupes.append(load_loupe(run_name(dataset, budget), generator.shape, budget))
        except CheckpointError as error:
            results.notes.append(f"LOUPE at s = {budget:g} was left out: {error}")
    prefix = "" if dataset == "mnist" else f"{dataset}-"
    models = {**priors, "generator": generator, **{f"loupe-{loupe.map.budget:g}": loupe for loupe in loupes}}
    results.weights |= {f"{prefix}{name}": fingerprint(model) for name, model in models.items()}
    for stage, prior in priors.items():
        where = {} if dataset == "mnist" else {"dataset": dataset, "prior": stage}
        measure(results, dataset, prior, generator, loupes, images, seeds, progress, where)


def run(preset: str, seeds: Sequence[int], progress: Progress) -> Results:
    """2,560 test images of each data set."""
    results = Results("baselines", preset, "mnist")
    prior = load_prior("mnist")
    generator = load_generator(mnist_one_shot.GENERATOR, prior)
    _add(results, "mnist", {"prior": prior}, generator, bundled_mnist(), seeds, progress)
    try:
        priors = {stage: load_prior(name) for stage, name in cifar10_sequential.PRIORS.items()}
        generator = load_generator(cifar10_one_shot.GENERATOR, priors["on-policy"])
    except CheckpointError as error:
        results.notes.append(f"CIFAR-10 was left out: {error}")
        return results
    _add(results, "cifar10", priors, generator, cifar10_sequential.held_out(results.notes), seeds, progress)
    return results
