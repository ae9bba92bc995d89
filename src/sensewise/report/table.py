"""Tables: rows of results in, one grid of cells out, for the terminal, a page or Markdown.

There is one pivot (`table`) and one rule for what stands out (`metrics.best_of`).
"""

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd
import rich.table
from markupsafe import Markup
from rich.markup import escape

from sensewise.errors import DataError
from sensewise.evaluate.rows import Row, Speed
from sensewise.report import metrics
from sensewise.report.methods import row_name


@dataclass(frozen=True)
class Cell:
    """One number of ours and, where there is one, the paper's.

    Attributes:
        ours: mean ± spread.
        beside: a second number of ours, in parentheses.
        paper: the paper's value, with its second number.
        best: whether it stands out.
    """

    ours: str
    beside: str = ""
    paper: str | None = None
    best: bool = False

    def markdown(self) -> str:
        ours = f"**{self.ours}**" if self.best else self.ours
        return f"{ours}{self.beside}" + ("" if self.paper is None else f"<br>paper {self.paper}")

    def html(self) -> str:
        mark = ' class="best"' if self.best else ""
        paper = "" if self.paper is None else f"<small>paper {html.escape(self.paper)}</small>"
        return f"<td{mark}>{html.escape(self.ours + self.beside)}{paper}</td>"

    def terminal(self) -> str:
        ours = escape(self.ours + self.beside)
        if self.best:
            ours = f"[bold green]{ours}[/]"
        return ours if self.paper is None else f"{ours}\n[dim]{escape(self.paper)}[/]"


@dataclass(frozen=True)
class Table:
    """A grid: a caption, the heads of its columns, and lines that begin with a name."""

    caption: str
    head: Sequence[str]
    lines: Sequence[tuple[str, Sequence[Cell]]]
    corner: str = ""

    def markdown(self) -> str:
        lines = [f"| {self.corner} | " + " | ".join(self.head) + " |", "|---" * (len(self.head) + 1) + "|"]
        lines += [f"| {name} | " + " | ".join(cell.markdown() for cell in cells) + " |" for name, cells in self.lines]
        return "\n".join(lines)

    def html(self) -> Markup:
        head = "".join(f"<th>{html.escape(text)}</th>" for text in (self.corner, *self.head))
        lines = []
        for name, cells in self.lines:
            lines.append(f"<tr><td>{html.escape(name)}</td>{''.join(cell.html() for cell in cells)}</tr>")
        return Markup(f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>")

    def terminal(self, note: str | None = None) -> rich.table.Table:
        drawn = rich.table.Table(title=escape(self.caption), caption=note, title_justify="left")
        drawn.add_column(self.corner)
        for text in self.head:
            drawn.add_column(escape(text), justify="right")
        for name, cells in self.lines:
            drawn.add_row(escape(name), *(cell.terminal() for cell in cells))
        return drawn


Name = Callable[[Row], str]


def budget_head(row: Row) -> str:
    """How a column calls a budget."""
    return f"s = {row.budget:g}"


def metric_head(row: Row) -> str:
    """How a column calls a metric."""
    return metrics.info(row.metric).label


def method_and_budget(row: Row) -> str:
    """How a line calls a method at one budget, where the columns are metrics."""
    return f"{row_name(row)}, {budget_head(row)}"


def table(
    rows: Sequence[Row],
    caption: str,
    metric: str | None = None,
    *,
    line: Name = row_name,
    column: Name = budget_head,
    lines: Sequence[str] | None = None,
    mark_best: bool = True,
    corner: str = "",
) -> Table:
    """Rows as a grid: lines in the order of the rows, columns from small budgets to large ones.

    Args:
        rows: at most one for each line and column; those of other metrics are left out.
        metric: what the cells show; None shows every metric, which then belongs to `line` or `column`.
        line: the name of a row's line; `lines` gives another order, and leaves out lines that it does not name.
        column: the name of a row's column.
        mark_best: whether the best of each column stands out.
    """
    shown = [row for row in rows if metric is None or row.metric == metric]
    places = _pivot(shown, line, column)
    beside = _beside(rows, metric, line, column)
    heads = list(dict.fromkeys(column(row) for row in sorted(shown, key=lambda row: row.budget)))
    best = set()
    if mark_best:
        for head in heads:
            best |= {id(row) for row in metrics.best_of([row for row in shown if column(row) == head])}
    drawn = []
    for name in lines or list(dict.fromkeys(line(row) for row in shown)):
        if name in places.index:
            cells = []
            for head in heads:
                place = places.at[name, head]
                row = None if pd.isna(place) else shown[int(place)]
                cells.append(_cell(row, beside.get((name, head)), row is not None and id(row) in best))
            drawn.append((name, cells))
    return Table(caption, heads, drawn, corner)


def _pivot(rows: Sequence[Row], line: Name, column: Name) -> pd.DataFrame:
    """Where the row of each line and column stands among the rows."""
    frame = pd.DataFrame({"line": [line(row) for row in rows], "column": [column(row) for row in rows]})
    twice = frame[frame.duplicated()]
    if len(twice):
        name, head = twice.iloc[0]
        raise DataError(f"a table cannot show two rows in one cell: {name}, {head}")
    return frame.assign(place=range(len(rows))).pivot(index="line", columns="column", values="place")


def _beside(rows: Sequence[Row], metric: str | None, line: Name, column: Name) -> dict[tuple[str, str], Row]:
    """The rows that stand in parentheses, by line and column."""
    second = None if metric is None else metrics.info(metric).beside
    return {(line(row), column(row)): row for row in rows if second is not None and row.metric == second}


def _cell(row: Row | None, beside: Row | None, best: bool) -> Cell:
    if row is None or row.mean is None:
        return Cell("–")
    paper = metrics.paper_value(row)
    if beside is None:
        return Cell(metrics.with_spread(row), "", paper, best)
    if paper is not None:
        paper += _share(beside.paper)
    return Cell(metrics.with_spread(row), _share(beside.mean), paper, best)


def _share(value: float | None) -> str:
    return "" if value is None else f" ({value:.0%})"


def with_lines(made: Table, *more: tuple[str, Sequence[Cell]]) -> Table:
    """A table with further lines below."""
    return Table(made.caption, made.head, [*made.lines, *more], made.corner)


def terminal_table(rows: Sequence[Row], title: str, metric: str = "errors") -> rich.table.Table:
    """Every method at every budget, the paper's value below ours; of several reconstructors, the judge's rows."""
    shown = metrics.pick(rows, reconstructor=(None, metrics.JUDGE))
    note = metrics.info(metric).axis
    if any(row.metric == metrics.info(metric).beside for row in shown):
        note += " (images exact)"
    if any(row.paper is not None for row in shown if row.metric == metric):
        note += "; the paper's numbers below ours"
    return table(shown, title, metric, corner="method").terminal(note)


def bench_table(speeds: Sequence[Speed]) -> rich.table.Table:
    """What was measured, what it should be, and whether it is."""
    words = {True: "yes", False: "no", None: ""}
    lines = []
    for speed in speeds:
        wanted = "" if speed.at_least is None else f">= {speed.at_least:g}"
        if speed.at_most is not None:
            wanted = f"<= {speed.at_most:g}"
        cells = [Cell(metrics.number(speed.value)), Cell(wanted), Cell(words[speed.holds], best=bool(speed.holds))]
        lines.append((speed.name, cells))
    return Table("Speed", ("measured", "wanted", "holds"), lines, corner="row").terminal()
