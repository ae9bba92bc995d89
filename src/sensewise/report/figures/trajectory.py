"""The k-space that a sequence traverses, line by line."""

import numpy as np
from matplotlib.figure import Figure

from sensewise.report.figures.style import style


def trajectory(kx: np.ndarray, ky: np.ndarray) -> Figure:
    """Lines `(n, samples)` in cycles per field of view, coloured by the order in which they are played."""
    with style():
        figure = Figure(figsize=(5.6, 4.6), layout="constrained")
        axes = figure.subplots()
        order = np.repeat(np.arange(1, len(kx) + 1)[:, None], kx.shape[1], axis=1)
        points = axes.scatter(kx, ky, c=order, s=1.5, cmap="viridis", linewidths=0)
        axes.set_xlabel("readout, cycles per field of view", fontsize=9)
        axes.set_ylabel("phase-encode line (0 is DC)", fontsize=9)
        axes.set_title(f"{len(kx)} lines", fontsize=10)
        figure.colorbar(points, label="played as number")
    return figure
