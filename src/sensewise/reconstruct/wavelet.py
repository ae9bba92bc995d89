r"""Compressed sensing: the image that agrees with the measured rows and has few wavelet coefficients.

$$\min_x \tfrac12 \|M F S x - y\|^2 + \lambda \|W x\|_1$$

with mask $M$, Fourier transform $F$, coil sensitivities $S$ and an orthonormal wavelet transform $W$, by FISTA
(Beck and Teboulle, 2009). Lustig et al., "Sparse MRI", 2007. Nothing is trained: it judges masks without
any network.
"""

from functools import cache

import torch
from torch import Tensor

from sensewise.kspace import combine, magnitude, per_row, sensitivities, to_corner, to_middle
from sensewise.reconstruct.base import NOTHING, Reconstructor
from sensewise.sensors.base import Side

LOW_PASS = (0.48296291314469025, 0.836516303737469, 0.22414386804185735, -0.12940952255092145)
"""Daubechies' wavelet with two vanishing moments."""


@cache
def _step(side: int) -> Tensor:
    """One level of the transform along a side, periodic, orthonormal: averages first, then details; `(side, side)`."""
    matrix, half, taps = torch.zeros(side, side), side // 2, len(LOW_PASS)
    for place in range(half):
        for tap, value in enumerate(LOW_PASS):
            matrix[place, (2 * place + tap) % side] += value
            matrix[half + place, (2 * place + taps - 1 - tap) % side] += value * (-1) ** tap
    return matrix


class CsWavelet(Reconstructor):
    """MR magnitudes `(B, H, W)` from measured rows, by wavelet sparsity; measured rows keep their values.

    Args:
        strength: lambda at the end, of the largest zero-filled magnitude; tuned on training slices of brain-t1.
        start: how many times larger lambda is at the start: large structures first.
        iterations: of FISTA.
        levels: of the transform, as far as the sides can be halved.
        chunk: slices at a time.
    """

    def __init__(
        self,
        strength: float = 0.002,
        start: float = 10.0,
        iterations: int = 40,
        levels: int = 4,
        chunk: int = 32,
    ) -> None:
        self.strength, self.start, self.iterations = strength, start, iterations
        self.levels, self.chunk = levels, chunk

    @torch.inference_mode()
    def __call__(self, observation: Tensor, mask: Tensor, side: Side = NOTHING) -> Tensor:
        parts = zip(torch.split(observation, self.chunk), torch.split(mask, self.chunk), strict=True)
        return torch.cat([self._solve(y, m) for y, m in parts])

    def _solve(self, y: Tensor, mask: Tensor) -> Tensor:
        """Iterate with the middle of k-space and image in the corner: no transform has to move it."""
        maps = to_corner(sensitivities(y, mask)) if y.dim() == 4 else None
        measured, y = to_corner(per_row(mask, y).expand_as(y)), to_corner(y)

        def completed(image: Tensor) -> Tensor:
            seen = image if maps is None else maps * image.unsqueeze(1)
            return torch.where(measured, y, torch.fft.fft2(seen, norm="ortho"))

        def agreeing(image: Tensor) -> Tensor:
            found = torch.fft.ifft2(completed(image), norm="ortho")
            return found if maps is None else combine(found, maps)

        x = agreeing(torch.zeros(len(y), *y.shape[-2:], dtype=y.dtype, device=y.device))
        scale = x.abs().amax((1, 2), keepdim=True)
        ahead, momentum = x, 1.0
        for number in range(self.iterations):
            strength = self.strength * self.start ** (1 - number / max(1, self.iterations - 1))
            fresh = self._sparser(agreeing(ahead), strength * scale, shift=number)
            following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
            ahead = fresh + (momentum - 1) / following * (fresh - x)
            x, momentum = fresh, following
        return magnitude(to_middle(completed(x)))

    def _sparser(self, image: Tensor, threshold: Tensor, shift: int) -> Tensor:
        """Wavelet details made smaller by a threshold `(B, 1, 1)`; other shifts each time leave no blocks."""
        moves = (5 * shift % 16, 3 * shift % 16)
        image = image.roll(moves, (-2, -1))
        found = self._shrink(torch.stack([image.real, image.imag], dim=1), threshold.unsqueeze(1), self.levels)
        return torch.complex(found[:, 0], found[:, 1]).roll((-moves[0], -moves[1]), (-2, -1))

    def _shrink(self, planes: Tensor, threshold: Tensor, levels: int) -> Tensor:
        """The same for real and imaginary parts `(B, 2, H, W)`, whose details are made smaller together."""
        height, width = planes.shape[-2:]
        if levels == 0 or height % 2 or width % 2 or min(height, width) < 2 * len(LOW_PASS):
            return planes
        rows, columns = (_step(side).to(planes) for side in (height, width))
        found = rows @ planes @ columns.T
        size = torch.hypot(found[:, :1], found[:, 1:])
        details = found * ((size - threshold).clamp_(min=0) / size.add_(1e-30))
        half = (..., slice(height // 2), slice(width // 2))
        details[half] = self._shrink(found[half], threshold, levels - 1)
        return rows.T @ details @ columns
