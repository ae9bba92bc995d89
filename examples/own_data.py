"""Your own data from Python: images in, a data set, a prior, and a comparison of every policy.

The images are made here, so that the example runs anywhere: rings and crosses. `--steps 7000` trains as long as the
command line does.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress

from sensewise.data import import_images, load_imported
from sensewise.evaluate.experiment import Setup
from sensewise.evaluate.own_data import evaluate_prior
from sensewise.hub import load_prior
from sensewise.report.page import write_evaluation
from sensewise.report.table import terminal_table
from sensewise.train.gradient import FitSettings
from sensewise.train.prior import NetworkSettings, PriorRecipe, PriorSettings


def rings_and_crosses(count: int, size: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """Pictures in [0, 1], `(count, size, size)`, and their classes."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:size, :size]
    centre, radius = rng.uniform(8, 16, (count, 2, 1, 1)), rng.uniform(4, 8, (count, 1, 1))
    down, right = y - centre[:, 0], x - centre[:, 1]
    distance = np.hypot(down, right)
    ring = np.abs(distance - radius) < 1.5
    cross = (np.minimum(np.abs(down), np.abs(right)) < 1.5) & (distance < radius)
    labels = np.arange(count) % 2
    return np.where(labels[:, None, None] == 0, ring, cross).astype(np.float32), labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    folder = options.out or Path(tempfile.mkdtemp(prefix="sensewise-"))
    images, labels = rings_and_crosses(options.images)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "shapes.npz", images=images, labels=labels)

    import_images(folder / "shapes.npz", folder / "data", size=24, levels=2, licence="made by examples/own_data.py")
    train, validation, test = (load_imported(folder / "data", split) for split in ("train", "validation", "test"))
    settings = PriorSettings(
        batch_size=16,
        network=NetworkSettings(widths=(16, 32), blocks=(1, 1)),
        fit=FitSettings(steps=options.steps, validate_every=options.steps, warmup=20),
    )
    PriorRecipe(settings, train, validation).train(folder / "prior")
    prior = load_prior(folder / "prior")
    with Progress() as progress:
        results = evaluate_prior(prior, test.first(50), Setup(seeds=[0], progress=progress), budgets=(0.1, 0.2))
    results.write(folder / "results.json")
    Console().print(terminal_table(results.rows, "rings and crosses"))
    print(f"see {write_evaluation(folder / 'results.json')}")


if __name__ == "__main__":
    main()
