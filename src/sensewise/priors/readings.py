"""A prior over intensities, read with or without noise: pictures of any size and many levels."""

from collections.abc import Iterator

import torch
from torch import Tensor

from sensewise.errors import DataError
from sensewise.networks.any_size import AnySize, Parts
from sensewise.predictions import Mixture
from sensewise.priors.base import NoisyPrior
from sensewise.tokens import UNKNOWN, Place, unpack

SMALLEST = 16  # pixels of a side


class ReadingPrior(NoisyPrior):
    """A network that takes readings `(B, 2, H, W)` (see `tokens.pack`) and gives mixtures of Gaussians.

    Args:
        network: readings, where they are, and their noise to the parts of a mixture.
        num_states: levels `N` that intensities are counted in.
    """

    def __init__(self, network: AnySize, num_states: int = 256) -> None:
        super().__init__()
        self.network = network
        self.channels, self.num_states, self.num_labels, self.size = 1, num_states, None, None

    def predict(self, y: Tensor, label: Tensor, t: Tensor | None) -> Mixture:
        values, noise, seen = unpack(y)
        return self._mixture(self.network(values, seen.float(), noise))

    def tiles(self, y: Tensor, label: Tensor) -> Iterator[tuple[Place, Mixture]]:
        values, noise, seen = unpack(y)
        for place, parts in self.network.tiles(values, seen.float(), noise):
            yield place, self._mixture(parts).given(y[..., place[0], place[1]])

    def _mixture(self, parts: Parts) -> Mixture:
        log_weights, centres, widths = (part.unsqueeze(1) for part in parts)  # (B, 1, M, H, W) each
        return Mixture(log_weights, centres, widths, self.num_states)

    def check(self, y: Tensor, label: Tensor | None) -> Tensor:
        """As for every prior; refuses tokens, labels and pictures that are too small."""
        if y.dim() != 4 or y.shape[1] != 2 or not y.is_floating_point():
            raise DataError(
                f"this prior takes readings of shape (B, 2, H, W), intensities and their noise, got {y.dtype} with "
                f"shape {tuple(y.shape)}: sensewise.tokens.pack makes them"
            )
        if min(y.shape[2:]) < SMALLEST:
            raise DataError(
                f"a picture of {y.shape[2]} x {y.shape[3]} is too small: {SMALLEST} x {SMALLEST} is the least"
            )
        if not y.is_meta and not bool((y[:, 1] >= 0).all()):
            raise DataError("the noise of a reading must be a number that is not negative")
        if label is not None and not label.is_meta and bool((label != UNKNOWN).any()):
            raise DataError("this prior takes no labels: leave them out")
        return torch.full((len(y),), UNKNOWN, device=y.device)
