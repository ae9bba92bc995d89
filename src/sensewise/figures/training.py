"""How a training run went."""

from typing import Any

from matplotlib.figure import Figure

from sensewise.figures.style import style


def training_curves(log: list[dict[str, Any]]) -> Figure:
    """One small panel a number of the log, against the step."""
    names = [name for name in log[-1] if name not in ("step", "seconds")]
    columns = min(4, len(names))
    lines = -(-len(names) // columns)
    with style():
        figure = Figure(figsize=(3.2 * columns, 2.4 * lines), layout="constrained")
        grid = figure.subplots(lines, columns, squeeze=False)
        for axes in grid.flat:
            axes.set_axis_off()
        for axes, name in zip(grid.flat, names, strict=False):
            axes.set_axis_on()
            axes.plot([entry["step"] for entry in log], [entry.get(name) for entry in log], color="#3d5a98", marker=".")
            axes.set_title(name.replace("_", " "), fontsize=9)
            axes.set_xlabel("step", fontsize=8)
            axes.tick_params(labelsize=8)
    return figure
