"""Pixels read with noise: an action reads every channel of one pixel, once more if it has been read before."""

import torch
from torch import Generator, Tensor

from sensewise.channels import Channel, Gaussian
from sensewise.errors import ConfigError, DataError
from sensewise.information import per_pixel
from sensewise.sensors.base import Sensor, View
from sensewise.tokens import pack

NOISELESS = Gaussian(0.0)


class ReadingSensor(Sensor):
    """Intensities of images, through a channel. What a reading would say is fixed when the sensor is made.

    Observations are readings `(B, 2 C, H, W)`: intensities, NaN where nothing was read, then the noise of each (see
    `tokens.pack`).

    Args:
        image: the true intensities in [0, 1], with shape `(B, C, H, W)`.
        channel: the noise of a reading.
        repeats: how often a pixel can be read; above 1 the actions lie on a grid `(repeats, H, W)`.
        generator: of the noise; None means seed 0.
    """

    def __init__(
        self, image: Tensor, channel: Channel = NOISELESS, *, repeats: int = 1, generator: Generator | None = None
    ) -> None:
        if image.dim() != 4 or not image.is_floating_point():
            raise DataError(f"intensities have shape (B, C, H, W), got {image.dtype} with shape {tuple(image.shape)}")
        if not image.is_meta and not bool(((image >= 0) & (image <= 1)).all()):
            raise DataError("intensities must be numbers in [0, 1]: divide 8-bit images by 255")
        if repeats < 1:
            raise ConfigError(f"a pixel is read at least once: repeats must be 1 or more, got {repeats}")
        random = torch.Generator().manual_seed(0) if generator is None else generator
        self.channel, self.repeats = channel, repeats
        self._readings = torch.stack([channel.read(image, random) for _ in range(repeats)])  # (R, B, C, H, W)
        size = (image.shape[2], image.shape[3])
        self.batch, self.grid = len(image), size if repeats == 1 else (repeats, *size)
        self.device = image.device

    def reveal(self, mask: Tensor) -> Tensor:
        height, width = self.grid[-2:]
        taken = mask.view(self.batch, self.repeats, 1, height, width).movedim(1, 0)  # (R, B, 1, H, W)
        return pack(*self.channel.combine(self._readings, taken.expand(self._readings.shape)))


class Readings(View):
    """A prior over readings: observations are what it takes.

    Args:
        repeats: how often a pixel can be read.
    """

    def __init__(self, repeats: int = 1) -> None:
        self.repeats = repeats

    def tokens(self, observation: Tensor, mask: Tensor) -> Tensor:
        return observation

    def per_action(self, sites: Tensor) -> Tensor:
        return per_pixel(sites).repeat(1, self.repeats)

    def offered(self, mask: Tensor) -> Tensor | None:
        """The next reading of each pixel, `(B, K)`: a pixel is never read twice in one step."""
        if self.repeats == 1:
            return None
        taken = mask.view(len(mask), self.repeats, -1)  # (B, R, H W)
        number = torch.arange(self.repeats, device=mask.device).view(1, -1, 1)
        return (number == taken.sum(1, keepdim=True)).flatten(1)
