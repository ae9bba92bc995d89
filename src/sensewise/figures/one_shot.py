"""Figures of the one-shot study. Results and arrays in, pictures out; no model runs here."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sensewise.figures.pixels import FLOOR, Rows, Story, draw_curves, picture
from sensewise.figures.style import COLOURS, name_of, style, tinted

OURS, RANDOM = COLOURS["one-shot"], COLOURS["random"]


def _arrow(axes: Any, text: str = "") -> None:
    """An arrow from the picture on the left to this one, with a word above it."""
    axes.annotate(
        text,
        xy=(-0.04, 0.5),
        xytext=(-0.34, 0.5),
        xycoords="axes fraction",
        arrowprops={"arrowstyle": "->", "color": "#555555"},
        ha="center",
        va="bottom",
        fontsize=8,
    )


def pipeline(arrays: dict[str, np.ndarray], story: Story, label: str = "") -> Figure:
    """Figure pipeline: the two uses of the prior on one digit, from real outputs."""
    part = {key.removeprefix("pipeline/"): value for key, value in arrays.items() if key.startswith("pipeline/")}
    last = len(story.entropy) - 1
    steps = sorted({0, 1, last // 4, last // 2, last})
    with style():
        figure = Figure(figsize=(10.5, 6.4), layout="constrained")
        grid = figure.subplots(3, 5, squeeze=False)
        picture(grid[0, 0], part["target"] - 1, "target (not seen)", cmap="gray", vmin=0, vmax=1)
        picture(grid[0, 1], part["summary"], "summary in Z", cmap="gray", vmin=0, vmax=1)
        picture(grid[0, 2], part["probs"], "keep probabilities", cmap="viridis", vmin=0, vmax=1)
        measured = int((part["observation"] > 0).sum())
        picture(grid[0, 3], tinted(part["observation"], OURS), f"observation, {measured} pixels")
        title = f"entropy, mean {part['entropy'].mean():.4f}"
        picture(grid[0, 4], part["entropy"], title, cmap="magma", vmin=0, vmax=np.log(2))
        for axes, word in zip(grid[0, 1:], ("4 x 4 means", "generator", "draw", "frozen prior"), strict=True):
            _arrow(axes, word)
        for column, r in enumerate(steps):
            heat = story.entropy[r].astype(float)
            picture(grid[1, column], heat, f"step {r}" if r else "label only", cmap="magma", vmin=0, vmax=np.log(2))
            count = int((story.observation[r] > 0).sum())
            picture(grid[2, column], tinted(story.observation[r], COLOURS["label-greedy"]), f"{count} measured")
        for axes, text in zip(grid[:, 0], ("(a) one-shot", "(b) sequential:\nentropy", "measured"), strict=True):
            axes.set_ylabel(text, fontsize=9)
        figure.suptitle(f"The two uses of the prior, on one test digit at s = 0.1{label}", fontsize=11)
    return figure


def over_checkpoints(arrays: dict[str, np.ndarray], budgets: tuple[float, ...]) -> Figure:
    """Figure divergence: the objective above, a criterion that was not optimised below, over the training run."""
    step = arrays["checkpoints/step"]
    rows = (("entropy", "objective:\nentropy left (nats)"), ("recovery", "criterion:\ndigit pixels recovered"))
    with style():
        figure = Figure(figsize=(3.1 * len(budgets), 5.2), layout="constrained")
        grid = figure.subplots(2, len(budgets), squeeze=False, sharex=True)
        for column, s in enumerate(budgets):
            for line, (name, label) in enumerate(rows):
                axes = grid[line, column]
                axes.plot(step, arrays[f"checkpoints/{name}_{s}"], "o-", color=OURS, markersize=3, label="one-shot")
                level = float(arrays[f"checkpoints/{name}_{s}_random"][-1])
                axes.axhline(level, color=RANDOM, linestyle="--", label="random")
                if column == 0:
                    axes.set_ylabel(label)
            grid[0, column].set_title(f"s = {s:g}", fontsize=10)
            grid[0, column].set_yscale("log")
            grid[1, column].set_xlabel("training step")
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def metrics_against_budget(rows: Rows, methods: tuple[str, ...] = ("random", "one-shot")) -> Figure:
    """Figure metrics-vs-budget: errors, digit recovery, accuracy on hidden digit pixels; the paper's values hollow."""
    panels = (
        ("errors", "errors per image"),
        ("foreground-recovery", "digit pixels recovered"),
        ("hidden-foreground-accuracy", "accuracy on hidden digit pixels"),
    )
    shown = [row for row in rows if row["method"] in methods]
    with style():
        figure = Figure(figsize=(11.5, 3.9), layout="constrained")
        for axes, (metric, label) in zip(figure.subplots(1, len(panels)), panels, strict=True):
            draw_curves(axes, shown, metric)
            axes.set_ylabel(label)
            if metric == "errors":
                axes.set_yscale("log")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def baselines(rows: Rows) -> Figure:
    """Figure baselines, left: errors per image of every method, log scale."""
    with style():
        figure = Figure(figsize=(7.6, 5.0), layout="constrained")
        axes = figure.subplots()
        draw_curves(axes, rows, "errors")
        axes.set_yscale("log")
        axes.set_ylabel(f"errors per image (0 drawn at {FLOOR:g})")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def cosines(rows: Rows) -> Figure:
    """The cosine of each estimator with the exact gradient, one panel a surrogate, one group a generator."""
    surrogates = list(dict.fromkeys(row["surrogate"] for row in rows))
    generators = list(dict.fromkeys(row["generator"] for row in rows))
    methods = list(dict.fromkeys((row["method"], row["samples"]) for row in rows))
    with style():
        height = 0.5 + 0.26 * len(methods) * len(generators)
        figure = Figure(figsize=(5.4 * len(surrogates), height), layout="constrained")
        grid = figure.subplots(1, len(surrogates), squeeze=False, sharey=True)
        for axes, surrogate in zip(grid[0], surrogates, strict=True):
            place, ticks = 0, []
            for generator in generators:
                for method, samples in methods:
                    found = [r for r in rows if (r["method"], r["samples"]) == (method, samples)]
                    found = [r for r in found if r["generator"] == generator and r["surrogate"] == surrogate]
                    for row in found:
                        axes.barh(place, row["mean"], xerr=row["sd"], color=_COSINE_COLOURS[method], height=0.8)
                    ticks.append(f"{generator}: {name_of(method, 1)}, {samples}")
                    place -= 1
                place -= 1
            axes.set_yticks([-i - i // len(methods) for i in range(len(ticks))], ticks, fontsize=7)
            axes.set_xlim(-1.05, 1.05)
            axes.axvline(0, color="#444444", linewidth=0.8)
            axes.set_title(f"surrogate {surrogate}", fontsize=10)
            axes.set_xlabel("cosine with the exact gradient")
    return figure


_COSINE_COLOURS = {"disarm": OURS, "disarm-local": "#7b9bd1", "straight-through": "#9c5a3c", "ceiling": RANDOM}
