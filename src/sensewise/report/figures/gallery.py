"""Pictures beside what several methods measured and made of them."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from sensewise.evaluate.results import Arrays
from sensewise.report.figures.style import HIDDEN, show, style

COLUMNS = {"ours": "ours", "fast": "FAST", "linear": "random points, linear"}
"""Methods of the figure, by their place in the arrays, and their titles."""


def gallery(arrays: Arrays, place: str = "gallery") -> Figure:
    """One line per picture: itself, then what each method measured and its reconstruction with its PSNR.

    Args:
        arrays: `PLACE/names`, and for each name `PLACE/NAME/target`, `.../METHOD/mask` and `.../METHOD/mean`.
    """
    names = [str(name) for name in arrays[f"{place}/names"]]
    present = [method for method in COLUMNS if f"{place}/{names[0]}/{method}/mean" in arrays]
    with style():
        width = 1 + 2 * len(present)
        figure = Figure(figsize=(1.9 * width, 2.05 * len(names)), layout="constrained")
        grid = figure.subplots(len(names), width, squeeze=False)
        for line, name in zip(grid, names, strict=True):
            _line(line, arrays, f"{place}/{name}", name, present)
    return figure


def _line(axes: Sequence[object], arrays: Arrays, place: str, name: str, present: Sequence[str]) -> None:
    target = arrays[f"{place}/target"].astype(float)
    grey = {"cmap": "gray", "vmin": 0, "vmax": 1}
    show(axes[0], target, name.replace("_", " "), **grey)  # type: ignore[arg-type]
    for number, method in enumerate(present):
        mask, mean = arrays[f"{place}/{method}/mask"], arrays[f"{place}/{method}/mean"].astype(float)
        seen = np.where(mask[..., None], np.repeat(target[..., None], 3, axis=2), np.array(HIDDEN))
        decibels = -10 * np.log10(max(float(np.mean((mean - target) ** 2)), 1e-10))
        show(axes[1 + 2 * number], seen, f"{COLUMNS[method]}: {mask.mean():.0%}")  # type: ignore[arg-type]
        show(axes[2 + 2 * number], mean, f"{decibels:.1f} dB", **grey)  # type: ignore[arg-type]
