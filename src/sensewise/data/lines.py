"""Lists of phase-encode lines in a scanner's own numbers, in the order in which they are measured: `mask.txt`."""

import re
from dataclasses import dataclass
from pathlib import Path

from sensewise.errors import BudgetError, DataError
from sensewise.files import read_bytes, write_text

HEAD = re.compile(r"# scanner lines, (\d{1,5}) in all, line (\d{1,5}) in the middle")
"""How such a list begins. A list without it has row numbers of a crop, which no scanner knows."""
MOST_TEXT = 1_000_000  # bytes


@dataclass(frozen=True)
class ScanLines:
    """Lines to be measured.

    Attributes:
        numbers: of the lines, in their order.
        full: lines of the full matrix.
        middle: the number of the line through the middle of k-space.
    """

    numbers: tuple[int, ...]
    full: int
    middle: int

    def __post_init__(self) -> None:
        first = self.middle - self.full // 2
        if len(set(self.numbers)) != len(self.numbers) or not self.numbers:
            raise BudgetError("a list of lines names each one once, and at least one")
        if min(self.numbers) < first or max(self.numbers) >= first + self.full:
            raise BudgetError(
                f"lines are {first} to {first + self.full - 1}, got {min(self.numbers)} to {max(self.numbers)}"
            )

    def write(self, path: Path) -> None:
        """One number per line of text."""
        head = f"# scanner lines, {self.full} in all, line {self.middle} in the middle"
        write_text(path, "\n".join([head, *map(str, self.numbers)]) + "\n")


def read_lines(path: Path) -> ScanLines | None:
    """The lines of such a file; None for a list of another kind."""
    try:
        text = read_bytes(path, MOST_TEXT).decode().splitlines()
        if not text or (head := HEAD.fullmatch(text[0].strip())) is None:
            return None
        return ScanLines(tuple(int(line) for line in text[1:] if line.strip()), int(head[1]), int(head[2]))
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except BudgetError as error:
        raise BudgetError(f"{path}: {error}") from error
    except ValueError as error:
        raise DataError(f"{path} is not a list of line numbers: {error}") from error
