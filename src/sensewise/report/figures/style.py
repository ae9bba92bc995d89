"""How every figure looks: quiet axes, text that can be read, one way to a file."""

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from sensewise.files import write_bytes

HIDDEN = (0.92, 0.93, 0.95)
WRONG = mpl.colors.to_rgb("#ff7f0e")
DPI = 300
"""Of drawings in pages and docs."""
SHEET_DPI = 200
"""Of sheets of many pictures, which would be large files otherwise."""

_SETTINGS: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "axes.edgecolor": "#666666",
    "legend.frameon": False,
    "figure.facecolor": "white",
    "pdf.fonttype": 42,  # text stays text in a PDF
}


@contextmanager
def style() -> Iterator[None]:
    """Use the project's look inside the block."""
    with mpl.rc_context(_SETTINGS):
        yield


def to_bytes(figure: Figure, kind: str = "png", dpi: int = DPI) -> bytes:
    """A figure as the content of a file: `png`, `pdf` or `svg`; of the latter two only the pictures have dots."""
    buffer = io.BytesIO()
    with style():
        smaller: Any = {"pil_kwargs": {"optimize": True}} if kind == "png" else {}
        figure.savefig(buffer, format=kind, dpi=dpi, bbox_inches="tight", pad_inches=0.08, **smaller)
    return buffer.getvalue()


def save(figure: Figure | bytes, path: Path, dpi: int = DPI) -> None:
    """Write a figure, or the content of a picture, in one go."""
    write_bytes(path, figure if isinstance(figure, bytes) else to_bytes(figure, path.suffix.removeprefix("."), dpi))


def data_uri(content: bytes, kind: str = "png") -> str:
    """An image that lives inside a page."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def show(axes: Axes, image: np.ndarray, title: str = "", **look: Any) -> AxesImage:
    """A picture in quiet axes: pixels as they are, no ticks."""
    drawn = axes.imshow(image, interpolation="nearest", **look)
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set(visible=True, color="#bbbbbb", linewidth=0.6)
    if title:
        axes.set_title(title, fontsize=8, pad=2)
    return drawn


def rgb(values: np.ndarray) -> np.ndarray:
    """Intensities `(C, H, W)` in [0, 1] as a picture `(H, W, 3)`; one channel is grey, of several the first three."""
    if len(values) < 3:
        return np.repeat(values[0, ..., None], 3, axis=2)
    return np.moveaxis(values[:3], 0, 2)


def intensities(tokens: np.ndarray, levels: int) -> np.ndarray:
    """Tokens 1..N as intensities in [0, 1]."""
    return (tokens.astype(np.float64) - 1) / (levels - 1)


def tinted(observation: np.ndarray, colour: str, levels: int) -> np.ndarray:
    """What was measured, `(C, H, W)` tokens, as a picture: hidden pixels grey, the others dark to light in a colour."""
    tint = np.array(mpl.colors.to_rgb(colour))
    hidden = (observation == 0).all(0)[..., None]
    light = intensities(np.maximum(observation, 1), levels).mean(0)[..., None]
    return np.where(hidden, HIDDEN, 0.25 * tint + light * (0.15 + 0.6 * tint))


def measured(observation: np.ndarray, levels: int, colour: str) -> np.ndarray:
    """What was measured as it looks, on grey; one channel of two levels in a colour, since its black would be lost."""
    if levels == 2 and len(observation) == 1:
        return tinted(observation, colour, levels)
    hidden = (observation == 0).all(0)[..., None]
    return np.where(hidden, HIDDEN, rgb(intensities(np.maximum(observation, 1), levels)))


def marked(reconstruction: np.ndarray, target: np.ndarray, levels: int) -> np.ndarray:
    """A reconstruction `(C, H, W)` with wrong pixels in orange."""
    picture = rgb(intensities(reconstruction, levels))
    picture[(reconstruction != target).any(0)] = WRONG
    return picture
