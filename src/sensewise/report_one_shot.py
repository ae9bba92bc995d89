"""The report's sections on one-shot masks, estimators, the mask state and the baselines. Results in, sections out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sensewise.data.cifar10 import NUM_STATES as CIFAR10_LEVELS
from sensewise.experiments.results import read_arrays, read_results
from sensewise.figures import film, one_shot, pixels
from sensewise.figures.style import name_of
from sensewise.tables import (
    STAGES,
    Cell,
    Grid,
    Rows,
    Section,
    budgets_of,
    cell,
    densities,
    grid,
    methods_of,
    ours_of,
    pick,
)

METRIC_NAMES = {
    "entropy": "entropy",
    "errors": "errors",
    "exact": "exact",
    "accuracy": "accuracy",
    "foreground-recovery": "digit recovery",
    "informative": "informative",
    "hidden-accuracy": "hidden accuracy",
    "hidden-foreground-accuracy": "hidden digit accuracy",
    "psnr": "PSNR (dB)",
}
MASKS = "(grey: not measured; colour: white; dark: black) and the reconstruction (orange: wrong)"
SUMMARIES = {"own": "the target's own", "another": "another image's", "none": "none", "unused": "random masks"}


def _value(rows: Rows, **wanted: Any) -> float | None:
    found = pick(rows, **wanted)
    return found[0]["mean"] if found else None


def mnist_one_shot(path: Path) -> Section:
    """Table mnist-open, Figures pipeline, examples-mnist, divergence and metrics-vs-budget."""
    results, arrays = read_results(path), read_arrays(path)
    rows = results["rows"]
    lines = []
    for budget in budgets_of(rows):
        for method in ("one-shot", "random"):
            cells = [cell(_first(rows, method=method, budget=budget, metric=metric)) for metric in METRIC_NAMES]
            lines.append((f"{name_of(method, 1)}, s = {budget:g}", cells))
    errors = pick(rows, metric="errors")
    text = [
        "The generator chooses the whole mask from an 8 x 8 summary, the label and the budget, before anything is "
        "measured. Masks are drawn on budget; mean ± standard deviation over the seeds. The paper's entropy counts "
        "observed pixels as its network predicts them, ours counts them as certain, so the two are not comparable. "
        "Accuracy on hidden pixels is biased against a mask that measures what is hard.",
        _against_random(errors),
        *results["notes"],
    ]
    heads, names = budgets_of(rows), methods_of(errors)
    grids = [
        ("All nine metrics, learned and random", Grid(["", *METRIC_NAMES.values()], lines)),
        ("Errors per image, every way to train and to draw", grid(errors, "method", "budget", heads, names)),
        ("Density of the masks: a plain draw is not on budget", densities(errors, heads, names)),
    ]
    return Section("MNIST, one-shot masks", text, [], _one_shot_figures(rows, arrays), results, grids)


def _one_shot_figures(rows: Rows, arrays: dict[str, np.ndarray]) -> dict[str, tuple[Figure | bytes, str]]:
    figures: dict[str, tuple[Figure | bytes, str]] = {
        "pipeline.png": (
            one_shot.pipeline(arrays, pixels.read_story(arrays)),
            "(a) The one-shot generator and (b) sequential acquisition with the same prior; real outputs.",
        )
    }
    for s in ("0.1", "0.3"):
        drawn = pixels.examples(*pixels.read_examples(arrays, f"example-{s}"))
        figures[f"one-shot-examples-{s}.png"] = (drawn, f"What each method measures at s = {s} {MASKS}.")
    controls = pixels.examples(*pixels.read_examples(arrays, "example-controls"))
    figures["one-shot-controls.png"] = (controls, "The same generator trained in other ways.")
    figures["one-shot-metrics.png"] = (one_shot.metrics_against_budget(rows), "Three criteria against the budget.")
    if "checkpoints/step" in arrays:
        caption = "Objective and held-out criterion over the training run, on validation images."
        figures["one-shot-training.png"] = (one_shot.over_checkpoints(arrays, (0.1, 0.3, 0.5, 0.7)), caption)
    return figures


def _first(rows: Rows, **wanted: Any) -> dict[str, Any] | None:
    found = pick(rows, **wanted)
    return found[0] if found else None


def _against_random(errors: Rows) -> str:
    parts = []
    for budget in budgets_of(errors):
        ours, random = (_value(errors, method=m, budget=budget) for m in ("one-shot", "random"))
        if ours and random:
            parts.append(f"{random / ours:,.{1 if random < 100 * ours else 0}f} times fewer at s = {budget:g}")
    return f"Errors of the one-shot masks against random masks: {', '.join(parts)}."


def side_information(path: Path) -> Section:
    """Table side-info, both data sets."""
    results = read_results(path)
    errors = pick(results["rows"], metric="errors")
    colour = pick(results["rows"], metric="psnr", dataset="cifar10")
    psnr, grids = pick(colour, prior="on-policy"), []
    parts = [(errors, "MNIST, errors per image", True)]
    parts += [(pick(colour, prior=s), f"CIFAR-10, PSNR in dB, prior trained on {w}", False) for s, w in STAGES.items()]
    for rows, what, low in parts:
        for method, caption in (("one-shot", "sampled masks"), ("one-shot-topk", "top-k masks")):
            if part := [row for row in rows if row["method"] in (method, "random")]:
                table = grid(part, "summary", "budget", budgets_of(part), SUMMARIES, low=low)
                grids.append((f"{what}, {caption}", table))
    text = ["The same generator with the target's own summary, with another test image's, and with an all-zero one."]
    for rows, what, best in ((errors, "errors", min), (psnr, "dB on CIFAR-10", max)):
        found = [_first(rows, method="one-shot", budget=0.1, summary=name) for name in ("own", "another", "none")]
        own, another, none = found
        if own is not None and another is not None and none is not None:
            first = own["mean"] == best(row["mean"] for row in (own, another, none))
            text.append(
                f"At s = 0.1: {ours_of(own)} {what} with the own summary, {ours_of(another)} with another's, "
                f"{ours_of(none)} with none, {'as' if first else 'unlike'} in the paper, where the own is best."
            )
    return Section("What the side information gives", [*text, *results["notes"]], [], {}, results, grids)


def gradient_estimators(path: Path) -> Section:
    """The cosines of Section 5 and Appendix A."""
    results = read_results(path)
    rows = results["rows"]
    generators = {row["generator"]: row["generator"] for row in rows}
    grids = []
    for surrogate in dict.fromkeys(row["surrogate"] for row in rows):
        for part, caption in (("entropy", "of the entropy alone"), ("loss", "of the whole loss")):
            chosen = pick(rows, surrogate=surrogate, part=part)
            named = [{**row, "line": _estimator(row)} for row in chosen]
            names = {row["line"]: row["line"] for row in named}
            caption = f"Cosine with the exact gradient {caption}, surrogate “{surrogate}”"
            grids.append((caption, grid(named, "line", "generator", generators, names, low=False)))
    through = [row["mean"] for row in rows if row["method"] == "straight-through" and row["part"] == "entropy"]
    text = [
        "All gradients are on the generator's weights. The exact one flips every pixel of sampled masks, one at a "
        "time; “exact, one half against the other” says how well that reference is known. The number after an "
        "estimator is how many pairs or masks an image it averages. The paper reports 0.94 to 0.99 for DisARM and "
        "-0.97 to -0.73 for straight-through Gumbel-Softmax. “all” counts observed pixels as certain; “all-raw” is "
        "the paper's form.",
        *([_straight_through_verdict(through)] if through else []),
        *results["notes"],
    ]
    entropy = pick(rows, part="entropy")
    figures: dict[str, tuple[Figure | bytes, str]] = {
        "gradient-cosines.png": (one_shot.cosines(entropy), "Agreement with the exact gradient of the entropy.")
    }
    return Section("Gradient estimators", text, [], figures, results, grids)


def _estimator(row: dict[str, Any]) -> str:
    return f"{name_of(row['method'], 1)}, {row['samples']}"


def _straight_through_verdict(cosines: list[float]) -> str:
    low, high = min(cosines), max(cosines)
    measured = f"Straight-through has cosines of {low:.2f} to {high:.2f} with the exact gradient of the entropy here"
    if high < 0:
        return f"{measured}: it points uphill, as the paper found."
    if low > 0:
        return f"{measured}: unlike the paper's, it points downhill with our prior and our relaxation."
    return f"{measured}: whether it points uphill depends on the generator and on the form of the surrogate."


def mask_state(path: Path) -> Section:
    """Table token."""
    results = read_results(path)
    rows = results["rows"]
    errors = pick(rows, metric="errors")
    names = {"shared-zero": name_of("shared-zero", 1), "mask-state": name_of("mask-state", 1)}
    table = grid(errors, "method", "budget", budgets_of(rows), names)
    fewer, wins = [], []
    for budget in budgets_of(rows):
        row = _first(rows, metric="fewer-errors", budget=budget)
        if row is not None:
            fewer.append(Cell(f"{row['mean']:.1%} ± {row['sd']:.1%}", f"{row['paper']:.1%}"))
            wins.append(Cell(f"{row['wins']}/{row['seeds']}", f"{row['paper_wins']}/5"))
    lines = [*table.lines, ("fewer errors", fewer), ("seeds with fewer errors", wins)]
    compared = pick(rows, metric="fewer-errors")
    won = [f"{row['budget']:g}" for row in compared if row["wins"] == row["seeds"]]
    lost = [f"{row['budget']:g}" for row in compared if row["wins"] < row["seeds"]]
    every = all(row["wins"] == row["seeds"] for row in compared if row["budget"] <= 0.3)
    text = [
        "Pairs of priors fine-tuned from one common start with the same recipe: one with a state of its own for "
        "“unobserved”, one in which 0 means both black and unobserved. A random probe of 20% of the budget, then one "
        "greedy step.",
        "At s <= 0.3 the mask state makes fewer errors in every fine-tuning seed, as in the paper."
        if every
        else f"The mask state makes fewer errors in every fine-tuning seed at s = {', '.join(won) or 'no budget'}, but "
        f"not at s = {', '.join(lost)}: another story than the paper's, where it does up to 0.3.",
        *results["notes"],
    ]
    return Section("What the mask state adds", text, [], {}, results, [("Errors per image", Grid(table.head, lines))])


def baselines(path: Path) -> Section:
    """Figure baselines, both data sets, with example masks."""
    results, arrays = read_results(path), read_arrays(path)
    shown = [row for row in results["rows"] if row.get("better", True)]
    rows, colour = (pick(shown, dataset=name) for name in (None, "cifar10"))
    errors = pick(rows, metric="errors")
    chosen = [f"{row['masks']} at s = {row['budget']:g}" for row in errors if row["method"] == "loupe"]
    text = [
        "Every mask is reconstructed by the same prior, except “LOUPE, own U-Net”. LOUPE is trained for each budget "
        "and shown at the better of its top-k and its budget-exact sampled masks"
        + (f" ({', '.join(chosen)} with the prior)." if chosen else "."),
    ]
    one, greedy, spread = (_value(errors, method=m, budget=0.1) for m in ("one-shot", "label-greedy", "spread-greedy"))
    if one and greedy and spread:
        text.append(
            f"At s = 0.1 sequential acquisition in 16 steps makes {one / greedy:.1f} times fewer errors than the "
            f"one-shot mask, {one / spread:.1f} times where the pixels of a step are spread out; in the paper it is 4 "
            "times."
        )
    figures: dict[str, tuple[Figure | bytes, str]] = {
        "baselines.png": (one_shot.baselines(rows), "Errors per image of every method, MNIST.")
    }
    for s in ("0.1", "0.2"):
        drawn = pixels.examples(*pixels.read_examples(arrays, f"example-{s}"))
        figures[f"baselines-examples-{s}.png"] = (drawn, f"What each method measures at s = {s} {MASKS}.")
    grids = [("MNIST, errors per image", grid(errors, "method", "budget", budgets_of(rows), methods_of(errors)))]
    for stage, words in STAGES.items():
        if psnr := pick(colour, metric="psnr", prior=stage):
            table = grid(psnr, "method", "budget", budgets_of(psnr), methods_of(psnr), low=False)
            grids.append((f"CIFAR-10, PSNR in dB, prior trained on {words}", table))
    if psnr := pick(colour, metric="psnr", prior="on-policy"):
        text.append(_sequential_against_others(psnr))
        figures["baselines-cifar10.png"] = (pixels.psnr_against_budget(psnr), "PSNR of every method, CIFAR-10.")
        for s in ("0.1", "0.3"):
            drawn = film.examples(arrays, CIFAR10_LEVELS, f"cifar10-example-{s}")
            caption = f"What each method measures of photographs at s = {s}, the posterior mean and its errors."
            figures[f"baselines-cifar10-examples-{s}.png"] = (drawn, caption)
    return Section("Baselines", [*text, *results["notes"]], [], figures, results, grids)


def _sequential_against_others(psnr: Rows) -> str:
    """By how much the sequential method is above the best of the others on CIFAR-10, at each budget."""
    parts = []
    for row in pick(psnr, method="spread-variance-greedy"):
        others = [r for r in pick(psnr, budget=row["budget"]) if r["steps"] == 1]
        best = max(others, key=lambda r: r["mean"])
        parts.append(f"{row['mean'] - best['mean']:+.2f} dB ({name_of(best['method'], 1)}) at s = {row['budget']:g}")
    return f"On CIFAR-10, spread picks in 16 steps against the best mask chosen at once: {', '.join(parts)}."


ONE_SHOT_SECTIONS: dict[str, Callable[[Path], Section]] = {
    "mnist-one-shot": mnist_one_shot,
    "side-information": side_information,
    "gradient-estimators": gradient_estimators,
    "mask-state": mask_state,
    "baselines": baselines,
}
