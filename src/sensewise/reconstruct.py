"""Reconstructors: the whole picture from what was measured. Measured sites keep their measured values."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from sensewise.mri.kspace import magnitude
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


class ZeroFilled(Reconstructor):
    """MR magnitudes with every row that was not measured at zero, `(B, H, W)`: no network, no prior."""

    def __call__(self, observation: Tensor, mask: Tensor, side: Side) -> Tensor:
        return magnitude(observation)


class UNetReconstructor(Reconstructor):
    """MR magnitudes drawn by a network from measured rows, `(B, H, W)`.

    Args:
        network: k-space `(B, H, W)` and mask `(B, H)` to magnitudes.
        chunk: slices at a time, so that memory stays small for any batch.
    """

    def __init__(self, network: nn.Module, chunk: int = 32) -> None:
        self.network, self.chunk = network.eval(), chunk

    @torch.inference_mode()
    def __call__(self, observation: Tensor, mask: Tensor, side: Side) -> Tensor:
        parts = zip(torch.split(observation, self.chunk), torch.split(mask, self.chunk), strict=True)
        return torch.cat([self.network(y, m) for y, m in parts])
