"""`mnist-sequential`: Table closed and Figure closed of the paper, for both stages of the prior."""

from collections.abc import Sequence

from rich.progress import Progress

from sensewise.checkpoint import fingerprint, load_prior
from sensewise.data import bundled_mnist, load_mnist
from sensewise.errors import DataError
from sensewise.experiments.evaluation import evaluate, mnist_strategies
from sensewise.experiments.examples import example_arrays, story_arrays
from sensewise.experiments.results import Results

BUDGETS = (0.05, 0.1, 0.2, 0.3)
PRIORS = {"random-masks": "mnist-random-masks", "on-policy": "mnist"}
METRICS = ("errors", "exact", "foreground-recovery", "informative")

_TABLE_CLOSED: dict[tuple[str, int], tuple[tuple[float, ...], tuple[float, ...]]] = {
    ("random", 1): ((60.5, 46.7, 32.1, 24.0), (0.0, 0.0, 0.0, 0.0)),
    ("probe-greedy", 1): ((40.0, 26.1, 9.22, 1.97), (0.0, 0.01, 0.14, 0.50)),
    ("probe-greedy", 16): ((26.9, 8.45, 0.42, 0.02), (0.04, 0.17, 0.83, 0.99)),
    ("label-greedy", 4): ((26.8, 10.0, 0.64, 0.03), (0.04, 0.14, 0.81, 0.99)),
    ("label-greedy", 16): ((22.9, 5.63, 0.19, 0.01), (0.06, 0.26, 0.92, 1.00)),
}


def paper(method: str, steps: int, budget: float, metric: str) -> float | None:
    """The value of Table closed, where it has one."""
    if (method, steps) not in _TABLE_CLOSED or metric not in ("errors", "exact") or budget not in BUDGETS:
        return None
    errors, exact = _TABLE_CLOSED[method, steps]
    return (errors if metric == "errors" else exact)[BUDGETS.index(budget)]


def run(preset: str, seeds: Sequence[int], progress: Progress) -> Results:
    """2,560 test digits with both priors, then all 10,000 with the on-policy one if MNIST is on this machine."""
    results = Results("mnist-sequential", preset, "mnist")
    digits = bundled_mnist()
    for stage, name in PRIORS.items():
        prior = load_prior(name)
        results.weights[stage] = fingerprint(prior)
        strategies = mnist_strategies(prior, extra_steps=(32,) if stage == "on-policy" else ())
        results.rows += evaluate(prior, digits, strategies, BUDGETS, seeds, METRICS, paper, progress, {"prior": stage})
    shown = [strategy for strategy in strategies if strategy.steps in (1, 16)]
    results.arrays = example_arrays(prior, digits.first(3), shown, 0.1, seeds[0])
    x, label = digits[slice(0, 1)]
    results.arrays |= story_arrays(prior, x, label, 0.1, steps=16)
    try:
        everything = load_mnist("test")
    except DataError:
        results.notes.append("All 10,000 test images were left out: MNIST is not on this machine.")
        return results
    results.rows += evaluate(
        prior, everything, mnist_strategies(prior), BUDGETS, seeds, METRICS, paper, progress, {"prior": "on-policy"}
    )
    return results
