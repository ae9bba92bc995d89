"""Where ours differs from the paper, said openly: one table whose numbers and directions are computed.

What is compared, what the paper says and our explanation stand in `differences.toml`, written by people. A comparison
is a definition in the language of `report.prose`: two rows of ours per budget. The paper's two values come from the
same rows where the paper gives both.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from sensewise import presets
from sensewise.errors import DataError
from sensewise.evaluate.results import Results
from sensewise.evaluate.rows import Row
from sensewise.report import prose
from sensewise.report.section import Section
from sensewise.report.table import Cell, Table

FILE = Path(__file__).with_name("differences.toml")
Direction = Literal["above", "level", "below"]
MISSING = "not measured"


@dataclass(frozen=True)
class Difference:
    """One line of the table.

    Attributes:
        element: what is compared, in words.
        where: in the paper.
        ours: the definition of the number, one per budget.
        paper: the definition of the paper's number, if it belongs to other rows than ours.
        says: the paper's words, where it gives no number for every budget.
        expects: which way the paper points, above or below 0, by budget or for all; needed beside `says`.
        why: our explanation; empty if there is none.
    """

    element: str
    where: str
    ours: str
    paper: str = ""
    says: str = ""
    expects: tuple[Direction, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class _File:
    difference: tuple[Difference, ...] = field(default_factory=tuple)


def load(path: Path = FILE) -> tuple[Difference, ...]:
    """Every line that people have written."""
    return presets.build(_File, tomllib.loads(path.read_text(encoding="utf-8")), path.name).difference


def direction(value: float, spread: float = 0.0) -> Direction:
    """Whether a number is above or below 0, or within its spread."""
    if abs(value) <= spread:
        return "level"
    return "above" if value > 0 else "below"


def _ours(number: prose.Number, rows: Sequence[Row]) -> dict[float, Direction]:
    """Which way ours points at each budget; level within two standard deviations of either row."""
    found: dict[float, Direction] = {}
    for row in number.rows(rows):
        spread = 0.0
        if number.operation is not None:
            other = number.other(row, rows)
            difference = (row.mean or 0.0) - (other.mean or 0.0)
            if abs(difference) <= 2 * max(row.sd or 0.0, other.sd or 0.0):
                spread = float("inf")
        found[row.budget] = direction(number.value(row, rows), spread)
    return found


def _theirs(line: Difference, number: prose.Number, rows: Sequence[Row]) -> tuple[str, dict[float, Direction]]:
    """What the paper's cell shows, and which way the paper points at each budget."""
    budgets = list(dict.fromkeys(row.budget for row in number.rows(rows)))
    if line.says:
        expected = line.expects if len(line.expects) > 1 else line.expects * len(budgets)
        return line.says, dict(zip(budgets, expected, strict=True))
    asked = prose.parse(line.paper) if line.paper else replace(number, field="paper", other_field="paper")
    pointing = {row.budget: direction(asked.value(row, rows)) for row in asked.rows(rows)}
    return asked.text(rows), pointing


def _verdict(ours: Mapping[float, Direction], theirs: Mapping[float, Direction]) -> str:
    """Yes or no, and at which budgets if it depends."""
    same = [budget for budget, found in ours.items() if found == theirs[budget]]
    if len(same) == len(ours):
        return "yes"
    if not same:
        return "no"
    other = [budget for budget in ours if budget not in same]
    return f"yes at s = {_list(same)}; no at {_list(other)}"


def _list(budgets: Sequence[float]) -> str:
    return ", ".join(f"{budget:g}" for budget in budgets)


def cells(line: Difference, results: Mapping[str, Sequence[Row]]) -> tuple[str, list[Cell]]:
    """One line of the table."""
    number = prose.parse(line.ours)
    rows = results.get(number.experiment, ())
    why = line.why or "not explained"
    try:
        ours = _ours(number, rows)
        theirs, pointing = _theirs(line, number, rows)
        shown = [theirs, number.text(rows), _verdict(ours, pointing)]
    except DataError:  # rows of another time, or none yet: the report must not fail for a sentence in a table
        return f"{line.element} ({line.where})", [Cell(text) for text in (line.says or "–", MISSING, "–", why)]
    budgets = "" if number.form[:1] == ["range"] else f", s = {' / '.join(f'{budget:g}' for budget in ours)}"
    return f"{line.element} ({line.where}){budgets}", [Cell(text) for text in (*shown, why)]


def section(results: Mapping[str, Results]) -> Section | None:
    """Table "Where ours differs from the paper"."""
    rows = {name: found.rows for name, found in results.items()}
    lines = [cells(line, rows) for line in load() if prose.parse(line.ours).experiment in rows]
    if not lines:
        return None
    head = ("the paper", "ours", "same direction", "why")
    paragraphs = [
        "Every number of ours is computed from the results files; “same direction” compares its sign with the paper's "
        "at each budget, and calls ours level within two standard deviations over seeds. Explanations are written by "
        "people; where there is none, the table says so. MR rows of ours are on brain-t1, the paper's on fastMRI.",
    ]
    return Section("Where ours differs from the paper", paragraphs, [Table("", head, lines, "element")])
