"""Tiny trainings in processes of their own, for the tests of faults and of several processes."""

import os
import sys
from pathlib import Path

import numpy as np

from sensewise.data import import_images

PRESET = """
[prior.imported.mixed]
batch_size = 4
[prior.imported.mixed.network]
widths = [8, 8]
blocks = [1, 1]
embedding = 8
[prior.imported.mixed.curriculum]
on_policy = 0.5
[prior.imported.mixed.fit]
steps = {steps}
save_minutes = {save_minutes}
validate_every = {steps}
"""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def prepare_training(folder: Path, steps: int, save_minutes: float = 0.0) -> None:
    """A data set of 40 images in `data`, and a preset `own.toml`."""
    np.save(folder / "images.npy", np.random.default_rng(0).integers(0, 255, (40, 24, 24), dtype=np.uint8))
    import_images(folder / "images.npy", folder / "data", size=24, levels=2)
    (folder / "own.toml").write_text(PRESET.format(steps=steps, save_minutes=save_minutes))


def training(folder: Path, name: str, *options: str) -> list[str]:
    """The command that trains in `folder/name`, or goes on there."""
    run = folder / name
    given = ["--data", folder / "data", "--preset", folder / "own.toml", "--out", run]
    resume = ["--resume"] if (run / "config.json").exists() else []
    return [sys.executable, "-m", "sensewise", "train", "prior", *map(str, given), *resume, *options]
