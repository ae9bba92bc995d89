"""Courses: what a prior expected to get wrong and what was wrong, before every step of acquisitions.

One course says what every stop would have done: a scene ends at the first step where the expectation is low enough. So
a course is enough to compare stops, and to calibrate them: `Course.factor` is split-conformal, the smallest factor
with which a promise was kept in so many of a hundred scenes that nothing was fitted on (Angelopoulos et al.,
"Conformal risk control", 2024).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sensewise import predictions
from sensewise.errors import ConfigError
from sensewise.evaluate.method import Method
from sensewise.loop import Acquisition
from sensewise.policies.base import Context, Outlook, Score, Stop
from sensewise.policies.stops import ExpectedErrors, ExpectedPSNR
from sensewise.predictions import Prediction
from sensewise.priors.base import Prior
from sensewise.sensors.base import Sensor, Side


@dataclass(frozen=True)
class Quantity:
    """What is expected of a reconstruction, and what it turns out to be.

    Attributes:
        estimate: a prediction to the reconstruction, `(B, C, H, W)`.
        expects: a prediction to what it expects of each site.
        wrong: reconstruction and truth to what is wrong with each site.
        average: whether sites are averaged, not added up.
        stop: a level and a factor to the stop that waits for it.
        level: what a person calls a level, to the level of the quantity.
        shown: what was wrong with each scene, as a person calls it.
        metric: what that is called in results.
    """

    estimate: Score
    expects: Score
    wrong: Callable[[Tensor, Tensor], Tensor]
    average: bool
    stop: Callable[[float, float], Stop]
    level: Callable[[float], float]
    shown: Callable[[Tensor], Tensor]
    metric: str

    def of(self, sites: Tensor) -> Tensor:
        """One number per scene `(B,)` from sites `(B, C, H, W)`."""
        return sites.flatten(1).mean(1) if self.average else sites.flatten(1).sum(1)


def _mode(prediction: Prediction) -> Tensor:
    return prediction.mode().float()


def _different(estimate: Tensor, truth: Tensor) -> Tensor:
    return (estimate != truth).float()


def _squared(estimate: Tensor, truth: Tensor) -> Tensor:
    return (estimate - truth).square()


def _mse(decibels: float) -> float:
    return float(10 ** (-decibels / 10))


def _decibels(mse: Tensor) -> Tensor:
    return -10 * mse.clamp(min=1e-10).log10()


ERRORS = Quantity(
    estimate=_mode,
    expects=predictions.expected_errors,
    wrong=_different,
    average=False,
    stop=ExpectedErrors,
    level=float,
    shown=Tensor.float,
    metric="errors",
)
"""Wrong sites, of tokens."""
PSNR = Quantity(
    estimate=predictions.mean,
    expects=predictions.variance,
    wrong=_squared,
    average=True,
    stop=ExpectedPSNR,
    level=_mse,
    shown=_decibels,
    metric="psnr",
)
"""The mean squared error, of intensities; a level is given in dB."""


@dataclass(frozen=True)
class _NotBefore(Stop):
    """A stop that waits until so many actions were taken."""

    stop: Stop
    least: int

    @property
    def expects(self) -> Score | None:  # type: ignore[override]
        return self.stop.expects

    def __call__(self, outlook: Outlook, mask: Tensor, context: Context) -> Tensor:
        return self.stop(outlook, mask, context) & (mask.sum(1) >= self.least)


class Listening(Prior):
    """A prior that keeps, of everything it says, what a quantity needs.

    Args:
        prior: says it.
        quantity: what is kept.
    """

    def __init__(self, prior: Prior, quantity: Quantity) -> None:
        super().__init__()
        self.prior, self.quantity = prior, quantity
        self.channels, self.size = prior.channels, prior.size
        self.num_states, self.num_labels = prior.num_states, prior.num_labels
        self.kept: list[Tensor] = []

    def predict(self, y: Tensor, label: Tensor, t: Tensor | None) -> Prediction:
        return self.prior.predict(y, label, t)

    def check(self, y: Tensor, label: Tensor | None) -> Tensor:
        return self.prior.check(y, label)

    def forward(self, y: Tensor, label: Tensor | None = None, t: Tensor | None = None) -> Prediction:
        prediction = super().forward(y, label, t)
        self.kept.append(torch.stack([self.quantity.estimate(prediction), self.quantity.expects(prediction)], dim=1))
        return prediction

    def heard(self) -> Tensor | None:
        """Estimates and expectations since the last time, `(B, 2, C, H, W)`; None if nothing was said."""
        found = torch.cat(self.kept) if self.kept else None
        self.kept.clear()
        return found


@dataclass(frozen=True)
class Course:
    """What happened before each of the steps, and at the end.

    Attributes:
        expected: with shape `(R + 1, B)`; NaN after a scene has ended.
        true: the same, of what was wrong.
        measured: actions taken so far, same shape.
        actions: how many there are, `K`.
    """

    expected: Tensor
    true: Tensor
    measured: Tensor
    actions: int

    def stopped(self, level: float, factor: float = 1.0) -> "Stopped":
        """What a stop at a level of the quantity would have left."""
        enough = factor * self.expected < level  # NaN is not enough
        reached = enough.any(0)
        last = (~self.expected.isnan()).sum(0) - 1
        step = torch.where(reached, enough.int().argmax(0), last).unsqueeze(0)  # (1, B)
        return Stopped(
            self.true.gather(0, step)[0],
            self.expected.gather(0, step)[0],
            self.measured.gather(0, step)[0] / self.actions,
            reached,
        )

    def fixed(self, count: int) -> Tensor:
        """What is wrong once so many actions were taken of every scene, `(B,)`; NaN where a scene had ended."""
        step = (self.measured >= count).int().argmax(0, keepdim=True)
        true = self.true.gather(0, step)[0]
        return torch.where(self.measured.gather(0, step)[0] >= count, true, torch.nan)

    def factor(self, level: float, probability: float) -> float:
        """The smallest factor for which a stop at `level` leaves at most that much with this probability.

        Of n scenes at most $\\lfloor (1 - p)(n + 1) \\rfloor - 1$ may be worse, for this and every larger factor.
        """
        if not 0.5 <= probability < 1:
            raise ConfigError(f"a promise is kept with a probability of 0.5 to 1, got {probability:g}")
        allowed = math.floor((1 - probability) * (self.true.shape[1] + 1)) - 1
        if allowed < 0:
            raise ConfigError(f"{self.true.shape[1]} scenes are too few for a promise of {probability:g}")
        best = math.inf
        for factor in reversed(FACTORS):
            found = self.stopped(level, factor)
            if int(((found.true > level) & found.reached).sum()) > allowed:
                break
            best = factor
        if math.isinf(best):
            raise ConfigError(f"no factor up to {FACTORS[-1]:.3g} keeps the promise: the prior does not fit the scenes")
        return best


FACTORS = [round(1.02**power, 4) for power in range(-120, 151)]  # 0.09 to 19.5


@dataclass(frozen=True)
class Stopped:
    """Scenes when a stop had ended them, `(B,)` each.

    Attributes:
        true: what was wrong.
        expected: what was expected to be.
        density: the fraction measured.
        reached: whether the stop ended it, and not the budget.
    """

    true: Tensor
    expected: Tensor
    density: Tensor
    reached: Tensor


def course(
    prior: Prior,
    make: Callable[[Prior], Method],
    sensor: Sensor,
    truth: Tensor,
    side: Side,
    quantity: Quantity,
    budget: float,
    lowest: float,
    least: int = 0,
) -> Course:
    """Acquire all scenes of a sensor and note everything.

    Args:
        make: a prior to the greedy method that is followed.
        truth: tokens for `ERRORS`, intensities for `PSNR`, with shape `(B, C, H, W)`.
        budget: at most this fraction.
        lowest: scenes end once this level, as a person says it, is expected,
        least: and so many actions were taken.
    """
    listening = Listening(prior, quantity)
    method = make(listening)
    nothing = torch.zeros(sensor.batch, sensor.num_actions, dtype=torch.bool, device=sensor.device)
    loop = Acquisition(
        method.policy,
        sensor(nothing),
        sensor.grid,
        budget,
        side=side,
        steps=method.steps,
        choose=method.choose,
        stop=_NotBefore(quantity.stop(lowest, 1.0), least),
    )
    rows: list[Tensor] = []
    going, chosen = torch.arange(sensor.batch), loop.ask()
    while True:
        said = listening.heard()
        if said is None:  # the budget is spent: nothing was asked
            listening.in_chunks(quantity.expects, loop.observation[going], side[going].label)
            said = listening.heard()
            assert said is not None
        row = torch.full((3, sensor.batch), torch.nan)
        row[0, going] = quantity.of(said[:, 1]).cpu()
        row[1, going] = quantity.of(quantity.wrong(said[:, 0], truth[going])).cpu()
        row[2] = loop.mask.sum(1).float().cpu()
        rows.append(row)
        if chosen is None:
            break
        going = (~loop.stopped).nonzero()[:, 0]
        loop.tell(sensor(loop.mask | chosen))
        chosen = loop.ask()
    expected, true, measured = torch.stack(rows, dim=1)
    return Course(expected, true, measured, sensor.num_actions)
