"""Numbers inside prose, filled in from results so that they cannot go stale.

A writer marks a number and gives it a name; what it is stands in a comment at the end of the file:

    Spread picks reach <!--=spread-->21.79 / 26.91<!--=--> dB.

    <!-- numbers
    spread = cifar10-sequential psnr spread-variance-greedy/16 prior=on-policy s=0.1,0.3
    -->

A definition names an experiment, a metric, a method with its steps, and whatever columns of `Row` are needed to find
one row per budget (`s=` is the budget). `sensewise report` replaces the text between the marks. Further words:

    field=density                 another column than the mean: density, paper, images, ...
    minus / below / times ...     the difference to another row, how many per cent it is below it, how many times it
                                  goes into it; only what is different is named: `minus random/1`,
                                  `minus prior=random-masks`
    deviations ...                how many standard deviations of that row it is below it
    as range                      the lowest and the highest value, "0.89 to 1.00", of as many rows as there are
    as mean                       the mean of as many rows as there are
    as cells                      mean ± spread, for the cells of a table
    as .1f                        a format of Python
"""

import itertools
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from sensewise.errors import DataError
from sensewise.evaluate.rows import Row
from sensewise.report import metrics

MARK = re.compile(r"<!--=(?P<name>[\w-]+)-->(?P<value>.*?)<!--=-->", re.DOTALL)
BLOCK = re.compile(r"<!-- numbers\n(?P<lines>.*?)-->", re.DOTALL)
BULLET = re.compile(r"[\s>*+-]*(\d+\.\s*)?")
OPERATIONS: dict[str, metrics.Comparison] = {
    "minus": metrics.difference,
    "below": metrics.reduction,
    "times": metrics.ratio,
    "deviations": metrics.difference,
}
_VALUES = {"mean", "sd", "density", "paper", "seeds", "wins", "paper_wins", "evaluation_seeds", "commit"}
_COLUMNS = [field.name for field in fields(Row) if field.name not in _VALUES]  # what tells rows apart
_FORMATS = {"minus": ".2f", "below": ".1f", "deviations": ".0f", "density": ".3f", "images": ",", "seeds": "d"}

Results = Mapping[str, Sequence[Row]]
"""The rows of experiments, by name."""


@dataclass(frozen=True)
class Number:
    """What a marked number is: a definition, taken apart.

    Attributes:
        experiment: whose rows.
        columns: what they have in their columns, as text; several values are possible.
        field: the column that is shown.
        operation: a key of `OPERATIONS`, or None.
        changes: how the row that it is compared with differs.
        other_field: the column of that row.
        form: the words after `as`.
    """

    experiment: str
    columns: Mapping[str, Sequence[str]]
    field: str
    operation: str | None
    changes: Mapping[str, Sequence[str]]
    other_field: str
    form: Sequence[str]

    def rows(self, rows: Sequence[Row]) -> list[Row]:
        """The rows that it is about, from small budgets to large ones."""
        found = [row for row in rows if _matches(row, self.columns)]
        if not found:
            raise DataError("no row of the results has these columns")
        return sorted(found, key=lambda row: row.budget)

    def other(self, row: Row, rows: Sequence[Row]) -> Row:
        """The row that one is compared with."""
        wanted = {name: [str(getattr(row, name))] for name in _COLUMNS} | dict(self.changes)
        others = [other for other in rows if _matches(other, wanted)]
        if len(others) != 1:
            raise DataError(f"{len(others)} rows to compare with at s = {row.budget:g}: name its columns")
        return others[0]

    def value(self, row: Row, rows: Sequence[Row]) -> float:
        """The number of one row."""
        value = _get(row, self.field)
        if self.operation is None:
            return value
        compared = self.other(row, rows)
        other = _get(compared, self.other_field)
        if self.operation == "deviations":
            return (other - value) / _get(compared, "sd")
        return OPERATIONS[self.operation](value, other)

    def text(self, rows: Sequence[Row]) -> str:
        """What stands between the marks."""
        found = self.rows(rows)
        if "cells" in self.form and self.operation is None:
            self._check_single(found)
            return " | ".join(metrics.with_spread(row) for row in found)
        if "range" in self.form:  # of those that have a value: the paper has not measured everything
            found = [row for row in found if getattr(row, self.field) is not None]
        values = [self.value(row, rows) for row in found]
        shown = [self._formatted(value, row) for value, row in zip(values, found, strict=True)]
        if "range" in self.form:
            low, high = values.index(min(values)), values.index(max(values))
            return f"{shown[low]} to {shown[high]}"
        if "mean" in self.form:
            return self._formatted(sum(values) / len(values), found[0])
        self._check_single(found)
        return (" | " if "cells" in self.form else " / ").join(shown)

    def _check_single(self, found: Sequence[Row]) -> None:
        for before, after in itertools.pairwise(found):
            if before.budget == after.budget:
                names = [name for name in _COLUMNS if getattr(before, name) != getattr(after, name)]
                raise DataError(f"several rows at s = {after.budget:g}: name {' or '.join(names)}, or show a range")

    def _formatted(self, value: float, row: Row) -> str:
        given = next((word for word in self.form if word not in ("range", "mean", "cells")), None)
        given = given or _FORMATS.get(self.operation or self.field)
        if given is not None:
            return format(value, given)
        if self.operation is not None:
            return metrics.number(value)
        return metrics.paper_value(row) or "–" if self.field == "paper" else metrics.number(value, row.metric)


def _matches(row: Row, columns: Mapping[str, Sequence[str]]) -> bool:
    return all(str(getattr(row, name)) in values for name, values in columns.items())


def _get(row: Row, field: str) -> float:
    value = getattr(row, field)
    if value is None:
        raise DataError(f"{field} has no value at s = {row.budget:g}")
    return value


def parse(definition: str) -> Number:
    """A definition, taken apart."""
    words = shlex.split(definition)
    form: list[str] = []
    if "as" in words:
        place = words.index("as")
        form = words[place + 1 :]
        words = words[:place]
    operation = next((word for word in words if word in OPERATIONS), None)
    place = words.index(operation) if operation else len(words)
    first, second = words[:place], words[place + 1 :]
    if len(first) < 3:
        raise DataError("a number needs an experiment, a metric and a method")
    columns = _columns(first[2:]) | {"metric": [first[1]]}
    changes = _columns(second)
    field = columns.pop("field", ["mean"])[0]
    other_field = changes.pop("field", ["mean"])[0]
    return Number(first[0], columns, field, operation, changes, other_field, form)


def _columns(words: Sequence[str]) -> dict[str, list[str]]:
    """`METHOD[/STEPS]` and `column=value,value` as columns and their values."""
    found: dict[str, list[str]] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            method, slash, steps = word.partition("/")
            found["method"] = method.split(",")
            if slash:
                found["steps"] = [steps]
            continue
        name = {"s": "budget"}.get(name, name)
        if name != "field" and name not in _COLUMNS:
            raise DataError(f"there is no column {name!r}: choose one of {', '.join(_COLUMNS)}")
        found[name] = value.split(",")
    return found


def definitions(text: str) -> dict[str, str]:
    """Every name of a file's comments and its definition."""
    found = {}
    for block in BLOCK.finditer(text):
        for line in filter(None, map(str.strip, block["lines"].splitlines())):
            name, equals, definition = line.partition(" = ")
            if not equals or name in found:
                raise DataError(f"{line!r} is not `NAME = DEFINITION`, or its name is there twice")
            found[name] = definition
    return found


def fill(text: str, results: Results, source: str = "the text") -> str:
    """Bring every marked number up to date; those of experiments without results stay as they are.

    Args:
        source: what a message calls the text.
    """
    try:
        known = definitions(text)
    except DataError as error:
        raise DataError(f"{source}: {error}") from error
    used = set()

    def filled(mark: re.Match[str]) -> str:
        name = mark["name"]
        used.add(name)
        begin = text.rfind("\n", 0, mark.start()) + 1
        if BULLET.fullmatch(text[begin : mark.start()]):
            raise DataError(f"{source}: the mark {name} begins a line, which Markdown takes for HTML; move it")
        if name not in known:
            raise DataError(f"{source}: {name} is marked, but not defined in a comment `<!-- numbers`")
        try:
            number = parse(known[name])
            if number.experiment not in results:
                return mark[0]
            return f"<!--={name}-->{number.text(results[number.experiment])}<!--=-->"
        except (DataError, ValueError) as error:
            raise DataError(f"{source}: {name} = {known[name]}: {error}") from error

    made = MARK.sub(filled, text)
    if unused := sorted(set(known) - used):
        raise DataError(f"{source}: {', '.join(unused)} is defined, but not marked in the text")
    return made
