"""Results: one JSON file per experiment, with where its rows come from, and the arrays of its figures beside it.

No model is known here: reports read these files and nothing else.
"""

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from sensewise import __version__
from sensewise.data.arrays import load_arrays
from sensewise.errors import DataError
from sensewise.evaluate.rows import Row, Speed, fits
from sensewise.files import atomic, read_json, write_json

Arrays = dict[str, np.ndarray]
GIT_SECONDS = 20  # a repository on a slow network drive, or a lock that nobody gives back
_HEADER = ("experiment", "preset", "dataset", "commit", "seconds", "machine", "weights", "notes", "rows")


@dataclass(frozen=True)
class Results:
    """The rows of one experiment and where they come from.

    Attributes:
        experiment: its name.
        preset: whose weights were used.
        dataset: of rows that do not name another.
        rows: what was measured.
        weights: the fingerprint of every model, by name.
        notes: what a reader has to know, such as what was left out.
        arrays: of the figures; not read back by `read_results`.
        seconds: how long it took, over all sittings and shards.
        commit: of the code; filled in when the results are written.
        machine: processor and threads; filled in when the results are written.
        engine: what computed the networks of priors over images; `machine` says it if it was not PyTorch in float32.
    """

    experiment: str
    preset: str
    dataset: str
    rows: Sequence[Row] = ()
    weights: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    arrays: Arrays = field(default_factory=dict)
    seconds: float = 0.0
    commit: str = ""
    machine: Mapping[str, Any] = field(default_factory=dict)
    engine: str = "torch"

    def adding(self, *, notes: Sequence[str] = (), arrays: Arrays | None = None, rows: Sequence[Row] = ()) -> Self:
        """The same results with further notes, arrays and rows."""
        more = {**self.arrays, **(arrays or {})}
        return replace(self, notes=[*self.notes, *notes], arrays=more, rows=[*self.rows, *rows])

    def write(self, path: Path) -> None:
        """Write `path`, and the arrays of the figures beside it as `.npz`."""
        if self.arrays:
            with atomic(path.with_suffix(".npz")) as temporary:
                np.savez_compressed(temporary, allow_pickle=False, **self.arrays)
        write_json(path, self._as_json([row.as_json() for row in self.rows]))

    def write_speeds(self, path: Path, speeds: Sequence[Speed]) -> None:
        """Write `bench.json`: the same header over rows of speeds."""
        write_json(path, self._as_json([speed.as_json() for speed in speeds]))

    def _as_json(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "experiment": self.experiment,
            "preset": self.preset,
            "dataset": self.dataset,
            "commit": self.commit or commit(),
            "seconds": round(self.seconds, 1),
            "machine": self.machine or self._machine(),
            "weights": self.weights,
            "notes": list(self.notes),
            "rows": rows,
        }

    def _machine(self) -> dict[str, Any]:
        engine = {} if self.engine == "torch" else {"engine": self.engine}
        return {"cpu": cpu_name(), "threads": torch.get_num_threads(), **engine}


def _read(path: Path) -> dict[str, Any]:
    """The table of a results file; refuses one without its header."""
    table = read_json(path)
    missing = [name for name in _HEADER if not isinstance(table, dict) or name not in table]
    if missing:
        raise DataError(f"{path} is not a results file: it does not say its {', '.join(missing)}")
    lists = isinstance(table["rows"], list) and isinstance(table["notes"], list)
    if not lists or not table["rows"] or not all(isinstance(table[name], dict) for name in ("machine", "weights")):
        raise DataError(f"{path} is not a results file: it needs rows and notes, and tables of machine and weights")
    words = ("experiment", "preset", "dataset", "commit")
    if not fits(table["seconds"], float) or not all(fits(table[name], str) for name in words):
        raise DataError(f"{path} is not a results file: {', '.join(words)} are words, and seconds is a number")
    return table


def read_results(path: Path) -> Results:
    """A results file, of this version or an older one, without its arrays."""
    table = _read(path)
    try:
        rows = [Row.from_json(row, table["dataset"]) for row in table["rows"]]
    except DataError as error:
        raise DataError(f"{path} is not a results file: {error}") from error
    return Results(**{**{name: table[name] for name in _HEADER}, "rows": rows})


def read_speeds(path: Path) -> list[Speed]:
    """The rows of a `bench.json`."""
    return [Speed.from_json(row) for row in _read(path)["rows"]]


def read_arrays(path: Path) -> Arrays:
    """The arrays beside a results file."""
    return load_arrays(path.with_suffix(".npz"))


def commit() -> str:
    """The commit that the package runs from, with `+changes` if it was edited; the version outside a checkout."""
    folder = Path(__file__).parent.parent
    try:
        head = _git("rev-parse", "HEAD", cwd=folder)
        changed = _git("status", "--porcelain", "--", str(folder), cwd=folder)
    except (OSError, subprocess.SubprocessError):
        return f"v{__version__}"
    return head + ("+changes" if changed else "")


def _git(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True, check=True, timeout=GIT_SECONDS)
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
