"""U-Nets that reconstruct MR slices from some rows of k-space.

Both take measured k-space `(B, H, W)` (complex, zeros where nothing was measured) and the mask `(B, H)` (bool, or real
weights when a gradient with respect to the mask is wanted), and give the image. Input and output are scaled by the
largest zero-filled magnitude of the slice itself, so a result does not depend on the units of the scanner.

Several coils `(B, coils, H, W)` are seen as one image, combined with the sensitivities that the measured block in the
middle gives; what was measured is put back coil by coil, and the result is their root sum of squares. So weights that
were trained with one coil serve any number.
"""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sensewise.kspace import combine, magnitude, per_row, sensitivities, to_image, to_kspace
from sensewise.networks.unet import add_levels, down_and_up, fold

GAIN_IN, GAIN_OUT = 5.0, 0.05  # of the planes and of the correction: inside the network both are about 1


class _Coils:
    """Between one image and the k-space of every coil; a single coil sees the image as it is.

    Args:
        y: measured k-space, with shape `(B, H, W)` or `(B, coils, H, W)`.
        mask: which rows of it were measured, with shape `(B, H)`.
    """

    def __init__(self, y: Tensor, mask: Tensor) -> None:
        self.maps = sensitivities(y, mask) if y.dim() == 4 else None

    def image(self, kspace: Tensor) -> Tensor:
        """One complex image `(B, H, W)`."""
        return to_image(kspace) if self.maps is None else combine(to_image(kspace), self.maps)

    def kspace(self, image: Tensor) -> Tensor:
        """What the coils would measure of it, of the shape of `y`."""
        return to_kspace(image if self.maps is None else self.maps * image.unsqueeze(1))


def _planes(zero_filled: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The largest magnitude `(B, 1, 1)` of a zero-filled image `(B, H, W)`, and the network's input `(B, 3, H, W)`."""
    scale = zero_filled.abs().flatten(1).amax(1).view(-1, 1, 1)
    small = zero_filled / scale
    rows = mask.to(small.real.dtype).unsqueeze(-1).expand(small.shape)
    return scale, torch.stack([small.real, small.imag, rows], dim=1)


class PaperUNet(nn.Module):
    """The paper's reconstructor: a residual on the zero-filled magnitude, zero at the start.

    Args:
        base: channels at full resolution, doubled at each of the further levels.
        levels: resolutions.
    """

    def __init__(self, base: int = 32, levels: int = 4) -> None:
        super().__init__()
        self.multiple = 2 ** (levels - 1)
        widths = [base * 2**i for i in range(levels)]
        self.down = nn.ModuleList(_double(a, b) for a, b in pairwise([3, *widths]))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in pairwise(widths))
        self.up = nn.ModuleList(_double(2 * a, a) for a in widths[:-1])
        self.head = nn.Conv2d(base, 1, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)  # type: ignore[arg-type]

    def forward(self, y: Tensor, mask: Tensor) -> Tensor:
        """Magnitudes `(B, H, W)`, never negative."""
        scale, x = _planes(_Coils(y, mask).image(y), mask)
        height, width = y.shape[-2:]
        x = F.pad(x, (0, -width % self.multiple, 0, -height % self.multiple))
        skips: list[Tensor] = []
        for i, stage in enumerate(self.down):
            x = stage(F.avg_pool2d(x, 2) if i else x)
            skips.append(x)
        x = skips.pop()
        for grow, stage in zip(reversed(self.grow), reversed(self.up), strict=True):
            x = stage(torch.cat([grow(x), skips.pop()], dim=1))
        residual = self.head(x)[:, 0, :height, :width]
        return (magnitude(y) + scale * residual).clamp(min=0)

    def complex_image(self, y: Tensor, mask: Tensor) -> Tensor:
        """The reconstruction with the zero-filled phase, complex `(B, H, W)`."""
        return torch.polar(self(y, mask), _Coils(y, mask).image(y).angle())


def _double(inputs: int, outputs: int) -> nn.Sequential:
    """Two 3x3 convolutions, each with GroupNorm (8 groups) and SiLU."""
    layers: list[nn.Module] = []
    for width in (inputs, outputs):
        layers += [nn.Conv2d(width, outputs, 3, padding=1, bias=False), nn.GroupNorm(8, outputs), nn.SiLU()]
    return nn.Sequential(*layers)


class _Cascade(nn.Module):
    """One pass: image planes in, a correction of real and imaginary part out, zero at the start."""

    def __init__(self, widths: tuple[int, ...], blocks: tuple[int, ...], patch: int, embedding: int) -> None:
        super().__init__()
        self.patch = patch
        self.stem = nn.Conv2d(3 * patch**2, widths[0], 3, padding=1)
        add_levels(self, widths, blocks, embedding)
        self.head = nn.Conv2d(widths[0], 2 * patch**2, 3, padding=1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)  # type: ignore[arg-type]

    def forward(self, planes: Tensor, embedding: Tensor) -> Tensor:
        x = fold(GAIN_IN * planes, self.patch)
        x = down_and_up(self, self.stem(x), embedding)
        return GAIN_OUT * F.pixel_shuffle(self.head(F.silu(x)), self.patch)  # (B, 2, H, W)


class ComplexUNet(nn.Module):
    """The fast reconstructor: a complex correction without normalisation layers, and measured rows kept as measured.

    Data consistency puts the measured rows back into the k-space of what the network drew, so that it can only be
    wrong about rows that nobody measured. Which rows those are reaches every block through an embedding of the mask.

    Args:
        rows: `H`, the length of a mask.
        widths: channels at each resolution, from `H / patch` down.
        blocks: residual blocks at each resolution, on the way down and again on the way up.
        patch: side of the square of pixels that is folded into channels.
        cascades: how often correction and data consistency follow each other; each has its own weights.
        embedding: width of the vector that carries the mask.
    """

    def __init__(
        self,
        rows: int,
        widths: tuple[int, ...] = (32, 64, 96),
        blocks: tuple[int, ...] = (1, 1, 1),
        patch: int = 2,
        cascades: int = 1,
        embedding: int = 64,
    ) -> None:
        super().__init__()
        if len(widths) != len(blocks):
            raise ValueError(f"widths and blocks must have one entry per resolution, got {widths} and {blocks}")
        self.multiple = patch * 2 ** (len(widths) - 1)
        self.condition = nn.Sequential(nn.Linear(rows, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        self.cascades = nn.ModuleList(_Cascade(widths, blocks, patch, embedding) for _ in range(cascades))

    def _completed(self, y: Tensor, mask: Tensor, coils: _Coils) -> Tensor:
        """k-space of the shape of `y`, the measured rows as they were measured."""
        height, width = y.shape[-2:]
        padding = (0, -width % self.multiple, 0, -height % self.multiple)
        completed, image = y, coils.image(y)
        scale, planes = _planes(image, mask)
        weights = mask.to(planes.dtype)
        embedding = F.silu(self.condition(2 * weights - 1))
        hidden = per_row(1 - weights, y)
        for number, cascade in enumerate(self.cascades):
            image = coils.image(completed) if number else image
            small = image / scale
            planes = torch.stack([small.real, small.imag, planes[:, 2]], dim=1)
            drawn = cascade(F.pad(planes, padding), embedding)[..., :height, :width].to(planes.dtype)
            guess = coils.kspace(small + torch.complex(drawn[:, 0], drawn[:, 1]))
            completed = y + hidden * (guess * scale.view(-1, *[1] * (y.dim() - 1)))
        return completed

    def complex_image(self, y: Tensor, mask: Tensor) -> Tensor:
        """The reconstruction, complex `(B, H, W)`; its k-space has the measured rows as they were measured."""
        coils = _Coils(y, mask)
        return coils.image(self._completed(y, mask, coils))

    def forward(self, y: Tensor, mask: Tensor) -> Tensor:
        """Magnitudes `(B, H, W)`."""
        return magnitude(self._completed(y, mask, _Coils(y, mask)))


RECONSTRUCTORS = {"paper-unet": PaperUNet, "complex-unet": ComplexUNet}
