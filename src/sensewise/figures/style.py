"""How every figure looks: one colour a method, quiet axes, text that can be read."""

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from sensewise.checkpoint import atomic

COLOURS = {
    "random": "#7f7f7f",
    "variable-density": "#b8860b",
    "probe-greedy": "#2a9d8f",
    "label-greedy": "#d1495b",
    "spread-greedy": "#7a0c2e",
    "greedy": "#d1495b",
    "variance-greedy": "#e9724c",
    "grid-variance-greedy": "#7b2cbf",
    "spread-variance-greedy": "#d81159",
    "mirrored-random": "#b5b5b5",
    "mirrored-variance-greedy": "#6d0530",
    "one-shot": "#3d5a98",
    "one-shot-topk": "#7b9bd1",
    "one-shot-bernoulli": "#a3b8dd",
    "one-shot-entropy": "#6f4e9c",
    "one-shot-observed": "#8c6d9c",
    "one-shot-observed-weak": "#b79fc4",
    "one-shot-straight-through": "#9c5a3c",
    "one-shot-paper-decoder": "#5b8fa8",
    "loupe": "#e07a1f",
    "loupe-own-unet": "#f2b279",
    "zero-filled": "#444444",
    "acs-random": "#7f7f7f",
    "acs-equispaced": "#a0a0a0",
    "acs-variable-density": "#b8860b",
    "static-search": "#d1495b",
    "energy-oracle": "#6a994e",
    "learned-adaptive": "#3d5a98",
    "learned-static": "#8fa6d3",
    "relaxed-profile": "#7b2cbf",
    "sequential-entropy": "#2a9d8f",
    "sequential-energy": "#8ecae6",
    "sequential-value": "#e76f51",
    "oracle-one-step": "#000000",
}
LABELS = {
    "random": "random",
    "variable-density": "variable density",
    "probe-greedy": "probe + greedy",
    "label-greedy": "label-greedy",
    "spread-greedy": "label-greedy, spread",
    "greedy": "greedy",
    "variance-greedy": "variance-greedy",
    "grid-variance-greedy": "grid probe + variance-greedy",
    "spread-variance-greedy": "variance-greedy, spread",
    "mirrored-random": "random, mirrored",
    "mirrored-variance-greedy": "variance-greedy, spread, mirrored",
    "one-shot": "one-shot",
    "one-shot-topk": "one-shot, top-k",
    "one-shot-entropy": "one-shot, entropy surrogate",
    "one-shot-observed": "observed-pixel surrogate",
    "one-shot-observed-weak": "the same, weak budget penalty",
    "one-shot-straight-through": "straight-through gradient",
    "one-shot-paper-decoder": "one-shot, the paper's decoder",
    "loupe": "LOUPE",
    "loupe-own-unet": "LOUPE, own U-Net",
    "mask-state": "with mask state",
    "shared-zero": "0 shared with black",
    "disarm": "DisARM",
    "disarm-local": "DisARM, local",
    "straight-through": "straight-through",
    "ceiling": "exact, one half against the other",
    "zero-filled": "zero-filled",
    "acs-random": "ACS + random",
    "acs-equispaced": "ACS + equispaced",
    "acs-variable-density": "ACS + variable density",
    "static-search": "static search",
    "energy-oracle": "energy oracle",
    "learned-adaptive": "learned policy, adaptive",
    "learned-static": "learned policy, static",
    "relaxed-profile": "relaxed row profile",
    "sequential-entropy": "sequential, entropy",
    "sequential-energy": "control, expected energy",
    "sequential-value": "sequential, value",
    "oracle-one-step": "one-step oracle (ceiling)",
}
HIDDEN = (0.92, 0.93, 0.95)

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
    "savefig.dpi": 150,
}


def name_of(method: str, steps: int) -> str:
    """How a figure or table calls a method; the number of steps where it means something."""
    if method.endswith("-bernoulli"):
        return f"{name_of(method.removesuffix('-bernoulli'), steps)}, plain draw"
    label = LABELS.get(method, method)
    return f"{label}, {steps} step{'s' * (steps > 1)}" if "greedy" in method or "sequential" in method else label


@contextmanager
def style() -> Iterator[None]:
    """Use the project's look inside the block."""
    with mpl.rc_context(_SETTINGS):
        yield


def save(figure: Figure | bytes, path: Path) -> None:
    """Write a figure, or the content of a picture, in one go."""
    content = figure if isinstance(figure, bytes) else to_bytes(figure, path.suffix.removeprefix("."))
    with atomic(path) as temporary:
        temporary.write_bytes(content)


def to_bytes(figure: Figure, kind: str = "png") -> bytes:
    """A figure as the content of a file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, bbox_inches="tight", pad_inches=0.08)
    return buffer.getvalue()


def data_uri(content: bytes, kind: str = "png") -> str:
    """An image that lives inside a page."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def tinted(observation: np.ndarray, colour: str) -> np.ndarray:
    """An observed image as RGB: hidden pixels grey, measured black dark, measured white in the method's colour.

    Args:
        observation: tokens `(H, W)`: 0 hidden, 1 black, 2 white; or `(C, H, W)` with any number of levels.
    """
    tint = np.array(mpl.colors.to_rgb(colour))
    if observation.ndim == 3:
        hidden = (observation == 0).all(0)[..., None]
        light = observation.mean(0)[..., None] / max(1, observation.max())
        return np.where(hidden, HIDDEN, (0.3 + 0.7 * light) * tint)
    table = np.stack([np.array(HIDDEN), 0.25 * tint, 0.15 + 0.85 * tint])
    return table[np.clip(observation, 0, 2)]  # (H, W, 3)
