"""Figures of one-shot masks: the whole idea on one digit, objective against criterion, gradient estimators."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from sensewise.evaluate.recording import Recording
from sensewise.evaluate.rows import Row
from sensewise.report import methods, metrics
from sensewise.report.figures.style import show, style, tinted

Arrays = Mapping[str, np.ndarray]
_NATS: dict[str, Any] = {"cmap": "magma", "vmin": 0, "vmax": np.log(2)}


def _arrow(axes: Axes, text: str, *, length: float = 0.34) -> None:
    """An arrow from the picture on the left to this one, with a word above it."""
    arrow = {"arrowstyle": "-|>", "color": "#555555", "shrinkA": 0, "shrinkB": 0}
    begin = (-0.06 - length, 0.5)
    drawn = axes.annotate("", xy=(-0.06, 0.5), xytext=begin, xycoords="axes fraction", arrowprops=arrow)
    middle = -0.06 - length / 2
    word = axes.text(middle, 0.54, text, transform=axes.transAxes, ha="center", va="bottom", fontsize=8)
    drawn.set_in_layout(False)
    word.set_in_layout(False)


def pipeline(arrays: Arrays, recording: Recording) -> Figure:
    """Figure pipeline: the two uses of the prior on one digit, from real outputs.

    Args:
        arrays: with `pipeline/target` tokens `(H, W)`, `.../summary`, `.../probs`, and an antithetic pair:
            `.../pair` tokens `(2, H, W)`, `.../pair-entropy` `(2, H, W)`, and the numbers `.../label`, `.../budget`,
            `.../t`, `.../sparsity`. Results from before the pair was kept have `.../observation` and `.../entropy`
            of one mask instead.
        recording: the same digit, acquired in steps.
    """
    part = {key.removeprefix("pipeline/"): value for key, value in arrays.items() if key.startswith("pipeline/")}
    with style():
        figure = Figure(figsize=(10.4, 7.4), layout="constrained")
        above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(1.12, 1), hspace=0.03).flat
        _one_shot(above, part)
        _sequential(below, recording)
    return figure


def _one_shot(figure: SubFigure, part: Mapping[str, np.ndarray]) -> None:
    """Panel (a): side information, keep probabilities, a pair of masks, entropies, losses."""
    budget = float(part.get("budget", 0.1))
    pair = part["pair"] if "pair" in part else part["observation"][None]
    entropies = part["pair-entropy"] if "pair-entropy" in part else part["entropy"][None]
    figure.suptitle(
        f"(a) one-shot: a mask designer is trained against the frozen prior, here at s = {budget:g}",
        x=0.01,
        ha="left",
        fontsize=11,
    )
    grid = figure.add_gridspec(2, 5, width_ratios=(1, 1.22, 1, 1.22, 1.1), wspace=0.34)
    target, first_look = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[1, 0])
    probs = figure.add_subplot(grid[:, 1])
    show(target, part["target"] - 1, "target C (not seen)", cmap="gray", vmin=0, vmax=1)
    known = f"label {int(part['label'])}, s = {budget:g},\n8 x 8 summary" if "label" in part else "8 x 8 summary"
    show(first_look, part["summary"], f"side information Z:\n{known}", cmap="gray", vmin=0, vmax=1)
    image = show(probs, part["probs"], "keep probabilities p", cmap="viridis", vmin=0, vmax=1)
    figure.colorbar(image, ax=probs, fraction=0.046, pad=0.04)
    _arrow(probs, "designer", length=0.3)
    colour = methods.info("one-shot").colour
    for line, (observation, entropy) in enumerate(zip(pair, entropies, strict=True)):
        prime = "′" * line
        seen, heat = figure.add_subplot(grid[line, 2]), figure.add_subplot(grid[line, 3])
        count = int((observation > 0).sum())
        show(seen, tinted(observation[None], colour, 2), f"observation Y{prime}: {count} pixels")
        _arrow(seen, f"draw X{prime}" if len(pair) > 1 else "draw X")
        image = show(heat, entropy, f"entropies H{prime}", **_NATS)
        figure.colorbar(image, ax=heat, fraction=0.046, pad=0.04, label="nats")
        _arrow(heat, f"prior\nt(s) = {int(part['t'])}" if "t" in part else "prior")
        words = figure.add_subplot(grid[line, 4])
        words.set_axis_off()
        words.text(0.0, 0.5, _loss(part, count / observation.size, entropy, budget, prime), va="center", fontsize=9)
    if len(pair) > 1:
        figure.text(
            0.995,
            0.49,
            "DisARM: the difference of the two\nlosses gives the gradient;\nnone passes through the prior",
            ha="right",
            va="center",
            fontsize=8,
            color="#444444",
        )


def _loss(part: Mapping[str, np.ndarray], density: float, entropy: np.ndarray, budget: float, prime: str) -> str:
    """The loss of one mask, in numbers."""
    surrogate = float(entropy.mean())
    lines = [rf"$\mathcal{{H}}_\mathrm{{all}}{prime and chr(39)}$ = {surrogate:.4f}"]
    if "sparsity" in part:
        penalty = float(part["sparsity"]) * (density - budget) ** 2
        weight = f"{float(part['sparsity']):g}"
        lines.append(rf"$\lambda(\bar X - s)^2$ = {weight}({density:.3f} − {budget:g})$^2$")
        lines.append(f"          = {penalty:.4f}")
        lines.append(rf"$\mathcal{{L}}{prime and chr(39)}$ = {surrogate + penalty:.4f}")
    return "\n".join(lines)


def _sequential(figure: SubFigure, recording: Recording) -> None:
    """Panel (b): entropies before a step, and what has been measured by then."""
    last = recording.steps
    shown = sorted({0, 1, last // 8, last // 4, last // 2, last})
    figure.suptitle(
        "(b) sequential: each step measures where the same prior is least certain", x=0.01, ha="left", fontsize=11
    )
    grid = figure.subplots(2, len(shown), squeeze=False)
    colour = methods.info("label-greedy").colour
    image = None
    for (heat, seen), r in zip(grid.T, shown, strict=True):
        title = f"after step {r}" if r else "start: the label alone"
        image = show(heat, recording.entropy[r].astype(np.float64), title, **_NATS)
        taken = tinted(recording.observation(r), colour, recording.levels)
        show(seen, taken, f"{int(recording.mask(r).sum())} measured")
    if image is not None:
        figure.colorbar(image, ax=grid, fraction=0.02, pad=0.01, aspect=30, label="entropy (nats)")
    grid[0, 0].set_ylabel("entropies", fontsize=9)
    grid[1, 0].set_ylabel("observation", fontsize=9)


@dataclass(frozen=True)
class Course:
    """One training run in Figure divergence: a column at one budget.

    Attributes:
        title: the data set.
        arrays: with `checkpoints/step` and series `checkpoints/NAME_BUDGET`, those of random masks `..._random`.
        budget: at which it was validated.
        criterion: the name of the series below the entropy.
        label: of that criterion.
        paper: the paper's last value of the criterion, and random masks' beside it.
    """

    title: str
    arrays: Arrays
    budget: float
    criterion: str
    label: str
    paper: tuple[float, float] | None = None


def divergence(courses: Sequence[Course]) -> Figure:
    """Figure divergence: the objective above, a criterion that was not optimised below, over training runs."""
    with style():
        figure = Figure(figsize=(2.6 * len(courses) + 0.4, 5.0), layout="constrained")
        grid = figure.subplots(2, len(courses), squeeze=False, sharex="col")
        for column, course in enumerate(courses):
            names = (("entropy", "entropy left (nats)"), (course.criterion, course.label))
            for axes, (name, label) in zip(grid[:, column], names, strict=True):
                _course(axes, course, name)
                axes.set_ylabel(label, fontsize=9)
            grid[0, column].set_title(f"{course.title}, s = {course.budget:g}", fontsize=10)
            grid[1, column].set_xlabel("training step")
            if course.paper is not None:
                last = course.arrays["checkpoints/step"][-1]
                colours = [methods.info(name).colour for name in ("one-shot", "random")]
                grid[1, column].scatter(
                    [last, last], course.paper, marker="s", facecolors="none", edgecolors=colours, s=42, zorder=3
                )
        handles, labels = grid[0, 0].get_legend_handles_labels()
        if any(course.paper is not None for course in courses):
            handles.append(grid[0, 0].scatter([], [], marker="s", facecolors="none", edgecolors="#444444", s=42))
            labels.append("the paper's last values")
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _course(axes: Axes, course: Course, name: str) -> None:
    learned, random = methods.info("one-shot"), methods.info("random")
    values = course.arrays[f"checkpoints/{name}_{course.budget}"]
    step = course.arrays["checkpoints/step"]
    axes.plot(step, values, "o-", color=learned.colour, markersize=3.5, label=learned.label)
    level = float(course.arrays[f"checkpoints/{name}_{course.budget}_random"][-1])
    axes.axhline(level, color=random.colour, linestyle="--", label=random.label)
    if min(values.min(), level) > 0 and max(values.max(), level) > 20 * min(values.min(), level):
        axes.set_yscale("log")


def estimator_name(row: Row) -> str:
    """A gradient estimator and how many pairs or masks it averages per image."""
    return f"{methods.info(row.method).label}, {row.samples}"


def cosines(rows: Sequence[Row], paper: Mapping[str, tuple[float, float]] | None = None) -> Figure:
    """The cosine of each estimator with the exact gradient, one panel per surrogate, one group per designer.

    Args:
        paper: the range that the paper gives, by method; drawn behind the bars.
    """
    surrogates = list(dict.fromkeys(row.surrogate for row in rows))
    designers = list(dict.fromkeys(row.generator for row in rows))
    estimators = list(dict.fromkeys(estimator_name(row) for row in rows))
    lines: dict[tuple[str | None, str], float] = {}
    for group, designer in enumerate(designers):
        for place, estimator in enumerate(estimators):
            lines[designer, estimator] = -(group * (len(estimators) + 1.6) + place)
    with style():
        figure = Figure(figsize=(3.6 * len(surrogates) + 2.2, 1.0 + 0.24 * len(lines)), layout="constrained")
        grid = figure.subplots(1, len(surrogates), squeeze=False, sharey=True)[0]
        for axes, surrogate in zip(grid, surrogates, strict=True):
            for method, (low, high) in (paper or {}).items():
                label = f"the paper's range of {methods.info(method).label}"
                axes.axvspan(low, high, color=methods.info(method).colour, alpha=0.22, linewidth=0, label=label)
            for row in rows:
                if row.surrogate == surrogate and row.mean is not None:
                    line = lines[row.generator, estimator_name(row)]
                    colour = methods.info(row.method).colour
                    axes.barh(line, row.mean, xerr=row.sd, color=colour, height=0.8, error_kw={"elinewidth": 0.8})
            for designer in designers:
                axes.text(-1.02, lines[designer, estimators[0]] + 0.7, designer, fontsize=7.5, fontweight="bold")
            axes.set_yticks(list(lines.values()), [estimator for _, estimator in lines], fontsize=8)
            axes.set(xlim=(-1.05, 1.05), xlabel=metrics.info("cosine").axis)
            axes.axvline(0, color="#444444", linewidth=0.8)
            axes.set_title(f"surrogate “{surrogate}”", fontsize=10)
            axes.grid(visible=False, axis="y")
        if paper:
            figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9)
    return figure
