"""Results: one JSON file an experiment, one row a (method, steps, budget, metric)."""

import math
import os
import platform
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sensewise import __version__
from sensewise.checkpoint import atomic, read_json, write_json
from sensewise.data.arrays import load_arrays
from sensewise.errors import DataError

ORIGIN = {"experiment", "preset", "dataset", "commit", "seconds", "machine", "weights", "notes"}
WORDS, COUNTS, NUMBERS = {"method", "metric"}, {"steps", "images", "seeds"}, {"budget", "density"}
UNSURE = {"mean", "sd", "paper"}  # numbers, or None
KEYS = WORDS | COUNTS | NUMBERS | UNSURE


def row(
    method: str,
    steps: int,
    budget: float,
    density: float,
    metric: str,
    per_seed: list[float],
    images: int,
    paper: float | None,
    **columns: Any,
) -> dict[str, Any]:
    """One row; `per_seed` holds the mean over images for each seed, `sd` is their sample standard deviation."""
    mean = sum(per_seed) / len(per_seed)
    spread = sum((value - mean) ** 2 for value in per_seed) / max(1, len(per_seed) - 1)
    return {
        "method": method,
        "steps": steps,
        "budget": budget,
        "density": round(density, 6),
        "metric": metric,
        "mean": _number(mean),
        "sd": _number(math.sqrt(spread)),
        "images": images,
        "seeds": len(per_seed),
        "paper": paper,
        **columns,
    }


def _number(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


@dataclass
class Results:
    """The rows of one experiment and where they come from."""

    experiment: str
    preset: str
    dataset: str
    weights: dict[str, str] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    begun: float = field(default_factory=time.monotonic)

    def write(self, path: Path) -> None:
        """Write `path`, and the arrays of the figures beside it as `.npz`."""
        if self.arrays:
            with atomic(path.with_suffix(".npz")) as temporary:
                np.savez_compressed(temporary, allow_pickle=False, **self.arrays)
        write_json(
            path,
            {
                "experiment": self.experiment,
                "preset": self.preset,
                "dataset": self.dataset,
                "commit": commit(),
                "seconds": round(time.monotonic() - self.begun, 1),
                "machine": {"cpu": cpu_name(), "threads": torch.get_num_threads()},
                "weights": self.weights,
                "notes": self.notes,
                "rows": self.rows,
            },
        )


def read_results(path: Path) -> dict[str, Any]:
    """A results file, checked for the keys that tables and figures need."""
    value: Any = read_json(path)
    rows = value.get("rows") if isinstance(value, dict) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(r, dict) and set(r) >= KEYS for r in rows):
        raise DataError(f"{path} is not a results file: it needs rows, each with {', '.join(sorted(KEYS))}")
    if missing := sorted(ORIGIN - set(value)):
        raise DataError(f"{path} is not a results file: it does not say its {', '.join(missing)}")
    if not isinstance(value["notes"], list) or not all(map(_is_row, rows)):
        raise DataError(f"{path} is not a results file: words stand where numbers belong, or the other way round")
    return value


def _is_row(row: dict[str, Any]) -> bool:
    def are(names: set[str], kind: Any) -> bool:
        return all(isinstance(row[name], kind) for name in names)

    return are(WORDS, str) and are(COUNTS, int) and are(NUMBERS, float | int) and are(UNSURE, float | int | None)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays beside a results file."""
    return load_arrays(path.with_suffix(".npz"))


def commit() -> str:
    """The commit that the package runs from, with `+changes` if it was edited; the version outside a checkout."""
    folder = Path(__file__).parent
    try:
        head = _git("rev-parse", "HEAD", cwd=folder)
        changed = _git("status", "--porcelain", "--", str(folder), cwd=folder)
    except (OSError, subprocess.CalledProcessError):
        return f"v{__version__}"
    return head + ("+changes" if changed else "")


def _git(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def cpu_name() -> str:
    """The processor's name and number of cores."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{name}, {os.cpu_count()} cores"
