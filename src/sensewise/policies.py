"""Policies: how much each action is worth right now, and which ones to take together.

Random, variable density, learned one-shot masks and greedy information gain differ only in their scores: the highest
are measured. `SpreadGreedy` alone also minds how the actions of one step lie to each other.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Generator, Tensor

from sensewise import information, masks
from sensewise.diffusion import sample
from sensewise.errors import ConfigError
from sensewise.priors import Prior
from sensewise.sensors import Side

Score = Literal["entropy", "variance"]
Start = Callable[[int, int, Generator], Tensor]
"""A first mask: batch, the whole budget `k` and a generator in, a mask `(B, K)` with fewer than `k` ones out."""


class Policy(ABC):
    """Base of every policy."""

    @abstractmethod
    def scores(self, observation: Tensor, mask: Tensor, side: Side, generator: Generator | None = None) -> Tensor:
        """Finite scores, higher = sooner; what actions already taken score does not matter.

        Args:
            observation: what has been measured so far.
            mask: True where measured, with shape `(B, K)`.
            side: what was known beforehand.
            generator: the source of randomness, for policies that need one; None means seed 0.

        Returns:
            Scores, with shape `(B, K)`.
        """

    def choose(self, scores: Tensor, n: int) -> Tensor:
        """The `n` actions to take now, bool `(B, K)`: the highest scores; what is taken already scores -inf."""
        return masks.top_k(scores, n)


def _generator(generator: Generator | None) -> Generator:
    return torch.Generator().manual_seed(0) if generator is None else generator


class Random(Policy):
    """Every action alike."""

    def scores(self, observation: Tensor, mask: Tensor, side: Side, generator: Generator | None = None) -> Tensor:
        return torch.rand(mask.shape, generator=_generator(generator))


class VariableDensity(Policy):
    """Pixels near the image centre sooner: log-density plus Gumbel noise, a draw without replacement.

    Args:
        shape: `(H, W)`.
        sigma: width of the Gaussian density, 1 = half the image side.
    """

    def __init__(self, shape: tuple[int, int], sigma: float = 0.5) -> None:
        self.log_density = masks.centre_log_density(*shape, sigma)

    def scores(self, observation: Tensor, mask: Tensor, side: Side, generator: Generator | None = None) -> Tensor:
        return self.log_density + masks.gumbel((mask.shape[0], mask.shape[1]), _generator(generator))


class Greedy(Policy):
    """Greedy information gain: where the prior is most uncertain, given everything measured so far.

    Args:
        prior: supplies the posterior.
        score: "entropy" (the information gain of a noiseless pixel, in nats) or "variance" (of the intensity, which
            knows that levels are ordered). The channels of a pixel are added up.
    """

    def __init__(self, prior: Prior, score: Score = "entropy") -> None:
        if score not in get_args(Score):
            raise ConfigError(f"score {score!r} is not known: choose one of {', '.join(get_args(Score))}")
        self.prior = prior
        self.measure = information.entropy if score == "entropy" else information.variance

    def scores(self, observation: Tensor, mask: Tensor, side: Side, generator: Generator | None = None) -> Tensor:
        return self.prior.read(
            lambda log_probs: information.per_pixel(self.measure(log_probs)), observation, side.label
        )


class SpreadGreedy(Greedy):
    """Greedy information gain whose pixels of one step keep their distance.

    The highest scores lie side by side and tell nearly the same, so a step's pixels are picked one by one, each pick
    damping the scores around it. No further pass of the prior: on digits, 16 steps do the work of some 50.

    Args:
        damping: how much of its score a pixel loses right beside a pick, at least 0 and below 1.
        sigma: width of the damped neighbourhood, in pixels.
        spacing: above 0, the width is this times the mean distance between measured pixels after the step instead, and
            `sigma` its upper limit: the first picks keep far apart, later ones fill in between.
        reach: how far a pixel tells about its neighbours: scores are summed over a neighbourhood of that width, in
            pixels. 0 looks at the pixel alone.
    """

    def __init__(
        self,
        prior: Prior,
        score: Score = "entropy",
        *,
        damping: float = 0.5,
        sigma: float = 1.0,
        spacing: float = 0.0,
        reach: float = 0.0,
    ) -> None:
        super().__init__(prior, score)
        if not 0 <= damping < 1 or sigma <= 0 or spacing < 0 or reach < 0:
            raise ConfigError(
                "0 <= damping < 1, sigma > 0, spacing >= 0 and reach >= 0 are needed, got "
                f"{damping}, {sigma}, {spacing} and {reach}"
            )
        self.damping, self.sigma, self.spacing, self.reach = damping, sigma, spacing, reach

    def scores(self, observation: Tensor, mask: Tensor, side: Side, generator: Generator | None = None) -> Tensor:
        return self.score_around(super().scores(observation, mask, side, generator))

    def score_around(self, alone: Tensor) -> Tensor:
        """Scores of pixels by themselves, 0 where measured, to scores that count what they tell about others."""
        return masks.around(alone, self.prior.shape[1:], self.reach) if self.reach else alone

    def choose(self, scores: Tensor, n: int | Tensor, damping: float | Tensor | None = None) -> Tensor:
        """As for every policy; `n` and another `damping` may also be one number for each row, with shape `(B,)`."""
        sigma: float | Tensor = self.sigma
        if self.spacing:
            measured = scores.isneginf().sum(1) + n
            sigma = (self.spacing * (scores.shape[1] / measured.clamp(min=1)).sqrt()).clamp(max=self.sigma)
        damping = self.damping if damping is None else damping
        return masks.spread_top_k(scores, n, self.prior.shape[1:], damping, sigma)


def spread_variance(prior: Prior) -> SpreadGreedy:
    """Variance-greedy as it does best on photographs: the variance around a pixel counts, and picks are spread out.

    The numbers were found on validation images of CIFAR-10.
    """
    return SpreadGreedy(prior, "variance", damping=0.8, sigma=4.0, spacing=0.8, reach=0.6)


class PosteriorSampling(Policy):
    """Greedy information gain with entropies counted in joint samples, as active diffusion subsampling does it.

    The same quantity as `Greedy`, with the sampling error of a few images and at the price of many passes: here to be
    compared with.

    Args:
        prior: draws the samples.
        samples: images drawn for each observation.
        rounds: reverse steps of each image.
    """

    def __init__(self, prior: Prior, samples: int = 16, rounds: int = 16) -> None:
        if samples < 1 or rounds < 1:
            raise ConfigError(f"samples and rounds must be at least 1, got {samples} and {rounds}")
        self.prior, self.samples, self.rounds = prior, samples, rounds

    def scores(self, observation: Tensor, mask: Tensor, side: Side, generator: Generator | None = None) -> Tensor:
        def draw(y: Tensor, label: Tensor | None) -> Tensor:
            return self.prior.read(lambda log_probs: log_probs, y, label)

        options = {"steps": self.rounds, "samples": self.samples}
        drawn = sample(draw, observation, side.label, _generator(generator), **options)  # (samples, B, C, H, W)
        states = torch.arange(1, self.prior.num_states + 1)
        share = (drawn.unsqueeze(-1) == states).float().mean(0)  # (B, C, H, W, N)
        return information.per_pixel(information.entropy(share.log()))


class OneShot(Policy):
    """A whole mask at once, from side information alone: a trained generator, or LOUPE's learned map.

    Args:
        logits: side information and the batch size to log-odds of keeping `(B, K)`, such as
            `MaskGenerator.keep_logits`.
        sampled: add logistic noise, so that the top k are a draw of the learned masks, moved onto the budget; without
            it they are the k most probable pixels.
    """

    def __init__(self, logits: Callable[[Side, int], Tensor], *, sampled: bool = True) -> None:
        self.logits, self.sampled = logits, sampled

    def scores(self, observation: Tensor, mask: Tensor, side: Side, generator: Generator | None = None) -> Tensor:
        logits = self.logits(side, len(mask))
        if not self.sampled:
            return logits
        return logits + masks.logistic((mask.shape[0], mask.shape[1]), _generator(generator))


def random_probe(num_actions: int, fraction: float = 0.2) -> Start:
    """A uniform probe that takes `fraction` of the budget."""
    return lambda batch, k, generator: masks.random(batch, num_actions, round(fraction * k), generator)


def grid_probe(shape: tuple[int, int], fraction: float = 0.2) -> Start:
    """A jittered-grid probe that takes `fraction` of the budget."""
    return lambda batch, k, generator: masks.jittered_grid(batch, shape, max(1, round(fraction * k)), generator)
