"""k-space: one centred, orthonormal Fourier pair, and what a mask of rows reveals.

A slice is complex k-space `(B, H, W)`, or `(B, coils, H, W)` where several coils listened, with zero frequency at
`(H // 2, W // 2)`; its H phase-encode rows are the actions, and each is measured by all coils at once. Orthonormal
means that the adjoint of `to_kspace` is `to_image`, and that errors have the same energy on both sides (Parseval), so
no factor is ever needed.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from sensewise.errors import BudgetError, DataError

_SIDES = (-2, -1)
SMOOTH = 12  # sensitivities have at most so few details: a block of a sixth of the rows is enough to see them


def to_kspace(image: Tensor) -> Tensor:
    """The centred orthonormal Fourier transform of images `(..., H, W)`, complex."""
    return to_middle(torch.fft.fft2(to_corner(image), norm="ortho"))


def to_image(kspace: Tensor) -> Tensor:
    """The inverse and adjoint of `to_kspace`: a complex image `(..., H, W)`."""
    return to_middle(torch.fft.ifft2(to_corner(kspace), norm="ortho"))


def to_corner(values: Tensor) -> Tensor:
    """The middle of images or k-space `(..., H, W)` moved to the first row and column, as plain transforms have it."""
    return torch.fft.ifftshift(values, dim=_SIDES)


def to_middle(values: Tensor) -> Tensor:
    """The inverse of `to_corner`."""
    return torch.fft.fftshift(values, dim=_SIDES)


def over_coils(values: Tensor) -> Tensor:
    """Magnitudes `(..., H, W)` of complex values; several coils `(B, coils, H, W)` become their root sum of squares."""
    return torch.linalg.vector_norm(values, dim=1) if values.dim() == 4 else values.abs()


def magnitude(kspace: Tensor) -> Tensor:
    """The magnitude image of k-space, `(..., H, W)`: of measured rows alone, this is zero filling.

    Several coils `(B, coils, H, W)` give one image, their root sum of squares.
    """
    return over_coils(to_image(kspace))


def per_row(values: Tensor, kspace: Tensor) -> Tensor:
    """One value per row, `(B, H)` or `(H,)`, in a shape that broadcasts over the columns and coils of k-space."""
    return values[:, None, :, None] if kspace.dim() == 4 and values.dim() == 2 else values.unsqueeze(-1)


def keep_rows(kspace: Tensor, mask: Tensor) -> Tensor:
    """What a mask reveals: measured rows as they are, exact zeros elsewhere, the same for all coils.

    Args:
        kspace: complex, with shape `(B, H, W)` or `(B, coils, H, W)`.
        mask: True where a row is measured, with shape `(B, H)`.
    """
    expected = (kspace.shape[0], kspace.shape[-2])
    if mask.dtype != torch.bool or tuple(mask.shape) != expected:
        raise BudgetError(f"a mask of rows is bool with shape {expected}, got {mask.dtype} with {tuple(mask.shape)}")
    nothing = torch.zeros((), dtype=kspace.dtype, device=kspace.device)
    return torch.where(per_row(mask, kspace), kspace, nothing)


def relaxed_rows(kspace: Tensor, weights: Tensor) -> Tensor:
    """Rows scaled by real weights `(B, H)` or `(H,)`: for gradients with respect to a mask, never for a sensor."""
    return kspace * per_row(weights, kspace)


def acs_rows(rows: int, acs: int) -> Tensor:
    """True on the `acs` central rows, the auto-calibration block that is always measured; `(rows,)`."""
    if not 1 <= acs < rows:
        raise BudgetError(f"the ACS block must have 1 to {rows - 1} of {rows} rows, got {acs}")
    index = torch.arange(rows)
    first = rows // 2 - acs // 2
    return (index >= first) & (index < first + acs)


def mirrored_pairs(mask: Tensor) -> Tensor:
    """How many rows at frequency f > 0 are measured together with the one at -f, `(..., rows)` to `(...)`.

    Where k-space is Hermitian, as that of real images, the second row of a pair tells nothing new.
    """
    middle = mask.shape[-1] // 2
    after = mask[..., middle + 1 :]  # f = 1, 2, ...
    before = mask[..., middle - after.shape[-1] : middle].flip(-1)  # f = -1, -2, ...
    return (after & before).sum(-1)


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


def remove_oversampling(kspace: Tensor, columns: int) -> Tensor:
    """k-space `(..., H, W)` of the middle `columns` of the image's columns: a readout is sampled wider than the object.

    Zero frequency stays in the centre, and the image keeps its values.
    """
    image = _along_columns(torch.fft.ifft, kspace)
    left = kspace.shape[-1] // 2 - columns // 2
    return _along_columns(torch.fft.fft, image[..., left : left + columns])


def _along_columns(transform: Callable[..., Tensor], values: Tensor) -> Tensor:
    return torch.fft.fftshift(transform(torch.fft.ifftshift(values, dim=-1), norm="ortho"), dim=-1)


def sensitivities(y: Tensor, mask: Tensor) -> Tensor:
    """How strongly each coil sees each place, from the measured block in the middle alone; complex, shaped like `y`.

    A low-resolution estimate: images of the block under a smooth window, divided by their root sum of squares. So the
    squares of all coils add up to 1 everywhere. They carry the low-resolution phase of the object too, so that an
    image combined with them is nearly real.

    Args:
        y: measured k-space, with shape `(B, coils, H, W)`.
        mask: True (or a weight above a half) where measured, with shape `(B, H)`. Where no row near the middle is, all
            coils count alike.
    """
    half = _measured_middle(mask > 0.5 if mask.is_floating_point() else mask)  # (B, 1)
    rows, columns = (_bump(side, half, y.device) for side in y.shape[-2:])  # (B, H), (B, W)
    image = to_image(y * rows[:, None, :, None] * columns[:, None, None, :])
    strength = over_coils(image).unsqueeze(1)
    return torch.where(strength > 0, image / strength, y.shape[1] ** -0.5)


def _measured_middle(mask: Tensor) -> Tensor:
    """How far the measured block in the middle reaches to both sides, in rows, but neither far nor next to nothing."""
    rows = mask.shape[1]
    above, below = mask[:, : rows // 2].flip(1), mask[:, rows // 2 :]
    reach = [side.long().cumprod(1).sum(1, keepdim=True) for side in (above, below)]
    return torch.minimum(*reach).clamp(min=max(1, rows // 32), max=max(1, rows // SMOOTH))  # (B, 1)


def _bump(side: int, half: Tensor, device: torch.device) -> Tensor:
    """1 at zero frequency, falling as a cosine to 0 at a distance of `half` `(B, 1)`; `(B, side)`."""
    distance = (torch.arange(side, device=device) - side // 2).abs() / half
    return torch.where(distance < 1, torch.cos(0.5 * torch.pi * distance).square(), 0.0)  # cos(pi / 2) is not quite 0


def combine(images: Tensor, maps: Tensor) -> Tensor:
    """Images of all coils `(B, coils, H, W)` as one, `(B, H, W)`, weighted by their sensitivities."""
    return (maps.conj() * images).sum(1)


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
