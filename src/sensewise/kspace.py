"""k-space: one centred, orthonormal Fourier pair, and what a mask of rows reveals.

A slice is complex k-space `(B, H, W)` with zero frequency at `(H // 2, W // 2)`; its H phase-encode rows are the
actions. Orthonormal means that the adjoint of `to_kspace` is `to_image`, and that errors have the same energy on both
sides (Parseval), so no factor is ever needed.
"""

import torch
from torch import Tensor

from sensewise.errors import BudgetError, DataError

_SIDES = (-2, -1)


def to_kspace(image: Tensor) -> Tensor:
    """The centred orthonormal Fourier transform of images `(..., H, W)`, complex."""
    shifted = torch.fft.ifftshift(image, dim=_SIDES)
    return torch.fft.fftshift(torch.fft.fft2(shifted, norm="ortho"), dim=_SIDES)


def to_image(kspace: Tensor) -> Tensor:
    """The inverse and adjoint of `to_kspace`: a complex image `(..., H, W)`."""
    shifted = torch.fft.ifftshift(kspace, dim=_SIDES)
    return torch.fft.fftshift(torch.fft.ifft2(shifted, norm="ortho"), dim=_SIDES)


def magnitude(kspace: Tensor) -> Tensor:
    """The magnitude image of k-space, `(..., H, W)`: of measured rows alone, this is zero filling."""
    return to_image(kspace).abs()


def keep_rows(kspace: Tensor, mask: Tensor) -> Tensor:
    """What a mask reveals: measured rows as they are, exact zeros elsewhere.

    Args:
        kspace: complex, with shape `(B, H, W)`.
        mask: True where a row is measured, with shape `(B, H)`.
    """
    if mask.dtype != torch.bool or mask.shape != kspace.shape[:2]:
        raise BudgetError(
            f"a mask of rows is bool with shape {tuple(kspace.shape[:2])}, got {mask.dtype} with {tuple(mask.shape)}"
        )
    nothing = torch.zeros((), dtype=kspace.dtype, device=kspace.device)
    return torch.where(mask.unsqueeze(-1), kspace, nothing)  # (B, H, W)


def relaxed_rows(kspace: Tensor, weights: Tensor) -> Tensor:
    """Rows scaled by real weights `(B, H)` or `(H,)`: for gradients with respect to a mask, never for a sensor."""
    return kspace * weights.unsqueeze(-1)


def acs_rows(rows: int, acs: int) -> Tensor:
    """True on the `acs` central rows, the auto-calibration block that is always measured; `(rows,)`."""
    if not 1 <= acs < rows:
        raise BudgetError(f"the ACS block must have 1 to {rows - 1} of {rows} rows, got {acs}")
    index = torch.arange(rows)
    first = rows // 2 - acs // 2
    return (index >= first) & (index < first + acs)


def acs_block(values: Tensor, acs: int) -> Tensor:
    """The values of the ACS rows, `(B, rows, ...)` to `(B, acs, ...)`."""
    first = values.shape[1] // 2 - acs // 2
    return values[:, first : first + acs].contiguous()


def centre_crop(kspace: Tensor, height: int, width: int) -> Tensor:
    """The central `height x width` window of k-space `(..., H, W)`, zero frequency in its centre again."""
    rows, columns = kspace.shape[-2:]
    if rows < height or columns < width:
        raise DataError(f"k-space of {rows} x {columns} is smaller than the crop of {height} x {width}")
    top, left = rows // 2 - height // 2, columns // 2 - width // 2
    return kspace[..., top : top + height, left : left + width]


def scout(kspace: Tensor, size: int) -> Tensor:
    """A quick first look: the central `size x size` window as a magnitude image, z-scored per slice.

    It needs nothing but the ACS block, as long as `size` is at most its number of rows.

    Returns:
        Intensities of mean 0 and standard deviation 1, with shape `(B, size, size)`.
    """
    image = magnitude(centre_crop(kspace, size, size))
    mean, spread = image.mean(_SIDES, keepdim=True), image.std(_SIDES, keepdim=True)
    return (image - mean) / spread


def mirror(kspace: Tensor) -> Tensor:
    """k-space of the image mirrored left to right: frequency f goes to -f along the columns."""
    flipped = kspace.flip(-1)
    return flipped.roll(1, -1) if kspace.shape[-1] % 2 == 0 else flipped
