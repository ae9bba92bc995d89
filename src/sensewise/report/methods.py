"""How tables and figures show a method: one registry, from the name in results to label, colour and line."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from sensewise.evaluate.rows import Row

USUAL_STEPS = 16
"""Drawn as a solid line; fewer steps are dashed, more are dotted."""


@dataclass(frozen=True)
class MethodInfo:
    """How one method is shown.

    Attributes:
        label: for people.
        colour: of its lines, bars and measured pixels.
        dash: Matplotlib's line style, for a method without steps.
        on_budget: whether its masks measure exactly what the budget says; a plain draw does not.
        has_steps: whether the number of steps belongs to its name.
        reference: whether it is a ceiling that knows the truth, not a method that competes.
    """

    label: str
    colour: str
    dash: str = "-"
    on_budget: bool = True
    has_steps: bool = False
    reference: bool = False

    @property
    def competes(self) -> bool:
        """Whether it can be the best of a column."""
        return self.on_budget and not self.reference


def _steps(label: str, colour: str) -> MethodInfo:
    return MethodInfo(label, colour, has_steps=True)


def _plain_draw(label: str, colour: str) -> MethodInfo:
    return MethodInfo(f"{label}, plain draw", colour, dash=":", on_budget=False)


METHODS = {
    # pixels
    "random": MethodInfo("random", "#7f7f7f"),
    "variable-density": MethodInfo("variable density", "#946b2d"),
    "raster": MethodInfo("raster", "#a0a0a0"),
    "greedy": _steps("greedy", "#d1495b"),
    "probe-greedy": _steps("probe + greedy", "#2a9d8f"),
    "grid-greedy": _steps("grid probe + greedy", "#1d6f8a"),
    "label-greedy": _steps("label-greedy", "#d1495b"),
    "spread-greedy": _steps("greedy, spread", "#7a0c2e"),
    "joint-greedy": _steps("greedy, joint", "#4f772d"),
    "variance-greedy": MethodInfo("variance-greedy", "#118ab2", dash="--", has_steps=True),
    "grid-variance-greedy": _steps("grid probe + variance-greedy", "#7b2cbf"),
    "spread-variance-greedy": _steps("variance-greedy, spread", "#d81159"),
    "mirrored-random": MethodInfo("random, mirrored", "#b5b5b5"),
    "mirrored-variance-greedy": _steps("variance-greedy, spread, mirrored", "#6d0530"),
    "stop": MethodInfo("ended by a stop", "#d1495b"),
    "fixed": MethodInfo("fixed budget", "#7f7f7f"),
    "gain-greedy": _steps("information gain, told the noise", "#d1495b"),
    "gain-greedy-repeats": _steps("information gain, told the noise, with repeats", "#7a0c2e"),
    "trusting-greedy": _steps("greedy, takes readings for the truth", "#7f7f7f"),
    "amortised": _steps("amortised", "#118ab2"),
    "posterior-sampling": _steps("posterior sampling", "#5f0f40"),
    "one-shot": MethodInfo("one-shot", "#3d5a98"),
    "one-shot-topk": MethodInfo("one-shot, top-k", "#7b9bd1"),
    "one-shot-variance": MethodInfo("one-shot, variance surrogate, label", "#3f7f93"),
    "one-shot-variance-topk": MethodInfo("one-shot, variance surrogate, label, top-k", "#86b6c4"),
    "one-shot-variance-bernoulli": _plain_draw("one-shot, variance surrogate, label", "#3f7f93"),
    "one-shot-entropy": MethodInfo("one-shot, entropy surrogate, label", "#6f4e9c"),
    "one-shot-observed": MethodInfo("one-shot, observed-pixel surrogate", "#8c6d9c"),
    "one-shot-observed-weak": MethodInfo("one-shot, observed-pixel surrogate, weak budget penalty", "#b79fc4"),
    "one-shot-straight-through": MethodInfo("one-shot, straight-through gradient", "#9c5a3c"),
    "one-shot-3e-4": MethodInfo("straight-through, learning rate 3e-4", "#9c5a3c"),
    "one-shot-1e-4": MethodInfo("straight-through, learning rate 1e-4", "#b98466"),
    "one-shot-3e-5": MethodInfo("straight-through, learning rate 3e-5", "#d4b09c"),
    "one-shot-paper-decoder": MethodInfo("one-shot, the paper's decoder", "#5b8fa8"),
    "one-shot-bernoulli": _plain_draw("one-shot", "#3d5a98"),
    "one-shot-entropy-bernoulli": _plain_draw("one-shot, entropy surrogate, label", "#6f4e9c"),
    "one-shot-observed-bernoulli": _plain_draw("one-shot, observed-pixel surrogate", "#8c6d9c"),
    "one-shot-observed-weak-bernoulli": _plain_draw(
        "one-shot, observed-pixel surrogate, weak budget penalty", "#b79fc4"
    ),
    "one-shot-straight-through-bernoulli": _plain_draw("one-shot, straight-through gradient", "#9c5a3c"),
    "one-shot-paper-decoder-bernoulli": _plain_draw("one-shot, the paper's decoder", "#5b8fa8"),
    "loupe": MethodInfo("LOUPE", "#f28e2b", dash="--"),
    "loupe-own-unet": MethodInfo("LOUPE, own U-Net", "#f2b279", dash=":"),
    "mask-state": MethodInfo("with mask state", "#d1495b"),
    "shared-zero": MethodInfo("0 shared with black", "#7f7f7f"),
    "survival-monte-carlo": MethodInfo("measured: 20 batches, every tenth step", "#555555"),
    "survival-closed-form": MethodInfo("closed form", "#999999"),
    # gradient estimators
    "disarm": MethodInfo("DisARM", "#3d5a98"),
    "disarm-local": MethodInfo("DisARM, local", "#7b9bd1"),
    "straight-through": MethodInfo("straight-through", "#9c5a3c"),
    "ceiling": MethodInfo("exact, one half against the other", "#7f7f7f", reference=True),
    # rows of k-space
    "zero-filled": MethodInfo("zero-filled", "#444444"),
    "acs-random": MethodInfo("ACS + random", "#7f7f7f"),
    "acs-equispaced": MethodInfo("ACS + equispaced", "#a0a0a0"),
    "acs-variable-density": MethodInfo("ACS + variable density", "#4d4d4d"),
    "static-search": MethodInfo("static search", "#d1495b"),
    "energy-oracle": MethodInfo("energy oracle", "#6a994e", dash=":"),
    "learned-adaptive": MethodInfo("learned policy, adaptive", "#3d5a98"),
    "learned-static": MethodInfo("learned policy, static", "#8fa6d3"),
    "relaxed-profile": MethodInfo("relaxed row profile", "#9d4edd", dash="-."),
    "relaxed-profile-fast": MethodInfo("relaxed row profile, step 5e-3", "#c9a0ef", dash=":"),
    "nearest-mask": MethodInfo("nearest mask", "#588b8b"),
    "sequential-entropy": _steps("sequential, entropy", "#0096c7"),
    "sequential-energy": _steps("control, expected energy", "#8ecae6"),
    "sequential-value": _steps("sequential, value", "#1d3557"),
    "sequential-samples": _steps("sequential, imagined images", "#b5179e"),
    "oracle-one-step": MethodInfo("one-step oracle (ceiling)", "#000000", has_steps=True, reference=True),
    # peers
    "fast": MethodInfo("FAST", "#118ab2"),
    "gpcam": _steps("gpCAM", "#073b4c"),
    "line-entropy": MethodInfo("lines by entropy of samples (zea)", "#bc6c25"),
    "random-linear": MethodInfo("random, linear interpolation", "#6c757d"),
    "random-idw": MethodInfo("random, inverse distance", "#adb5bd"),
}
"""By the name in results."""

_COLOURS: Iterator[str] = itertools.cycle(
    ("#1b9e77", "#d95f02", "#7570b3", "#e7298a", "#66a61e", "#e6ab02", "#a6761d", "#1f78b4", "#b2182b", "#35978f")
)


def info(method: str) -> MethodInfo:
    """How a method is shown; one that is not known here keeps its name and takes the next colour of a cycle."""
    if method not in METHODS:
        METHODS[method] = _steps(method, next(_COLOURS))
    return METHODS[method]


def name_of(method: str, steps: int = 1, *qualifiers: str) -> str:
    """What tables and figures call a method: its label, what qualifies it, and its steps where they mean something."""
    found = info(method)
    name = found.label + (f" ({', '.join(qualifiers)})" if qualifiers else "")
    if found.has_steps:
        name += f", {steps} step{'s' * (steps > 1)}"
    return name


def row_name(row: Row) -> str:
    """The same for a row of results, with its form and with whose scout it saw."""
    qualifiers = [] if row.form is None else [row.form]
    if row.scout is not None:
        qualifiers.append(f"{row.scout} scout")
    return name_of(row.method, row.steps, *qualifiers)


def dash_of(method: str, steps: int) -> str:
    """The line style of a method: dashed for few steps, dotted for many."""
    found = info(method)
    if not found.has_steps or steps == USUAL_STEPS:
        return found.dash
    return "--" if steps < USUAL_STEPS else ":"
