"""The report's sections on CIFAR-10. Results in, sections out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sensewise.data.cifar10 import NUM_STATES
from sensewise.experiments.results import read_arrays, read_results
from sensewise.figures import film, pixels
from sensewise.figures.style import name_of
from sensewise.tables import STAGES, Grid, Rows, Section, budgets_of, cell, densities, grid, methods_of, pick

Method = tuple[str, int]
"""A method and its steps."""


def cifar10_sequential(path: Path) -> Section:
    """Section 6 and Appendix C on CIFAR-10."""
    results, arrays = read_results(path), read_arrays(path)
    rows, tables = pick(results["rows"], metric="psnr"), []
    for prior, words in STAGES.items():
        if part := pick(rows, prior=prior):
            tables.append((f"PSNR in dB, {part[0]['images']:,} test images, prior trained on {words}", part))
    main = tables[0][1]
    text = [
        "PSNR against the 8-level target, hidden pixels at the posterior mean; mean ± standard deviation over "
        f"{main[0]['seeds']} seeds. A mask hides all three channels of a pixel. “probe + greedy” is a random probe of "
        "20% of the budget, then variance-greedy steps. “spread” scores a pixel by the variance around it, and keeps "
        "the pixels of a step apart. “mirrored” averages the prior's answers for the picture and its mirror image, in "
        "two passes instead of one.",
        _label_against_random(rows),
        _spread_against_plain(main),
        _mirrored_against_single(main),
        *results["notes"],
    ]
    figures: dict[str, tuple[Any, str]] = {
        "cifar10-sequential.png": (pixels.psnr_against_budget(main), "PSNR against the budget.")
    }
    for s in ("0.1", "0.3"):
        caption = f"What each method measures at s = {s}, the posterior mean and its errors."
        figures[f"cifar10-examples-{s}.png"] = (film.examples(arrays, NUM_STATES, f"example-{s}"), caption)
    return Section("CIFAR-10, sequential acquisition", text, tables, figures, results)


METRIC_NAMES = {
    "entropy": "entropy",
    "accuracy": "accuracy",
    "nonblack-recovery": "non-black recovery",
    "psnr": "PSNR (dB)",
}


def cifar10_one_shot(path: Path) -> Section:
    """Table cifar-open."""
    results, arrays = read_results(path), read_arrays(path)
    rows, lines = pick(results["rows"], prior="on-policy"), []
    heads = budgets_of(rows)
    for budget, head in heads.items():
        for method in ("one-shot", "random"):
            found = {row["metric"]: row for row in pick(rows, method=method, budget=budget)}
            lines.append((f"{name_of(method, 1)}, {head}", [cell(found.get(name)) for name in METRIC_NAMES]))
    psnr = pick(rows, metric="psnr")
    text = [
        "The generator chooses the whole mask from an 8 x 8 grey summary, the label and the budget. Masks are drawn on "
        "budget; mean ± standard deviation over the seeds.",
        _one_shot_against_random(psnr),
        *results["notes"],
    ]
    grids = [
        ("Learned and random masks", Grid(["", *METRIC_NAMES.values()], lines)),
        ("PSNR in dB of every way to draw a mask", grid(psnr, "method", "budget", heads, methods_of(psnr), low=False)),
        ("Density of the masks: a plain draw is not on budget", densities(psnr, heads, methods_of(psnr))),
    ]
    if earlier := pick(results["rows"], prior="random-masks", metric="psnr"):
        caption = f"PSNR in dB, prior trained on {STAGES['random-masks']}"
        grids.append((caption, grid(earlier, "method", "budget", heads, methods_of(earlier), low=False)))
    figures: dict[str, tuple[Any, str]] = {}
    for s in ("0.1", "0.3"):
        caption = f"What each method measures at s = {s}, the posterior mean and its errors."
        drawn = film.examples(arrays, NUM_STATES, f"example-{s}")
        figures[f"cifar10-one-shot-examples-{s}.png"] = (drawn, caption)
    return Section("CIFAR-10, one-shot masks", text, [], figures, results, grids)


def _gains(rows: Rows, one: Method, other: Method = ("random", 1)) -> dict[float, float]:
    """How far one method is above another, in dB by budget."""
    below = {row["budget"]: row["mean"] for row in pick(rows, method=other[0], steps=other[1])}
    return {r["budget"]: r["mean"] - below[r["budget"]] for r in pick(rows, method=one[0], steps=one[1])}


def _told(gains: dict[float, float]) -> str:
    return ", ".join(f"{gain:+.2f} dB at s = {budget:g}" for budget, gain in gains.items())


def _one_shot_against_random(psnr: Rows) -> str:
    """What the learned masks gain on random ones, and what the plain draw seems to gain at the smallest budget."""
    seeming = []
    for method, words in (
        ("one-shot-bernoulli", "the shipped generator"),
        ("one-shot-entropy-bernoulli", "the one trained on the entropy"),
    ):
        for plain in pick(psnr, method=method, budget=0.1):
            gain = _gains(psnr, (method, 1))[0.1]
            seeming.append(f"{words} has a density of {plain['density']:.3f} and seems to gain {gain:+.2f} dB")
    return (
        f"Against random masks: {_told(_gains(psnr, ('one-shot', 1)))}. A plain draw at s = 0.1 is not on budget: "
        f"{'; '.join(seeming)}; the paper's: 0.187 and +2.6 dB."
    )


def _label_against_random(rows: Rows) -> str:
    """Whether entropy from the label is any better than random masks, and if so, whether label or steps are why."""
    found = []
    for stage, words in STAGES.items():
        part = pick(rows, prior=stage)
        for steps in sorted({row["steps"] for row in pick(part, method="label-greedy")}):
            told = _told(_gains(part, ("label-greedy", steps)))
            found.append(f"{told} in {steps} steps with the prior trained on {words}")
    text = f"Label-greedy against random masks: {'; '.join(found)}. The paper finds them level in 16 steps."
    few, many = (_gains(pick(rows, prior="on-policy"), ("label-greedy", steps)) for steps in (4, 16))
    if many and max(many.values()) > 0.05 and all(few[budget] < many[budget] for budget in many):
        text += (
            " Ours gains by its steps, not by the label: the fewer steps, the more it rests on the label, and the "
            "worse it gets."
        )
    return text


def _spread_against_plain(rows: Rows) -> str:
    """What keeping the pixels of a step apart gains."""
    spread, plain = ("spread-variance-greedy", 16), ("variance-greedy", 16)
    return (
        f"Spread picks in 16 steps against plain variance-greedy: {_told(_gains(rows, spread, plain))}; "
        f"against random masks: {_told(_gains(rows, spread))}."
    )


def _mirrored_against_single(rows: Rows) -> str:
    """What asking about the mirror image too gains."""
    random = _gains(rows, ("mirrored-random", 1))
    spread = _gains(rows, ("mirrored-variance-greedy", 16), ("spread-variance-greedy", 16))
    return f"Mirrored against single passes: {_told(random)} for random masks; {_told(spread)} for spread picks."


CIFAR10_SECTIONS: dict[str, Callable[[Path], Section]] = {
    "cifar10-sequential": cifar10_sequential,
    "cifar10-one-shot": cifar10_one_shot,
}
