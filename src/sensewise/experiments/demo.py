"""The demo: bundled models, bundled digits, photographs or knee slices, every strategy at four budgets."""

from pathlib import Path

from rich.progress import Progress

from sensewise.checkpoint import ASSETS, fingerprint, load_prior
from sensewise.data import bundled_cifar10, bundled_mnist
from sensewise.data.prepare import bundled_knee
from sensewise.errors import CheckpointError, DataError
from sensewise.experiments import cifar10_one_shot, cifar10_sequential, mri_masks, own_data
from sensewise.experiments.baselines import cifar10_paper, paper
from sensewise.experiments.cifar10_sequential import cifar10_strategies
from sensewise.experiments.evaluation import Strategy, evaluate, mnist_strategies
from sensewise.experiments.examples import example_arrays, story_arrays
from sensewise.experiments.mnist_one_shot import GENERATOR
from sensewise.experiments.mnist_sequential import BUDGETS
from sensewise.experiments.mri_models import Models
from sensewise.experiments.results import Results
from sensewise.generator import load_generator
from sensewise.mri.settings import load_settings
from sensewise.policies import OneShot
from sensewise.priors import AbsorbingPrior

EXAMPLE_BUDGET = 0.1
COUNTS = {"mnist": 256, "cifar10": 32, "knee": 4}  # so that it takes a minute


def _with_one_shot(strategies: list[Strategy], generator: str, prior: AbsorbingPrior, notes: list[str]) -> None:
    """Add the bundled generator's masks, if there is one for this prior."""
    if (ASSETS / generator).is_dir():
        try:
            strategies.append(Strategy("one-shot", OneShot(load_generator(generator, prior).keep_logits)))
        except CheckpointError as error:
            notes.append(f"One-shot masks were left out: {error}")


def run_cifar10(count: int, seed: int, progress: Progress, prior_name: str | Path = "cifar10") -> Results:
    """The same for the first `count` bundled photographs, in 16 steps."""
    images, prior = bundled_cifar10(count), load_prior(prior_name)
    notes: list[str] = []
    strategies = [strategy for strategy in cifar10_strategies(prior) if strategy.steps in (1, own_data.STEPS)]
    _with_one_shot(strategies, cifar10_one_shot.GENERATOR, prior, notes)
    seeds, budgets = range(seed, seed + 1), cifar10_sequential.BUDGETS
    results = own_data.measure("demo", prior, images, strategies, budgets, seeds, cifar10_paper, progress)
    results.notes = notes
    return results


def run_knee(count: int, seed: int, progress: Progress, preset: str | Path = "cpu") -> Results:
    """Rows of k-space for the first `count` bundled knee slices: heuristics, the searched masks and plans of rows."""
    models = Models(str(preset), load_settings(str(preset)))
    knee = bundled_knee((models.mri.rows, models.mri.columns))
    if not 1 <= count <= len(knee):
        raise DataError(f"the package holds 1 to {len(knee)} knee slices, {count} were asked for")
    results = Results("demo", str(preset), "knee")
    planned = models.planned((1,))[:1]
    notes = ["U-Nets, masks and plans were trained on brains (brain-t1): none of them has seen a knee."]
    masks, seeds = models.static(("static-search", "loupe")), range(seed, seed + 1)
    mri_masks.measure(models, knee.first(count), masks, planned, seeds, progress, lambda *_: None, results)
    results.notes = notes + results.notes
    return results


def run(count: int, seed: int, progress: Progress, prior_name: str | Path = "mnist") -> Results:
    """Evaluate every strategy on the first `count` bundled digits and collect the arrays of the figures."""
    images, prior = bundled_mnist(count), load_prior(prior_name)
    results = Results("demo", "cpu", "mnist", weights={"prior": fingerprint(prior)})
    strategies = mnist_strategies(prior)
    _with_one_shot(strategies, GENERATOR, prior, results.notes)
    seeds = range(seed, seed + 1)
    results.rows = evaluate(prior, images, strategies, BUDGETS, seeds, ("errors", "exact"), paper, progress, {})
    shown = [strategy for strategy in strategies if strategy.steps in (1, 16)]
    results.arrays = example_arrays(prior, images.first(3), shown, EXAMPLE_BUDGET, seed)
    x, label = images[slice(0, 1)]
    results.arrays |= story_arrays(prior, x, label, EXAMPLE_BUDGET, steps=16)
    return results
