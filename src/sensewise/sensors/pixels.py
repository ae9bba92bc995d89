"""Pixels: an action measures every channel of one pixel, without noise."""

from torch import Tensor

from sensewise.information import per_pixel
from sensewise.sensors.base import Sensor, View
from sensewise.tokens import observe, summary


class PixelSensor(Sensor):
    """Noiseless pixels.

    Args:
        x: the true tokens 1..N, with shape `(B, C, H, W)`.
    """

    def __init__(self, x: Tensor) -> None:
        self._x = x
        self.batch, self.grid = len(x), (x.shape[2], x.shape[3])
        self.device = x.device

    def reveal(self, mask: Tensor) -> Tensor:
        return observe(self._x, mask)

    def summary(self, levels: int) -> Tensor:
        """The 8 x 8 grey summary that a cheap first look would give, with shape `(B, 1, 8, 8)`."""
        return summary(self._x, levels)


class Pixels(View):
    """A prior over the image itself: observations are tokens already."""

    def tokens(self, observation: Tensor, mask: Tensor) -> Tensor:
        return observation

    def per_action(self, sites: Tensor) -> Tensor:
        return per_pixel(sites)
