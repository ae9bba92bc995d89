"""Reconstructors: the whole picture from what was measured. Measured sites keep their measured values."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from sensewise.priors import Prior
from sensewise.sensors import Side


class Reconstructor(ABC):
    """Base of every reconstructor."""

    @abstractmethod
    def __call__(self, observation: Tensor, mask: Tensor, side: Side) -> Tensor:
        """The reconstruction of every image; arguments as for `Policy.scores`."""


class Argmax(Reconstructor):
    """The most probable token of every hidden site; tokens `(B, C, H, W)`."""

    def __init__(self, prior: Prior) -> None:
        self.prior = prior

    def __call__(self, observation: Tensor, mask: Tensor, side: Side) -> Tensor:
        return self.prior.read(lambda log_probs: log_probs.argmax(-1) + 1, observation, side.label)


class PosteriorMean(Reconstructor):
    """The expected intensity of every site, levels evenly spaced on [0, 1]; intensities `(B, C, H, W)`."""

    def __init__(self, prior: Prior) -> None:
        self.prior = prior

    def __call__(self, observation: Tensor, mask: Tensor, side: Side) -> Tensor:
        levels = torch.linspace(0, 1, self.prior.num_states)
        return self.prior.read(lambda log_probs: (log_probs.exp() * levels).sum(-1), observation, side.label)
