"""Your own data: every strategy at the usual budgets, on test images that the prior has never seen."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.progress import Progress

from sensewise.checkpoint import fingerprint, load_prior
from sensewise.data import Images
from sensewise.errors import DataError
from sensewise.experiments.evaluation import Strategy, evaluate
from sensewise.experiments.examples import example_arrays
from sensewise.experiments.mnist_sequential import BUDGETS
from sensewise.experiments.record import record
from sensewise.experiments.results import Results
from sensewise.figures.film import store
from sensewise.policies import Greedy, Random, SpreadGreedy, VariableDensity, random_probe
from sensewise.priors import Prior

METRICS = ("errors", "exact", "accuracy", "foreground-recovery", "informative")
STEPS = 16
EXAMPLE_BUDGET = 0.1


def own_strategies(prior: Prior) -> list[Strategy]:
    """Every strategy; greedy is called label-greedy where labels tell it where to begin."""
    _, height, width = prior.shape
    greedy, name = Greedy(prior), "greedy" if prior.num_labels is None else "label-greedy"
    found = [
        Strategy("random", Random()),
        Strategy("variable-density", VariableDensity((height, width))),
        Strategy("probe-greedy", greedy, STEPS, random_probe(height * width), passes=STEPS + 1),
        Strategy(name, greedy, 4, random=False, passes=5),
        Strategy(name, greedy, STEPS, random=False, passes=STEPS + 1),
        Strategy("spread-greedy", SpreadGreedy(prior), STEPS, random=False, passes=STEPS + 1),
    ]
    if prior.num_states > 2:  # with two levels, variance and entropy order pixels alike
        found.append(Strategy("variance-greedy", Greedy(prior, "variance"), STEPS, random=False, passes=STEPS + 1))
    return found


def run(
    prior_name: str | Path,
    images: Images,
    seeds: Sequence[int],
    progress: Progress,
    budgets: Sequence[float] = BUDGETS,
) -> Results:
    """Evaluate a prior on images and collect the arrays of the figures."""
    prior = load_prior(prior_name)
    return measure("evaluate", prior, images, own_strategies(prior), budgets, seeds, lambda *_: None, progress)


def measure(
    name: str,
    prior: Prior,
    images: Images,
    strategies: Sequence[Strategy],
    budgets: Sequence[float],
    seeds: Sequence[int],
    paper: Callable[[str, int, float, str], float | None],
    progress: Progress,
) -> Results:
    """What the page of an evaluation shows: rows, a few images, one image step by step."""
    if images.shape != prior.shape or images.num_states != prior.num_states:
        raise DataError(
            f"{images.name} has images of shape {images.shape} with {images.num_states} levels, but the prior takes "
            f"{prior.shape} with {prior.num_states}: train one with `sensewise train prior --data`"
        )
    results = Results(name, "cpu", images.name, weights={"prior": fingerprint(prior)})
    metrics = METRICS if prior.num_states == 2 else (*METRICS, "psnr")
    columns = {"split": images.split}
    results.rows = evaluate(prior, images, strategies, budgets, seeds, metrics, paper, progress, columns)
    shown = [strategy for strategy in strategies if strategy.steps in (1, STEPS)]
    results.arrays = example_arrays(prior, images.first(3), shown, EXAMPLE_BUDGET, seeds[0])
    x, label = images[slice(0, 1)]
    results.arrays |= store(record(prior, "greedy", x, label, EXAMPLE_BUDGET, steps=STEPS))
    return results
