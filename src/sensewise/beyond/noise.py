"""`noise`: readings that are wrong or blurred, and a prior that knows it, against one that takes them for the truth.

Digits are read with flips, with the bundled prior `mnist-noise`, by information gain; with repeats a pixel may be read
up to three times. Pictures are read with Gaussian or Poisson noise, with `any-grey`. Both sides get the same readings.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from torch import Generator, Tensor

from sensewise import hub
from sensewise.channels import BitFlip, Channel, Gaussian, Poisson
from sensewise.data.gallery import load_pictures
from sensewise.data.scenes import Scenes
from sensewise.errors import DataError
from sensewise.evaluate.experiment import Experiment, Setup
from sensewise.evaluate.method import Method, reading_methods
from sensewise.evaluate.readings import PictureJudge, StateJudge, Trusting
from sensewise.evaluate.results import Results
from sensewise.evaluate.rows import Row
from sensewise.evaluate.task import NoisyTask, Task
from sensewise.files import fingerprint
from sensewise.paper import models, scenes
from sensewise.policies.choose import Spread
from sensewise.policies.greedy import Greedy
from sensewise.predictions import InformationGain, variance
from sensewise.priors.base import Prior
from sensewise.report import metrics
from sensewise.report.section import Section
from sensewise.report.table import Table, metric_head, table
from sensewise.sensors.base import Sensor, Side
from sensewise.sensors.readings import Readings, ReadingSensor
from sensewise.tokens import dequantize

FLIPS = (0.0, 0.02, 0.05, 0.1, 0.15)
BUDGET, STEPS, REPEATS, IMAGES = 0.1, 16, 3, 640
SIDE, PICTURE_STEPS = 64, 32
BLURS: dict[str, Channel] = {
    "sigma 0.02": Gaussian(0.02),
    "sigma 0.05": Gaussian(0.05),
    "sigma 0.1": Gaussian(0.1),
    "dose 100": Poisson(100.0),
    "dose 20": Poisson(20.0),
}
AWARE, REPEATED, TRUSTING = "gain-greedy", "gain-greedy-repeats", "trusting-greedy"
BEST = "spread-variance-greedy"
WITHIN = 0.15  # how far expected errors may be from true ones


def _digit_sensor(channel: Channel, repeats: int, tokens: Tensor, generator: Generator | None = None) -> Sensor:
    return ReadingSensor(dequantize(tokens, 2), channel, repeats=repeats, generator=generator)


def digit_rows(setup: Setup, prior: Prior, noiseless: Prior, digits: Scenes, flips: Sequence[float]) -> list[Row]:
    """Wrong and expected pixels at every probability of a flip."""
    side, rows = Side(label=digits.labels), list[Row]()
    for p in flips:
        channel, columns = BitFlip(p), {"noise": p}
        kind = NoisyTask if p else Task  # without flips one seed is as good as five
        score = InformationGain(channel)
        for name, repeats in ((AWARE, 1), (REPEATED, REPEATS)):
            if repeats > 1 and not p:
                continue  # nothing is learned from reading again
            view = Readings(repeats)
            method = Method(name, Greedy(prior, score, view=view), STEPS, choose=Spread())
            sensor = partial(_digit_sensor, channel, repeats)
            task = kind("mnist", digits, sensor, {"prior": StateJudge(prior, view)}, side, columns=columns)
            found = setup.evaluate(task, [method], (BUDGET / repeats,))  # so many readings, whatever they are of
            rows += [replace(row, budget=BUDGET, density=round(row.density * repeats, 6)) for row in found]
        view = Trusting(noiseless.num_states)
        trusting = Method(TRUSTING, Greedy(noiseless, view=view), STEPS, choose=Spread())
        sensor = partial(_digit_sensor, channel, 1)
        task = kind("mnist", digits, sensor, {"prior": StateJudge(noiseless, view)}, side, columns=columns)
        rows += setup.evaluate(task, [trusting], (BUDGET,))
    return rows


def picture_rows(setup: Setup, prior: Prior, pictures: Scenes) -> list[Row]:
    """PSNR and expected PSNR with every kind of noise."""
    rows: list[Row] = []
    for name, channel in BLURS.items():
        columns = {"form": name}
        sensor = partial(_picture_sensor, channel)
        aware = replace(reading_methods(prior, PICTURE_STEPS, channel)[BEST], name=AWARE)
        task = NoisyTask("pictures", pictures, sensor, {"prior": PictureJudge(prior, Readings())}, columns=columns)
        rows += setup.evaluate(task, [aware], (BUDGET,))
        same = aware.policy
        assert isinstance(same, Greedy)
        policy = Greedy(prior, variance, view=Trusting(), reach=same.reach, room=same.room)
        trusting = Method(TRUSTING, policy, PICTURE_STEPS, choose=aware.choose)
        task = NoisyTask("pictures", pictures, sensor, {"prior": PictureJudge(prior, Trusting())}, columns=columns)
        rows += setup.evaluate(task, [trusting], (BUDGET,))
    return rows


def _picture_sensor(channel: Channel, image: Tensor, generator: Generator) -> Sensor:
    return ReadingSensor(image, channel, generator=generator)


def run(setup: Setup) -> Results:
    """Digits with flips, pictures with Gaussian and Poisson noise; the noise is the same for all methods."""
    prior, noiseless = hub.load_prior("mnist-noise"), models.prior(setup.preset, "mnist")
    rows, notes = digit_rows(setup, prior, noiseless, scenes.digits(IMAGES), FLIPS), list[str]()
    weights = {"mnist-noise": fingerprint(prior), "mnist": fingerprint(noiseless)}
    try:
        pictures = load_pictures(SIDE)
    except DataError as error:
        notes.append(f"Pictures were left out: {error}")
    else:
        grey = hub.load_prior("any-grey")
        weights["any-grey"] = fingerprint(grey)
        rows += picture_rows(setup, grey, pictures)
    return Results("noise", setup.preset, "mnist", rows, weights, notes)


WORDS = {
    AWARE: "told the noise",
    REPEATED: f"told the noise, up to {REPEATS} readings of a pixel",
    TRUSTING: "takes readings for the truth",
}


def _flip_line(row: Row) -> str:
    return f"flips of {row.noise:.0%}: {WORDS[row.method]}"


def _blur_line(row: Row) -> str:
    return f"{row.form}: {WORDS[row.method]}"


def expected_over_true(rows: Sequence[Row], method: str) -> list[float]:
    """How many errors a method expects for each that it makes, from little noise to much."""
    true = {row.noise: row.mean for row in metrics.pick(rows, method=method, metric="errors")}
    expected = {row.noise: row.mean for row in metrics.pick(rows, method=method, metric="expected-errors")}
    return [(expected[level] or 0.0) / true[level] for level in sorted(true, key=float) if true[level]]  # type: ignore


def section(results: Results) -> Section:
    """True and expected errors, told the noise or not; of each data set that there is."""
    digits = metrics.pick(results.rows, dataset="mnist")
    pictures = metrics.pick(results.rows, dataset="pictures")
    tables: list[Table] = []
    paragraphs = [
        "Both sides get the same readings: one prior is told how noisy they are, the other takes them for the truth.",
        *results.notes,
    ]
    if digits:
        caption = f"{digits[0].images} test digits, s = {BUDGET:g} in {STEPS} steps"
        tables.append(table(digits, caption, line=_flip_line, column=metric_head, mark_best=False, corner="noise"))
        for method in (AWARE, REPEATED):
            ratios = ", ".join(f"{ratio:.2f}" for ratio in expected_over_true(digits, method))
            paragraphs.append(
                f"Expected divided by true errors, {WORDS[method]}: {ratios}. Wanted: within {WITHIN:.0%} at every "
                "level of noise, and fewer true errors than without knowing about the noise."
            )
    if pictures:
        caption = f"{pictures[0].images} pictures of {SIDE} x {SIDE}, s = {BUDGET:g} in {PICTURE_STEPS} steps"
        tables.append(table(pictures, caption, line=_blur_line, column=metric_head, mark_best=False, corner="noise"))
    return Section("Noisy readings", paragraphs, tables, (), results)


EXPERIMENT = Experiment("noise", run, section)
