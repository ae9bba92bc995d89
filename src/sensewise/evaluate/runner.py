"""Run an experiment so that nothing is lost: every measurement is journalled, the results are written at the end."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rich.progress import Progress

from sensewise.errors import DataError
from sensewise.evaluate.experiment import Experiment, Setup
from sensewise.evaluate.journal import Journal, code_digest, join
from sensewise.evaluate.results import Results
from sensewise.files import locked


def run_experiment(
    experiment: Experiment,
    preset: str,
    seeds: Sequence[int],
    folder: Path,
    progress: Progress | None = None,
    shard: tuple[int, int] = (0, 1),
) -> Results | None:
    """Run one experiment, or go on with it, and write `folder/NAME.json`.

    Args:
        shard: `(i, n)` makes every n-th measurement only, for `merge_shards`; then no results are written.

    Returns:
        The results; None for one shard of several.
    """
    begun, (number, of), name = time.monotonic(), shard, experiment.name
    part = folder / (f"{name}.shard-{number + 1}-of-{of}.jsonl" if of > 1 else f"{name}.partial.jsonl")
    lock = folder / f".{part.name}.lock"
    with locked(lock):
        origin = {"experiment": name, "preset": preset, "code": code_digest(experiment.run)}
        journal = Journal(part, origin, shard)
        results = experiment.run(Setup(preset, seeds, journal, progress or Progress(disable=True)))
        if not journal.is_shard:
            seconds = time.monotonic() - begun + journal.seconds_before  # earlier sittings and shards count as well
            results = replace(results, seconds=seconds)
            results.write(folder / f"{name}.json")
            part.unlink()
        with suppress(OSError):  # some systems keep an open file
            lock.unlink()
    return None if journal.is_shard else results


def merge_shards(
    experiment: Experiment, preset: str, seeds: Sequence[int], folder: Path, progress: Progress | None = None
) -> Results:
    """Put the journals of all shards together and write `folder/NAME.json`; what no shard measured is measured now."""
    name = experiment.name
    parts = sorted(folder.glob(f"{name}.shard-*-of-*.jsonl"))
    if not parts:
        raise DataError(f"{folder} holds no shard of {name}: make them with `sensewise run {name} --shard i/n`")
    join(parts, folder / f"{name}.partial.jsonl")
    results = run_experiment(experiment, preset, seeds, folder, progress)
    assert results is not None
    for part in parts:
        part.unlink()
    return results


def run_together(
    experiment: Experiment,
    preset: str,
    seeds: Sequence[int],
    folder: Path,
    progress: Progress | None = None,
    *,
    rank: int,
    world_size: int,
    barrier: Callable[[], None],
) -> Results | None:
    """Run one experiment with several processes, a shard each; the first puts them together and has the results.

    Args:
        rank: number of this process, from 0.
        world_size: how many there are.
        barrier: returns when all processes have called it.
    """
    run_experiment(experiment, preset, seeds, folder, progress, (rank, world_size))
    barrier()
    return merge_shards(experiment, preset, seeds, folder, progress) if rank == 0 else None
