r"""What a prior says about every site of a batch of images: a distribution, not a tensor.

Policies ask a prediction how uncertain a site is, reconstructors what it most probably is, losses how probable the
truth was. `Categorical` holds one number per state and suits a few states; `Mixture` holds a few components per site
and suits many ordered levels, where `(B, C, H, W, N)` would not fit into memory.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from sensewise import information
from sensewise.channels import Channel
from sensewise.tokens import MASK, dequantize, quantize, unpack


class Prediction(ABC):
    """The predictive distribution of every site, independent given what was seen; sites have shape `(B, C, H, W)`."""

    num_states: int

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Of the sites, `(B, C, H, W)`."""

    @abstractmethod
    def given(self, y: Tensor) -> Self:
        """The same prediction, certain where the tokens `y` `(B, C, H, W)` are observed."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """Nats per site, exactly 0 where a site is certain; `(B, C, H, W)`."""

    @abstractmethod
    def variance(self) -> Tensor:
        """Of the intensity, with the levels evenly spaced on [0, 1]; `(B, C, H, W)`."""

    @abstractmethod
    def mean(self) -> Tensor:
        """The expected intensity, `(B, C, H, W)`."""

    @abstractmethod
    def mode(self) -> Tensor:
        """The most probable token, int64 `(B, C, H, W)`."""

    @abstractmethod
    def log_prob(self, x: Tensor) -> Tensor:
        """The log-probability of the tokens `x` 1..N, `(B, C, H, W)`."""

    @abstractmethod
    def sample(self, n: int, generator: Generator) -> Tensor:
        """Tokens drawn site by site, `(n, B, C, H, W)`."""

    @abstractmethod
    def expected_errors(self) -> Tensor:
        """The probability that the mode is wrong, `(B, C, H, W)`."""

    @abstractmethod
    def gain(self, channel: Channel) -> Tensor:
        """The information of one noisy reading in nats, `(B, C, H, W)`; at most the entropy, and never negative."""

    @abstractmethod
    def reading(self, sites: Tensor, noise: Tensor) -> "Categorical":
        """What readings of some sites will name, as a table with one row per site, `(1, 1, 1, K, N)`.

        Args:
            sites: True at K sites, with shape `(B, C, H, W)`.
            noise: of each reading (see `tokens.pack`), same shape.
        """

    def cross_entropy(self, x: Tensor, sites: Tensor) -> Tensor:
        r"""$-\log p(x_i \mid y)$ summed over some sites of each image, in nats.

        Args:
            x: true tokens 1..N, with shape `(B, C, H, W)`.
            sites: True where a site counts, with shape `(B, C, H, W)`.

        Returns:
            One value per image, with shape `(B,)`.
        """
        return -torch.where(sites, self.log_prob(x), 0.0).sum(dim=(1, 2, 3))


class Categorical(Prediction):
    """One log-probability per state.

    Args:
        log_probs: normalised, with shape `(B, C, H, W, N)`.
    """

    def __init__(self, log_probs: Tensor) -> None:
        self.log_probs = log_probs
        self.num_states = log_probs.shape[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.log_probs.shape[:-1])

    def given(self, y: Tensor) -> Self:
        """Certain at tokens `(B, C, H, W)`; readings `(B, 2 C, H, W)` that may be wrong (see `tokens.pack`) by Bayes.

        A reading's noise is the probability that it names another state than the true one, each of them as often.
        """
        if y.is_floating_point():
            values, wrong, seen = unpack(y)
            token = torch.where(seen, quantize(values, self.num_states), MASK)
            read = (self.log_probs + reading_log_likelihood(values, wrong, self.num_states)).log_softmax(-1)
            noisy = torch.where((seen & (wrong > 0)).unsqueeze(-1), read, self.log_probs)
            return type(self)(noisy).given(torch.where(wrong > 0, MASK, token))
        certain = torch.eye(self.num_states + 1, device=y.device)[:, 1:].log()  # (N + 1, N): token to log-probability
        return type(self)(torch.where((y == MASK).unsqueeze(-1), self.log_probs, F.embedding(y, certain)))

    def entropy(self) -> Tensor:
        return information.entropy(self.log_probs)

    def variance(self) -> Tensor:
        return information.variance(self.log_probs)

    def mean(self) -> Tensor:
        levels = torch.linspace(0, 1, self.num_states, device=self.log_probs.device)
        return (self.log_probs.exp() * levels).sum(-1)

    def mode(self) -> Tensor:
        return self.log_probs.argmax(-1) + 1

    def log_prob(self, x: Tensor) -> Tensor:
        return self.log_probs.gather(-1, (x - 1).unsqueeze(-1)).squeeze(-1)

    def sample(self, n: int, generator: Generator) -> Tensor:
        noise = torch.empty((n, *self.log_probs.shape), device=generator.device).exponential_(generator=generator)
        return (self.log_probs - noise.log().to(self.log_probs.device)).argmax(-1) + 1

    def expected_errors(self) -> Tensor:
        return 1 - self.log_probs.amax(-1).exp()

    def divergence(self, other: "Categorical", sites: Tensor) -> Tensor:
        r"""$KL(p \| q)$ of another prediction $q$, summed over some sites `(B, C, H, W)` of each image; nats `(B,)`.

        Both have to be raw: a prediction that is certain of a state has no finite logarithm of the others.
        """
        gap = torch.where(sites.unsqueeze(-1), self.log_probs - other.log_probs, 0.0)
        return (self.log_probs.exp() * gap).sum(dim=(1, 2, 3, 4))

    def gain(self, channel: Channel) -> Tensor:
        outcomes = channel.outcomes(self.num_states).to(self.log_probs.device)
        return information.mutual_information(self.log_probs, outcomes)

    def reading(self, sites: Tensor, noise: Tensor) -> "Categorical":
        p, wrong = self.log_probs[sites].exp(), noise[sites].unsqueeze(-1)  # (K, N) and (K, 1)
        named = p * (1 - wrong) + (1 - p) * wrong / (self.num_states - 1)
        return Categorical(named.log()[None, None, None])


def reading_log_likelihood(values: Tensor, wrong: Tensor, num_states: int) -> Tensor:
    """How probable each state makes a reading, as logarithms; `(B, C, H, W)` to `(B, C, H, W, N)`.

    Args:
        values: intensities, any number where nothing was read.
        wrong: the probability that a reading names another state than the true one, each of them as often.
    """
    hit = F.one_hot(quantize(values, num_states) - 1, num_states).bool()
    missed = (wrong / (num_states - 1)).unsqueeze(-1)
    return torch.where(hit, 1 - wrong.unsqueeze(-1), missed).clamp(min=1e-30).log()


class Mixture(Prediction):
    r"""A mixture of Gaussians per site, over intensities cut off at 0 and 1.

    $$p(x) = \sum_m \pi_m\, \mathcal N(x; \mu_m, \tau_m^2), \qquad X = \min(\max(x, 0), 1)$$

    What lies below 0 or above 1 counts as 0 or 1, as in a picture that saturates: mean and variance of $X$ are closed
    forms. Each of the `N` evenly spaced levels has the mass that is nearest to it; entropy and mode go over the levels
    one at a time, so that memory stays small.

    A reading $r = x + \sigma n$ multiplies the mixture by $\mathcal N(r; x, \sigma^2)$, which gives a mixture of the
    same kind: $\tau'^2 = (\tau^{-2} + \sigma^{-2})^{-1}$, $\mu' = \mu + (r - \mu)\, \tau^2 / (\tau^2 + \sigma^2)$ and
    $\pi' \propto \pi\, \mathcal N(r; \mu, \tau^2 + \sigma^2)$. Without noise the site becomes certain.

    Args:
        log_weights: normalised, with shape `(B, C, M, H, W)`.
        centres: of the components, before the cut-off, same shape.
        widths: standard deviations, above 0, same shape.
        num_states: levels `N`.
        exact: what was read without noise, NaN elsewhere, with shape `(B, C, H, W)`; None for nothing.
    """

    def __init__(
        self, log_weights: Tensor, centres: Tensor, widths: Tensor, num_states: int = 256, exact: Tensor | None = None
    ) -> None:
        self.log_weights, self.centres, self.widths = log_weights, centres, widths
        self.num_states, self.exact = num_states, exact

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.centres.shape[:2] + self.centres.shape[3:])

    def given(self, y: Tensor) -> Self:
        """The mixture after readings `(B, 2 C, H, W)` (see `tokens.pack`), or after noiseless tokens `(B, C, H, W)`."""
        if y.is_floating_point():
            values, sigma, seen = unpack(y)
        else:
            values, seen = dequantize(y, self.num_states).nan_to_num(0.0), y != MASK
            sigma = torch.zeros_like(values)
        own, noise = self.widths.square(), sigma.square().unsqueeze(2)
        total = own + noise
        distance = values.unsqueeze(2) - self.centres  # (B, C, M, H, W)
        read = seen.unsqueeze(2)
        evidence = (self.log_weights - 0.5 * (distance.square() / total + total.log())).log_softmax(2)
        log_weights = torch.where(read, evidence, self.log_weights)
        centres = torch.where(read, self.centres + distance * (own / total), self.centres)
        narrow = (own * noise / total).clamp(min=NARROWEST**2).sqrt()  # cut off first: the root of 0 has no gradient
        widths = torch.where(read, narrow, self.widths)
        exact = torch.where(seen & (sigma == 0), values, torch.nan)
        if self.exact is not None:
            exact = torch.where(exact.isnan(), self.exact, exact)
        return type(self)(log_weights, centres, widths, self.num_states, exact)

    def _certain(self, value: Tensor, at_certain: Tensor | float) -> Tensor:
        """`value`, and `at_certain` where a site was read without noise."""
        return value if self.exact is None else torch.where(self.exact.isnan(), value, at_certain)

    def _moments(self) -> tuple[Tensor, Tensor]:
        """Mean and variance after the cut-off, `(B, C, H, W)` each."""
        low, high = -self.centres / self.widths, (1 - self.centres) / self.widths  # (B, C, M, H, W)
        below, above = _normal_cdf(low), _normal_cdf(-high)
        at_low, at_high = _density(low), _density(high)
        inside = (1 - below - above).clamp(min=0)
        shift = self.widths * (at_low - at_high)
        first = self.centres * inside + shift + above
        second = (self.centres.square() + self.widths.square()) * inside + 2 * self.centres * shift + above
        second = second + self.widths.square() * (low * at_low - high * at_high)
        narrow = (low < -6) & (high > 6)  # far inside: nothing is cut off, and second - first^2 would lose digits
        spread = torch.where(narrow, self.widths.square(), (second - first.square()).clamp(min=0))
        first = torch.where(narrow, self.centres, first)
        weights = self.log_weights.exp()
        mean = (weights * first).sum(2)
        return mean, (weights * (spread + (first - mean.unsqueeze(2)).square())).sum(2)

    def mean(self) -> Tensor:
        return self._certain(self._moments()[0], 0.0 if self.exact is None else self.exact)

    def variance(self) -> Tensor:
        return self._certain(self._moments()[1], 0.0)

    def _below(self, edge: float) -> Tensor:
        """The probability of intensities below an edge between two levels, `(B, C, H, W)`."""
        return (self.log_weights.exp() * _normal_cdf((edge - self.centres) / self.widths)).sum(2)

    def _masses(self) -> Iterator[Tensor]:
        """The probability of one level after another, `(B, C, H, W)` each."""
        step = 1 / (self.num_states - 1)
        below = torch.zeros_like(self.centres[:, :, 0])
        for level in range(self.num_states - 1):
            up_to = self._below((level + 0.5) * step)
            yield (up_to - below).clamp(min=0)
            below = up_to
        yield (1 - below).clamp(min=0)

    def categorical(self) -> Categorical:
        """The same distribution with one number per state: for small images, and as the oracle of the tests."""
        found = Categorical(torch.stack(list(self._masses()), dim=-1).log())
        return found if self.exact is None else found.given(self._exact_tokens())

    def reading(self, sites: Tensor, noise: Tensor) -> Categorical:
        """As for every prediction; readings below 0 or above 1 name the first or the last level."""
        rows = [part.movedim(2, -1)[sites].T for part in (self.log_weights, self.centres, self.widths)]  # (M, K) each
        log_weights, centres, widths = (part[None, None, :, None] for part in rows)
        return Mixture(log_weights, centres, torch.hypot(widths, noise[sites]), self.num_states).categorical()

    def _exact_tokens(self) -> Tensor:
        """Tokens of what was read without noise, 0 elsewhere."""
        assert self.exact is not None
        known = quantize(self.exact.nan_to_num(0.0).clamp(0, 1), self.num_states)
        return torch.where(self.exact.isnan(), MASK, known)

    def entropy(self) -> Tensor:
        total = torch.zeros_like(self.centres[:, :, 0])
        for mass in self._masses():
            total += torch.special.entr(mass)
        return self._certain(total, 0.0)

    def _best(self) -> tuple[Tensor, Tensor]:
        """The most probable token and its probability, `(B, C, H, W)` each."""
        best = torch.full_like(self.centres[:, :, 0], -1.0)
        token = torch.zeros(best.shape, dtype=torch.int64, device=best.device)
        for level, mass in enumerate(self._masses()):
            token = torch.where(mass > best, level + 1, token)
            best = torch.maximum(best, mass)
        return token, best

    def mode(self) -> Tensor:
        token = self._best()[0]
        return token if self.exact is None else torch.where(self.exact.isnan(), token, self._exact_tokens())

    def expected_errors(self) -> Tensor:
        return self._certain((1 - self._best()[1]).clamp(min=0), 0.0)

    def gain(self, channel: Channel) -> Tensor:
        """By quadrature: the entropy of the reading, less the entropy of its noise at the expected intensity."""
        noise = channel.noise(self.mean()).clamp(min=NARROWEST)  # (B, C, H, W)
        reading = (self.widths.square() + noise.square().unsqueeze(2)).sqrt()
        reach = 4 * reading.amax(2)
        low, high = self.centres.amin(2) - reach, self.centres.amax(2) + reach
        weights, total, below = self.log_weights.exp(), torch.zeros_like(noise), torch.zeros_like(noise)
        for edge in torch.linspace(0, 1, QUADRATURE + 1)[1:].tolist():
            place = torch.lerp(low, high, edge).unsqueeze(2)
            up_to = (weights * _normal_cdf((place - self.centres) / reading)).sum(2)
            total += torch.special.entr((up_to - below).clamp(min=0))
            below = up_to
        of_reading = total + ((high - low) / QUADRATURE).log()
        of_noise = noise.log() + 0.5 * math.log(2 * math.pi * math.e)
        return self._certain((of_reading - of_noise).clamp(min=0), 0.0)

    def log_prob(self, x: Tensor) -> Tensor:
        level, half = x.unsqueeze(2) - 1, 0.5 / (self.num_states - 1)
        distance = level.to(self.centres.dtype) / (self.num_states - 1) - self.centres
        low = torch.where(level == 0, -torch.inf, (distance - half) / self.widths)
        high = torch.where(level == self.num_states - 1, torch.inf, (distance + half) / self.widths)
        found = torch.logsumexp(self.log_weights + log_normal_mass(low, high), 2)
        if self.exact is None:
            return found
        return self._certain(found, torch.where(x == self._exact_tokens(), 0.0, -torch.inf))

    def sample(self, n: int, generator: Generator) -> Tensor:
        device = self.centres.device
        noise = torch.empty((n, *self.log_weights.shape), device=generator.device).exponential_(generator=generator)
        component = (self.log_weights - noise.log().to(device)).argmax(3, keepdim=True)  # (n, B, C, 1, H, W)
        many = (n, *self.centres.shape)
        centre = self.centres.expand(many).gather(3, component).squeeze(3)
        width = self.widths.expand(many).gather(3, component).squeeze(3)
        bell = torch.randn(centre.shape, generator=generator, device=generator.device).to(device)
        value = (centre + width * bell).clamp(0, 1)
        token = (value * (self.num_states - 1)).round().long() + 1
        return token if self.exact is None else torch.where(self.exact.isnan(), token, self._exact_tokens())


NARROWEST = 1e-5  # the width of a component that is known exactly
QUADRATURE = 128  # cells


def _normal_cdf(z: Tensor) -> Tensor:
    """The normal distribution function; `torch.special.ndtr` has no digits left in its lower tail."""
    return 0.5 * torch.special.erfc(-math.sqrt(0.5) * z)


def _density(z: Tensor) -> Tensor:
    return torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)


def log_normal_mass(low: Tensor, high: Tensor) -> Tensor:
    r"""$\log(\Phi(b) - \Phi(a))$, also far out in the tails; a < b, either may be infinite."""
    flip = low > 0  # by symmetry both ends on the left, where the distribution keeps its digits
    low, high = torch.where(flip, -high, low), torch.where(flip, -low, high)
    far = high < -8
    mass = _normal_cdf(torch.where(far, 0.0, high)) - _normal_cdf(torch.where(far, -1.0, low))
    near = torch.where(far, high, -8.0)  # beyond 8 widths: the tail from the nearer end, less that from the farther one
    gap = torch.where(far & low.isfinite(), high - low, 1.0)
    share = torch.where(low.isfinite(), torch.log(-torch.expm1((gap * near).clamp(max=-1e-6))), 0.0)
    tail = -0.5 * near.square() - 0.5 * math.log(2 * math.pi) - torch.log(-near) + share
    return torch.where(far, tail, mass.clamp(min=1e-30).log())


def entropy(prediction: Prediction) -> Tensor:
    """`prediction.entropy()`, as a function: the information gain of a noiseless reading."""
    return prediction.entropy()


def variance(prediction: Prediction) -> Tensor:
    """`prediction.variance()`, as a function: it knows that levels are ordered."""
    return prediction.variance()


@dataclass(frozen=True)
class InformationGain:
    """The information of one reading through a channel, as a score."""

    channel: Channel

    def __call__(self, prediction: Prediction) -> Tensor:
        return prediction.gain(self.channel)


@dataclass(frozen=True)
class VarianceReduction:
    r"""How much of its variance a noisy reading of a site is expected to remove, $v^2 / (v + \sigma^2)$, as a score."""

    channel: Channel

    def __call__(self, prediction: Prediction) -> Tensor:
        variance = prediction.variance()
        noise = self.channel.noise(prediction.mean()).square()
        return variance.square() / (variance + noise).clamp(min=1e-12)


def expected_errors(prediction: Prediction) -> Tensor:
    """`prediction.expected_errors()`, as a function."""
    return prediction.expected_errors()


def mean(prediction: Prediction) -> Tensor:
    """`prediction.mean()`, as a function."""
    return prediction.mean()


def mode(prediction: Prediction) -> Tensor:
    """`prediction.mode()`, as a function."""
    return prediction.mode()
