"""Holes of an image filled from coarser and coarser averages of what is seen (Gortler et al., "The lumigraph", 1996).

Two ways to average: separate cells of 2 x 2 pixels, and overlapping cells of 4 x 4 with the weights 1 3 3 1, which fill
as well as linear interpolation of scattered points does.
"""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor


class Cells(ABC):
    """Base of every way to halve an image.

    Attributes:
        enough: one seen pixel in so many is enough to believe in a cell.
        even: whether sides must be even.
    """

    enough: float
    even: bool

    @abstractmethod
    def halve(self, images: Tensor) -> Tensor:
        """Averages over the cells, with shape `(B, C, H, W)` to half the sides, rounded up."""


class Separate(Cells):
    """Cells of 2 x 2."""

    enough, even = 4.0, True

    def halve(self, images: Tensor) -> Tensor:
        return F.avg_pool2d(images, 2)


class Overlapping(Cells):
    """Cells of 4 x 4 that overlap; of images with one channel."""

    enough, even = 8.0, False

    def halve(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        line = torch.tensor([1.0, 3.0, 3.0, 1.0], device=images.device) / 8
        kernel = (line[:, None] * line).expand(1, 1, 4, 4)
        return F.conv2d(F.pad(images, (1, 1 + width % 2, 1, 1 + height % 2)), kernel, stride=2)


SEPARATE, OVERLAPPING = Separate(), Overlapping()


def push_pull(values: Tensor, seen: Tensor, cells: Cells = SEPARATE) -> Tensor:
    """Fill the holes of an image.

    Args:
        values: intensities times `seen`, with shape `(B, C, H, W)`.
        seen: confidence from 0 (a hole) to 1, same shape.
        cells: how coarser images are made.

    Returns:
        The filled image, same shape; 0 everywhere if nothing is seen.
    """
    height, width = values.shape[-2:]
    if min(height, width) == 1 or (cells.even and (height % 2 or width % 2)):
        mean = values.sum((-2, -1), keepdim=True) / seen.sum((-2, -1), keepdim=True).clamp(min=1e-6)
        return values + (1 - seen) * mean
    share = cells.halve(seen)
    trust = (cells.enough * share).clamp(max=1)
    coarse = push_pull(cells.halve(values) / share.clamp(min=1e-6) * trust, trust, cells)
    smooth = F.interpolate(coarse, scale_factor=2.0, mode="bilinear", align_corners=False)
    return values + (1 - seen) * smooth[..., :height, :width]
