"""When to stop: rules that end an acquisition once the picture is good enough. The budget is the upper limit.

What a prior expects to get wrong needs no truth, so a real sensor can follow it. `factor` makes an expectation
cautious: a card's `calibration` holds the factor with which it was kept in so many of a hundred validation images.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sensewise import predictions
from sensewise.errors import ConfigError
from sensewise.policies.base import Context, Outlook, Stop


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
