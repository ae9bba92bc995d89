"""`side-information`: Table side-info (MNIST part): what the generator gets from the summary.

The same generator sees the target's own 8 x 8 summary, another test image's, or none (all zero). The label is always
the image's own.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from rich.progress import Progress
from torch import Tensor

from sensewise.checkpoint import fingerprint, load_prior
from sensewise.data import Images, bundled_mnist
from sensewise.experiments.evaluation import Strategy, evaluate, known_side
from sensewise.experiments.mnist_one_shot import GENERATOR
from sensewise.experiments.results import Results
from sensewise.generator import MaskGenerator, load_generator
from sensewise.policies import OneShot, Random
from sensewise.priors import AbsorbingPrior

BUDGETS = (0.1, 0.3, 0.5, 0.7)
METRICS = ("errors", "exact", "foreground-recovery", "informative")
SUMMARIES: dict[str, Callable[[Tensor], Tensor]] = {
    "own": lambda summary: summary,
    "another": lambda summary: summary.roll(1, 0),  # a derangement: nobody keeps his own
    "none": torch.zeros_like,
}

_PAPER: dict[tuple[str, str], dict[float, float]] = {
    ("one-shot", "own"): {0.1: 23.0, 0.3: 4.74},
    ("one-shot", "another"): {0.1: 26.8, 0.3: 5.22},
    ("one-shot", "none"): {0.1: 26.4, 0.3: 5.31},
    ("one-shot-topk", "own"): {0.1: 27.6},
    ("one-shot-topk", "another"): {0.1: 39.7},
    ("one-shot-topk", "none"): {0.1: 42.1},
    ("random", "unused"): {0.1: 46.7, 0.3: 24.0},
}


def paper(summary: str) -> Callable[[str, int, float, str], float | None]:
    """The values of Table side-info and of the text beside it, for one kind of summary."""

    def value(method: str, _steps: int, budget: float, metric: str) -> float | None:
        return _PAPER.get((method, summary), {}).get(budget) if metric == "errors" else None

    return value


def measure(
    prior: AbsorbingPrior, generator: MaskGenerator, images: Images, seeds: Sequence[int], progress: Progress
) -> Results:
    """Rows for the given images."""
    results = Results("side-information", "cpu", "mnist")
    x, label = images[slice(None)]
    side = known_side(x, label, images.num_states)
    assert side.summary is not None
    learned = [
        Strategy("one-shot", OneShot(generator.keep_logits)),
        Strategy("one-shot-topk", OneShot(generator.keep_logits, sampled=False), random=False),
    ]
    for name, change in SUMMARIES.items():
        changed = replace(side, summary=change(side.summary))
        columns = {"summary": name}
        results.rows += evaluate(
            prior, images, learned, BUDGETS, seeds, METRICS, paper(name), progress, columns, changed
        )
    columns = {"summary": "unused"}
    random = [Strategy("random", Random())]
    results.rows += evaluate(prior, images, random, BUDGETS, seeds, METRICS, paper("unused"), progress, columns)
    return results


def run(preset: str, seeds: Sequence[int], progress: Progress) -> Results:
    """2,560 test digits."""
    prior = load_prior("mnist")
    generator = load_generator(GENERATOR, prior)
    results = measure(prior, generator, bundled_mnist(), seeds, progress)
    results.preset = preset
    results.weights = {"prior": fingerprint(prior), "generator": fingerprint(generator)}
    return results
