"""The report's sections on CIFAR-10. Results in, sections out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sensewise.experiments.results import read_arrays, read_results
from sensewise.figures import film, pixels
from sensewise.tables import Rows, Section, number, pick

LEVELS = 8
STAGES = {"on-policy": "random masks, then its own greedy masks", "random-masks": "random masks only"}


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
        "20% of the budget, then variance-greedy steps.",
        _label_against_random(main),
        *results["notes"],
    ]
    figures: dict[str, tuple[Any, str]] = {
        "cifar10-sequential.png": (pixels.psnr_against_budget(main), "PSNR against the budget.")
    }
    for budget in ("0.1", "0.3"):
        caption = f"What each method measures at s = {budget}, and the most probable image."
        figures[f"cifar10-examples-{budget}.png"] = (film.examples(arrays, LEVELS, f"example-{budget}"), caption)
    return Section("CIFAR-10, sequential acquisition", text, tables, figures, results)


def _label_against_random(rows: Rows) -> str:
    """Whether entropy from the label alone is any better than random masks."""
    parts = []
    for budget in sorted({row["budget"] for row in rows}):
        greedy = pick(rows, method="label-greedy", steps=16, budget=budget)
        random = pick(rows, method="random", budget=budget)
        if greedy and random:
            parts.append(f"{number(greedy[0]['mean'] - random[0]['mean'])} dB at s = {budget:g}")
    return f"Label-greedy with 16 steps against random masks: {', '.join(parts)}; the paper finds them level."


CIFAR10_SECTIONS: dict[str, Callable[[Path], Section]] = {"cifar10-sequential": cifar10_sequential}
