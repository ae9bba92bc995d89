"""Sensors: what an action reveals. The true image is inside the sensor and nowhere else, so no policy can peek."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from sensewise.errors import BudgetError, DataError
from sensewise.mri.kspace import keep_rows, scout
from sensewise.tokens import observe, summary


@dataclass(frozen=True)
class Side:
    """What is known before anything is measured.

    Attributes:
        label: classes, -1 where unknown, with shape `(B,)`; None for "unknown" everywhere.
        summary: coarse intensities, with shape `(B, 1, 8, 8)`, or None.
        scout: a quick MR image from the centre of k-space, with shape `(B, n, n)`, or None.
        budget: the fraction of actions to be measured; `acquire` fills it in.
    """

    label: Tensor | None = None
    summary: Tensor | None = None
    scout: Tensor | None = None
    budget: float | None = None


class Sensor(ABC):
    """Base of every sensor: `batch` scenes, `num_actions` possible measurements of each."""

    batch: int
    num_actions: int

    @abstractmethod
    def reveal(self, mask: Tensor) -> Tensor:
        """What the actions of `mask` `(B, K)` reveal, and nothing more."""

    def __call__(self, mask: Tensor) -> Tensor:
        if mask.dtype != torch.bool or tuple(mask.shape) != (self.batch, self.num_actions):
            raise BudgetError(
                f"a mask for this sensor is bool with shape ({self.batch}, {self.num_actions}), "
                f"got {mask.dtype} with shape {tuple(mask.shape)}"
            )
        return self.reveal(mask)


class PixelSensor(Sensor):
    """Noiseless pixels: an action measures every channel of one pixel.

    Args:
        x: the true tokens 1..N, with shape `(B, C, H, W)`.
    """

    def __init__(self, x: Tensor) -> None:
        self._x = x
        self.batch, self.num_actions = len(x), x.shape[2] * x.shape[3]

    def reveal(self, mask: Tensor) -> Tensor:
        return observe(self._x, mask)

    def summary(self, levels: int) -> Tensor:
        """The 8 x 8 grey summary that a cheap first look would give, with shape `(B, 1, 8, 8)`."""
        return summary(self._x, levels)


class KSpaceRowSensor(Sensor):
    """Phase-encode rows of MR slices: an action measures one row of k-space; rows not measured read exactly 0.

    Args:
        kspace: the fully sampled slices, complex, with shape `(B, H, W)`.
    """

    def __init__(self, kspace: Tensor) -> None:
        if kspace.dim() != 3 or not kspace.is_complex():
            raise DataError(f"k-space is complex with shape (B, H, W), got {kspace.dtype} with {tuple(kspace.shape)}")
        self._kspace = kspace
        self.batch, self.num_actions = kspace.shape[:2]

    def reveal(self, mask: Tensor) -> Tensor:
        return keep_rows(self._kspace, mask)

    def scout(self, size: int) -> Tensor:
        """The z-scored magnitude image of the central `size x size` window, with shape `(B, size, size)`."""
        return scout(self._kspace, size)
