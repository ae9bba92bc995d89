"""Methods against the budget: one panel per metric, one line per method, the paper's values as hollow squares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, StrMethodFormatter

from sensewise.evaluate.rows import Row
from sensewise.report import methods, metrics
from sensewise.report.figures.style import style

DEVIATIONS = 2
"""How wide bands are: a difference inside them does not count."""
_HOLLOW: dict[str, Any] = {"marker": "s", "facecolors": "none", "s": 42, "linewidths": 1.1, "zorder": 3}
_MARKERS = ("o", "^", "v", "D", "P", "X", "<", ">", "p", "*")


@dataclass(frozen=True)
class Panel:
    """One metric against the budget.

    Attributes:
        rows: one per method and budget; those of other metrics are left out.
        metric: what is drawn.
        title: above the panel.
    """

    rows: Sequence[Row]
    metric: str
    title: str = ""

    @property
    def shown(self) -> list[Row]:
        """The rows that are drawn."""
        return [row for row in self.rows if row.metric == self.metric and row.mean is not None]


def by_method(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows by what a legend calls their method, from small budgets to large ones."""
    found: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.budget):
        found.setdefault(methods.row_name(row), []).append(row)
    order = dict.fromkeys(methods.row_name(row) for row in rows)
    return {name: found[name] for name in order}


def draw(axes: Axes, panel: Panel, markers: Mapping[str, str], aside: Sequence[str] = ()) -> None:
    """One panel: a line and a band of two standard deviations per method, hollow squares for the paper's values.

    Args:
        markers: by what a legend calls a method.
        aside: methods that do not stretch the axis of a gain; a note says where they are.
    """
    found = metrics.info(panel.metric)
    shown = panel.shown
    for name, curve in by_method(shown).items():
        values = np.array([row.mean for row in curve], dtype=float) * found.scale
        spread = DEVIATIONS * np.array([row.sd or 0.0 for row in curve]) * found.scale
        places = [row.budget for row in curve]
        colour = methods.info(curve[0].method).colour
        floor = found.floor if found.log else -np.inf
        line = methods.dash_of(curve[0].method, curve[0].steps)
        axes.plot(
            places, np.maximum(values, floor), line, color=colour, marker=markers[name], markersize=4.5, label=name
        )
        if spread.any():
            low = np.maximum(values - spread, floor)
            axes.fill_between(places, low, np.maximum(values + spread, floor), color=colour, alpha=0.2, linewidth=0)
    theirs = [row for row in panel.rows if row.metric == panel.metric and row.paper is not None]
    if theirs:
        values = np.array([row.paper for row in theirs], dtype=float) * found.scale
        colours = [methods.info(row.method).colour for row in theirs]
        places = [row.budget for row in theirs]
        axes.scatter(places, np.maximum(values, found.floor) if found.log else values, edgecolors=colours, **_HOLLOW)
        axes.scatter([], [], edgecolors="#444444", label="the paper's value", **_HOLLOW)
    if found.limits is not None:
        axes.set_ylim(found.limits)
    label = found.axis
    if found.log:
        axes.set_yscale("log")
        _plain_ticks(axes, [row.mean for row in shown if row.mean])
        everything = [row.mean for row in shown] + [row.paper for row in theirs]
        if any(value is not None and value < found.floor for value in everything):
            label += f" (below {found.floor:g} drawn there)"
            axes.set_ylim(bottom=0.8 * found.floor)
    axes.set(xlabel="budget: fraction measured", ylabel=label, xticks=sorted({row.budget for row in [*shown, *theirs]}))
    if panel.title:
        axes.set_title(panel.title, fontsize=10)
    if panel.metric.endswith("-gain"):
        axes.axhline(0, color="#999999", linewidth=0.8, zorder=1)
        _cut(axes, shown, found, aside)


def _plain_ticks(axes: Axes, values: Sequence[float]) -> None:
    """Numbers as people write them on a logarithmic axis of less than two decades."""
    if values and max(values) < 100 * min(values):
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_locator(LogLocator(subs=(2, 3, 5)))
        axes.yaxis.set_minor_formatter(StrMethodFormatter("{x:g}"))


def _cut(axes: Axes, rows: Sequence[Row], found: metrics.MetricInfo, aside: Sequence[str]) -> None:
    """Let the other methods decide how far the axis goes, and say where those beyond it are."""
    inside = [row.mean for row in rows if row.mean is not None and row.method not in aside]
    if not inside or len(inside) == len(rows):
        return
    low, high = min(inside) * found.scale, max(inside) * found.scale
    margin = 0.12 * (high - low)
    axes.set_ylim(low - 2.6 * margin, high + margin)
    notes: list[str] = []
    for name, curve in by_method([row for row in rows if row.method in aside]).items():
        values = [row.mean * found.scale for row in curve if row.mean is not None]
        if min(values) < low - margin:
            decimals = 0 if max(map(abs, values)) >= 20 else 1
            notes.append(f"cut: {name}, {max(values):+.{decimals}f} to {min(values):+.{decimals}f}")
    text = "\n".join(notes)
    if text:
        box: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
        axes.text(
            0.99,
            0.02,
            text,
            transform=axes.transAxes,
            ha="right",
            va="bottom",
            fontsize=7.5,
            color="#333333",
            bbox=box,
        )


def panels(shown: Sequence[Panel], columns: int | None = None, aside: Sequence[str] = ()) -> Figure:
    """Panels beside each other over one legend.

    Args:
        columns: how many panels stand in a line; all, unless it says otherwise.
        aside: methods that do not stretch the axis of a gain.
    """
    columns = columns or len(shown)
    lines = -(-len(shown) // columns)
    width = {1: 6.4, 2: 9.4}.get(columns, 3.5 * columns)
    names = max(1, int(width / 2.9))
    labels = dict.fromkeys(name for panel in shown for name in by_method(panel.rows))
    markers = {name: _MARKERS[place % len(_MARKERS)] for place, name in enumerate(labels)}
    with style():
        legend = 0.22 * (1 + len(labels) // names)
        figure = Figure(figsize=(width, 3.1 * lines + legend + 0.4), layout="constrained")
        grid = figure.subplots(lines, columns, squeeze=False)
        for axes, panel in zip(grid.flat, shown, strict=False):
            draw(axes, panel, markers, aside)
        handles: dict[str, Any] = {}
        for axes in grid.flat:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=names, fontsize=9)
    return figure


def against_budget(
    rows: Sequence[Row], shown: Sequence[str], columns: int | None = None, aside: Sequence[str] = ()
) -> Figure:
    """Figure closed and all its relatives: some metrics of the same methods against the budget.

    Args:
        rows: one for each method, budget and metric; gains are rows of `metrics.compared`.
        shown: the metrics, one panel each.
    """
    return panels([Panel(rows, metric) for metric in shown], columns, aside)
