"""Figures of the one-shot study: the two uses of a prior, objective against criterion, gradient estimators."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from sensewise.evaluate.recording import Recording
from sensewise.evaluate.rows import Row
from sensewise.report import methods
from sensewise.report.figures.style import show, style, tinted

Arrays = Mapping[str, np.ndarray]


def _arrow(axes: Axes, text: str) -> None:
    """An arrow from the picture on the left to this one, with a word above it."""
    arrow = {"arrowstyle": "->", "color": "#555555"}
    drawn = axes.annotate("", xy=(-0.06, 0.5), xytext=(-0.42, 0.5), xycoords="axes fraction", arrowprops=arrow)
    word = axes.text(-0.23, 0.54, text, transform=axes.transAxes, ha="center", va="bottom", fontsize=7)
    drawn.set_in_layout(False)
    word.set_in_layout(False)


def pipeline(arrays: Arrays, recording: Recording) -> Figure:
    """Figure pipeline: the two uses of the prior on one digit, from real outputs.

    Args:
        arrays: with `pipeline/target`, `.../observation` tokens `(H, W)`, `.../summary`, `.../probs`, `.../entropy`.
        recording: the same digit, acquired in steps.
    """
    part = {key.removeprefix("pipeline/"): value for key, value in arrays.items() if key.startswith("pipeline/")}
    last = recording.steps
    steps = sorted({0, 1, last // 4, last // 2, last})
    nats = {"cmap": "magma", "vmin": 0, "vmax": np.log(2)}
    with style():
        figure = Figure(figsize=(10.5, 5.4), layout=ConstrainedLayoutEngine(wspace=0.32))
        grid = figure.subplots(3, 5, squeeze=False)
        for axes in grid[1:].flat:
            axes.set_axis_off()
        count = int((part["observation"] > 0).sum())
        show(grid[0, 0], part["target"] - 1, "target (not seen)", cmap="gray", vmin=0, vmax=1)
        show(grid[0, 1], part["summary"], "summary in Z", cmap="gray", vmin=0, vmax=1)
        show(grid[0, 2], part["probs"], "keep probabilities", cmap="viridis", vmin=0, vmax=1)
        observation = tinted(part["observation"][None], methods.info("one-shot").colour, 2)
        show(grid[0, 3], observation, f"observation, {count} pixels")
        show(grid[0, 4], part["entropy"], f"entropy, mean {part['entropy'].mean():.4f}", **nats)
        for axes, word in zip(grid[0, 1:], ("4 x 4\nmeans", "generator", "draw", "frozen\nprior"), strict=True):
            _arrow(axes, word)
        for column, r in enumerate(steps):
            above, below = grid[1:, column]
            above.set_axis_on()
            below.set_axis_on()
            show(above, recording.entropy[r].astype(np.float64), f"step {r}" if r else "label only", **nats)
            taken = tinted(recording.observation(r), methods.info("label-greedy").colour, recording.levels)
            show(below, taken, f"{int(recording.mask(r).sum())} measured")
        for axes, text in zip(grid[:, 0], ("(a) one-shot", "(b) sequential:\nentropy", "measured"), strict=True):
            axes.set_ylabel(text, fontsize=9)
        figure.suptitle("The two uses of the prior, on one test digit at s = 0.1", fontsize=11)
    return figure


def divergence(arrays: Arrays, budgets: Sequence[float]) -> Figure:
    """Figure divergence: the objective above, a criterion that was not optimised below, over the training run."""
    step = arrays["checkpoints/step"]
    rows = (("entropy", "objective:\nentropy left (nats)"), ("recovery", "criterion:\ndigit pixels recovered"))
    with style():
        figure = Figure(figsize=(3.1 * len(budgets), 5.2), layout="constrained")
        grid = figure.subplots(2, len(budgets), squeeze=False, sharex=True)
        for column, s in enumerate(budgets):
            for axes, (name, label) in zip(grid[:, column], rows, strict=True):
                learned, random = methods.info("one-shot"), methods.info("random")
                values = arrays[f"checkpoints/{name}_{s}"]
                axes.plot(step, values, "o-", color=learned.colour, markersize=3, label=learned.label)
                level = float(arrays[f"checkpoints/{name}_{s}_random"][-1])
                axes.axhline(level, color=random.colour, linestyle="--", label=random.label)
                if column == 0:
                    axes.set_ylabel(label)
            grid[0, column].set_title(f"s = {s:g}", fontsize=10)
            grid[0, column].set_yscale("log")
            grid[1, column].set_xlabel("training step")
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def estimator_name(row: Row) -> str:
    """A gradient estimator and how many pairs or masks it averages per image."""
    return f"{methods.info(row.method).label}, {row.samples}"


def cosines(rows: Sequence[Row]) -> Figure:
    """The cosine of each estimator with the exact gradient, one panel per surrogate, one group per designer."""
    surrogates = list(dict.fromkeys(row.surrogate for row in rows))
    designers = list(dict.fromkeys(row.generator for row in rows))
    estimators = list(dict.fromkeys(estimator_name(row) for row in rows))
    lines: dict[tuple[str | None, str], float] = {}
    for group, designer in enumerate(designers):
        for place, estimator in enumerate(estimators):
            lines[designer, estimator] = -(group * (len(estimators) + 1.6) + place)
    with style():
        figure = Figure(figsize=(3.6 * len(surrogates) + 2.4, 0.6 + 0.24 * len(lines)), layout="constrained")
        grid = figure.subplots(1, len(surrogates), squeeze=False, sharey=True)[0]
        for axes, surrogate in zip(grid, surrogates, strict=True):
            for row in rows:
                if row.surrogate == surrogate and row.mean is not None:
                    line = lines[row.generator, estimator_name(row)]
                    colour = methods.info(row.method).colour
                    axes.barh(line, row.mean, xerr=row.sd, color=colour, height=0.8, error_kw={"elinewidth": 0.8})
            for designer in designers:
                axes.text(-1.02, lines[designer, estimators[0]] + 0.7, designer, fontsize=8, fontweight="bold")
            axes.set_yticks(list(lines.values()), [estimator for _, estimator in lines], fontsize=7.5)
            axes.set(xlim=(-1.05, 1.05), xlabel="cosine with the exact gradient")
            axes.axvline(0, color="#444444", linewidth=0.8)
            axes.set_title(f"surrogate “{surrogate}”", fontsize=10)
            axes.grid(visible=False, axis="y")
    return figure
