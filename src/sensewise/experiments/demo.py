"""The demo: bundled prior, bundled digits, every strategy at four budgets."""

from pathlib import Path

from rich.progress import Progress

from sensewise.checkpoint import ASSETS, fingerprint, load_prior
from sensewise.data import bundled_mnist
from sensewise.errors import CheckpointError
from sensewise.experiments.baselines import paper
from sensewise.experiments.evaluation import Strategy, evaluate, mnist_strategies
from sensewise.experiments.examples import example_arrays, story_arrays
from sensewise.experiments.mnist_one_shot import GENERATOR
from sensewise.experiments.mnist_sequential import BUDGETS
from sensewise.experiments.results import Results
from sensewise.generator import load_generator
from sensewise.policies import OneShot

EXAMPLE_BUDGET = 0.1


def run(count: int, seed: int, progress: Progress, prior_name: str | Path = "mnist") -> Results:
    """Evaluate every strategy on the first `count` bundled digits and collect the arrays of the figures."""
    images, prior = bundled_mnist(count), load_prior(prior_name)
    results = Results("demo", "cpu", "mnist", weights={"prior": fingerprint(prior)})
    strategies = mnist_strategies(prior)
    if (ASSETS / GENERATOR).is_dir():
        try:
            strategies.append(Strategy("one-shot", OneShot(load_generator(GENERATOR, prior).keep_logits)))
        except CheckpointError as error:
            results.notes.append(f"One-shot masks were left out: {error}")
    seeds = range(seed, seed + 1)
    results.rows = evaluate(prior, images, strategies, BUDGETS, seeds, ("errors", "exact"), paper, progress, {})
    shown = [strategy for strategy in strategies if strategy.steps in (1, 16)]
    results.arrays = example_arrays(prior, images.first(3), shown, EXAMPLE_BUDGET, seed)
    x, label = images[slice(0, 1)]
    results.arrays |= story_arrays(prior, x, label, EXAMPLE_BUDGET, steps=16)
    return results
