"""`amortised`: what it costs in errors when a small prior decides, and what it saves in time, against its size.

Each size is there twice: one small prior learned from digits, as the full one did, the other from what the full one
predicts, on the states that its own policy visits. Each picks by itself; then the full prior makes the picture, and
beside it the small one. Seconds are those of one decision per digit in a batch: all contenders take turns in one run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from matplotlib.figure import Figure

from sensewise.data.scenes import Scenes
from sensewise.evaluate import speed
from sensewise.evaluate.experiment import Experiment, Setup
from sensewise.evaluate.journal import Value, digest_of
from sensewise.evaluate.method import Method, amortised, spread_out
from sensewise.evaluate.results import Results
from sensewise.evaluate.rows import Row
from sensewise.evaluate.task import pixel_task
from sensewise.files import fingerprint, identity
from sensewise.paper import models, scenes
from sensewise.priors.base import Prior
from sensewise.report import metrics
from sensewise.report.figures.amortised import Line, errors_against_time
from sensewise.report.section import Picture, Section
from sensewise.report.table import Table, table

BUDGETS, STEPS, METRICS = (0.05, 0.1, 0.2), 16, ("errors", "exact")
SHOWN = 0.1  # the budget of the figure
TIMED = 64  # digits of a batch
KINDS = {
    "plain": "learned from digits",
    "taught": "taught by the full prior",
    "longer": "the same for longer: what is shipped",
}
MORE_ERRORS, LESS_TIME = 1.25, 0.25
"""At most so many of the full prior's errors are wanted, in at most this share of its time."""


def _seconds(contenders: Sequence[Method], digits: Scenes) -> Value:
    """Seconds per decision and digit of every contender, by its place."""
    x, label = digits.first(TIMED)[slice(None)]
    jobs = [partial(speed.acquire_all, method.policy, x, label, STEPS, method.choose) for method in contenders]
    taken = speed.seconds(*jobs, repeats=5)
    return {str(place): found / len(x) / STEPS for place, found in enumerate(taken)}


def measure(setup: Setup, prior: Prior, guides: Mapping[str, Prior], digits: Scenes) -> list[Row]:
    """Errors of the full prior's picks and of every guide's, as both priors picture them, and seconds per decision."""
    task = pixel_task(digits, prior, METRICS)
    contenders = [spread_out(prior, STEPS)]
    for name, guide in guides.items():
        weights = sum(parameter.numel() for parameter in guide.parameters())
        contenders.append(replace(amortised(prior, guide, STEPS), columns={"guide": name, "weights": weights}))
    rows = setup.evaluate(task, contenders, BUDGETS)
    for (name, guide), method in zip(guides.items(), contenders[1:], strict=True):
        alone = replace(spread_out(guide, STEPS), columns=method.columns)
        rows += setup.evaluate(pixel_task(digits, guide, METRICS, prior=name), [alone], BUDGETS)
    key = digest_of([[method.describe() for method in contenders], identity(digits.first(TIMED).values)])
    times = setup.journal.recall(f"seconds {key}", partial(_seconds, contenders, digits))
    for place, method in enumerate(contenders if times else ()):
        assert times is not None
        like = next(row for row in rows if row.method == method.name and row.guide == method.columns.get("guide"))
        rows.append(replace(like, metric="seconds", mean=round(times[str(place)], 9), sd=0.0, images=TIMED, seeds=1))
    return rows


def run(setup: Setup) -> Results:
    """2,560 test digits, every small prior that was trained."""
    notes: list[str] = []
    prior = models.prior(setup.preset, "mnist")
    guides = models.guides(setup.preset, "mnist", notes)
    rows = measure(setup, prior, guides, scenes.digits())
    weights = {"prior": fingerprint(prior), **{name: fingerprint(guide) for name, guide in guides.items()}}
    return Results("amortised", setup.preset, "mnist", rows, weights, notes)


@dataclass(frozen=True)
class _Small:
    """What is shown of one small prior, or of the full one.

    Attributes:
        name: of its stage, or "" for the full prior.
        errors: that are left when it picks and the full one makes the picture.
        seconds: per decision and digit.
    """

    name: str
    errors: float
    seconds: float


def _found(rows: Sequence[Row]) -> list[_Small]:
    """The full prior first, then the small ones."""
    found = []
    for row in metrics.pick(rows, metric="seconds"):
        left = metrics.pick(rows, metric="errors", method=row.method, guide=row.guide, prior=None, budget=SHOWN)
        if left and left[0].mean is not None and row.mean:
            found.append(_Small(row.guide or "", left[0].mean, row.mean))
    return found


def _kind(name: str) -> str:
    """How a small prior was trained."""
    return "longer" if name in models.SMALL else name.partition("-")[0]


def _line_name(row: Row) -> str:
    if row.guide is None:
        return "the full prior by itself"
    size = f"`{row.guide}`, {row.weights or 0:,} weights"
    return f"{size}, picture by itself" if row.prior else size


def _ratios(found: Sequence[_Small]) -> list[str]:
    """A sentence for each small prior: errors and time over the full one's."""
    full, *small = found
    return [
        f"`{one.name}`: {one.errors / full.errors:.2f} times the errors of the full prior's own picks at "
        f"s = {SHOWN:g}, in {one.seconds / full.seconds:.2f} of its time."
        for one in small
    ]


def drawn(found: Sequence[_Small]) -> Figure:
    """Errors against time, plain and taught, with the full prior's own picks and what is wanted."""
    full, *small = found
    lines = [
        Line(words, [(one.seconds, one.errors, one.name) for one in small if _kind(one.name) == kind])
        for kind, words in KINDS.items()
    ]
    wanted = (LESS_TIME * full.seconds, MORE_ERRORS * full.errors)
    return errors_against_time(lines, (full.seconds, full.errors), wanted, SHOWN)


def section(results: Results) -> Section:
    """Errors and times of every size."""
    found = _found(results.rows)
    tables: list[Table] = [
        table(
            metrics.pick(results.rows, metric=("errors", "exact")),
            f"{results.rows[0].images:,} test digits, {STEPS} steps, pixels spread out",
            "errors",
            line=_line_name,
            mark_best=False,
            corner="who decides",
        )
    ]
    figures = []
    paragraphs = [
        "A small prior picks every pixel; the full prior makes the picture from them, and in further lines the small "
        "one makes it itself. Plain ones learned from digits, taught ones from the full prior's predictions.",
        *(_ratios(found) if found else ()),
        *results.notes,
    ]
    if len(found) > 1:
        caption = (
            f"Errors left at s = {SHOWN:g} against the time of one decision for one digit, in batches of {TIMED}; "
            f"dashed: {MORE_ERRORS:g} times the full prior's errors and {LESS_TIME:g} of its time."
        )
        figures.append(Picture("amortised.png", drawn(found), caption))
    return Section("A small prior decides", paragraphs, tables, figures, results)


EXPERIMENT = Experiment("amortised", run, section)
