"""Tables of the report: a grid of text, as HTML and as Markdown. Results in, text out."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from sensewise.figures.style import name_of

Rows = list[dict[str, Any]]
STAGES = {"on-policy": "random masks, then its own greedy masks", "random-masks": "random masks only"}
"""What a prior was trained on, by the column `prior` of the results."""


@dataclass(frozen=True)
class Cell:
    """One number of ours and, where there is one, the paper's; the best of its column stands out."""

    ours: str
    paper: str | None = None
    best: bool = False

    def html(self) -> str:
        paper = "" if self.paper is None else f"<small>{html.escape(self.paper)}</small>"
        mark = ' class="best"' if self.best else ""
        return f"<td{mark}>{html.escape(self.ours)}{paper}</td>"

    def markdown(self) -> str:
        ours = f"**{self.ours}**" if self.best else self.ours
        return ours if self.paper is None else f"{ours}<br>paper {self.paper}"


@dataclass(frozen=True)
class Grid:
    """A table of any shape: column heads, then lines that begin with a name."""

    head: Sequence[str]
    lines: Sequence[tuple[str, Sequence[Cell]]]

    def html(self) -> Markup:
        head = "".join(f"<th>{html.escape(text)}</th>" for text in self.head)
        lines = []
        for name, cells in self.lines:
            lines.append(f"<tr><td>{html.escape(name)}</td>{''.join(cell.html() for cell in cells)}</tr>")
        return Markup(f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>")

    def markdown(self) -> str:
        lines = ["| " + " | ".join(self.head) + " |", "|---" * len(self.head) + "|"]
        lines += [f"| {name} | " + " | ".join(cell.markdown() for cell in cells) + " |" for name, cells in self.lines]
        return "\n".join(lines)


@dataclass(frozen=True)
class Section:
    """One experiment in the report.

    Attributes:
        title: its heading.
        text: paragraphs that a reader needs.
        tables: captions and rows, for tables of errors against budget.
        figures: by file name, with their captions.
        results: the results file.
        grids: captions and tables of any other shape.
    """

    title: str
    text: list[str]
    tables: list[tuple[str, Rows]]
    figures: dict[str, tuple[Figure | bytes, str]]
    results: dict[str, Any]
    grids: list[tuple[str, Grid]] = field(default_factory=list)


def number(value: float | None) -> str:
    """Three significant digits, never more than a person reads."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    size = abs(value)
    if size < 5e-6:
        return f"{value:.0e}"
    if size >= 1:
        return f"{value:.1f}" if size >= 10 else f"{value:.2f}"
    decimals = min(5, 2 - math.floor(math.log10(size)))
    return f"{value:.{decimals}f}".rstrip("0").rstrip(".")


def ours_of(row: dict[str, Any]) -> str:
    """A row's mean without its spread: decibels to hundredths, anything else to three digits."""
    return f"{row['mean']:.2f}" if row["metric"] == "psnr" and row["mean"] is not None else number(row["mean"])


def paper_of(row: dict[str, Any]) -> str:
    """The paper's value: decibels as it gives them, anything else to three digits."""
    return str(row["paper"]) if row["metric"] == "psnr" else number(row["paper"])


def with_spread(row: dict[str, Any]) -> str:
    """A row's mean and its standard deviation, both with the decimals of the mean."""
    text, mean, spread = ours_of(row), row["mean"], row["sd"]
    if not spread:
        return text
    decimals = len(text.partition(".")[2]) if "e" not in text else 6
    if 5e-6 <= abs(mean) < 1:  # with the zeros that `number` leaves out: 0.0180 ± 0.0001
        decimals = min(5, 2 - math.floor(math.log10(abs(mean))))
        text = f"{mean:.{decimals}f}"
    return f"{text} ± {spread:.{decimals}f}"


def pick(rows: Rows, **wanted: Any) -> Rows:
    """The rows whose columns have these values."""
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def budgets_of(rows: Rows) -> dict[float, str]:
    """The budgets of rows, from small to large, and how a table's head calls them."""
    return {budget: f"s = {budget:g}" for budget in sorted({row["budget"] for row in rows})}


def methods_of(rows: Rows) -> dict[str, str]:
    """The methods of rows, and how a table calls them."""
    return {row["method"]: name_of(row["method"], row["steps"]) for row in rows}


def cell(row: dict[str, Any] | None, best: bool = False) -> Cell:
    """A row's mean ± spread and the paper's value."""
    if row is None or row["mean"] is None:
        return Cell("–")
    return Cell(with_spread(row), None if row["paper"] is None else paper_of(row), best)


def grid(rows: Rows, line: str, column: str, heads: dict[Any, str], names: dict[Any, str], *, low: bool = True) -> Grid:
    """Rows as a grid: one line for each value of a key, one column for each value of another.

    The best of a column stands out; plain draws do not compete, since they are not on budget.

    Args:
        rows: at most one for each (line, column).
        line: the key that names the lines; `names` gives the order and how they are called.
        column: the key that names the columns; `heads` likewise.
        low: whether low values are good.
    """
    best: dict[Any, float] = {}
    for value in heads:
        means = [row["mean"] for row in pick(rows, **{column: value}) if row["mean"] is not None and _on_budget(row)]
        best[value] = (min if low else max)(means, default=math.nan)
    lines = []
    for name, shown in names.items():
        cells = []
        for value in heads:
            found = pick(rows, **{line: name, column: value})
            entry = found[0] if found else None
            cells.append(cell(entry, entry is not None and _on_budget(entry) and entry["mean"] == best[value]))
        lines.append((shown, cells))
    return Grid(["", *heads.values()], lines)


def _on_budget(row: dict[str, Any]) -> bool:
    """Every mask but a plain draw is."""
    return not row["method"].endswith("-bernoulli")


def densities(rows: Rows, heads: dict[float, str], names: dict[str, str]) -> Grid:
    """The realised density of every method at every budget, from the rows of one metric."""
    lines = []
    for method, shown in names.items():
        found = [pick(rows, method=method, budget=budget) for budget in heads]
        lines.append((shown, [Cell(f"{part[0]['density']:.3f}" if part else "–") for part in found]))
    return Grid(["", *heads.values()], lines)
