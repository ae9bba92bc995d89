"""Rows of k-space: which ones a mask measures, reconstructions with their errors, one slice step by step."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sensewise import metrics
from sensewise.report import methods
from sensewise.report.figures.style import save, show, style
from sensewise.report.metrics import REFERENCE

Arrays = Mapping[str, np.ndarray]
MAIN_ROWS = ("static-search", "loupe", REFERENCE)
EXAMPLES = ("zero-filled", REFERENCE, "static-search", "loupe", "sequential-entropy", "sequential-value")
STEPS = (1, 2, 4, 8, 16)
_ROW = "phase-encode row (0 is DC)"


def _strips(axes: Axes, masks: Mapping[str, np.ndarray]) -> None:
    """One line of ticks per mask, zero frequency in the middle."""
    for line, (method, mask) in enumerate(reversed(list(masks.items()))):
        frequency = np.flatnonzero(mask) - len(mask) // 2
        axes.vlines(frequency, line - 0.38, line + 0.38, color=methods.info(method).colour, linewidth=1.4)
    half = max(len(mask) for mask in masks.values()) / 2
    axes.set(xlim=(-half - 1, half + 1), ylim=(-0.6, len(masks) - 0.4))
    axes.set_yticks(range(len(masks)), [methods.info(method).label for method in reversed(list(masks))])
    axes.grid(visible=False)


def row_strips(masks: Mapping[str, np.ndarray]) -> Figure:
    """Masks `(rows,)` by name, one line each."""
    with style():
        figure = Figure(figsize=(8, 0.7 + 0.45 * len(masks)), layout="constrained")
        axes = figure.subplots()
        _strips(axes, masks)
        axes.set_xlabel(_ROW)
    return figure


def draw_mask(folder: Path) -> None:
    """Draw `mask.npy` of a run folder as `mask.png` beside it."""
    mask = np.load(folder / "mask.npy", allow_pickle=False)
    save(row_strips({folder.resolve().name: mask}), folder / "mask.png")


def rows_by_budget(arrays: Arrays, shown: Sequence[str] | None = None) -> Figure:
    """Figures mri-rows and mri-rows-all: the rows of each static mask, one panel per budget.

    Args:
        arrays: with masks `rows/METHOD/BUDGET`.
        shown: these methods only.
    """
    panels: dict[float, dict[str, np.ndarray]] = {}
    for key, mask in arrays.items():
        if key.startswith("rows/"):
            _, method, fraction = key.split("/")
            if shown is None or method in shown:
                panels.setdefault(float(fraction), {})[method] = mask
    with style():
        lines = max(len(masks) for masks in panels.values())
        figure = Figure(figsize=(9, len(panels) * (0.75 + 0.3 * lines)), layout="constrained")
        grid = figure.subplots(len(panels), squeeze=False)[:, 0]
        for axes, budget in zip(grid, sorted(panels), strict=True):
            _strips(axes, panels[budget])
            axes.set_title(f"s = {budget:g}", loc="left", fontsize=10)
        grid[-1].set_xlabel(_ROW)
    return figure


def _quality(x_hat: np.ndarray, x: np.ndarray) -> tuple[float, float]:
    """NMSE and PSNR of one reconstruction that results keep as a picture only."""
    pair = torch.from_numpy(x_hat)[None], torch.from_numpy(x)[None]
    return float(metrics.nmse(*pair)), float(metrics.peak_psnr(*pair))


def _detail(x: np.ndarray) -> tuple[slice, slice]:
    """The sixteenth of the picture with the most edges: where a reader should look closely."""
    edges = np.abs(np.diff(x, axis=0))[:, :-1] + np.abs(np.diff(x, axis=1))[:-1]
    height = x.shape[0] // 4
    width = x.shape[1] // 4
    table = np.pad(edges.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    sums = table[height:, width:] - table[:-height, width:] - table[height:, :-width] + table[:-height, :-width]
    top, left = np.unravel_index(sums.argmax(), sums.shape)
    return slice(int(top), int(top) + height), slice(int(left), int(left) + width)


def _frame(axes: Axes, detail: tuple[slice, slice]) -> None:
    rows, columns = detail
    corner = (columns.start - 0.5, rows.start - 0.5)
    width = columns.stop - columns.start
    height = rows.stop - rows.start
    axes.add_patch(Rectangle(corner, width, height, fill=False, edgecolor="#ffb000", linewidth=1.2))


def slice_examples(arrays: Arrays, name: str, shown: Sequence[str] = EXAMPLES) -> Figure:
    """Figures mri-examples and mri-examples-p75: reconstructions, a detail enlarged, and absolute errors.

    Errors go from 0 (white) to a quarter of the slice's 99.5th-percentile intensity (dark blue).

    Args:
        arrays: with magnitudes `example/NAME/target` and `example/NAME/METHOD` `(H, W)`.
        name: "median" or "p75".
    """
    x = arrays[f"example/{name}/target"].astype(np.float64)
    known = [method for method in shown if f"example/{name}/{method}" in arrays]
    peak = float(np.percentile(x, 99.5))
    detail = _detail(x)
    grey: dict[str, Any] = {"cmap": "gray", "vmin": 0, "vmax": peak}
    with style():
        figure = Figure(figsize=(1.56 * (len(known) + 1), 5.2), layout="constrained")
        grid = figure.subplots(3, len(known) + 1, squeeze=False)
        show(grid[0, 0], x, "fully sampled", **grey)
        show(grid[1, 0], x[detail], **grey)
        _frame(grid[0, 0], detail)
        grid[2, 0].set_axis_off()
        for column, method in enumerate(known, start=1):
            x_hat = arrays[f"example/{name}/{method}"].astype(np.float64)
            nmse, psnr = _quality(x_hat, x)
            show(grid[0, column], x_hat, f"{methods.info(method).label}\n{psnr:.1f} dB, NMSE {nmse:.4f}", **grey)
            show(grid[1, column], x_hat[detail], **grey)
            show(grid[2, column], np.abs(x_hat - x), cmap="Blues", vmin=0, vmax=peak / 4)
        grid[0, 0].set_ylabel("reconstruction", fontsize=8)
        grid[1, 0].set_ylabel("detail", fontsize=8)
        if known:
            grid[2, 1].set_ylabel("error", fontsize=8)
    return figure


def step_by_step(
    arrays: Arrays, place: str, method: str, score: str = "score of a row", start: str = "ACS alone"
) -> Figure:
    """Figure mri-sequential: each row's score before a step with the measured rows, and the reconstruction after it.

    The first column is the start, before any step; all scores have one axis.

    Args:
        arrays: with `PLACE/scores` `(R, rows)`, `PLACE/mask` `(R + 1, rows)`, `PLACE/reconstruction` `(R + 1, H, W)`
            and `PLACE/target` `(H, W)`.
        score: what the policy follows.
        start: what it starts from.
    """
    x = arrays[f"{place}/target"].astype(np.float64)
    scores = arrays[f"{place}/scores"].astype(np.float64)
    masks = arrays[f"{place}/mask"]
    shown = [0, *(r for r in STEPS if r <= len(scores))]
    peak = float(np.percentile(x, 99.5))
    colour = methods.info(method).colour
    frequency = np.arange(masks.shape[1]) - masks.shape[1] // 2
    with style():
        figure = Figure(figsize=(1.85 * len(shown) + 0.5, 4.0), layout="constrained")
        grid = figure.subplots(2, len(shown), squeeze=False, height_ratios=(1, 1.5))
        for (above, below), r in zip(grid.T, shown, strict=True):
            before = masks[max(r - 1, 0)]
            above.sharey(grid[0, 0])
            above.vlines(frequency[before], 0, 1, transform=above.get_xaxis_transform(), color="#b7cbe8", linewidth=1)
            if r:
                above.plot(frequency[~before], scores[r - 1][~before], ".", markersize=3, color=colour)
            else:
                above.text(0.5, 0.9, f"{int(before.sum())} rows", transform=above.transAxes, ha="center", fontsize=8)
            above.set_title(f"before step {r}" if r else f"start: {start}", fontsize=9)
            above.tick_params(labelsize=7.5, labelleft=r == 0)
            above.set_xlim(frequency[0] - 1, frequency[-1] + 1)
            above.set_xlabel("row (0 is DC)", fontsize=8)
            x_hat = arrays[f"{place}/reconstruction"][r].astype(np.float64)
            nmse, _ = _quality(x_hat, x)
            show(below, x_hat, f"NMSE {nmse:.4f}", cmap="gray", vmin=0, vmax=peak)
            below.set_xlabel(f"after {r} step{'s' * (r != 1)}" if r else start, fontsize=8)
        grid[0, 0].set_ylabel(score, fontsize=8)
        grid[1, 0].set_ylabel("U-Net B", fontsize=8)
    return figure


def acquisition(x: np.ndarray, x_hat: np.ndarray, mask: np.ndarray, method: str, *, nmse: float, psnr: float) -> Figure:
    """One slice for `sensewise acquire`: rows, reconstruction, fully sampled, error; magnitudes `(H, W)`."""
    peak = float(np.percentile(x, 99.5))
    with style():
        figure = Figure(figsize=(12, 3.4), layout="constrained")
        rows, rebuilt, full, error = figure.subplots(1, 4)
        lines = np.repeat(mask[:, None], x.shape[1], axis=1)
        show(rows, ~lines, f"{int(mask.sum())} of {len(mask)} rows, {methods.info(method).label}", cmap="gray")
        show(rebuilt, x_hat, f"reconstruction: {psnr:.1f} dB, NMSE {nmse:.4f}", cmap="gray", vmin=0, vmax=peak)
        show(full, x, "fully sampled", cmap="gray", vmin=0, vmax=peak)
        show(error, np.abs(x_hat - x), "error", cmap="Blues", vmin=0, vmax=peak / 4)
    return figure
