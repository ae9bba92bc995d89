"""Methods against the budget: one panel per metric, one line per method, the paper's values as hollow squares."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sensewise.evaluate.rows import Row
from sensewise.report import methods, metrics
from sensewise.report.figures.style import style

_HOLLOW: dict[str, Any] = {"marker": "s", "facecolors": "none", "s": 36, "linewidths": 1, "zorder": 3}


def by_method(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows by what a legend calls their method, from small budgets to large ones."""
    found: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.budget):
        found.setdefault(methods.row_name(row), []).append(row)
    order = dict.fromkeys(methods.row_name(row) for row in rows)
    return {name: found[name] for name in order}


def draw(axes: Axes, rows: Sequence[Row], metric: str) -> None:
    """One metric against the budget."""
    found = metrics.info(metric)
    shown = [row for row in rows if row.metric == metric and row.mean is not None]
    for name, curve in by_method(shown).items():
        values = np.array([row.mean for row in curve], dtype=float) * found.scale
        axes.plot(
            [row.budget for row in curve],
            np.maximum(values, found.floor) if found.log else values,
            methods.dash_of(curve[0].method, curve[0].steps),
            color=methods.info(curve[0].method).colour,
            marker="o",
            markersize=4,
            label=name,
        )
    theirs = [row for row in shown if row.paper is not None]
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
        everything = [row.mean for row in shown] + [row.paper for row in theirs]
        if any(value is not None and value < found.floor for value in everything):
            label += f" (below {found.floor:g} drawn there)"
            axes.set_ylim(bottom=0.8 * found.floor)
    axes.set(xlabel="budget: fraction measured", ylabel=label, xticks=sorted({row.budget for row in shown}))
    if metric.endswith("-gain"):
        axes.axhline(0, color="#999999", linewidth=0.8)


def against_budget(rows: Sequence[Row], shown: Sequence[str], columns: int | None = None) -> Figure:
    """Figure closed and all its relatives: some metrics against the budget.

    Args:
        rows: one for each method, budget and metric; gains are rows of `metrics.compared`.
        shown: the metrics, one panel each.
        columns: how many panels stand in a line; all, unless it says otherwise.
    """
    columns = columns or len(shown)
    lines = -(-len(shown) // columns)
    width = max(4.0 if columns > 2 else 5.2, 0.0) * max(columns, 1.45)
    names = max(1, int(width / 3.0))
    with style():
        legend = 0.22 * (1 + len(by_method(rows)) // names)
        figure = Figure(figsize=(width, 3.3 * lines + legend + 0.4), layout="constrained")
        grid = figure.subplots(lines, columns, squeeze=False)
        for axes, metric in zip(grid.flat, shown, strict=False):
            draw(axes, rows, metric)
        handles: dict[str, Any] = {}
        for axes in grid.flat:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=names, fontsize=9)
    return figure
