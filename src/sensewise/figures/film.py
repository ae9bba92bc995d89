"""One image's acquisition, frame by frame, for any number of channels and levels. Arrays in, pictures out.

A frame shows three panels side by side: how uncertain each pixel is, what has been measured, the reconstruction.
"""

import io
import textwrap
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image

from sensewise.figures.style import COLOURS, HIDDEN, name_of, style, tinted
from sensewise.metrics import psnr
from sensewise.tokens import dequantize

WRONG = mpl.colors.to_rgb("#ff7f0e")
MEASURED = "#d1495b"


@dataclass(frozen=True)
class Film:
    """Everything to see of one acquisition: frame 0 is before the first step, frame r after step r.

    Attributes:
        target: the true tokens 1..N, `(C, H, W)`.
        step: when each pixel was measured, 0 = probe, 1..R, -1 = never, `(H, W)`.
        probs: the predictive distribution of every site, `(R + 1, C, H, W, N)`.
        entropy: nats per pixel, `(R + 1, H, W)`.
    """

    target: np.ndarray
    step: np.ndarray
    probs: np.ndarray
    entropy: np.ndarray

    @property
    def steps(self) -> int:
        """`R`."""
        return len(self.entropy) - 1

    @property
    def levels(self) -> int:
        """`N`."""
        return int(self.probs.shape[-1])

    @property
    def reconstruction(self) -> np.ndarray:
        """The most probable tokens, `(R + 1, C, H, W)`."""
        return (self.probs.argmax(-1) + 1).astype(np.uint8)

    @property
    def mean(self) -> np.ndarray:
        """The expected intensities in [0, 1], `(R + 1, C, H, W)`."""
        return self.probs.astype(np.float32) @ np.linspace(0, 1, self.levels, dtype=np.float32)

    @property
    def psnr(self) -> np.ndarray:
        """Of the expected intensities in each frame, dB `(R + 1,)`."""
        truth = dequantize(torch.from_numpy(self.target), self.levels)
        return psnr(torch.from_numpy(self.mean), truth).numpy()

    @property
    def errors(self) -> np.ndarray:
        """Wrong sites in each frame, `(R + 1,)`."""
        return (self.reconstruction != self.target).sum((1, 2, 3))

    @property
    def expected_errors(self) -> np.ndarray:
        """Wrong sites that the prior itself expects, the sum of `1 - max p`, `(R + 1,)`; needs no truth."""
        return (1.0 - self.probs.max(-1).astype(np.float64)).sum((1, 2, 3))

    def mask(self, frame: int) -> np.ndarray:
        """True where measured up to a frame, `(H, W)`."""
        return (self.step >= 0) & (self.step <= frame)

    def observation(self, frame: int) -> np.ndarray:
        """Tokens, 0 = hidden, `(C, H, W)`."""
        return np.where(self.mask(frame), self.target, 0)


def rgb(tokens: np.ndarray, levels: int) -> np.ndarray:
    """Tokens 1..N `(C, H, W)` as a picture `(H, W, 3)` in [0, 1]; one channel is grey, of several the first three."""
    values = (tokens.astype(float) - 1) / (levels - 1)
    return np.repeat(values[0, ..., None], 3, axis=2) if len(values) < 3 else np.moveaxis(values[:3], 0, 2)


def seen(observation: np.ndarray, levels: int) -> np.ndarray:
    """What was measured `(C, H, W)`, on grey; two-level images in a colour, so that measured black is not hidden."""
    if levels == 2 and len(observation) == 1:
        return tinted(observation[0], MEASURED)
    hidden = (observation == 0).all(0)
    return np.where(hidden[..., None], HIDDEN, rgb(np.maximum(observation, 1), levels))


def marked(reconstruction: np.ndarray, target: np.ndarray, levels: int) -> np.ndarray:
    """The reconstruction; wrong pixels orange where there are two levels only (with more, nearly right looks right)."""
    picture = rgb(reconstruction, levels)
    if levels == 2:
        picture[(reconstruction != target).any(0)] = WRONG
    return picture


def read(arrays: dict[str, np.ndarray]) -> Film:
    """The film from the arrays of a results file; `store` wrote it."""
    return Film(*(arrays[f"film/{name}"] for name in ("target", "step", "probs", "entropy")))


def store(film: Film) -> dict[str, np.ndarray]:
    """A film as arrays of a results file."""
    probs, entropy = film.probs.astype(np.float16), film.entropy.astype(np.float16)
    return {"film/target": film.target, "film/step": film.step, "film/probs": probs, "film/entropy": entropy}


def _panels(film: Film, frame: int, peak: float) -> list[np.ndarray]:
    heat = mpl.colormaps["magma"](film.entropy[frame].astype(float) / peak)[..., :3]
    return [heat, seen(film.observation(frame), film.levels), rebuilt(film, frame)]


def rebuilt(film: Film, frame: int) -> np.ndarray:
    """The reconstruction to look at, `(H, W, 3)`: the most probable image of two levels, else expected intensities."""
    if film.levels == 2:
        return marked(film.reconstruction[frame], film.target, 2)
    return rgb(1 + film.mean[frame] * (film.levels - 1), film.levels)


def verdict(film: Film, frame: int) -> str:
    """How good that reconstruction is, in two words."""
    if film.levels > 2:
        return f"{film.psnr[frame]:.1f} dB"
    return "exact" if film.errors[frame] == 0 else f"{film.errors[frame]} wrong"


def _peak(film: Film) -> float:
    return max(float(film.entropy.max()), 1e-9)


def gif(film: Film, width: int = 600, milliseconds: int = 350) -> bytes:
    """A looping animation, one frame a step."""
    height = film.target.shape[1]
    gap = np.ones((height, 1, 3))
    frames = []
    for frame in range(film.steps + 1):
        heat, measured, drawn = _panels(film, frame, _peak(film))
        whole = np.concatenate([heat, gap, measured, gap, drawn], axis=1)
        picture = Image.fromarray((255 * whole).round().astype(np.uint8))
        scale = max(1, width // picture.width)
        frames.append(picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST))
    buffer = io.BytesIO()
    durations = [milliseconds] * (len(frames) - 1) + [5 * milliseconds]
    frames[0].save(buffer, "gif", save_all=True, append_images=frames[1:], duration=durations, loop=0)
    return buffer.getvalue()


def png(values: np.ndarray, side: int = 0) -> bytes:
    """Values in [0, 1], `(H, W)` or `(H, W, 3)`, as PNG; enlarged by a whole factor to about `side` pixels."""
    picture = Image.fromarray((255 * np.asarray(values, dtype=float)).round().clip(0, 255).astype(np.uint8))
    scale = max(1, side // picture.width)
    buffer = io.BytesIO()
    picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST).save(buffer, "png")
    return buffer.getvalue()


def sheet(film: Film, columns: int = 7) -> Figure:
    """Some frames beside each other: entropy, measured pixels, reconstruction."""
    shown = sorted({round(i * film.steps / (columns - 1)) for i in range(columns)})
    with style():
        figure = Figure(figsize=(1.3 * len(shown) + 1.0, 4.5), layout="constrained")
        grid = figure.subplots(3, len(shown), squeeze=False)
        for column, frame in enumerate(shown):
            titles = [
                f"step {frame}" if frame else "start",
                f"{film.mask(frame).sum()} measured",
                verdict(film, frame),
            ]
            for line, (panel, title) in enumerate(zip(_panels(film, frame, _peak(film)), titles, strict=True)):
                axes = grid[line, column]
                axes.imshow(panel, interpolation="nearest")
                axes.set_title(title, fontsize=8, pad=2)
                axes.set(xticks=[], yticks=[])
                axes.grid(False)
        for line, label in enumerate(("entropy", "measured", "reconstruction")):
            grid[line, 0].set_ylabel(label, fontsize=9)
    return figure


def _places(arrays: dict[str, np.ndarray], part: str) -> list[str]:
    """`PART/METHOD/STEPS` of every strategy that was kept."""
    ending = "/observation"
    return [key.removesuffix(ending) for key in arrays if key.startswith(f"{part}/") and key.endswith(ending)]


def _label(place: str) -> str:
    _, method, steps = place.split("/")
    return textwrap.fill(name_of(method, int(steps)), width=18)


def _quiet_grid(figure: Figure, lines: int, columns: int) -> np.ndarray:
    """Axes for pictures, `(lines, columns)`: no ticks, no lines."""
    grid = figure.subplots(lines, columns, squeeze=False)
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
        axes.grid(False)
    return grid


def photographs(arrays: dict[str, np.ndarray], levels: int, part: str) -> Figure:
    """What each method measured of a few images, in its colour, the posterior means, and where they are wrong.

    Args:
        arrays: as for `examples`, with `.../mean` and `.../psnr` of every strategy.
    """
    target, places = arrays[f"{part}/target"], _places(arrays, part)  # (n, C, H, W)
    truth = (target.astype(float) - 1) / (levels - 1)
    errors = {place: np.abs(arrays[f"{place}/mean"].astype(float) - truth).mean(1) for place in places}  # (n, H, W)
    peak = max(float(np.quantile(np.stack(list(errors.values())), 0.995)), 1e-6)
    with style():
        figure = Figure(figsize=(3.5 * len(target) + 1.6, 1.26 * (len(places) + 1)), layout="constrained")
        grid = _quiet_grid(figure, len(places) + 1, 3 * len(target))
        for i, x in enumerate(target):
            grid[0, 3 * i + 1].imshow(rgb(x, levels), interpolation="nearest")
            grid[0, 3 * i + 1].set_title("target", fontsize=8, pad=2)
            for beside in (0, 2):
                grid[0, 3 * i + beside].set_axis_off()
            for line, place in enumerate(places, start=1):
                mean = arrays[f"{place}/mean"][i].astype(float)
                panels = grid[line, 3 * i : 3 * i + 3]
                panels[0].imshow(tinted(arrays[f"{place}/observation"][i], COLOURS[place.split("/")[1]]))
                panels[1].imshow(rgb(1 + mean * (levels - 1), levels).clip(0, 1), interpolation="nearest")
                panels[1].set_title(f"{arrays[f'{place}/psnr'][i]:.1f} dB", fontsize=8, pad=2)
                panels[2].imshow(errors[place][i], vmin=0, vmax=peak, cmap="magma", interpolation="nearest")
                if line == 1:
                    panels[0].set_title("measured", fontsize=8, pad=2)
                    panels[2].set_title("error", fontsize=8, pad=2)
        for line, place in enumerate(places, start=1):
            grid[line, 0].set_ylabel(_label(place), fontsize=8)
        share = f"{float(arrays[f'{part}/budget']):.0%} of the pixels measured"
        figure.suptitle(f"{share}; errors from 0 (black) to {peak:.2f} of the range (white)", fontsize=11)
    return figure


def examples(arrays: dict[str, np.ndarray], levels: int, part: str = "example") -> Figure:
    """What each method measured of a few images, and its reconstructions; wrong pixels orange for two levels.

    Where posterior means were kept (more than two levels), those and their errors are shown.

    Args:
        arrays: `PART/target` and `PART/METHOD/STEPS/...`, as `example_arrays` writes them.
    """
    target, places = arrays[f"{part}/target"], _places(arrays, part)  # (n, C, H, W)
    if all(f"{place}/mean" in arrays for place in places):
        return photographs(arrays, levels, part)
    with style():
        figure = Figure(figsize=(2.3 * len(target) + 1.6, 1.22 * (len(places) + 1)), layout="constrained")
        grid = _quiet_grid(figure, len(places) + 1, 2 * len(target))
        for i, x in enumerate(target):
            grid[0, 2 * i].imshow(rgb(x, levels), interpolation="nearest")
            grid[0, 2 * i].set_title("target", fontsize=8, pad=2)
            grid[0, 2 * i + 1].set_axis_off()
            for line, place in enumerate(places, start=1):
                observation, x_hat = arrays[f"{place}/observation"][i], arrays[f"{place}/reconstruction"][i]
                wrong = int((x_hat != x).sum())
                grid[line, 2 * i].imshow(seen(observation, levels), interpolation="nearest")
                grid[line, 2 * i + 1].imshow(marked(x_hat, x, levels), interpolation="nearest")
                grid[line, 2 * i + 1].set_title("exact" if wrong == 0 else f"{wrong} wrong", fontsize=8, pad=2)
        for line, place in enumerate(places, start=1):
            grid[line, 0].set_ylabel(_label(place), fontsize=8)
        figure.suptitle(f"{float(arrays[f'{part}/budget']):.0%} of the pixels measured", fontsize=11)
    return figure
