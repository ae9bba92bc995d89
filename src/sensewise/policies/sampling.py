"""Entropies counted in joint samples, as active diffusion subsampling does it."""

import torch
from torch import Tensor

from sensewise import information
from sensewise.errors import ConfigError
from sensewise.policies.base import Context, Policy
from sensewise.priors.base import Prior


class PosteriorSampling(Policy):
    """Greedy information gain with entropies counted in joint samples.

    The same quantity as `Greedy`, with the sampling error of a few images and at the price of many passes: here to be
    compared with. Nolan et al., "Active diffusion subsampling", 2025.

    Args:
        prior: draws the samples.
        samples: images drawn for each observation.
        rounds: reverse steps of each image.
    """

    random = True
    prior: Prior

    def __init__(self, prior: Prior, samples: int = 16, rounds: int = 16) -> None:
        if samples < 1 or rounds < 1:
            raise ConfigError(f"samples and rounds must be at least 1, got {samples} and {rounds}")
        self.prior, self.samples, self.rounds = prior, samples, rounds

    def scores(self, observation: Tensor, mask: Tensor, context: Context) -> Tensor:
        drawn = self.prior.sample(
            observation, context.side.label, context.generator, steps=self.rounds, samples=self.samples
        )  # (samples, B, C, H, W)
        states = torch.arange(1, self.prior.num_states + 1, device=drawn.device)
        share = (drawn.unsqueeze(-1) == states).float().mean(0)  # (B, C, H, W, N)
        return information.per_pixel(information.entropy(share.log()))
