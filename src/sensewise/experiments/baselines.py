"""`baselines`: Figure baselines (MNIST part): every way to spend a budget, reconstructed by the same prior.

LOUPE is shown at the better of its top-k and its budget-exact sampled masks at each budget (column `better`), once with
the prior and once with its own U-Net, as the paper does.
"""

from collections.abc import Sequence
from typing import Any

from rich.progress import Progress

from sensewise.checkpoint import fingerprint, load_prior
from sensewise.data import Images, bundled_mnist
from sensewise.errors import CheckpointError
from sensewise.experiments import mnist_one_shot, mnist_sequential
from sensewise.experiments.evaluation import Strategy, evaluate
from sensewise.experiments.examples import example_arrays
from sensewise.experiments.results import Results
from sensewise.generator import MaskGenerator, load_generator
from sensewise.loupe import Loupe, LoupeReconstructor, load_loupe
from sensewise.policies import Greedy, OneShot, Random, SpreadGreedy, VariableDensity
from sensewise.priors import AbsorbingPrior
from sensewise.train_loupe import run_name

BUDGETS = (0.05, 0.1, 0.2, 0.3)
METRICS = ("errors", "exact", "foreground-recovery", "informative")
EXAMPLES = (0.1, 0.2)


def paper(method: str, steps: int, budget: float, metric: str) -> float | None:
    """The paper's value from Table closed or Table mnist-open; its figure gives no numbers of its own."""
    known = mnist_sequential.paper(method, steps, budget, metric)
    return mnist_one_shot.paper(method, steps, budget, metric) if known is None else known


def loupe_strategies(loupe: Loupe, sampled: bool) -> list[Strategy]:
    """LOUPE's masks with the prior, and with its own U-Net."""
    policy = OneShot(loupe.keep_logits, sampled=sampled)
    return [
        Strategy("loupe", policy, random=sampled),
        Strategy("loupe-own-unet", policy, random=sampled, reconstructor=LoupeReconstructor(loupe)),
    ]


def mark_better(rows: list[dict[str, Any]]) -> None:
    """Say in column `better` which kind of LOUPE's masks has fewer errors, for each method and budget."""
    for row in rows:
        rivals = [
            other["mean"]
            for other in rows
            if other["metric"] == "errors" and all(other[key] == row[key] for key in ("method", "budget"))
        ]
        own = next(
            other["mean"]
            for other in rows
            if other["metric"] == "errors" and all(other[key] == row[key] for key in ("method", "budget", "masks"))
        )
        row["better"] = own == min(rivals)


def loupe_rows(
    prior: AbsorbingPrior, loupe: Loupe, images: Images, seeds: Sequence[int], progress: Progress
) -> list[dict[str, Any]]:
    """Both kinds of masks of one trained LOUPE, at its own budget."""
    rows = []
    for kind, sampled in (("top-k", False), ("sampled", True)):
        budgets, columns = (loupe.map.budget,), {"masks": kind}
        strategies = loupe_strategies(loupe, sampled)
        rows += evaluate(prior, images, strategies, budgets, seeds, METRICS, paper, progress, columns)
    mark_better(rows)
    return rows


def measure(
    prior: AbsorbingPrior,
    generator: MaskGenerator,
    loupes: Sequence[Loupe],
    images: Images,
    seeds: Sequence[int],
    progress: Progress,
) -> Results:
    """Rows and example masks for the given images."""
    results = Results("baselines", "cpu", "mnist")
    strategies = [
        Strategy("random", Random()),
        Strategy("variable-density", VariableDensity((prior.shape[1], prior.shape[2]))),
        Strategy("one-shot", OneShot(generator.keep_logits)),
        Strategy("label-greedy", Greedy(prior), 16, random=False, passes=17),
        Strategy("spread-greedy", SpreadGreedy(prior), 16, random=False, passes=17),
    ]
    results.rows = evaluate(prior, images, strategies, BUDGETS, seeds, METRICS, paper, progress, {})
    by_budget = {loupe.map.budget: loupe for loupe in loupes}
    for loupe in loupes:
        results.rows += loupe_rows(prior, loupe, images, seeds, progress)
    for budget in EXAMPLES:
        shown = [*strategies[:2], *(loupe_strategies(by_budget[budget], True) if budget in by_budget else [])]
        shown += strategies[2:]
        place = f"example-{budget:g}"
        results.arrays |= example_arrays(prior, images.first(3), shown, budget, seeds[0], place)
    return results


def run(preset: str, seeds: Sequence[int], progress: Progress) -> Results:
    """2,560 test digits; LOUPE at the budgets that have been trained."""
    prior = load_prior("mnist")
    generator = load_generator(mnist_one_shot.GENERATOR, prior)
    loupes, notes = [], []
    for budget in BUDGETS:
        try:
            loupes.append(load_loupe(run_name("mnist", budget), prior.shape, budget))
        except CheckpointError as error:
            notes.append(f"LOUPE at s = {budget:g} was left out: {error}")
    results = measure(prior, generator, loupes, bundled_mnist(), seeds, progress)
    results.preset, results.notes = preset, notes
    results.weights = {"prior": fingerprint(prior), "generator": fingerprint(generator)}
    results.weights |= {f"loupe-{loupe.map.budget:g}": fingerprint(loupe) for loupe in loupes}
    return results
