r"""Noise of a reading: what a sensor says when the truth is known.

With noise a reading no longer makes a site certain, and measuring site $i$ is worth
$I(C_i; Y_i \mid y) = H(Y_i \mid y) - H(Y_i \mid C_i, y)$, which is less than $H(C_i \mid y)$. A channel draws readings
from the truth, and says how probable each outcome is for each state; outcomes without end are cut into cells.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from sensewise.errors import ConfigError

CELLS_PER_SIGMA = 4  # of the quadrature over the outcomes of a continuous channel
REACH = 5.0  # standard deviations beyond the range that outcomes are counted


class Channel(ABC):
    """Base of every channel; intensities lie in [0, 1]."""

    @abstractmethod
    def read(self, truth: Tensor, generator: Generator) -> Tensor:
        """Readings of intensities, same shape."""

    @abstractmethod
    def noise(self, readings: Tensor) -> Tensor:
        """What a prior is given beside each reading: the standard deviation, or the probability of a flip."""

    @abstractmethod
    def outcomes(self, num_states: int) -> Tensor:
        """The probability of each of M outcomes for each of the `N` levels, with shape `(N, M)`."""

    def combine(self, readings: Tensor, taken: Tensor) -> tuple[Tensor, Tensor]:
        """Several readings of the same sites as one: their mean, weighted by what each is worth, and its noise.

        Args:
            readings: with shape `(R, ...)`.
            taken: True where there is a reading, same shape.

        Returns:
            One reading per site, NaN where there is none, and its noise.
        """
        noise = self.noise(readings)
        weights = torch.where(taken, 1 / noise.clamp(min=1e-9).square(), 0.0)
        total = weights.sum(0)
        value = (weights * readings).sum(0) / total  # 0 / 0 is NaN: nothing was read
        return value, torch.where(noise.amax(0) == 0, 0.0, total.rsqrt())


def _check(name: str, value: float, below: float) -> None:
    if not 0 <= value < below:
        raise ConfigError(f"{name} must be at least 0 and below {below:g}, got {value:g}")


def _noise_like(values: Tensor, generator: Generator) -> Tensor:
    return torch.randn(values.shape, generator=generator, device=generator.device).to(values.device)


@dataclass(frozen=True)
class Gaussian(Channel):
    """Additive Gaussian noise.

    Attributes:
        sigma: its standard deviation, as a fraction of the range.
    """

    sigma: float

    def __post_init__(self) -> None:
        _check("sigma", self.sigma, math.inf)

    def read(self, truth: Tensor, generator: Generator) -> Tensor:
        return truth + self.sigma * _noise_like(truth, generator)

    def noise(self, readings: Tensor) -> Tensor:
        return torch.full_like(readings, self.sigma)

    def outcomes(self, num_states: int) -> Tensor:
        levels = torch.linspace(0, 1, num_states, dtype=torch.float64)
        if self.sigma < 0.02 / (num_states - 1):  # levels are 50 standard deviations apart: none is taken for another
            return torch.eye(num_states)
        reach = REACH * self.sigma
        cells = math.ceil((1 + 2 * reach) / self.sigma * CELLS_PER_SIGMA)
        edges = torch.linspace(-reach, 1 + reach, cells + 1, dtype=torch.float64)
        below = torch.special.ndtr((edges - levels[:, None]) / self.sigma)  # (N, M + 1)
        return (below.diff(dim=1) / (below[:, -1:] - below[:, :1])).float()


@dataclass(frozen=True)
class Poisson(Channel):
    """Counting: a reading is a number of counts, divided by the dose.

    Attributes:
        dose: expected counts at full intensity.
    """

    dose: float

    def __post_init__(self) -> None:
        if not 0 < self.dose < 1e6:
            raise ConfigError(f"dose must be above 0 and below a million, got {self.dose:g}")

    def read(self, truth: Tensor, generator: Generator) -> Tensor:
        rate = (self.dose * truth.clamp(min=0)).to(generator.device)
        return (torch.poisson(rate, generator=generator) / self.dose).to(truth.device)

    def noise(self, readings: Tensor) -> Tensor:
        return (readings.clamp(min=1 / self.dose) / self.dose).sqrt()

    def combine(self, readings: Tensor, taken: Tensor) -> tuple[Tensor, Tensor]:
        """The mean of all counts of a site, and the noise of a mean reading of its picture.

        The root of each count by itself would call low readings sure and high ones doubtful, so every average of them
        would be too dark, by a whole count. Nor do priors know noise that differs within a picture.
        """
        count, scene = taken.sum(0), tuple(range(1, readings.dim() - 1))  # of a site; all dimensions but the batch
        total = torch.where(taken, readings, 0.0).sum(0)
        mean = (total.sum(scene, keepdim=True) + 1 / self.dose) / count.sum(scene, keepdim=True).clamp(min=1)
        return total / count, (mean / (self.dose * count.clamp(min=1))).sqrt()  # 0 / 0 is NaN: nothing was read

    def outcomes(self, num_states: int) -> Tensor:
        rate = self.dose * torch.linspace(0, 1, num_states, dtype=torch.float64)[:, None]
        most = math.ceil(self.dose + REACH * math.sqrt(self.dose) + 10)
        count = torch.arange(most + 1, dtype=torch.float64)
        log_p = torch.xlogy(count, rate) - rate - torch.lgamma(count + 1)  # (N, M)
        return log_p.softmax(dim=1).float()


@dataclass(frozen=True)
class BitFlip(Channel):
    """A state that is read as another one, for images of two levels.

    Attributes:
        p: the probability of a flip.
    """

    p: float

    def __post_init__(self) -> None:
        _check("p", self.p, 0.5)

    def read(self, truth: Tensor, generator: Generator) -> Tensor:
        flipped = torch.rand(truth.shape, generator=generator, device=generator.device).to(truth.device) < self.p
        return torch.where(flipped, 1 - truth, truth)

    def noise(self, readings: Tensor) -> Tensor:
        return torch.full_like(readings, self.p)

    def outcomes(self, num_states: int) -> Tensor:
        if num_states != 2:
            raise ConfigError(f"bit flips are for images of two levels, not of {num_states}")
        return torch.tensor([[1 - self.p, self.p], [self.p, 1 - self.p]], dtype=torch.float32)

    def combine(self, readings: Tensor, taken: Tensor) -> tuple[Tensor, Tensor]:
        """The more probable state, and the probability that it is wrong: log-odds of several readings add up."""
        return combine_flips(readings, taken, torch.tensor(self.p, device=readings.device))


def combine_flips(readings: Tensor, taken: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """As `BitFlip.combine`, with a probability of a flip `p` for each site; shapes that broadcast."""
    odds = torch.logit(1 - p, eps=1e-9)
    total = torch.where(taken, torch.where(readings > 0.5, odds, -odds), 0.0).sum(0)
    value = torch.where(taken.any(0), (total > 0).to(readings.dtype), torch.nan)
    return value, torch.where(taken.any(0) & (p > 0), torch.sigmoid(-total.abs()), 0.0)
