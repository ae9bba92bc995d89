"""Pixels: an action measures every channel of one pixel, without noise."""

import torch
from torch import Tensor

from sensewise.errors import DataError
from sensewise.information import per_pixel
from sensewise.sensors.base import Sensor, View
from sensewise.tokens import BLACK, observe, summary


class PixelSensor(Sensor):
    """Noiseless pixels.

    Args:
        x: the true tokens 1..N, whole numbers with shape `(B, C, H, W)`.
    """

    def __init__(self, x: Tensor) -> None:
        self._x = _checked(x)
        self.batch, self.grid = len(x), (x.shape[2], x.shape[3])
        self.device = x.device

    def reveal(self, mask: Tensor) -> Tensor:
        return observe(self._x, mask)

    def summary(self, levels: int) -> Tensor:
        """The 8 x 8 grey summary that a cheap first look would give, with shape `(B, 1, 8, 8)`."""
        return summary(self._x, levels)


def _checked(x: Tensor) -> Tensor:
    """True tokens as int64; refuses what cannot be measured."""
    if not isinstance(x, Tensor) or x.dim() != 4 or not x.numel():
        shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise DataError(f"a sensor needs tokens of shape (B, C, H, W), at least one of each, got {shape}")
    if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
        raise DataError(f"tokens must be whole numbers, got {x.dtype}: sensewise.quantize makes them")
    if not x.is_meta and int(x.min()) < BLACK:
        raise DataError(f"true tokens are 1 or more, got {int(x.min())}: 0 means hidden, and nothing is hidden there")
    return x.long()


class Pixels(View):
    """A prior over the image itself: observations are tokens already."""

    def tokens(self, observation: Tensor, mask: Tensor) -> Tensor:
        return observation

    def per_action(self, sites: Tensor) -> Tensor:
        return per_pixel(sites)
