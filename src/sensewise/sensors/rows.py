"""Rows of k-space: an action measures one phase-encode row of an MR slice.

A prior over whole slices of k-space is out of reach, so it looks at a coarse profile: the logarithm of each row's mean
magnitude, in 8 bins, relative to the ACS block alone. The block is always measured, so normalising never looks at a row
that was not.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sensewise.errors import DataError
from sensewise.information import per_pixel
from sensewise.kspace import acs_block, keep_rows, over_coils, scout
from sensewise.predictions import Categorical, Prediction
from sensewise.sensors.base import Sensor, View
from sensewise.tokens import MASK

BINS = 8


class RowSensor(Sensor):
    """Phase-encode rows of MR slices; rows that were not measured read exactly 0.

    Args:
        kspace: the fully sampled slices, complex, with shape `(B, H, W)` or `(B, coils, H, W)`: a row is measured by
            all coils at once.
    """

    def __init__(self, kspace: Tensor) -> None:
        if kspace.dim() not in (3, 4) or not kspace.is_complex():
            raise DataError(
                "k-space is complex with shape (B, H, W) or (B, coils, H, W), "
                f"got {kspace.dtype} with {tuple(kspace.shape)}"
            )
        self._kspace = kspace
        self.batch, self.grid = len(kspace), (kspace.shape[-2],)
        self.device = kspace.device

    def reveal(self, mask: Tensor) -> Tensor:
        return keep_rows(self._kspace, mask)

    def summary(self, size: int) -> Tensor:
        """The scout: the z-scored magnitude image of the central `size x size` window, `(B, size, size)`."""
        return scout(self._kspace, size)


@dataclass(frozen=True)
class RowProfile(View):
    """How rows become tokens `(B, 1, rows, 1)`.

    Attributes:
        acs: rows of the ACS block.
        low: log-level of the first bin's lower edge.
        high: log-level of the last bin's upper edge.
    """

    acs: int
    low: float
    high: float

    @classmethod
    def of(cls, kspace: Tensor, acs: int) -> "RowProfile":
        """Bins that hold all but the outermost thousandth of the rows of some slices `(n, H, W)`."""
        levels = row_levels(kspace, acs).flatten().double().sort().values
        cut = len(levels) // 1000
        return cls(acs, round(levels[cut].item(), 4), round(levels[-1 - cut].item(), 4))

    def all_tokens(self, kspace: Tensor) -> Tensor:
        """Tokens 1..8 of every row of fully sampled slices, `(B, 1, H, 1)`."""
        place = (row_levels(kspace, self.acs) - self.low) / (self.high - self.low)
        token = (place * BINS).floor().nan_to_num(neginf=0.0).clamp(0, BINS - 1).long() + 1  # (B, H)
        return token[:, None, :, None]

    def tokens(self, observation: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask[:, None, :, None], self.all_tokens(observation), MASK)

    def per_action(self, sites: Tensor) -> Tensor:
        return per_pixel(sites)

    def expected_energy(self, prediction: Prediction) -> Tensor:
        """What a prediction expects of each row's energy, relative to the ACS block; `(B, 1, H, 1)`."""
        if not isinstance(prediction, Categorical):
            raise DataError("a prior over row profiles gives categorical predictions")
        centres = self.low + (torch.arange(BINS) + 0.5) * (self.high - self.low) / BINS
        energy = (2 * centres).exp().to(prediction.log_probs.device)  # (8,)
        return (prediction.log_probs.exp() * energy).sum(-1)


def row_levels(kspace: Tensor, acs: int) -> Tensor:
    """The log of each row's mean magnitude over the mean of the ACS block, `(B, H)`."""
    mean = over_coils(kspace).mean(-1)
    return (mean / acs_block(mean, acs).mean(1, keepdim=True)).log()
