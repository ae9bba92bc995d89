"""Adaptive scans with bluesky: a session as an `Optimizer` of bluesky-adaptive, whose aim is to know the whole picture.

`ScanOptimizer` has the methods of bluesky-adaptive's protocols `Optimizer`, `SupportsStoppingCriteria` and
`Checkpointable`, `RunReadings` those of its `EvaluationFunction`. Neither imports bluesky: what runs them comes with
the extra `bluesky`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sensewise.errors import ConfigError, SessionError
from sensewise.instruments.scan import Position, Scan

ID = "_id"
Point = Mapping[str, Any]


class ScanOptimizer:
    """Suggests positions of a scan, takes what was read there, and stops when its session does.

    A step of the session is handed out in as many points at a time as the plan asks for, in the order of a short path.
    A point is suggested again until its reading has come, so that a plan which failed can be run again.

    Args:
        scan: positions and session.
        rows: the name of the motor that moves along the rows.
        columns: the name of the motor that moves along the columns.
        reading: the name of the outcome that holds the reading.
        path: where `checkpoint` saves the session; None if it is never called.
    """

    def __init__(self, scan: Scan, rows: str, columns: str, reading: str, *, path: str | Path | None = None) -> None:
        self.scan, self.rows, self.columns, self.reading, self.path = scan, rows, columns, reading, path
        self._best: tuple[int, Point, Point] | None = None

    def _point(self, place: Position) -> Point:
        return {ID: place.number, self.rows: place.row, self.columns: place.column}

    def suggest(self, num_points: int | None = None) -> list[Point]:
        """The next points of this step, all of them by default, none once the session has ended."""
        return [self._point(place) for place in self.scan.next()[:num_points]]

    def ingest(self, points: Sequence[Point]) -> None:
        """Readings of suggested points, in any order; once a step is complete, the session decides on the next."""
        waiting, taken = self.scan.waiting, {}
        for point in points:
            if point.get(ID) not in waiting:
                raise SessionError(f"point {point.get(ID)!r} was not suggested: ingest takes what suggest has named")
            try:
                taken[int(point[ID])] = float(point[self.reading])
            except (KeyError, TypeError, ValueError) as error:
                raise SessionError(f"point {point[ID]} has no number {self.reading!r}, but {dict(point)}") from error
        for number, value in taken.items():
            if self._best is None or value > self._best[2][self.reading]:
                self._best = number, self._point(waiting[number]), {self.reading: value}
        self.scan.take(taken)

    def get_best_points(self) -> list[tuple[int, Point, Point]]:
        """The point with the highest reading so far: its number, where it is, and its reading."""
        return [] if self._best is None else [self._best]

    def should_stop(self) -> tuple[bool, str | None]:
        """Whether the session has ended, and why."""
        if self.scan.next():
            return False, None
        return True, "the picture is good enough" if self.scan.session.stopped else "the budget is spent"

    def checkpoint(self) -> None:
        """Save the session; points of a step under way are suggested again after it was restored."""
        if self.path is None:
            raise ConfigError("no path was given to save the session to: make the optimizer with path=...")
        self.scan.session.save(self.path)


class RunReadings:
    """An evaluation function that has listened to the run engine: `run_engine.subscribe(readings.listen)`.

    It finds the readings of bluesky-adaptive's `default_acquire`, which goes to the points in an order of its own.

    Args:
        key: of the detector in an event's data.
        reading: the name of the outcome, as for `ScanOptimizer`.
    """

    def __init__(self, key: str, reading: str) -> None:
        self.key, self.reading = key, reading
        self._runs: dict[str, str] = {}  # a descriptor to its run
        self._order: dict[str, list[Any]] = {}
        self._values: dict[str, list[float]] = {}

    def listen(self, name: str, document: Mapping[str, Any]) -> None:
        """Take a document of the run engine; runs that are no acquisition are left alone."""
        if name == "start" and "blop_acquisition_order" in document:
            self._order[document["uid"]] = list(document["blop_acquisition_order"])
            self._values[document["uid"]] = []
        elif name == "descriptor" and document["run_start"] in self._order:
            self._runs[document["uid"]] = document["run_start"]
        elif name == "event" and document["descriptor"] in self._runs:
            self._values[self._runs[document["descriptor"]]].append(document["data"][self.key])

    def __call__(self, uid: str, suggestions: Sequence[Point]) -> list[Point]:
        """The outcomes of a run, each with the `_id` of its suggestion; the run is forgotten."""
        if uid not in self._order:
            raise SessionError(f"run {uid} was not heard: subscribe `listen` to the run engine first")
        order, values = self._order.pop(uid), self._values.pop(uid)
        self._runs = {descriptor: run for descriptor, run in self._runs.items() if run != uid}
        if len(order) != len(values):
            raise SessionError(f"run {uid} has {len(values)} readings of {len(order)} points")
        return [{ID: number, self.reading: value} for number, value in zip(order, values, strict=True)]
