"""Figures of the paper that need the results of several experiments: divergence, metrics-vs-budget, baselines."""

from collections.abc import Mapping

from sensewise.evaluate.results import Results
from sensewise.paper import differences
from sensewise.report import metrics
from sensewise.report.figures.curves import Panel, panels
from sensewise.report.figures.one_shot import Course, divergence
from sensewise.report.section import Picture, Section, last_stage

DIGITS, PHOTOGRAPHS = "MNIST", "CIFAR-10"
GRID_PROBE = ("grid-variance-greedy", 16)


def one_shot(results: Mapping[str, Results]) -> Section | None:
    """Figures divergence and metrics-vs-budget, with both data sets."""
    if not {"mnist-one-shot", "cifar10-one-shot"} <= set(results):
        return None
    digits, photographs = results["mnist-one-shot"], results["cifar10-one-shot"]
    methods = ("random", "one-shot", "one-shot-variance")
    learned = metrics.pick(digits.rows, method=methods)
    pictured = last_stage(metrics.pick(photographs.rows, method=methods))
    shown = [
        Panel(learned, "foreground-recovery", DIGITS),
        Panel(learned, "hidden-foreground-accuracy", DIGITS),
        Panel(pictured, "psnr", PHOTOGRAPHS),
    ]
    figures = [
        Picture(
            "metrics-vs-budget.png",
            panels(shown),
            "Digit pixels recovered, accuracy on hidden digit pixels (biased against a mask that measures what is "
            "hard) and PSNR of one-shot and random masks against the budget.",
        )
    ]
    if all("checkpoints/step" in found.arrays for found in (digits, photographs)):
        recovered = "digit pixels recovered"
        courses = [
            Course(DIGITS, digits.arrays, 0.1, "recovery", recovered),
            Course(DIGITS, digits.arrays, 0.7, "recovery", recovered, (1.000, 0.968)),
            Course(PHOTOGRAPHS, photographs.arrays, 0.1, "psnr", "PSNR (dB)", (20.45, 20.15)),
            Course(PHOTOGRAPHS, photographs.arrays, 0.7, "psnr", "PSNR (dB)"),
        ]
        caption = (
            "Above: the entropy that masks leave, the paper's objective. Below: a criterion that no mask is optimised "
            "for. Both over the training run, on validation images."
        )
        if not metrics.pick(photographs.rows, method="one-shot-variance"):  # measured before the paper's was trained
            caption += " The objective of this CIFAR-10 generator is the variance, not the entropy."
        figures.append(Picture("divergence.png", divergence(courses), caption))
    return Section("One-shot masks on both data sets", ["Figures metrics-vs-budget and divergence."], figures=figures)


def baselines(results: Mapping[str, Results]) -> Section | None:
    """Figure baselines: both data sets, with the grid probe on CIFAR-10, which is measured in cifar10-sequential."""
    if "baselines" not in results:
        return None
    rows = metrics.pick(results["baselines"].rows, better=(None, True))
    digits = metrics.pick(rows, dataset="mnist", metric="errors")
    shown = [Panel(digits, "errors", DIGITS)]
    if photographs := last_stage(metrics.pick(rows, dataset="cifar10", metric="psnr")):
        if "cifar10-sequential" in results:
            method, steps = GRID_PROBE
            probed = metrics.pick(results["cifar10-sequential"].rows, method=method, steps=steps, metric="psnr")
            photographs = photographs + metrics.pick(probed, prior=photographs[-1].prior)
        shown.append(Panel(photographs, "psnr", PHOTOGRAPHS))
    caption = (
        "Every mask is reconstructed by the same prior except “LOUPE, own U-Net”. LOUPE is shown at the better of its "
        "top-k and its sampled masks. Bands: two standard deviations over seeds."
    )
    figures = [Picture("baselines.png", panels(shown), caption)]
    return Section("Sequential acquisition against the baselines", ["Figure baselines."], figures=figures)


JOINT = (differences.section, one_shot, baselines)
"""Sections over several experiments, in the order of the report."""
