"""A sensor of one's own: a depth camera that reads one line of the image at a time; and the view of a prior on it."""

import torch
from torch import Tensor

from sensewise.sensors.base import Sensor, View
from sensewise.tokens import MASK


class LineScan(Sensor):
    """An action measures one line.

    Args:
        depth: the true tokens, with shape `(B, 1, H, W)`.
    """

    def __init__(self, depth: Tensor) -> None:
        self._depth = depth
        self.batch, self.grid, self.device = len(depth), (depth.shape[2],), depth.device

    def reveal(self, mask: Tensor) -> Tensor:
        return torch.where(mask[:, None, :, None], self._depth, MASK)


class Lines(View):
    """Observations are tokens already; a line is worth the sum over its pixels."""

    def tokens(self, observation: Tensor, mask: Tensor) -> Tensor:
        return observation

    def per_action(self, sites: Tensor) -> Tensor:
        return sites.sum(dim=(1, 3))  # (B, H)
