"""Errors against the time of a decision: what is lost, and what is saved, when a small prior decides."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from sensewise.report.figures.style import style

_LOOKS = (("#7f7f7f", "o", "-"), ("#118ab2", "s", "-"), ("#073b4c", "D", ""))


@dataclass(frozen=True)
class Line:
    """One way to train small priors.

    Attributes:
        label: in the legend.
        points: seconds per decision, errors and name of each.
    """

    label: str
    points: Sequence[tuple[float, float, str]]


def errors_against_time(
    lines: Sequence[Line], full: tuple[float, float], wanted: tuple[float, float], budget: float
) -> Figure:
    """A line per way to train, from quick to slow.

    Args:
        full: seconds and errors of the full prior.
        wanted: seconds and errors that are wanted at most.
        budget: in the label of the axis.
    """
    with style():
        figure = Figure(figsize=(6.4, 4.2), layout="constrained")
        axes = figure.subplots()
        for line, (colour, marker, dash) in zip(lines, _LOOKS, strict=True):
            if not line.points:
                continue  # none of them was trained
            points = sorted(line.points)
            places = [1e3 * point[0] for point in points]
            errors = [point[1] for point in points]
            axes.plot(places, errors, color=colour, marker=marker, linestyle=dash, label=line.label)
            for place, height, (_, _, name) in zip(places, errors, points, strict=True):
                axes.annotate(name, (place, height), (4, 5), textcoords="offset points", fontsize=8, color=colour)
        axes.plot(1e3 * full[0], full[1], "*", color="#7a0c2e", markersize=13, label="the full prior decides")
        axes.axvline(1e3 * wanted[0], color="#999999", linestyle="--", linewidth=0.9)
        axes.axhline(wanted[1], color="#999999", linestyle="--", linewidth=0.9)
        axes.set(xscale="log", yscale="log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.set_minor_formatter(NullFormatter())
        axes.set(xlabel="milliseconds per decision and digit", ylabel=f"errors per image at s = {budget:g}")
        axes.legend(fontsize=9)
    return figure
