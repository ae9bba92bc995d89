"""How tables and figures show a metric: which way is better, how many digits; and numbers derived from rows."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sensewise.evaluate.rows import Row
from sensewise.report import methods

REFERENCE = "acs-variable-density"
"""The method whose spread over seeds says which differences of NMSE count (the paper's rule)."""
JUDGE = "unet-b"
"""The reconstructor that no mask was optimised against."""


@dataclass(frozen=True)
class MetricInfo:
    """How one metric is shown.

    Attributes:
        label: the head of a column.
        axis: the label of an axis, or what a table is of.
        best: which values are better; None where neither is.
        decimals: how many; None means three significant digits.
        signed: whether a plus sign is shown.
        scale: what a value is multiplied by when it is shown.
        log: whether axes are logarithmic.
        floor: where smaller values are drawn on such an axis.
        limits: of an axis; None for those of the data.
        tolerance: how many standard deviations of `REFERENCE` above the lowest still count as the best.
        beside: the metric whose value stands in parentheses, as a percentage.
    """

    label: str
    axis: str
    best: Literal["low", "high"] | None = "high"
    decimals: int | None = None
    signed: bool = False
    scale: float = 1.0
    log: bool = False
    floor: float = 0.0
    limits: tuple[float, float] | None = None
    tolerance: float = 0.0
    beside: str | None = None


METRICS = {
    "entropy": MetricInfo("entropy", "entropy left (nats)", "low"),
    "entropy-raw": MetricInfo("entropy, raw", "entropy, observed pixels as predicted (nats)", "low"),
    "errors": MetricInfo("errors", "errors per image", "low", log=True, floor=1e-3, beside="exact"),
    "exact": MetricInfo("exact", "fraction reconstructed exactly", limits=(-0.03, 1.03)),
    "accuracy": MetricInfo("accuracy", "accuracy"),
    "foreground-recovery": MetricInfo("digit recovery", "digit pixels recovered"),
    "nonblack-recovery": MetricInfo("non-black recovery", "non-black values recovered"),
    "informative": MetricInfo("informative", "share of measured pixels that are not black", None),
    "hidden-accuracy": MetricInfo("hidden accuracy", "accuracy on hidden pixels"),
    "hidden-foreground-accuracy": MetricInfo(
        "hidden digit accuracy", "accuracy on hidden digit pixels", limits=(-0.03, 1.03)
    ),
    "psnr": MetricInfo("PSNR (dB)", "PSNR (dB)", decimals=2),
    "nmse": MetricInfo("NMSE", "NMSE", "low", log=True, tolerance=2.0),
    "ssim": MetricInfo("SSIM x 100", "SSIM x 100", decimals=2, scale=100.0),
    "cosine": MetricInfo("cosine", "cosine with the exact gradient", decimals=3),
    "fewer-errors": MetricInfo("fewer errors (%)", "errors lower by (%)", None, decimals=1, scale=100.0),
    "expected-errors": MetricInfo("expected errors", "errors that the prior expects", None),
    "expected-mse": MetricInfo("expected MSE", "MSE that the prior expects", None),
    "timestep": MetricInfo("t(s)", "timestep", None, decimals=1),
    "coverage": MetricInfo("kept (%)", "images in which a promise was kept (%)", None, decimals=1, scale=100.0),
    "stopped": MetricInfo("stopped (%)", "images that a stop ended (%)", None, decimals=1, scale=100.0),
    "longest": MetricInfo("longest scan", "fraction measured of the image that took longest", None, decimals=3),
    "expected-psnr": MetricInfo("expected PSNR (dB)", "PSNR that the prior expects (dB)", None, decimals=2),
    "travel": MetricInfo("travel", "length of the path", "low"),
    "seconds": MetricInfo("seconds", "seconds", "low"),
    "mirrored-pairs": MetricInfo("mirrored pairs", "mirrored pairs of rows", None, decimals=1),
    "different-masks": MetricInfo("different masks", "different masks", None, decimals=1),
    "accepted-swaps": MetricInfo("accepted swaps", "accepted swaps", None, decimals=0),
    "start-share": MetricInfo("start's share (%)", "share of the gain (%)", None, decimals=0, scale=100.0),
    "from-start": MetricInfo("from its start (%)", "rows of its first mask (%)", None, decimals=0, scale=100.0),
    # derived from others, never in a results file
    "psnr-gain": MetricInfo("PSNR gained (dB)", "PSNR gained (dB)", decimals=2, signed=True),
    "ssim-gain": MetricInfo("SSIM x 100 gained", "SSIM x 100 gained", decimals=2, signed=True, scale=100.0),
    "nmse-gain": MetricInfo("NMSE lower by (%)", "NMSE lower by (%)", decimals=1),
    "errors-ratio": MetricInfo("times fewer errors", "times fewer errors"),
    "density": MetricInfo("density", "fraction measured", None, decimals=3),
}
"""By the name in results."""


def info(metric: str) -> MetricInfo:
    """How a metric is shown; one that is not known here keeps its name, and neither way is better."""
    return METRICS.get(metric, MetricInfo(metric, metric, best=None))


def number(value: float | None, metric: str = "") -> str:
    """A value as a metric shows it: with its decimals, else three significant digits; "–" where there is none."""
    if value is None:
        return "–"
    found = info(metric)
    value *= found.scale
    decimals = _decimals(value) if found.decimals is None else found.decimals
    if value == 0 and found.decimals is None:
        return "0"
    if decimals is None:
        return f"{value:.0e}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:{'+' if found.signed else ''}.{decimals}f}"


def _decimals(value: float) -> int | None:
    """So many that three digits are shown, at least one and at most five; None for a number too small for that."""
    size = abs(value)
    if size >= 10 or size == 0:
        return 1
    if size < 5e-6:
        return None
    return min(5, 2 - math.floor(math.log10(size)))


def with_spread(row: Row) -> str:
    """A row's mean and its standard deviation, both with the decimals of the mean."""
    text = number(row.mean, row.metric)
    if row.mean is None or not row.sd:
        return text
    decimals = len(text.partition(".")[2]) if "e" not in text else 6
    return f"{text} ± {row.sd * info(row.metric).scale:.{decimals}f}"


def paper_value(row: Row) -> str | None:
    """The paper's value with the digits that the paper gives."""
    if row.paper is None:
        return None
    scale = info(row.metric).scale
    return str(row.paper) if scale == 1 else f"{row.paper * scale:.4g}"


def pick(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """The rows whose columns have these values; a tuple of values means any of them."""
    options = {name: value if isinstance(value, tuple) else (value,) for name, value in wanted.items()}
    return [row for row in rows if all(getattr(row, name) in values for name, values in options.items())]


def best_of(rows: Sequence[Row]) -> list[Row]:
    """The best of rows that compete in one column: one metric, one budget.

    Plain draws, which are not on budget, and ceilings, which know the truth, do not compete. NMSE within two standard
    deviations of the lowest, by the spread of ACS + variable density over seeds, counts as the best as well.
    """
    known = [row for row in rows if row.mean is not None and methods.info(row.method).competes]
    if not known:
        return []
    found = info(known[0].metric)
    if found.best is None:
        return []
    means = [row.mean for row in known if row.mean is not None]
    if found.best == "high":
        return [row for row in known if row.mean == max(means)]
    spread = max((row.sd or 0.0 for row in known if row.method == REFERENCE), default=0.0)
    return [row for row in known if row.mean is not None and row.mean <= min(means) + found.tolerance * spread]


def difference(mean: float, base: float) -> float:
    """How far a mean is above another."""
    return mean - base


def reduction(mean: float, base: float) -> float:
    """By how many per cent a mean is below another."""
    return 100 * (1 - mean / base)


def ratio(mean: float, base: float) -> float:
    """How many times a mean goes into another."""
    return base / mean


Comparison = Callable[[float, float], float]
_GAINS: dict[str, tuple[str, Comparison]] = {
    "psnr": ("psnr-gain", difference),
    "ssim": ("ssim-gain", difference),
    "nmse": ("nmse-gain", reduction),
    "errors": ("errors-ratio", ratio),
}


def compared(rows: Sequence[Row], base: Sequence[Row], *columns: str, with_spread: bool = False) -> list[Row]:
    """What each row gains on another one of the same metric: dB, per cent of NMSE, times fewer errors.

    Args:
        rows: of metrics that have a gain.
        base: what they are compared with.
        columns: what a row and its base have in common, beside the metric and the budget.
        with_spread: whether the gain has the spread of the row, for bands in figures; the base counts as known.

    Returns:
        Rows of the gain's metric; those without a base are left out, and so are the paper's values, unless the paper
        gives both.
    """
    keys = ("metric", "budget", *columns)
    known = {tuple(getattr(row, key) for key in keys): row for row in base}
    found = []
    for row in rows:
        other = known.get(tuple(getattr(row, key) for key in keys))
        if other is None or not row.mean or not other.mean:
            continue
        metric, compare = _GAINS[row.metric]
        paper = None
        if row.paper and other.paper and row is not other:
            paper = round(compare(row.paper, other.paper), 2)
        mean = compare(row.mean, other.mean)
        spread = None
        if with_spread and row.sd is not None:
            spread = abs(compare(row.mean + row.sd, other.mean) - mean)
        found.append(replace(row, metric=metric, mean=mean, sd=spread, paper=paper))
    return found


def densities(rows: Sequence[Row]) -> list[Row]:
    """The realised density of each row as a metric of its own."""
    return [replace(row, metric="density", mean=row.density, sd=None, paper=None) for row in rows]
