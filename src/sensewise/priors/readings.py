"""A prior over intensities, read with or without noise: pictures of any size and many levels."""

import torch
from torch import Tensor

from sensewise.errors import DataError
from sensewise.networks.any_size import AnySize
from sensewise.predictions import Mixture
from sensewise.priors.base import Prior
from sensewise.tokens import UNKNOWN, pack, unpack

SMALLEST = 16  # pixels of a side


class ReadingPrior(Prior):
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
        log_weights, centres, widths = self.network(values, seen.float(), noise)  # (B, M, H, W) each
        return Mixture(log_weights.unsqueeze(1), centres.unsqueeze(1), widths.unsqueeze(1), self.num_states)

    def blank(self, size: tuple[int, int]) -> Tensor:
        return pack(torch.full((1, 1, *size), torch.nan), torch.zeros(1, 1, *size))

    def seen(self, y: Tensor) -> Tensor:
        return ~y[:, :1].isnan()

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
