"""What every reconstructor is."""

from abc import ABC, abstractmethod

from torch import Tensor

from sensewise.sensors.base import Side

NOTHING = Side()


class Reconstructor(ABC):
    """Base of every reconstructor."""

    @abstractmethod
    def __call__(self, observation: Tensor, mask: Tensor, side: Side = NOTHING) -> Tensor:
        """The reconstruction of every scene.

        Args:
            observation: what was measured.
            mask: True where measured, with shape `(B, K)`.
            side: what was known beforehand.
        """
