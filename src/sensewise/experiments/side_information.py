"""`side-information`: Table side-info: what the generator gets from the summary, on MNIST and on CIFAR-10.

The same generator sees the target's own 8 x 8 summary, another test image's, or none (all zero). The label is always
the image's own. Rows on CIFAR-10 say so in the column `dataset`, and in `prior` which stage of the prior reconstructs.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from rich.progress import Progress
from torch import Tensor

from sensewise.checkpoint import fingerprint, load_prior
from sensewise.data import Images, bundled_mnist
from sensewise.errors import CheckpointError
from sensewise.experiments import cifar10_one_shot, mnist_one_shot
from sensewise.experiments.cifar10_sequential import METRICS as CIFAR10_METRICS
from sensewise.experiments.cifar10_sequential import PRIORS, held_out
from sensewise.experiments.evaluation import Strategy, evaluate, known_side
from sensewise.experiments.results import Results
from sensewise.generator import MaskGenerator, load_generator
from sensewise.policies import OneShot, Random
from sensewise.priors import AbsorbingPrior

BUDGETS = (0.1, 0.3, 0.5, 0.7)
METRICS = {"mnist": ("errors", "exact", "foreground-recovery", "informative"), "cifar10": CIFAR10_METRICS}
SUMMARIES: dict[str, Callable[[Tensor], Tensor]] = {
    "own": lambda summary: summary,
    "another": lambda summary: summary.roll(1, 0),  # a derangement: nobody keeps his own
    "none": torch.zeros_like,
}

_PAPER: dict[str, dict[tuple[str, str], dict[float, float]]] = {
    "mnist": {
        ("one-shot", "own"): {0.1: 23.0, 0.3: 4.74},
        ("one-shot", "another"): {0.1: 26.8, 0.3: 5.22},
        ("one-shot", "none"): {0.1: 26.4, 0.3: 5.31},
        ("one-shot-topk", "own"): {0.1: 27.6},
        ("one-shot-topk", "another"): {0.1: 39.7},
        ("one-shot-topk", "none"): {0.1: 42.1},
        ("random", "unused"): {0.1: 46.7, 0.3: 24.0},
    },
    "cifar10": {
        ("one-shot", "own"): {0.1: 20.45, 0.3: 24.80, 0.5: 28.01},
        ("one-shot", "another"): {0.1: 20.12, 0.3: 24.25, 0.5: 27.40},
        ("one-shot", "none"): {0.1: 19.89, 0.3: 23.78, 0.5: 26.42},
        ("random", "unused"): {0.1: 20.14, 0.3: 24.33, 0.5: 27.47},
    },
}


def paper(dataset: str, summary: str) -> Callable[[str, int, float, str], float | None]:
    """The values of Table side-info and of the text beside it, for one kind of summary."""
    table, main = _PAPER[dataset], METRICS[dataset][0]

    def value(method: str, _steps: int, budget: float, metric: str) -> float | None:
        return table.get((method, summary), {}).get(budget) if metric == main else None

    return value


def measure(
    prior: AbsorbingPrior,
    generator: MaskGenerator,
    images: Images,
    dataset: str,
    seeds: Sequence[int],
    bar: Progress,
    where: dict[str, Any],
) -> list[dict[str, Any]]:
    """Rows for images of "mnist" or "cifar10", with the columns `where`."""
    x, label = images[slice(None)]
    side = known_side(x, label, images.num_states)
    assert side.summary is not None
    learned = [
        Strategy("one-shot", OneShot(generator.keep_logits)),
        Strategy("one-shot-topk", OneShot(generator.keep_logits, sampled=False), random=False),
    ]
    metrics, rows = METRICS[dataset], []
    for name, change in SUMMARIES.items():
        changed = replace(side, summary=change(side.summary))
        columns, reference = {"summary": name, **where}, paper(dataset, name)
        rows += evaluate(prior, images, learned, BUDGETS, seeds, metrics, reference, bar, columns, changed)
    columns, reference = {"summary": "unused", **where}, paper(dataset, "unused")
    random = [Strategy("random", Random())]
    return rows + evaluate(prior, images, random, BUDGETS, seeds, metrics, reference, bar, columns)


def run(preset: str, seeds: Sequence[int], progress: Progress) -> Results:
    """2,560 test images of each data set."""
    results = Results("side-information", preset, "mnist")
    prior = load_prior("mnist")
    generator = load_generator(mnist_one_shot.GENERATOR, prior)
    results.weights = {"prior": fingerprint(prior), "generator": fingerprint(generator)}
    results.rows = measure(prior, generator, bundled_mnist(), "mnist", seeds, progress, {})
    try:
        priors = {stage: load_prior(name) for stage, name in PRIORS.items()}
        generator = load_generator(cifar10_one_shot.GENERATOR, priors["on-policy"])
    except CheckpointError as error:
        results.notes.append(f"CIFAR-10 was left out: {error}")
        return results
    models = {**priors, "generator": generator}
    results.weights |= {f"cifar10-{name}": fingerprint(model) for name, model in models.items()}
    images = held_out(results.notes)
    for stage, prior in priors.items():
        where = {"dataset": "cifar10", "prior": stage}
        results.rows += measure(prior, generator, images, "cifar10", seeds, progress, where)
    return results
