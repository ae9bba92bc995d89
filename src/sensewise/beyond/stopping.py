"""`stopping`: scans that end when they are good enough, on digits, photographs and pictures of any size.

A prior expects to get so much wrong, and needs no truth for that. Every scene is acquired a few pixels at a time, and
what every stop would have left follows from the course. A promise ("with 90% probability at most so many errors") has
a factor in the prior's card, fitted on validation images.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich.progress import Progress
from torch import Tensor

from sensewise import hub
from sensewise.data.gallery import load_views
from sensewise.data.scenes import Scenes
from sensewise.errors import CheckpointError, DataError
from sensewise.evaluate.course import ERRORS, PSNR, Course, Quantity, Stopped, course
from sensewise.evaluate.experiment import Experiment, Setup
from sensewise.evaluate.journal import Value, digest_of
from sensewise.evaluate.method import Method, reading_methods, spread_entropy, spread_variance
from sensewise.evaluate.results import Results
from sensewise.evaluate.rows import Row
from sensewise.files import fingerprint, identity
from sensewise.paper import models, scenes
from sensewise.policies.stops import Calibration
from sensewise.priors.base import Prior
from sensewise.report import metrics
from sensewise.report.figures import curves
from sensewise.report.section import Picture, Section
from sensewise.report.table import Table, metric_head, table
from sensewise.sensors.base import Sensor, Side
from sensewise.sensors.pixels import PixelSensor
from sensewise.sensors.readings import ReadingSensor
from sensewise.tokens import dequantize

PROBABILITY = 0.9
SIDE = 64  # of pictures
PRESET = ("mnist", "cifar10")  # data sets whose priors a preset trains
BINARY = 2  # levels
BLOCK = 128  # scenes of one measurement


@dataclass(frozen=True)
class Rule:
    """How the scenes of a data set are acquired and when they may end.

    Attributes:
        prior: its name.
        quantity: what is expected.
        make: a prior and the number of steps to a method.
        pixels: per step.
        limit: the budget, which is never exceeded.
        levels: at which scenes end, the last one the best.
        promises: levels that are kept with `PROBABILITY`.
        fixed: budgets without a stop, for comparison.
        images: how many are measured, at most.
    """

    prior: str
    quantity: Quantity
    make: Callable[[Prior, int], Method]
    pixels: int
    limit: float
    levels: Sequence[float]
    promises: Sequence[float]
    fixed: Sequence[float]
    images: int = 2560

    def course(self, prior: Prior, found: Scenes, *, least: float = 0.0) -> Course:
        """The course of some scenes; `least` is a fraction that is measured at least."""
        x, label = found[slice(None)]
        actions, steps = found.shape[1] * found.shape[2], self.steps(found)
        truth, sensor = _looked_at(self.quantity, prior, x)

        def make(listening: Prior) -> Method:
            return self.make(listening, steps)

        return course(
            prior,
            make,
            sensor,
            truth,
            Side(label=label if prior.num_labels else None),
            self.quantity,
            self.pixels * steps / actions,
            self.levels[-1],
            round(least * actions),
        )

    def steps(self, found: Scenes) -> int:
        """How many the budget allows."""
        return max(1, round(self.limit * found.shape[1] * found.shape[2]) // self.pixels)


def _looked_at(quantity: Quantity, prior: Prior, x: Tensor) -> tuple[Tensor, Sensor]:
    """The truth that a quantity compares with, and a sensor that gives what the prior takes."""
    if x.is_floating_point():
        return x, ReadingSensor(x)
    return (x if quantity is ERRORS else dequantize(x, prior.num_states)), PixelSensor(x)


def _digits(prior: Prior, steps: int) -> Method:
    return spread_entropy("spread-greedy", prior, steps)


def _photographs(prior: Prior, steps: int) -> Method:
    return spread_variance("spread-variance-greedy", prior, steps)


def _pictures(prior: Prior, steps: int) -> Method:
    return reading_methods(prior, steps)["spread-variance-greedy"]


RULES = {
    "mnist": Rule(
        prior="mnist",
        quantity=ERRORS,
        make=_digits,
        pixels=2,
        limit=0.4,
        levels=(12.0, 6.0, 3.0, 2.0, 1.0, 0.7, 0.5, 0.4, 0.3),
        promises=(10.0, 3.0, 1.0),
        fixed=(0.05, 0.075, 0.1, 0.125),
    ),
    "cifar10": Rule(
        prior="cifar10",
        quantity=PSNR,
        make=_photographs,
        pixels=16,
        limit=0.75,
        levels=(18.0, 20.0, 22.0, 24.0, 26.0, 28.0, 30.0),
        promises=(20.0, 24.0, 28.0),
        fixed=(0.1, 0.2, 0.3, 0.4),
    ),
    "pictures": Rule(
        prior="any-grey",
        quantity=PSNR,
        make=_pictures,
        pixels=41,
        limit=0.5,
        levels=(20.0, 22.0, 24.0, 26.0, 28.0, 30.0, 32.0),
        promises=(22.0, 26.0, 30.0),
        fixed=(0.05, 0.1, 0.2, 0.3),
    ),
}


def rule_for(prior: Prior) -> Rule:
    """How a prior of any origin is used: by errors where there are two levels, by PSNR where there are more."""
    if prior.size is None and prior.num_states > BINARY:
        return RULES["pictures"]
    return RULES["mnist"] if prior.num_states == BINARY else RULES["cifar10"]


def calibrate(
    rule: Rule, prior: Prior, found: Scenes, probability: float = PROBABILITY, progress: Progress | None = None
) -> Calibration:
    """Factors of every promise of a rule, from scenes that the prior was not trained on."""
    shown = progress or Progress(disable=True)
    blocks = shown.track(range(0, len(found), BLOCK), description="calibrating")
    whole = join([rule.course(prior, found.part(slice(first, first + BLOCK))) for first in blocks])
    name = rule.make(prior, 1).name
    factors = {level: whole.factor(rule.quantity.level(level), probability) for level in rule.promises}
    return Calibration(name, probability, len(found), factors)


def join(parts: Sequence[Course]) -> Course:
    """The course of all scenes from those of some each."""
    longest = max(len(part.expected) for part in parts)

    def stretched(rows: Tensor, fill: bool) -> Tensor:
        more = rows[-1:].expand(longest - len(rows), -1)
        return torch.cat([rows, more if fill else torch.full_like(more, torch.nan)])

    return Course(
        torch.cat([stretched(part.expected, False) for part in parts], dim=1),
        torch.cat([stretched(part.true, False) for part in parts], dim=1),
        torch.cat([stretched(part.measured, True) for part in parts], dim=1),
        parts[0].actions,
    )


def _measure(rule: Rule, prior: Prior, found: Scenes, factors: Sequence[float]) -> Value:
    """Means over some scenes at every level, of every promise and at every fixed budget."""
    taken, quantity = rule.course(prior, found, least=max(rule.fixed)), rule.quantity
    value: Value = {}
    for level in rule.levels:
        value |= _numbers(f"stop {level:g}", quantity, level, taken.stopped(quantity.level(level)))
    for level, factor in zip(rule.promises, factors, strict=True) if factors else ():
        value |= _numbers(f"promise {level:g}", quantity, level, taken.stopped(quantity.level(level), factor))
    for budget in rule.fixed:
        true = taken.fixed(round(budget * taken.actions))
        value[f"fixed {budget:g} {quantity.metric}"] = quantity.shown(true).mean().item()
        value[f"fixed {budget:g} exact"] = (true == 0).float().mean().item()
    return value


def _numbers(name: str, quantity: Quantity, level: float, found: Stopped) -> Value:
    kept = (found.true <= quantity.level(level)) & found.reached
    return {
        f"{name} {quantity.metric}": quantity.shown(found.true).mean().item(),
        f"{name} exact": (found.true == 0).float().mean().item(),
        f"{name} density": found.density.mean().item(),
        f"{name} longest": found.density.max().item(),
        f"{name} stopped": found.reached.float().mean().item(),
        f"{name} kept": kept.float().mean().item(),
    }


def measure(setup: Setup, name: str, rule: Rule, prior: Prior, found: Scenes, card: Calibration | None) -> list[Row]:
    """Rows of one data set."""
    found = found.first(min(rule.images, len(found)))
    factors = [] if card is None else [card.factor(level) for level in rule.promises]
    whole = digest_of([name, found.split, identity(found.values), identity(prior), repr(rule.levels), factors])
    bar = setup.progress.add_task(f"stopping: {name}", total=len(found))
    parts: list[tuple[Value, int]] = []
    for first in range(0, len(found), BLOCK):
        block = found.part(slice(first, first + BLOCK))
        key = f"{name} from={first} n={len(block)} {whole}"
        value = setup.journal.recall(key, partial(_measure, rule, prior, block, factors))
        if value is not None:
            parts.append((value, len(block)))
        setup.progress.advance(bar, len(block))
    setup.progress.remove_task(bar)
    if sum(count for _, count in parts) < len(found):
        return []  # another shard has the rest
    base = Row(
        dataset=name,
        method=rule.make(prior, 1).name,
        steps=rule.steps(found),
        budget=rule.limit,
        density=0.0,
        metric=rule.quantity.metric,
        mean=None,
        sd=0.0,
        images=len(found),
        seeds=1,
    )
    return list(_rows(base, rule, parts, None if card is None else card.probability))


def _rows(base: Row, rule: Rule, parts: Sequence[tuple[Value, int]], promise: float | None) -> Iterator[Row]:
    """Rows like `base` at every fixed budget, level and promise."""

    def mean(key: str) -> float:
        return round(sum(value[key] * count for value, count in parts) / base.images, 6)

    metric = base.metric
    for budget in rule.fixed:
        row = replace(base, budget=budget, density=budget)
        yield replace(row, mean=mean(f"fixed {budget:g} {metric}"))
        yield replace(row, metric="exact", mean=mean(f"fixed {budget:g} exact"))
    for kind, levels in (("stop", rule.levels), ("promise", rule.promises if promise else ())):
        for level in levels:
            at = f"{kind} {level:g}"
            kept = None if kind == "stop" else promise
            row = replace(base, density=mean(f"{at} density"), stop=level, promise=kept)
            yield replace(row, mean=mean(f"{at} {metric}"))
            yield replace(row, metric="exact", mean=mean(f"{at} exact"))
            yield replace(row, metric="stopped", mean=mean(f"{at} stopped"))
            yield replace(row, metric="coverage", mean=round(mean(f"{at} kept") / max(mean(f"{at} stopped"), 1e-9), 6))
            yield replace(row, metric="longest", mean=round(max(value[f"{at} longest"] for value, _ in parts), 6))


def _scenes(name: str, notes: list[str]) -> Scenes:
    """What is measured of a data set."""
    if name == "pictures":
        return load_views(SIDE)
    return scenes.digits() if name == "mnist" else scenes.photographs(notes)


def run(setup: Setup) -> Results:
    """Digits and photographs with the priors of the preset; pictures with the bundled prior."""
    rows: list[Row] = []
    notes: list[str] = []
    weights: dict[str, str] = {}
    for name, rule in RULES.items():
        try:
            found = _scenes(name, notes)
        except DataError as error:
            notes.append(f"{name} was left out: {error}")
            continue
        prior = models.prior(setup.preset, name, engine=setup.engine) if name in PRESET else hub.load_prior(rule.prior)
        card = None
        try:
            card = hub.calibration(rule.prior, setup.preset)
        except CheckpointError as error:
            notes.append(f"{name} without promises: {error}")
        rows += measure(setup, name, rule, prior, found, card)
        weights[rule.prior] = fingerprint(prior)
    return Results("stopping", setup.preset, "mnist", rows, weights, notes)


TITLES = {"mnist": "digits", "cifar10": "photographs of CIFAR-10", "pictures": "views of pictures, 64 x 64"}
REMARKS = {
    "cifar10": "A stop gives photographs the same quality, not the highest mean of the dB: that is a fixed budget's.",
    "pictures": "Five views of each picture: whole, and the quarters of its middle. They are alike, so one picture can "
    "move what is kept by several points. The factors come from pictures of other kinds, which the card of the prior "
    "names: a promise is worth most where it was fitted on pictures of the same kind, with `sensewise calibrate`.",
}
GOALS = {"mnist": "At most 0.55 errors at a mean of s = 0.1 are wanted"}


def _line(row: Row) -> str:
    """How a line calls a stop, or a budget without one."""
    if row.stop is None:
        return f"fixed budget, s = {row.budget:g}"
    plural = "" if row.stop == 1 else "s"
    wanted = f"{row.stop:g} error{plural}" if row.dataset == "mnist" else f"{row.stop:g} dB"
    if row.promise is not None:
        word = "at most" if row.dataset == "mnist" else "at least"
        return f"{word} {wanted} with {row.promise:.0%}"
    return f"{wanted} expected"


def at_mean(rows: Sequence[Row], density: float) -> float:
    """What stops leave at a mean density, between the two nearest of them in proportion; rows of one metric."""
    known = sorted((row.density, row.mean) for row in rows if row.mean is not None)
    below = max((pair for pair in known if pair[0] <= density), default=known[0])
    above = min((pair for pair in known if pair[0] >= density), default=known[-1])
    share = 0.0 if below == above else (density - below[0]) / (above[0] - below[0])
    return below[1] + share * (above[1] - below[1])


def section(results: Results) -> Section:
    """What stops leave against the mean budget, how well promises are kept, and the longest scans."""
    tables: list[Table] = []
    figures: list[Picture] = []
    paragraphs = [
        "Every scene is measured a few pixels at a time, and ends when the prior expects few enough errors, or a high "
        "enough PSNR; the budget is only the limit. A fixed budget ends all scenes at the same number of pixels. "
        "Promises carry a factor from the prior's card, fitted on validation images; kept is wanted within 2 points.",
        *results.notes,
    ]
    for name in dict.fromkeys(row.dataset for row in results.rows):
        rows = metrics.pick(results.rows, dataset=name)
        if rows[0].metric == PSNR.metric:
            rows = [row for row in rows if row.metric != "exact"]  # no photograph is ever exact
        metric = rows[0].metric
        shown = [*metrics.densities(metrics.pick(rows, metric=metric)), *rows]
        caption = f"{rows[0].images:,} {TITLES[name]}, at most {rows[-1].budget:.0%} of the pixels"
        tables.append(table(shown, caption, line=_line, column=metric_head, mark_best=False, corner="stop"))
        stops = metrics.pick(rows, metric=metric, promise=None)
        caption = f"Scans ended by a stop, and at a fixed budget, against the mean budget: {TITLES[name]}."
        figures.append(Picture(f"stopping-{name}.png", _drawn(stops, metric), caption))
        if name in REMARKS:
            paragraphs.append(REMARKS[name])
        if name in GOALS:
            reached = at_mean([row for row in stops if row.stop is not None], 0.1)
            fixed = at_mean(metrics.pick(stops, stop=None), 0.1)
            paragraphs.append(
                f"{GOALS[name]}: {metrics.number(reached, metric)} with a stop (between two levels, in proportion), "
                f"{metrics.number(fixed, metric)} with a fixed budget."
            )
    return Section("When to stop", paragraphs, tables, figures, results)


def _drawn(stops: Sequence[Row], metric: str) -> Figure:
    """Stops and fixed budgets against what was measured on average."""
    moved = [replace(row, budget=row.density, method="fixed" if row.stop is None else "stop") for row in stops]
    figure = curves.against_budget(moved, (metric,))
    figure.axes[0].xaxis.set_major_locator(MaxNLocator(7))
    figure.axes[0].set_xlabel("mean fraction measured")
    return figure


EXPERIMENT = Experiment("stopping", run, section)
