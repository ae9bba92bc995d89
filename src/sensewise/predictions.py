r"""What a prior says about every site of a batch of images: a distribution, not a tensor.

Policies ask a prediction how uncertain a site is, reconstructors what it most probably is, losses how probable the
truth was. `Categorical` holds one number per state and suits a few states; `Mixture` holds a few components per site
and suits many ordered levels, where `(B, C, H, W, N)` would not fit into memory.
"""

import math
from abc import ABC, abstractmethod
from typing import Self

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from sensewise import information
from sensewise.tokens import MASK, dequantize


class Prediction(ABC):
    """The predictive distribution of every site, independent given what was seen; sites have shape `(B, C, H, W)`."""

    num_states: int

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

    def given(self, y: Tensor) -> Self:
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


class Mixture(Prediction):
    r"""A mixture of logistic distributions over ordered levels $v_k = (k - 1) / (N - 1)$.

    Level k has the mass between the middles to its neighbours, $F(v_k + \delta / 2) - F(v_k - \delta / 2)$ with
    $\delta = 1 / (N - 1)$; the outermost levels take what lies beyond them. Mean and variance are those of the
    levels' continuous mixture, in closed form; entropy, mode and samples go over the levels, a few at a time.
    Salimans et al., "PixelCNN++", 2017.

    Args:
        logits: of the components' weights, with shape `(B, C, M, H, W)`.
        centres: of the components, on [0, 1], same shape.
        log_scales: of the components, same shape.
        num_states: levels `N`.
        y: tokens that were observed (0 = hidden), with shape `(B, C, H, W)`; None for none.
    """

    def __init__(
        self, logits: Tensor, centres: Tensor, log_scales: Tensor, num_states: int, y: Tensor | None = None
    ) -> None:
        self.log_weights = logits.log_softmax(2)
        self.centres, self.log_scales, self.num_states, self.y = centres, log_scales, num_states, y

    def given(self, y: Tensor) -> Self:
        return type(self)(self.log_weights, self.centres, self.log_scales, self.num_states, y)

    def _observed(self, hidden: Tensor, observed: Tensor | float) -> Tensor:
        """`hidden` at hidden sites, `observed` at the others."""
        return hidden if self.y is None else torch.where(self.y == MASK, hidden, observed)

    def mean(self) -> Tensor:
        value = (self.log_weights.exp() * self.centres).sum(2).clamp(0, 1)
        return value if self.y is None else self._observed(value, dequantize(self.y, self.num_states))

    def variance(self) -> Tensor:
        weights = self.log_weights.exp()
        within = (2 * self.log_scales).exp() * (math.pi**2 / 3)
        mean = (weights * self.centres).sum(2, keepdim=True)
        return self._observed((weights * (within + (self.centres - mean) ** 2)).sum(2), 0.0)

    def log_mass(self, tokens: Tensor) -> Tensor:
        """The log-probability of tokens as if every site were hidden, `(B, C, H, W)`."""
        step = 1 / (self.num_states - 1)
        value = ((tokens.unsqueeze(2) - 1) * step - self.centres) * (-self.log_scales).exp()  # (B, C, M, H, W)
        half = 0.5 * step * (-self.log_scales).exp()
        above, below = value + half, value - half
        inner = _log_sigmoid_difference(above, below)
        first, last = F.logsigmoid(above), F.logsigmoid(-below)
        place = tokens.unsqueeze(2)
        each = torch.where(place == 1, first, torch.where(place == self.num_states, last, inner))
        return (self.log_weights + each).logsumexp(2)

    def log_prob(self, x: Tensor) -> Tensor:
        if self.y is None:
            return self.log_mass(x)
        return self._observed(self.log_mass(x), torch.where(x == self.y, 0.0, -torch.inf))

    def categorical(self) -> Categorical:
        """The same distribution with one number per state: for small images, and as the oracle of the tests."""
        shape = self.log_weights[:, :, 0].shape
        levels = [self.log_mass(torch.full(shape, k, device=self.centres.device)) for k in self._levels()]
        found = Categorical(torch.stack(levels, dim=-1).log_softmax(-1))
        return found if self.y is None else found.given(self.y)

    def _levels(self) -> range:
        return range(1, self.num_states + 1)

    def _scan(self) -> tuple[Tensor, Tensor, Tensor]:
        """Entropy, the largest log-probability and its token, one level at a time; `(B, C, H, W)` each."""
        shape = self.log_weights[:, :, 0].shape
        entropy = torch.zeros(shape, device=self.centres.device)
        best = torch.full_like(entropy, -torch.inf)
        token = torch.ones(shape, dtype=torch.int64, device=self.centres.device)
        for k in self._levels():
            log_p = self.log_mass(torch.full(shape, k, device=self.centres.device))
            entropy -= log_p.exp() * log_p
            token = torch.where(log_p > best, k, token)
            best = torch.maximum(best, log_p)
        return entropy.clamp(min=0), best, token

    def entropy(self) -> Tensor:
        return self._observed(self._scan()[0], 0.0)

    def mode(self) -> Tensor:
        token = self._scan()[2]
        return token if self.y is None else torch.where(self.y == MASK, token, self.y)

    def expected_errors(self) -> Tensor:
        return self._observed(1 - self._scan()[1].exp(), 0.0)

    def sample(self, n: int, generator: Generator) -> Tensor:
        device = self.centres.device
        noise = torch.empty((n, *self.log_weights.shape), device=generator.device).exponential_(generator=generator)
        component = (self.log_weights - noise.log().to(device)).argmax(3, keepdim=True)  # (n, B, C, 1, H, W)
        many = (n, *self.centres.shape)
        centre = self.centres.expand(many).gather(3, component).squeeze(3)
        scale = self.log_scales.expand(many).gather(3, component).squeeze(3).exp()
        u = torch.rand(centre.shape, generator=generator, device=generator.device).to(device)
        value = centre + scale * torch.logit(u, eps=1e-6)
        token = (value.clamp(0, 1) * (self.num_states - 1)).round().long() + 1
        return token if self.y is None else torch.where(self.y == MASK, token, self.y)


def _log_sigmoid_difference(above: Tensor, below: Tensor) -> Tensor:
    """`log(sigmoid(above) - sigmoid(below))` for above > below, exact far out in the tails as well."""
    gap = above - below
    return F.logsigmoid(above) + F.logsigmoid(-below) + torch.log(-torch.expm1(-gap))


def entropy(prediction: Prediction) -> Tensor:
    """`prediction.entropy()`, as a function: the information gain of a noiseless reading."""
    return prediction.entropy()


def variance(prediction: Prediction) -> Tensor:
    """`prediction.variance()`, as a function: it knows that levels are ordered."""
    return prediction.variance()


def mean(prediction: Prediction) -> Tensor:
    """`prediction.mean()`, as a function."""
    return prediction.mean()


def mode(prediction: Prediction) -> Tensor:
    """`prediction.mode()`, as a function."""
    return prediction.mode()
