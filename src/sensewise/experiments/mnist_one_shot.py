"""`mnist-one-shot`: Table mnist-open, Figures pipeline, examples-mnist, divergence and metrics-vs-budget (MNIST parts).

The trained generator against random masks at four budgets, all nine metrics. Beside it the same generator drawn plainly
(off budget), its top-k masks, and the controls: the observed-pixel surrogate and the straight-through gradient.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from rich.progress import Progress

from sensewise import masks
from sensewise.checkpoint import fingerprint, load_prior, resolve
from sensewise.data import Images, bundled_mnist
from sensewise.errors import CheckpointError
from sensewise.experiments.evaluation import Strategy, evaluate, plain_draw_rows
from sensewise.experiments.examples import Arrays, example_arrays, small, story_arrays
from sensewise.experiments.results import Results
from sensewise.generator import MaskGenerator, load_generator
from sensewise.information import entropy, per_pixel
from sensewise.metrics import TOKEN_METRICS
from sensewise.policies import Greedy, OneShot, Random
from sensewise.priors import AbsorbingPrior
from sensewise.sensors import PixelSensor, Side
from sensewise.tokens import observe

BUDGETS = (0.1, 0.3, 0.5, 0.7)
METRICS = (*(name for name in TOKEN_METRICS if name != "nonblack-recovery"), "entropy", "psnr")
GENERATOR = "mnist-generator"
CONTROLS = ("observed", "observed-weak", "straight-through", "paper-decoder")

_TABLE_OPEN: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "entropy": ((0.0564, 0.0495, 0.0476, 0.0467), (0.0685, 0.0527, 0.0488, 0.0471)),
    "accuracy": ((0.978, 0.995, 0.999, 1.000), (0.954, 0.977, 0.986, 0.992)),
    "foreground-recovery": ((0.903, 0.978, 0.996, 1.000), (0.777, 0.894, 0.939, 0.968)),
    "informative": ((0.41, 0.28, 0.19, 0.13), (0.09, 0.09, 0.09, 0.09)),
    "hidden-foreground-accuracy": ((0.829, 0.813, 0.734, 0.578), (0.753, 0.849, 0.879, 0.893)),
    "errors": ((23.0, 4.74, 0.68, 0.06), (46.7, 24.0, 14.4, 7.88)),
}


def paper(method: str, _steps: int, budget: float, metric: str) -> float | None:
    """The value of Table mnist-open, where it has one."""
    if method not in ("one-shot", "random") or metric not in _TABLE_OPEN or budget not in BUDGETS:
        return None
    learned, random = _TABLE_OPEN[metric]
    return (learned if method == "one-shot" else random)[BUDGETS.index(budget)]


def checkpoint_arrays(folder: Path) -> Arrays:
    """The validation log of a training run: `checkpoints/step` and one series a logged name, if there is a log."""
    path = folder / "log.jsonl"
    if not path.is_file():
        return {}
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    names = [name for name in entries[0] if all(name in entry for entry in entries)] if entries else []
    return {f"checkpoints/{name}": np.array([entry[name] for entry in entries]) for name in names}


def pipeline_arrays(prior: AbsorbingPrior, generator: MaskGenerator, images: Images, budget: float) -> Arrays:
    """One digit through the generator: summary, keep probabilities, observation, entropy of the prior."""
    x, label = images[slice(0, 1)]
    summary = PixelSensor(x).summary(images.num_states)
    logits = generator.keep_logits(Side(label=label, summary=summary, budget=budget), 1)
    mask = masks.sample_on_budget(logits, masks.count(budget, logits.shape[1]), torch.Generator().manual_seed(0))
    y = observe(x, mask)
    heat = prior.read(lambda log_probs: per_pixel(entropy(log_probs)), y, label)
    return {
        "pipeline/target": small(x[0, 0]),
        "pipeline/summary": summary[0, 0].numpy(),
        "pipeline/probs": torch.sigmoid(logits[0]).view(prior.shape[1:]).numpy(),
        "pipeline/observation": small(y[0, 0]),
        "pipeline/entropy": heat[0].view(prior.shape[1:]).numpy(),
    }


def load_controls(prior: AbsorbingPrior, notes: list[str]) -> dict[str, MaskGenerator]:
    """Generators trained in another way, as far as they have been trained."""
    found = {}
    for name in CONTROLS:
        try:
            found[f"one-shot-{name}"] = load_generator(f"{GENERATOR}-{name}", prior)
        except CheckpointError as error:
            notes.append(f"The control {name} was left out: {error}")
    return found


def measure(
    prior: AbsorbingPrior,
    generators: dict[str, MaskGenerator],
    images: Images,
    seeds: Sequence[int],
    progress: Progress,
) -> Results:
    """Rows and arrays for the given images; `generators` by method, "one-shot" and the controls."""
    results = Results("mnist-one-shot", "cpu", "mnist")
    ours = generators["one-shot"]
    learned = [Strategy(name, OneShot(generator.keep_logits)) for name, generator in generators.items()]
    mode = Strategy("one-shot-topk", OneShot(ours.keep_logits, sampled=False), random=False)
    random = Strategy("random", Random())
    results.rows = evaluate(prior, images, [random, *learned, mode], BUDGETS, seeds, METRICS, paper, progress, {})
    for name, generator in generators.items():
        results.rows += plain_draw_rows(prior, generator, images, BUDGETS, seeds, METRICS, name, {})
    few = images.first(3)
    shown = [random, learned[0], Strategy("label-greedy", Greedy(prior), 16, random=False)]
    for budget in (0.1, 0.3):
        results.arrays |= example_arrays(prior, few, shown, budget, seeds[0], f"example-{budget:g}")
    results.arrays |= example_arrays(prior, few, [random, *learned], 0.1, seeds[0], "example-controls")
    results.arrays |= pipeline_arrays(prior, ours, images, 0.1)
    x, label = images[slice(0, 1)]
    results.arrays |= story_arrays(prior, x, label, 0.1, steps=16)
    return results


def run(preset: str, seeds: Sequence[int], progress: Progress) -> Results:
    """2,560 test digits."""
    prior, notes = load_prior("mnist"), list[str]()
    generators = {"one-shot": load_generator(GENERATOR, prior), **load_controls(prior, notes)}
    results = measure(prior, generators, bundled_mnist(), seeds, progress)
    results.preset, results.notes = preset, notes
    results.weights = {"prior": fingerprint(prior)}
    results.weights |= {name: fingerprint(generator) for name, generator in generators.items()}
    results.arrays |= checkpoint_arrays(resolve(GENERATOR))
    return results
