"""Run an experiment so that nothing is lost: every measurement is journalled, the results are written at the end."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rich.progress import Progress

from sensewise.errors import DataError
from sensewise.evaluate.experiment import Experiment, Setup
from sensewise.evaluate.journal import Journal, Measure, Plan, Value, join
from sensewise.evaluate.kept import Kept
from sensewise.evaluate.results import Results
from sensewise.files import locked
from sensewise.priors.engines import EngineName

Engine = Callable[[Sequence[str]], Iterable[tuple[str, Value, float]]]
"""Has measurements made elsewhere: from their keys to key, value and seconds of each, in any order, as they come."""


def plan(
    experiment: Experiment,
    preset: str,
    seeds: Sequence[int],
    kept: Kept | None = None,
    computed_by: EngineName = "torch",
) -> dict[str, Measure]:
    """Every measurement of an experiment by key, apart from rows that are kept; none of them is made."""
    noted = Plan()
    experiment.run(Setup(preset, seeds, noted, kept=kept, engine=computed_by))
    return noted.measures


def run_experiment(
    experiment: Experiment,
    preset: str,
    seeds: Sequence[int],
    folder: Path,
    progress: Progress | None = None,
    shard: tuple[int, int] = (0, 1),
    engine: Engine | None = None,
    kept: Kept | None = None,
    computed_by: EngineName = "torch",
) -> Results | None:
    """Run one experiment, or go on with it, and write `folder/NAME.json`.

    Args:
        engine: makes the measurements that are missing, elsewhere; each is journalled here as it comes. What it leaves
            is measured here.
        shard: `(i, n)` makes every n-th measurement only, for `merge_shards`; then no results are written.
        kept: rows of an earlier file, which are not measured again.
        computed_by: what computes the networks of priors over images.

    Returns:
        The results; None for one shard of several.
    """
    begun, (number, of), name = time.monotonic(), shard, experiment.name
    part = folder / (f"{name}.shard-{number + 1}-of-{of}.jsonl" if of > 1 else f"{name}.partial.jsonl")
    lock = folder / f".{part.name}.lock"
    with locked(lock):
        origin = {"experiment": name, "preset": preset, "code": experiment.digest()}
        journal = Journal(part, origin, shard)
        shown = progress or Progress(disable=True)
        if engine is not None:
            missing = [key for key in plan(experiment, preset, seeds, kept, computed_by) if key not in journal.found]
            for key, value, taken in shown.track(engine(missing), total=len(missing), description=name):
                journal.add(key, value, taken)
        results = experiment.run(Setup(preset, seeds, journal, shown, kept, computed_by))
        if kept is not None:
            kept.check(results.weights)
        if not journal.is_shard:
            seconds = time.monotonic() - begun + journal.seconds_before  # earlier sittings and shards count as well
            seconds += kept.earlier.seconds if kept is not None else 0.0
            results = replace(results, seconds=seconds, engine=computed_by)
            results.write(folder / f"{name}.json")
            part.unlink()
        with suppress(OSError):  # some systems keep an open file
            lock.unlink()
    return None if journal.is_shard else results


def merge_shards(
    experiment: Experiment,
    preset: str,
    seeds: Sequence[int],
    folder: Path,
    progress: Progress | None = None,
    kept: Kept | None = None,
    computed_by: EngineName = "torch",
) -> Results:
    """Put the journals of all shards together and write `folder/NAME.json`; what no shard measured is measured now."""
    name = experiment.name
    parts = sorted(folder.glob(f"{name}.shard-*-of-*.jsonl"))
    if not parts:
        raise DataError(f"{folder} holds no shard of {name}: make them with `sensewise run {name} --shard i/n`")
    join(parts, folder / f"{name}.partial.jsonl")
    results = run_experiment(experiment, preset, seeds, folder, progress, kept=kept, computed_by=computed_by)
    assert results is not None
    for part in parts:
        part.unlink()
    return results
