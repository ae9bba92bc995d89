"""Figures of pixel acquisition. Results and arrays in, pictures out; no model runs here."""

import io
import textwrap
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from sensewise.figures.style import COLOURS, name_of, style, tinted

Rows = list[dict[str, Any]]
FLOOR = 1e-3  # where an error count of 0 is drawn on a log scale


@dataclass(frozen=True)
class Example:
    """One method on a few images.

    Attributes:
        method: its name in results.
        steps: `R`.
        observation: tokens, 0 = hidden, `(n, H, W)`.
        reconstruction: tokens, `(n, H, W)`.
        errors: wrong pixels per image, `(n,)`.
    """

    method: str
    steps: int
    observation: np.ndarray
    reconstruction: np.ndarray
    errors: np.ndarray


@dataclass(frozen=True)
class Story:
    """One image's acquisition, step by step; everything before the first step and after each of the R steps.

    Attributes:
        target: tokens `(H, W)`.
        entropy: nats per pixel, `(R + 1, H, W)`.
        observation: tokens, 0 = hidden, `(R + 1, H, W)`.
        reconstruction: tokens, `(R + 1, H, W)`.
    """

    target: np.ndarray
    entropy: np.ndarray
    observation: np.ndarray
    reconstruction: np.ndarray

    @property
    def errors(self) -> np.ndarray:
        """Wrong pixels after each step, `(R + 1,)`."""
        return (self.reconstruction != self.target).sum((1, 2))


def read_examples(arrays: dict[str, np.ndarray], part: str = "example") -> tuple[np.ndarray, list[Example], float]:
    """Target `(n, H, W)`, examples and budget from the arrays of a results file."""
    target = arrays[f"{part}/target"][:, 0]
    found = []
    for key in arrays:
        if key.startswith(f"{part}/") and key.endswith("/observation"):
            place = key.removesuffix("/observation")
            _, method, steps = place.split("/")
            x_hat = arrays[f"{place}/reconstruction"][:, 0]
            wrong = (x_hat != target).sum((1, 2))
            found.append(Example(method, int(steps), arrays[key][:, 0], x_hat, wrong))
    return target, found, float(arrays[f"{part}/budget"])


def read_story(arrays: dict[str, np.ndarray]) -> Story:
    """The story from the arrays of a results file."""
    return Story(
        arrays["story/target"][0],
        arrays["story/entropy"].astype(np.float32),
        arrays["story/observation"][:, 0],
        arrays["story/reconstruction"][:, 0],
    )


def curves_of(rows: Rows, metric: str) -> dict[tuple[str, int], Rows]:
    """The rows of one metric by method and steps, in the order of their budgets."""
    curves: dict[tuple[str, int], Rows] = {}
    for row in rows:
        if row["metric"] == metric:
            curves.setdefault((row["method"], row["steps"]), []).append(row)
    return {key: sorted(value, key=lambda row: row["budget"]) for key, value in curves.items()}


def draw_curves(axes: Any, rows: Rows, metric: str) -> None:
    """One line a method against the budget, the paper's values on top of them as hollow squares."""
    floor = FLOOR if metric == "errors" else -np.inf
    curves = curves_of(rows, metric)
    for (method, steps), curve in curves.items():
        dash = "--" if 1 < steps < 16 or (method, steps) == ("probe-greedy", 1) else ":" if steps > 16 else "-"
        known = [row for row in curve if row["mean"] is not None]
        values = [max(row["mean"], floor) for row in known]
        look: Any = {"color": COLOURS[method], "marker": "o", "markersize": 5, "label": name_of(method, steps)}
        axes.plot([row["budget"] for row in known], values, dash, **look)
    theirs = [row for curve in curves.values() for row in curve if row["paper"] is not None]
    hollow: Any = {"marker": "s", "facecolors": "none", "s": 36, "linewidths": 1, "zorder": 3}
    if theirs:
        colours, values = [COLOURS[row["method"]] for row in theirs], [max(row["paper"], floor) for row in theirs]
        axes.scatter([row["budget"] for row in theirs], values, edgecolors=colours, **hollow)
        axes.scatter([], [], edgecolors="#444444", label="the paper's value", **hollow)
    axes.set_xlabel("budget: fraction of pixels measured")
    axes.set_xticks(sorted({row["budget"] for row in rows}))


def errors_against_budget(rows: Rows) -> Figure:
    """Figure closed: errors per image (log scale) and the fraction reconstructed exactly; the paper's values hollow."""
    with style():
        figure = Figure(figsize=(10.5, 4.3), layout="constrained")
        left, right = figure.subplots(1, 2)
        for axes, metric in ((left, "errors"), (right, "exact")):
            draw_curves(axes, rows, metric)
        left.set_yscale("log")
        lowest = min(row["mean"] for row in rows if row["metric"] == "errors")
        left.set_ylim(0.8 * max(FLOOR, lowest), None)
        left.set_ylabel("errors per image" + (f" (0 drawn at {FLOOR:g})" if lowest < FLOOR else ""))
        right.set_ylabel("fraction reconstructed exactly")
        right.set_ylim(-0.03, 1.03)
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def psnr_against_budget(rows: Rows) -> Figure:
    """PSNR of each method, and how far it is above random masks of the same budget; the paper's values hollow."""
    psnr = [row for row in rows if row["metric"] == "psnr"]
    random = {row["budget"]: row["mean"] for row in psnr if row["method"] == "random"}
    gains = [row | {"mean": row["mean"] - random[row["budget"]], "paper": None} for row in psnr if random]
    with style():
        height = 3.6 + 0.075 * len(curves_of(psnr, "psnr"))  # the legend has three names in a row
        figure = Figure(figsize=(10.5, height), layout="constrained")
        left, right = figure.subplots(1, 2)
        draw_curves(left, psnr, "psnr")
        draw_curves(right, gains, "psnr")
        left.set_ylabel("PSNR (dB)")
        right.set_ylabel("PSNR above random masks (dB)")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def picture(axes: Any, image: np.ndarray, title: str = "", **options: Any) -> None:
    """An image in quiet axes."""
    axes.imshow(image, interpolation="nearest", **options)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_color("#bbbbbb")
        spine.set_linewidth(0.6)
    if title:
        axes.set_title(title, fontsize=8, pad=2)


def _wrong(reconstruction: np.ndarray, target: np.ndarray) -> np.ndarray:
    """A reconstruction as RGB, with wrong pixels in orange."""
    grey = np.repeat((reconstruction - 1).astype(float)[..., None], 3, axis=2)
    grey[reconstruction != target] = mpl.colors.to_rgb("#ff7f0e")
    return grey


def examples(target: np.ndarray, methods: list[Example], budget: float) -> Figure:
    """Masks and reconstructions of each method on the same images; wrong pixels orange.

    Args:
        target: tokens, `(n, H, W)`.
    """
    count = len(target)
    with style():
        figure = Figure(figsize=(1.15 * (2 * count) + 1.6, 1.22 * (len(methods) + 1)), layout="constrained")
        grid = figure.subplots(len(methods) + 1, 2 * count, squeeze=False)
        for i in range(count):
            picture(grid[0, 2 * i], target[i] - 1, "target", cmap="gray", vmin=0, vmax=1)
            grid[0, 2 * i + 1].set_axis_off()
            for line, method in enumerate(methods, start=1):
                tint = tinted(method.observation[i], COLOURS[method.method])
                picture(grid[line, 2 * i], tint, f"{(method.observation[i] > 0).sum()} measured")
                wrong = int(method.errors[i])
                title = "exact" if wrong == 0 else f"{wrong} wrong"
                picture(grid[line, 2 * i + 1], _wrong(method.reconstruction[i], target[i]), title)
        for line, method in enumerate(methods, start=1):
            label = textwrap.fill(name_of(method.method, method.steps), width=14)
            grid[line, 0].set_ylabel(label, color=COLOURS[method.method], fontsize=9)
        figure.suptitle(f"{budget:.0%} of the pixels measured", fontsize=11)
    return figure


def step_by_step(story: Story, shown: list[int]) -> Figure:
    """Entropy, pixels and reconstruction of one image at some of its steps."""
    peak = max(float(story.entropy.max()), 1e-9)
    with style():
        figure = Figure(figsize=(1.3 * len(shown) + 1.0, 4.5), layout="constrained")
        grid = figure.subplots(3, len(shown), squeeze=False)
        for column, r in enumerate(shown):
            picture(grid[0, column], story.entropy[r], f"step {r}" if r else "start", cmap="magma", vmin=0, vmax=peak)
            measured = int((story.observation[r] > 0).sum())
            picture(grid[1, column], tinted(story.observation[r], COLOURS["label-greedy"]), f"{measured} measured")
            title = "exact" if story.errors[r] == 0 else f"{story.errors[r]} wrong"
            picture(grid[2, column], _wrong(story.reconstruction[r], story.target), title)
        for line, label in enumerate(("entropy", "measured", "reconstruction")):
            grid[line, 0].set_ylabel(label, fontsize=9)
    return figure


def animation(story: Story, scale: int = 6, milliseconds: int = 350) -> bytes:
    """A looping GIF: entropy, measured pixels and reconstruction side by side, one frame a step."""
    colours = mpl.colormaps["magma"]
    peak = max(float(story.entropy.max()), 1e-9)
    gap = np.ones((story.target.shape[0], 1, 3))
    frames = []
    for entropy, observation, reconstruction in zip(
        story.entropy, story.observation, story.reconstruction, strict=True
    ):
        heat = colours(entropy / peak)[..., :3]
        seen = tinted(observation, COLOURS["label-greedy"])
        frame = np.concatenate([heat, gap, seen, gap, _wrong(reconstruction, story.target)], axis=1)
        picture = Image.fromarray((255 * frame).round().astype(np.uint8))
        frames.append(picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST))
    buffer = io.BytesIO()
    durations = [milliseconds] * (len(frames) - 1) + [5 * milliseconds]
    frames[0].save(buffer, "gif", save_all=True, append_images=frames[1:], duration=durations, loop=0)
    return buffer.getvalue()
