"""A session in an instrument's own units: pixels are positions of its motors, readings what its detector shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sensewise.errors import ConfigError, SessionError
from sensewise.session import Session


@dataclass(frozen=True)
class Position:
    """One pixel of a scan.

    Attributes:
        number: of the pixel, in raster order.
        row: where the motor along the rows has to be.
        column: the same along the columns.
    """

    number: int
    row: float
    column: float


class Scan:
    """Which positions to go to next; their readings may come one by one and in any order.

    Args:
        session: an acquisition of one channel that has not begun, or was restored.
        rows: positions along the rows, `(H,)`.
        columns: positions along the columns, `(W,)`.
        low: the reading that is black.
        high: the reading that is white.
        sigma: standard deviation of a reading, in its own units, for priors that know noise; None for no noise.
    """

    def __init__(
        self,
        session: Session,
        rows: Sequence[float] | np.ndarray,
        columns: Sequence[float] | np.ndarray,
        *,
        low: float = 0.0,
        high: float = 1.0,
        sigma: float | None = None,
    ) -> None:
        self.session = session
        self.rows = np.asarray(rows, dtype=np.float64)
        self.columns = np.asarray(columns, dtype=np.float64)
        found = (1, len(self.rows), len(self.columns))
        if found != session.shape:
            raise ConfigError(f"a session of shape {session.shape} needs as many positions, not {found}")
        if not low < high:
            raise ConfigError(
                f"the reading that is black must be below the one that is white, got {low:g} and {high:g}"
            )
        self.low, self.range, self.sigma = low, high - low, sigma
        self.waiting: dict[int, Position] = {}  # of this step, in the order of a short path
        self._read: dict[int, float] = {}

    def next(self) -> list[Position]:
        """The positions of this step that have not been read, in the order of a short path; none at the end."""
        if not self.waiting and (pixels := self.session.ask()) is not None:
            for row, column in pixels.tolist():
                number = row * len(self.columns) + column
                self.waiting[number] = Position(number, float(self.rows[row]), float(self.columns[column]))
        return [place for number, place in self.waiting.items() if number not in self._read]

    def take(self, readings: Mapping[int, float]) -> None:
        """Readings by the numbers of their pixels; once a step is complete, the session takes it."""
        if unknown := set(readings) - set(self.waiting):
            raise SessionError(f"position {unknown.pop()!r} was not asked for: only readings of this step are taken")
        self._read.update(readings)
        if self.waiting and len(self._read) == len(self.waiting):
            values = np.array([self._read[number] for number in self.waiting])
            sigma = None if self.sigma is None else self.sigma / self.range
            self.session.tell((values - self.low) / self.range, sigma)
            self.waiting, self._read = {}, {}
