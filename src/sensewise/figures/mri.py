"""Figures of accelerated MRI. Results and arrays in, pictures out; no model runs here."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sensewise.figures.style import COLOURS, LABELS, style

Rows = list[dict[str, Any]]
Arrays = dict[str, np.ndarray]
REFERENCE = "acs-variable-density"
MAIN_ROWS = ("static-search", "loupe", REFERENCE)
EXAMPLES = ("zero-filled", REFERENCE, "static-search", "loupe", "sequential-entropy", "sequential-value")
AXES = {"nmse": "NMSE", "psnr": "PSNR (dB)", "ssim": "SSIM"}


def _label(method: str) -> str:
    return LABELS.get(method, method)


def _colour(method: str) -> str:
    return COLOURS.get(method, "#444444")


def _strips(axes: Any, masks: dict[str, np.ndarray]) -> None:
    """One line of ticks a mask, zero frequency in the middle."""
    for line, (method, mask) in enumerate(reversed(list(masks.items()))):
        frequency = np.flatnonzero(mask) - len(mask) // 2
        axes.vlines(frequency, line - 0.38, line + 0.38, color=_colour(method), linewidth=1.4)
    half = max(len(mask) for mask in masks.values()) / 2
    axes.set(xlim=(-half - 1, half + 1), ylim=(-0.6, len(masks) - 0.4), xlabel="phase-encode row (0 is DC)")
    axes.set_yticks(range(len(masks)), [_label(method) for method in reversed(masks)])
    axes.grid(visible=False)


def rows_picture(masks: dict[str, np.ndarray]) -> Figure:
    """Masks `(rows,)` by name, one line each."""
    with style():
        figure = Figure(figsize=(8, 0.7 + 0.45 * len(masks)), layout="constrained")
        _strips(figure.subplots(), masks)
    return figure


def read_rows(arrays: Arrays) -> dict[float, dict[str, np.ndarray]]:
    """Masks by budget and method from the keys `rows/METHOD/BUDGET`."""
    found: dict[float, dict[str, np.ndarray]] = {}
    for key, mask in arrays.items():
        if key.startswith("rows/"):
            _, method, budget = key.split("/")
            found.setdefault(float(budget), {})[method] = mask
    return dict(sorted(found.items()))


def rows_by_budget(arrays: Arrays, methods: tuple[str, ...] | None = None) -> Figure:
    """Figures mri-rows and mri-rows-all: the rows of each static mask, one panel a budget."""
    panels = read_rows(arrays)
    with style():
        lines = max(len([m for m in masks if methods is None or m in methods]) for masks in panels.values())
        figure = Figure(figsize=(9, len(panels) * (0.75 + 0.3 * lines)), layout="constrained")
        for axes, (budget, masks) in zip(
            figure.subplots(len(panels), squeeze=False)[:, 0], panels.items(), strict=True
        ):
            _strips(axes, {m: mask for m, mask in masks.items() if methods is None or m in methods})
            axes.set_title(f"s = {budget:g}", loc="left", fontsize=10)
            axes.set_xlabel("" if budget != max(panels) else "phase-encode row (0 is DC)")
    return figure


def _curve(rows: Rows, method: str, metric: str) -> tuple[list[float], np.ndarray]:
    found = sorted((r for r in rows if r["method"] == method and r["metric"] == metric), key=lambda r: r["budget"])
    return [r["budget"] for r in found], np.array([r["mean"] for r in found])


def quality_by_budget(rows: Rows, metrics: tuple[str, ...] = ("nmse", "psnr", "ssim")) -> Figure:
    """Figures mri-judge and mri-zf: each metric against the budget, and below it the gain over variable density.

    Args:
        rows: of one reconstructor, one number of steps a method.
    """
    methods = list(dict.fromkeys(row["method"] for row in rows))
    with style():
        figure = Figure(figsize=(4.4 * len(metrics), 7), layout="constrained")
        grid = figure.subplots(2, len(metrics), squeeze=False)
        for column, metric in enumerate(metrics):
            _, reference = _curve(rows, REFERENCE, metric)
            for method in methods:
                budgets, values = _curve(rows, method, metric)
                look: Any = {"color": _colour(method), "label": _label(method), "marker": "o", "markersize": 3}
                grid[0, column].plot(budgets, values, **look)
                if len(values) == len(reference):
                    gain = 100 * (1 - values / reference) if metric == "nmse" else values - reference
                    grid[1, column].plot(budgets, gain, **look)
            grid[0, column].set(title=AXES[metric], yscale="log" if metric == "nmse" else "linear")
            grid[1, column].set(
                xlabel="budget s",
                ylabel="NMSE lower by (%)" if metric == "nmse" else f"{AXES[metric]} gained",
            )
            grid[1, column].axhline(0, color="#999999", linewidth=0.8)
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    return figure


def _nmse(x_hat: np.ndarray, x: np.ndarray) -> float:
    return float(((x_hat - x) ** 2).sum() / (x**2).sum())


def _psnr(x_hat: np.ndarray, x: np.ndarray) -> float:
    return float(10 * np.log10(x.max() ** 2 / ((x_hat - x) ** 2).mean()))


def _still(axes: Any, picture: np.ndarray, title: str, **look: Any) -> None:
    axes.imshow(picture, interpolation="nearest", **look)
    axes.set_title(title, fontsize=8)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)


def _detail(x: np.ndarray) -> tuple[slice, slice]:
    """The quarter of the picture with the most edges: where a reader should look closely."""
    edges = np.abs(np.diff(x, axis=0))[:, :-1] + np.abs(np.diff(x, axis=1))[:-1]
    height, width = x.shape[0] // 4, x.shape[1] // 4
    table = np.pad(edges.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    sums = table[height:, width:] - table[:-height, width:] - table[height:, :-width] + table[:-height, :-width]
    top, left = np.unravel_index(sums.argmax(), sums.shape)
    return slice(int(top), int(top) + height), slice(int(left), int(left) + width)


def examples(arrays: Arrays, name: str, methods: tuple[str, ...] = EXAMPLES) -> Figure:
    """Figures mri-examples and mri-examples-p75: reconstructions, a detail enlarged, and absolute errors.

    Errors go from 0 (white) to a quarter of the slice's 99.5th-percentile intensity (dark blue).

    Args:
        arrays: with `example/NAME/target` and `example/NAME/METHOD` magnitudes `(H, W)`.
        name: "median" or "p75".
    """
    x = arrays[f"example/{name}/target"].astype(np.float64)
    shown = [method for method in methods if f"example/{name}/{method}" in arrays]
    peak, detail = float(np.percentile(x, 99.5)), _detail(x)
    with style():
        figure = Figure(figsize=(1.9 * (len(shown) + 1), 6.2), layout="constrained")
        grid = figure.subplots(3, len(shown) + 1, squeeze=False)
        grey: Any = {"cmap": "gray", "vmin": 0, "vmax": peak}
        for column, method in enumerate((None, *shown)):
            x_hat = x if method is None else arrays[f"example/{name}/{method}"].astype(np.float64)
            title = "fully sampled"
            if method is not None:
                title = f"{_label(method)}\n{_psnr(x_hat, x):.1f} dB, NMSE {_nmse(x_hat, x):.4f}"
            _still(grid[0, column], x_hat, title, **grey)
            _still(grid[1, column], x_hat[detail], "", **grey)
            if method is None:
                grid[2, column].set_axis_off()
                _frame(grid[0, column], detail)
            else:
                _still(grid[2, column], np.abs(x_hat - x), "", cmap="Blues", vmin=0, vmax=peak / 4)
        for line, label in enumerate(("reconstruction", "detail")):
            grid[line, 0].set_ylabel(label, fontsize=8)
        if shown:
            grid[2, 1].set_ylabel("error", fontsize=8)
    return figure


def _frame(axes: Any, detail: tuple[slice, slice]) -> None:
    rows, columns = detail
    place = (columns.start - 0.5, rows.start - 0.5)
    size = (columns.stop - columns.start, rows.stop - rows.start)
    axes.add_patch(Rectangle(place, *size, fill=False, edgecolor="#ffb000", linewidth=1.2))


def step_by_step(arrays: Arrays, prefix: str, method: str, steps: tuple[int, ...] = (1, 2, 4, 8, 16)) -> Figure:
    """Figure mri-sequential: each row's score before a step with the measured rows, and the reconstruction after it.

    Args:
        arrays: with `PREFIX/scores` `(R, rows)`, `PREFIX/mask` `(R + 1, rows)`, `PREFIX/reconstruction`
            `(R + 1, H, W)` and `PREFIX/target` `(H, W)`.
    """
    x = arrays[f"{prefix}/target"].astype(np.float64)
    scores, masks = arrays[f"{prefix}/scores"].astype(np.float64), arrays[f"{prefix}/mask"]
    shown = [r for r in steps if r <= len(scores)]
    peak = float(np.percentile(x, 99.5))
    with style():
        figure = Figure(figsize=(2.2 * len(shown), 4.4), layout="constrained")
        grid = figure.subplots(2, len(shown), squeeze=False, height_ratios=(1, 1.6))
        for column, r in enumerate(shown):
            before = masks[r - 1]
            frequency = np.arange(len(before)) - len(before) // 2
            top = grid[0, column]
            top.vlines(frequency[before], 0, 1, transform=top.get_xaxis_transform(), color="#b7cbe8", linewidth=1)
            top.plot(frequency[~before], scores[r - 1][~before], ".", markersize=2.5, color=_colour(method))
            top.set_title(f"step {r}", fontsize=9)
            top.tick_params(labelsize=7)
            top.set_xlabel("row (0 is DC)", fontsize=7)
            x_hat = arrays[f"{prefix}/reconstruction"][r].astype(np.float64)
            _still(grid[1, column], x_hat, f"NMSE {_nmse(x_hat, x):.4f}", cmap="gray", vmin=0, vmax=peak)
        grid[0, 0].set_ylabel("score of a row", fontsize=8)
    return figure


def acquisition(x: np.ndarray, x_hat: np.ndarray, mask: np.ndarray, method: str) -> Figure:
    """One slice for `sensewise acquire`: rows, reconstruction, fully sampled, error; magnitudes `(H, W)`."""
    peak = float(np.percentile(x, 99.5))
    with style():
        figure = Figure(figsize=(12, 3.4), layout="constrained")
        grid = figure.subplots(1, 4)
        lines = np.repeat(mask[:, None], x.shape[1], axis=1)
        _still(grid[0], ~lines, f"{int(mask.sum())} of {len(mask)} rows, {_label(method)}", cmap="gray")
        title = f"reconstruction: {_psnr(x_hat, x):.1f} dB, NMSE {_nmse(x_hat, x):.4f}"
        _still(grid[1], x_hat, title, cmap="gray", vmin=0, vmax=peak)
        _still(grid[2], x, "fully sampled", cmap="gray", vmin=0, vmax=peak)
        _still(grid[3], np.abs(x_hat - x), "error", cmap="Blues", vmin=0, vmax=peak / 4)
    return figure
