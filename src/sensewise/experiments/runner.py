"""Run an experiment so that nothing is lost: every measurement is journalled, the results are written at the end."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from rich.progress import Progress

import sensewise
from sensewise.checkpoint import locked
from sensewise.errors import DataError
from sensewise.experiments import EXPERIMENTS
from sensewise.experiments.journal import Journal, join, keeping
from sensewise.experiments.results import Results
from sensewise.processes import launch, lost_processes


def code_digest() -> str:
    """sha256 of the package's source: measurements of other code are never mixed."""
    digest, folder = hashlib.sha256(), Path(sensewise.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()


def run_experiment(
    name: str, preset: str, seeds: Sequence[int], folder: Path, progress: Progress, shard: tuple[int, int] = (0, 1)
) -> Results | None:
    """Run one experiment, or go on with it, and write `folder/NAME.json`.

    Args:
        name: a key of `EXPERIMENTS`.
        shard: `(i, n)` makes every n-th measurement only, for `merge_shards`; then no results are written.

    Returns:
        The results; None for one shard of several.
    """
    number, of = shard
    part = folder / (f"{name}.shard-{number + 1}-of-{of}.jsonl" if of > 1 else f"{name}.partial.jsonl")
    with locked(folder / f".{part.name}.lock"):
        journal = Journal(part, {"experiment": name, "preset": preset, "code": code_digest()}, shard)
        with keeping(journal):
            results = EXPERIMENTS[name](preset, seeds, progress)
        if of > 1:
            return None
        results.begun -= journal.seconds_before  # what was measured before a stop, or in shards, took its time too
        results.write(folder / f"{name}.json")
        part.unlink()
    return results


def run_on_devices(
    name: str, preset: str, seeds: Sequence[int], folder: Path, progress: Progress, devices: int, num_nodes: int = 1
) -> Results | None:
    """Run one experiment with several processes, a shard each; the first puts them together and has the results."""
    fabric = launch({"devices": devices, "num_nodes": num_nodes})
    with lost_processes(fabric, folder):
        run_experiment(name, preset, seeds, folder, progress, (fabric.global_rank, fabric.world_size))
        fabric.barrier()
    return merge_shards(name, preset, seeds, folder, progress) if fabric.is_global_zero else None


def merge_shards(name: str, preset: str, seeds: Sequence[int], folder: Path, progress: Progress) -> Results:
    """Put the journals of all shards together and write `folder/NAME.json`; what no shard measured is measured now."""
    parts = sorted(folder.glob(f"{name}.shard-*-of-*.jsonl"))
    if not parts:
        raise DataError(f"{folder} holds no shard of {name}: make them with `sensewise run {name} --shard i/n`")
    join(parts, folder / f"{name}.partial.jsonl")
    results = run_experiment(name, preset, seeds, folder, progress)
    assert results is not None
    for part in parts:
        part.unlink()
    return results
