"""One grey picture of any size: what was measured, the reconstruction, its errors, and what was expected of them."""

import io

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from sensewise.report.figures.style import HIDDEN, style


def png(values: np.ndarray) -> bytes:
    """Intensities in [0, 1] `(H, W)` as an 8-bit grey PNG of the same size."""
    buffer = io.BytesIO()
    Image.fromarray((255 * values.clip(0, 1)).round().astype(np.uint8)).save(buffer, "png")
    return buffer.getvalue()


def overview(truth: np.ndarray, mask: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> Figure:
    """The picture, what was measured of it, the reconstruction, its errors, and the errors that were expected.

    Args:
        truth: intensities in [0, 1], with shape `(H, W)`.
        mask: True where measured, same shape.
        mean: the reconstruction, same shape.
        deviation: the standard deviation that is left, same shape.
    """
    error = np.abs(mean - truth)
    peak = max(float(np.quantile(np.concatenate([error, deviation]), 0.995)), 1e-6)
    measured = np.where(mask[..., None], np.repeat(truth[..., None], 3, axis=2), np.array(HIDDEN))
    heat = mpl.colormaps["magma"]
    panels = {
        "the picture": truth,
        f"measured: {mask.mean():.1%}": measured,
        "reconstruction": mean,
        "error": heat(error / peak),
        "expected error": heat(deviation / peak),
    }
    height, width = truth.shape
    with style():
        figure = Figure(figsize=(3.0 * len(panels), 3.0 * height / width + 0.5), layout="constrained")
        for axes, (title, panel) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
            axes.imshow(panel, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            axes.set(xticks=[], yticks=[], title=title)
            axes.grid(False)
        figure.suptitle(f"errors from 0 (black) to {peak:.3f} of the range (white)", fontsize=9, y=0.02)
    return figure
