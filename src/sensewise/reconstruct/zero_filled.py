"""MR slices without any model."""

from torch import Tensor

from sensewise.kspace import magnitude
from sensewise.reconstruct.base import NOTHING, Reconstructor
from sensewise.sensors.base import Side


class ZeroFilled(Reconstructor):
    """MR magnitudes with every row that was not measured at zero, `(B, H, W)`: no network, no prior.

    Of several coils, the root sum of squares.
    """

    def __call__(self, observation: Tensor, mask: Tensor, side: Side = NOTHING) -> Tensor:
        return magnitude(observation)
