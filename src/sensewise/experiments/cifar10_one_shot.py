"""`cifar10-one-shot`: Table cifar-open of the paper: the trained generator against random masks at four budgets.

Beside it the same generator's top-k masks, a generator trained on the entropy as in the paper, and the plain draw of
both: off the budget, it only seems to gain. The main rows are repeated with the prior before its on-policy stage.
"""

from collections.abc import Sequence

from rich.progress import Progress

from sensewise.checkpoint import fingerprint, load_prior, resolve
from sensewise.data import Images
from sensewise.experiments.cifar10_sequential import BUDGETS, METRICS, PRIORS, held_out
from sensewise.experiments.evaluation import Strategy, evaluate, plain_draw_rows
from sensewise.experiments.examples import example_arrays
from sensewise.experiments.mnist_one_shot import checkpoint_arrays
from sensewise.experiments.results import Results
from sensewise.generator import MaskGenerator, load_generator
from sensewise.policies import OneShot, Random, spread_variance
from sensewise.priors import Prior

GENERATOR = "cifar10-generator"
CONTROL = "cifar10-generator-entropy"  # trained on the paper's surrogate, the mean entropy

_TABLE_OPEN: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "entropy": ((0.790, 0.420, 0.236, 0.116), (0.786, 0.435, 0.250, 0.126)),
    "accuracy": ((0.675, 0.824, 0.901, 0.951), (0.670, 0.816, 0.894, 0.946)),
    "nonblack-recovery": ((0.676, 0.824, 0.901, 0.951), (0.670, 0.815, 0.893, 0.946)),
    "psnr": ((20.45, 24.80, 28.01, 31.54), (20.14, 24.33, 27.47, 30.87)),
}


def paper(method: str, _steps: int, budget: float, metric: str) -> float | None:
    """The value of Table cifar-open, where it has one."""
    if method not in ("one-shot", "random") or metric not in _TABLE_OPEN or budget not in BUDGETS:
        return None
    learned, random = _TABLE_OPEN[metric]
    return (learned if method == "one-shot" else random)[BUDGETS.index(budget)]


def measure(
    priors: dict[str, Prior],
    generator: MaskGenerator,
    control: MaskGenerator,
    images: Images,
    seeds: Sequence[int],
    progress: Progress,
) -> Results:
    """Rows for the given images, and example masks of the last prior.

    Args:
        priors: those that reconstruct, by stage; both generators were trained against the last one.
        control: trained on the entropy instead of the variance.
    """
    results = Results("cifar10-one-shot", "cpu", "cifar10")
    random, learned = Strategy("random", Random()), Strategy("one-shot", OneShot(generator.keep_logits))
    mode = Strategy("one-shot-topk", OneShot(generator.keep_logits, sampled=False), random=False)
    entropy = Strategy("one-shot-entropy", OneShot(control.keep_logits))
    *before, (stage, prior) = priors.items()
    for earlier, judge in before:
        columns = {"prior": earlier}
        results.rows += evaluate(judge, images, [random, learned], BUDGETS, seeds, METRICS, paper, progress, columns)
    columns, measured = {"prior": stage}, [random, learned, mode, entropy]
    results.rows += evaluate(prior, images, measured, BUDGETS, seeds, METRICS, paper, progress, columns)
    for drawn, name in ((generator, "one-shot"), (control, "one-shot-entropy")):
        results.rows += plain_draw_rows(prior, drawn, images, BUDGETS, seeds, METRICS, name, columns)
    shown = [random, learned, Strategy("spread-variance-greedy", spread_variance(prior), 16, random=False)]
    for budget in (0.1, 0.3):
        place = f"example-{budget:g}"
        results.arrays |= example_arrays(prior, images.first(3), shown, budget, seeds[0], place)
    return results


def run(preset: str, seeds: Sequence[int], progress: Progress) -> Results:
    """2,560 test images."""
    notes: list[str] = []
    priors: dict[str, Prior] = {stage: load_prior(name) for stage, name in PRIORS.items()}
    generator, control = (load_generator(name, priors["on-policy"]) for name in (GENERATOR, CONTROL))
    results = measure(priors, generator, control, held_out(notes), seeds, progress)
    results.preset, results.notes = preset, notes
    models = {**priors, "generator": generator, "generator-entropy": control}
    results.weights = {name: fingerprint(model) for name, model in models.items()}
    results.arrays |= checkpoint_arrays(resolve(GENERATOR))
    return results
