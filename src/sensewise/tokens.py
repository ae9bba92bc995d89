"""Discrete images: state 0 means *unobserved* and nothing else, the data are 1..N.

An image with `N` levels per channel is a tensor of tokens of shape `(B, C, H, W)`. The mask state is a state of its
own, so "observed black" (token 1) and "not observed" (token 0) are different inputs to a prior (paper, Section 3).
A mask is boolean with shape `(B, K)`, `K = H W`, True where a pixel was measured; all channels of a pixel are measured
at once.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from sensewise.errors import DataError

MASK, BLACK = 0, 1
UNKNOWN = -1  # the label of an image whose class is not known
Place = tuple[slice, slice]
"""Rows and columns of a part of an image."""


def quantize(image: Tensor, levels: int) -> Tensor:
    """Intensities to tokens, `1 + round(x (N - 1))`.

    Args:
        image: intensities in [0, 1], any shape.
        levels: the number of data states `N`, at least 2.

    Returns:
        Tokens 1..N (int64), same shape.
    """
    if levels < 2:
        raise DataError(f"levels must be at least 2, got {levels}")
    image = torch.as_tensor(image, dtype=torch.float32)
    if image.numel() and not image.is_meta and not bool(((image >= 0) & (image <= 1)).all()):
        low, high = image.min().item(), image.max().item()
        raise DataError(f"intensities must lie in [0, 1], got {low:g} to {high:g}; divide 8-bit images by 255")
    return (image * (levels - 1)).round().long() + 1


def dequantize(tokens: Tensor, levels: int) -> Tensor:
    """Tokens to intensities, `(x - 1) / (N - 1)`; the mask state becomes NaN, because it has no intensity."""
    values = (tokens.float() - 1) / (levels - 1)
    return torch.where(tokens == MASK, torch.nan, values)


def site_mask(mask: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """A mask over pixels `(B, K)` as a mask over sites `(B, C, H, W)`."""
    channels, height, width = shape
    return mask.view(-1, 1, height, width).expand(-1, channels, -1, -1)  # (B, C, H, W)


def observe(x: Tensor, mask: Tensor) -> Tensor:
    """What a mask reveals of an image: the token where measured, `MASK` elsewhere.

    Args:
        x: tokens, with shape `(B, C, H, W)`.
        mask: True where measured, with shape `(B, H W)`.
    """
    return torch.where(site_mask(mask, (x.shape[1], x.shape[2], x.shape[3])), x, MASK)


def summary(x: Tensor, levels: int, size: int = 8) -> Tensor:
    """The coarse summary of side information: channel mean, then average pooling to `size x size`.

    Scaled by the constant number of levels, never by what is in the batch.

    Args:
        x: tokens without hidden sites, with shape `(B, C, H, W)`.

    Returns:
        Intensities in [0, 1], with shape `(B, 1, size, size)`.
    """
    grey = ((x.float() - 1) / (levels - 1)).mean(dim=1, keepdim=True)  # (B, 1, H, W)
    return F.adaptive_avg_pool2d(grey, size)


def pack(values: Tensor, noise: Tensor) -> Tensor:
    """Readings as one tensor: intensities, NaN where nothing was read, then the noise of each.

    Args:
        values: with shape `(B, C, H, W)`.
        noise: the standard deviation of each reading (for images of two levels, the probability of a flip), same shape.

    Returns:
        Readings, with shape `(B, 2 C, H, W)`.
    """
    return torch.cat([values, torch.where(values.isnan(), 0.0, noise)], dim=1)


def unpack(readings: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Intensities (0 where nothing was read), noise, and True where there is a reading; `(B, C, H, W)` each."""
    values, noise = readings.chunk(2, dim=1)
    seen = ~values.isnan()
    return torch.where(seen, values, 0.0), noise, seen
