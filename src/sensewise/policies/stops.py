"""When to stop: rules that end an acquisition once the picture is good enough. The budget is the upper limit.

What a prior expects to get wrong needs no truth, so a real sensor can follow it. `factor` makes an expectation
cautious: a card's `calibration` holds the factor with which it was kept in so many of a hundred validation images.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sensewise import predictions
from sensewise.errors import ConfigError
from sensewise.policies.base import Context, Outlook, Policy, Stop
from sensewise.priors.base import Prior
from sensewise.sensors.base import View
from sensewise.sensors.pixels import Pixels


def _expected(outlook: Outlook) -> Tensor:
    if outlook.expected is None:
        raise ConfigError("this policy expects nothing: a stop of this kind needs a greedy policy")
    return outlook.expected


@dataclass(frozen=True)
class ExpectedErrors(Stop):
    """Fewer wrong sites expected than this.

    Attributes:
        below: sites.
        factor: what the expectation is multiplied by.
    """

    below: float
    factor: float = 1.0
    expects = staticmethod(predictions.expected_errors)

    def __post_init__(self) -> None:
        if not self.below > 0 or not self.factor > 0:
            raise ConfigError(f"below and factor must be above 0, got {self.below:g} and {self.factor:g}")

    def __call__(self, outlook: Outlook, mask: Tensor, context: Context) -> Tensor:
        return self.factor * _expected(outlook) < self.below


@dataclass(frozen=True)
class ExpectedPSNR(Stop):
    """A higher PSNR of the posterior mean expected than this.

    Attributes:
        above: dB, of intensities in [0, 1].
        factor: what the expected squared error is multiplied by.
    """

    above: float
    factor: float = 1.0
    expects = staticmethod(predictions.variance)

    def __post_init__(self) -> None:
        if not 0 < self.above < 100 or not self.factor > 0:
            raise ConfigError(f"above must be 0 to 100 dB and factor above 0, got {self.above:g} and {self.factor:g}")

    def __call__(self, outlook: Outlook, mask: Tensor, context: Context) -> Tensor:
        error = self.factor * _expected(outlook) / outlook.sites
        return error < 10 ** (-self.above / 10)


@dataclass(frozen=True)
class Gain(Stop):
    """No action left that is worth this much.

    Attributes:
        below: in the units of the policy's scores, such as nats.
    """

    below: float

    def __post_init__(self) -> None:
        if not self.below > 0:
            raise ConfigError(f"below must be above 0, got {self.below:g}")

    def __call__(self, outlook: Outlook, mask: Tensor, context: Context) -> Tensor:
        return outlook.scores.masked_fill(mask, -torch.inf).amax(1) < self.below


class Watched(Policy):
    """Another policy's scores, with the expectations of a prior: how random readings can stop in time.

    Args:
        policy: scores the actions.
        prior: expects.
        view: how the prior looks through the sensor; pixels as they are by default.
    """

    prior: Prior

    def __init__(self, policy: Policy, prior: Prior, view: View | None = None) -> None:
        self.policy, self.prior, self.view = policy, prior, view or Pixels()
        self.random = policy.random

    def scores(self, observation: Tensor, mask: Tensor, context: Context) -> Tensor:
        return self.policy.scores(observation, mask, context)

    def look(self, observation: Tensor, mask: Tensor, context: Context) -> Outlook:
        expects = context.expects
        scores = self.policy.scores(observation, mask, context)
        if expects is None:
            return Outlook(scores)

        y = self.view.tokens(observation, mask)
        expected = self.prior.maps(expects, y, context.side.label).flatten(1).sum(1)
        return Outlook(scores, expected, self.prior.channels * y.shape[2] * y.shape[3])


@dataclass(frozen=True)
class Calibration:
    """Factors with which a promise was kept on images that nothing was fitted on.

    Attributes:
        method: the policy that chose the pixels, by its name in results.
        probability: how often the promise was kept.
        images: how many there were.
        factors: of `ExpectedErrors` by `below`, or of `ExpectedPSNR` by `above`.
    """

    method: str
    probability: float
    images: int
    factors: Mapping[float, float]

    def __post_init__(self) -> None:
        if not self.factors or not all(level > 0 and factor > 0 for level, factor in self.factors.items()):
            raise ConfigError("a calibration needs levels and factors above 0")

    def factor(self, level: float) -> float:
        """The factor of a level: between two that were fitted in proportion, beyond them the nearest one's."""
        known = sorted(self.factors)
        below = max((place for place in known if place <= level), default=known[0])
        above = min((place for place in known if place >= level), default=known[-1])
        if below == above:
            return self.factors[below]
        share = math.log(level / below) / math.log(above / below)
        return self.factors[below] ** (1 - share) * self.factors[above] ** share
