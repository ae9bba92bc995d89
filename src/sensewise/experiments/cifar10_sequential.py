"""`cifar10-sequential`: Section 6 and Appendix C of the paper on CIFAR-10, for both stages of the prior.

A class label says little about where a photograph is uncertain, so entropy from the label alone is compared with
variance (levels are ordered): alone, after a probe, with the pixels of a step spread out, and with a prior that is
asked about the mirror image too. Hidden pixels are reconstructed at the posterior mean.
"""

from collections.abc import Sequence

from rich.progress import Progress

from sensewise.checkpoint import fingerprint, load_prior
from sensewise.data import Images, bundled_cifar10, load_cifar10
from sensewise.errors import DataError
from sensewise.experiments.evaluation import Strategy, evaluate
from sensewise.experiments.examples import example_arrays
from sensewise.experiments.results import Results
from sensewise.policies import Greedy, Random, VariableDensity, grid_probe, random_probe, spread_variance
from sensewise.priors import MirroredPrior, Prior

BUDGETS = (0.1, 0.3, 0.5, 0.7)
IMAGES = 2560
PRIORS = {"random-masks": "cifar10-random-masks", "on-policy": "cifar10"}
METRICS = ("psnr", "accuracy", "nonblack-recovery", "entropy")
STEPS = (4, 16)
BEFORE = (
    "random",
    "label-greedy",
    "variance-greedy",
    "spread-variance-greedy",
)  # in 16 steps: what is compared between the two stages

_PAPER: dict[tuple[str, int], dict[float, float]] = {
    ("random", 1): {0.1: 20.14, 0.3: 24.33, 0.5: 27.47, 0.7: 30.87},
    ("label-greedy", 16): {0.1: 20.0, 0.3: 24.4},
    ("probe-greedy", 16): {0.1: 21.1, 0.3: 26.4},
    ("grid-variance-greedy", 16): {0.1: 21.6, 0.3: 26.8, 0.5: 30.9},
}


def paper(method: str, steps: int, budget: float, metric: str) -> float | None:
    """PSNR as the text gives it; its sequential numbers stand beside the jittered-grid probe."""
    return _PAPER.get((method, steps), {}).get(budget) if metric == "psnr" else None


def cifar10_strategies(prior: Prior) -> list[Strategy]:
    """Every strategy of the section; `probe-greedy` follows the variance here."""
    _, height, width = prior.shape
    by_entropy, by_variance, spread = Greedy(prior), Greedy(prior, "variance"), spread_variance(prior)
    random, grid = random_probe(height * width), grid_probe((height, width))
    found = [Strategy("random", Random()), Strategy("variable-density", VariableDensity((height, width)))]
    for steps in STEPS:
        passes = steps + 1
        found += [
            Strategy("label-greedy", by_entropy, steps, random=False, passes=passes),
            Strategy("variance-greedy", by_variance, steps, random=False, passes=passes),
            Strategy("probe-greedy", by_variance, steps, random, passes=passes),
            Strategy("grid-variance-greedy", by_variance, steps, grid, passes=passes),
            Strategy("spread-variance-greedy", spread, steps, random=False, passes=passes),
        ]
    return found


def mirrored_strategies(prior: MirroredPrior) -> list[Strategy]:
    """The simplest and the best, with twice the passes."""
    spread = spread_variance(prior)
    return [
        Strategy("mirrored-random", Random(), passes=2),
        Strategy("mirrored-variance-greedy", spread, 16, random=False, passes=34),
    ]


def held_out(notes: list[str], count: int = IMAGES) -> Images:
    """The first test images: all `count` if CIFAR-10 is on this machine, else the bundled ones, with a note."""
    try:
        return load_cifar10("test").first(count)
    except DataError as error:
        images = bundled_cifar10()
        notes.append(f"Only the {len(images)} bundled images of {count} were measured: {error}")
        return images


def measure(priors: dict[str, Prior], images: Images, seeds: Sequence[int], progress: Progress) -> Results:
    """Rows for the given images, and example masks of the last prior."""
    results = Results("cifar10-sequential", "cpu", "cifar10")
    for stage, prior in priors.items():
        strategies, columns = cifar10_strategies(prior), {"prior": stage}
        if stage == "random-masks":
            strategies = [s for s in strategies if s.method in BEFORE and s.steps in (1, 16)]
        results.rows += evaluate(prior, images, strategies, BUDGETS, seeds, METRICS, paper, progress, columns)
    twice = MirroredPrior(prior)
    mirrored = mirrored_strategies(twice)
    results.rows += evaluate(twice, images, mirrored, BUDGETS, seeds, METRICS, paper, progress, columns)
    shown = [strategy for strategy in strategies if strategy.steps in (1, 16)]
    for budget in (0.1, 0.3):
        place = f"example-{budget:g}"
        results.arrays |= example_arrays(prior, images.first(3), shown, budget, seeds[0], place)
    return results


def run(preset: str, seeds: Sequence[int], progress: Progress) -> Results:
    """2,560 test images; every strategy with the on-policy prior, the main ones with the prior before that stage."""
    notes: list[str] = []
    priors: dict[str, Prior] = {stage: load_prior(name) for stage, name in PRIORS.items()}
    results = measure(priors, held_out(notes), seeds, progress)
    results.preset, results.notes = preset, notes
    results.weights = {stage: fingerprint(prior) for stage, prior in priors.items()}
    return results
