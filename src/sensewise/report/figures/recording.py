"""One image's acquisition, frame by frame: how uncertain each pixel is, what has been measured, the reconstruction."""

import io
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from sensewise.evaluate.recording import Recording
from sensewise.report import methods
from sensewise.report.figures.style import marked, measured, rgb, show, style

COLOUR = methods.info("label-greedy").colour
LINES = ("entropy", "measured", "reconstruction")


def rebuilt(recording: Recording, frame: int) -> np.ndarray:
    """The reconstruction to look at, `(H, W, 3)`: the most probable image of two levels, else expected intensities."""
    if recording.levels == 2 or recording.mean is None:
        return marked(recording.mode[frame], recording.target, recording.levels)
    return rgb(recording.mean[frame].astype(np.float64)).clip(0, 1)


def verdict(recording: Recording, frame: int) -> str:
    """How good that reconstruction is, in two words."""
    if recording.levels > 2 and recording.mean is not None:
        return f"{recording.psnr[frame]:.1f} dB"
    return "exact" if recording.errors[frame] == 0 else f"{recording.errors[frame]} wrong"


def panels(recording: Recording, frame: int) -> list[np.ndarray]:
    """The three pictures of a frame, `(H, W, 3)` each."""
    peak = max(float(recording.entropy.max()), 1e-9)
    heat = mpl.colormaps["magma"](recording.entropy[frame].astype(np.float64) / peak)[..., :3]
    taken = measured(recording.observation(frame), recording.levels, COLOUR)
    return [heat, taken, rebuilt(recording, frame)]


def sheet(recording: Recording, frames: Sequence[int] | None = None) -> Figure:
    """Some frames beside each other; seven of them, evenly spaced, unless `frames` names others."""
    if frames is None:
        frames = sorted({round(i * recording.steps / 6) for i in range(7)})
    with style():
        figure = Figure(figsize=(1.3 * len(frames) + 1.0, 4.5), layout="constrained")
        grid = figure.subplots(3, len(frames), squeeze=False)
        for column, frame in enumerate(frames):
            count = int(recording.mask(frame).sum())
            titles = (f"step {frame}" if frame else "start", f"{count} measured", verdict(recording, frame))
            for axes, panel, title in zip(grid[:, column], panels(recording, frame), titles, strict=True):
                show(axes, panel, title)
        for axes, label in zip(grid[:, 0], LINES, strict=True):
            axes.set_ylabel(label, fontsize=9)
    return figure


def gif(recording: Recording, width: int = 600, milliseconds: int = 350) -> bytes:
    """A looping animation, one frame per step."""
    return animation([panels(recording, frame) for frame in range(recording.steps + 1)], width, milliseconds)


def animation(frames: Sequence[Sequence[np.ndarray]], width: int = 600, milliseconds: int = 350) -> bytes:
    """A looping GIF: in each frame some pictures `(H, W, 3)` in [0, 1] side by side."""
    gap = np.ones((len(frames[0][0]), 1, 3))
    drawn = []
    for first, *others in frames:
        whole = [first, *(part for other in others for part in (gap, other))]
        drawn.append(_enlarged(np.concatenate(whole, axis=1), width))
    buffer = io.BytesIO()
    durations = [milliseconds] * (len(drawn) - 1) + [5 * milliseconds]
    drawn[0].save(buffer, "gif", save_all=True, append_images=drawn[1:], duration=durations, loop=0)
    return buffer.getvalue()


def png(values: np.ndarray, width: int = 0) -> bytes:
    """Values in [0, 1], `(H, W)` or `(H, W, 3)`, as PNG; enlarged by a whole factor to about `width` pixels."""
    buffer = io.BytesIO()
    _enlarged(values, width).save(buffer, "png")
    return buffer.getvalue()


def _enlarged(values: np.ndarray, width: int) -> Image.Image:
    picture = Image.fromarray((255 * np.asarray(values, dtype=np.float64)).round().clip(0, 255).astype(np.uint8))
    scale = max(1, width // picture.width)
    return picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST)
