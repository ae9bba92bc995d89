"""Rows of an earlier results file that need not be measured again.

A row is kept where everything that names it is the same: data, method, steps, budget, number of images and seeds, judge
and all further columns. It then says which commit measured it. What has changed is not seen here, so it has to be said:
methods named in `again` are measured anew, and weights that have changed belong to one of them, or nothing is written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sensewise.errors import ConfigError
from sensewise.evaluate.results import Results
from sensewise.evaluate.rows import Row

VALUES = ("density", "mean", "sd", "seeds", "paper", "commit")
"""Columns that say what was found; the others name the row."""
LATER = ("better",)
"""Columns that are filled in from other rows."""


def name_of(row: Row) -> tuple[Any, ...]:
    """Everything that names a row."""
    return tuple(value for name, value in vars(row).items() if name not in (*VALUES, *LATER))


@dataclass(frozen=True)
class Kept:
    """The rows of a results file.

    Attributes:
        earlier: the file.
        again: beginnings of the names of methods that are measured anew.
    """

    earlier: Results
    again: tuple[str, ...] = ()

    def __call__(self, wanted: Sequence[Row], seeds: int) -> list[Row] | None:
        """Rows of one method at one budget, if the file has them all.

        Args:
            wanted: the rows as they would be named, with the paper's values.
            seeds: of every row; 1 for a method without randomness, whose five equal runs count as one.
        """
        if any(row.method.startswith(self.again) for row in wanted):
            return None
        known = {name_of(row): row for row in self.earlier.rows}
        found = [known.get(name_of(row)) for row in wanted]
        if any(row is None or not (row.seeds == seeds or (seeds == 1 and row.sd == 0)) for row in found):
            return None
        return [
            replace(row, seeds=seeds, paper=new.paper, better=None, commit=row.commit or self.earlier.commit)
            for row, new in zip(found, wanted, strict=True)
            if row is not None
        ]

    def check(self, weights: Mapping[str, str]) -> None:
        """Refuse weights that are others than those of the file and belong to no method that was measured anew."""
        before = self.earlier.weights
        changed = [name for name, value in weights.items() if before.get(name, value) != value]
        unsaid = [name for name in changed if not any(method in name for method in self.again)]
        if unsaid:
            raise ConfigError(
                f"{', '.join(unsaid)} changed since results/{self.earlier.experiment}.json was measured: name the "
                "methods that use them with --again, or run without --keep"
            )
