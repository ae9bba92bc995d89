r"""A U-Net for grey pictures of any size whose outputs are mixtures of Gaussians: many levels, noisy readings.

It sees the readings, where they were taken, how noisy they are, a push-pull interpolation of them, and a few numbers
about the readings as a whole. Its mixtures are centred on the interpolation. Activations are divided by their root mean
square over the channels of one position, never over positions, so that what it says depends on a bounded neighbourhood
and on that summary: tiles with overlap agree with one pass, and memory stays bounded for any picture.
"""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sensewise.networks.unet import down_and_up

BINS = 16
SUMMARY = BINS + 6
PRIOR_READINGS = 2.0  # readings that the prior belief about mean and spread counts as
NARROWEST, WIDEST = 0.0012, 1.0  # widths of a component, in intensities
ENOUGH = 8.0  # one pixel in so many is enough to believe in a coarser one
TRUSTED = 0.1  # the noise at which a reading counts half in the interpolation
TILE = 512  # pixels of a tile's side, without its overlap


def push_pull(values: Tensor, trust: Tensor) -> Tensor:
    """Fill the holes of an image from coarser and coarser averages of what is seen.

    Gortler et al., "The lumigraph", 1996. Averages overlap (weights 1 3 3 1): as good as linear interpolation.

    Args:
        values: intensities times `trust`, with shape `(B, 1, H, W)`, any size.
        trust: from 0 (a hole) to 1, same shape.

    Returns:
        The filled image, same shape; 0 everywhere if nothing is seen.
    """
    height, width = values.shape[-2:]
    if max(height, width) == 1:
        return values / trust.clamp(min=1e-6)
    odd = (1, 1 + width % 2, 1, 1 + height % 2)
    line = torch.tensor([1.0, 3.0, 3.0, 1.0], device=values.device) / 8
    kernel = (line[:, None] * line).expand(1, 1, 4, 4)
    share = F.conv2d(F.pad(trust, odd), kernel, stride=2)
    sums = F.conv2d(F.pad(values, odd), kernel, stride=2)
    coarse_trust = (ENOUGH * share).clamp(max=1)
    coarse = push_pull(sums / share.clamp(min=1e-6) * coarse_trust, coarse_trust)
    smooth = F.interpolate(coarse, scale_factor=2.0, mode="bilinear", align_corners=False)
    return values + (1 - trust) * smooth[..., :height, :width]


def summarise(readings: Tensor, seen: Tensor, sigma: Tensor) -> Tensor:
    """What the readings of a picture have in common: histogram, share and number, noise, mean and spread.

    Mean and spread are drawn towards 0.5 and 0.25 as if `PRIOR_READINGS` more had said so.

    Args:
        readings: 0 where nothing was read, with shape `(B, 1, H, W)`.
        seen: 1 where there is a reading, same shape.
        sigma: their standard deviations, 0 where nothing was read, same shape.

    Returns:
        Numbers of order 1, with shape `(B, SUMMARY)`; the last two are mean and spread.
    """
    count = seen.sum((1, 2, 3))  # (B,)
    share = torch.log10(count / seen[0].numel() + 1e-4)
    noise = sigma.square().sum((1, 2, 3)) / count.clamp(min=1)
    mean = (readings.sum((1, 2, 3)) + 0.5 * PRIOR_READINGS) / (count + PRIOR_READINGS)
    squares = ((readings - mean.view(-1, 1, 1, 1)).square() * seen).sum((1, 2, 3))
    squares = (squares - count * noise).clamp(min=0)
    spread = ((squares + 0.25**2 * PRIOR_READINGS) / (count + PRIOR_READINGS)).sqrt().clamp(min=0.01)
    bins = (readings.clamp(0, 1) * BINS).long().clamp(max=BINS - 1).flatten(1)  # (B, H W)
    histogram = torch.zeros(len(seen), BINS, device=seen.device).scatter_add_(1, bins, seen.flatten(1))
    histogram = (histogram / count.clamp(min=1)[:, None]).sqrt()
    rest = torch.stack([share + 2, torch.log10(count + 1) - 2, 10 * noise.sqrt(), spread.log() + 2, mean, spread], 1)
    return torch.cat([histogram, rest], 1)


class PixelNorm(nn.Module):
    """Each position divided by the root mean square of its channels, then a gain per channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x * (torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-4) * self.gain)


class PixelBlock(nn.Module):
    """`x + conv(silu(conv(silu(norm(x))) + condition))`, with the second convolution zero at the start."""

    def __init__(self, width: int, embedding: int) -> None:
        super().__init__()
        self.norm = PixelNorm(width)
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.condition = nn.Linear(embedding, width)
        nn.init.zeros_(self.second.weight)
        nn.init.zeros_(self.second.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        h = self.first(F.silu(self.norm(x)))
        return x + self.second(F.silu(h + self.condition(embedding)[:, :, None, None]))


class AnySize(nn.Module):
    """Readings of a grey picture to the mixtures of its pixels.

    Args:
        widths: channels at each resolution, from `H / patch` down.
        blocks: residual blocks at each resolution, on the way down and again on the way up.
        patch: side of the square of pixels that is folded into channels.
        components: Gaussians per pixel, `M`.
        embedding: width of the vector that carries the summary.
    """

    start: Tensor

    def __init__(
        self,
        widths: tuple[int, ...] = (32, 64, 128, 160),
        blocks: tuple[int, ...] = (1, 2, 2, 2),
        patch: int = 2,
        components: int = 4,
        embedding: int = 64,
    ) -> None:
        super().__init__()
        if len(widths) != len(blocks):
            raise ValueError(f"widths and blocks must have one entry per resolution, got {widths} and {blocks}")
        if min(patch, components, embedding, *widths, *blocks) < 1:
            raise ValueError(f"sizes must be at least 1, got {widths=}, {blocks=}, {patch=}, {components=}")
        self.patch, self.components, self.blocks = patch, components, tuple(blocks)
        self.multiple = patch * 2 ** (len(widths) - 1)
        self.summary = nn.Sequential(nn.Linear(SUMMARY, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        self.stem = nn.Conv2d(7 * patch**2, widths[0], 3, padding=1)
        self.down = nn.ModuleList(
            nn.ModuleList(PixelBlock(w, embedding) for _ in range(n)) for w, n in zip(widths, blocks, strict=True)
        )
        self.shrink = nn.ModuleList(nn.Conv2d(a, b, 2, stride=2) for a, b in pairwise(widths))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in pairwise(widths))
        self.up = nn.ModuleList(
            nn.ModuleList(PixelBlock(w, embedding) for _ in range(n))
            for w, n in zip(widths[:-1], blocks[:-1], strict=True)
        )
        self.head = nn.Conv2d(widths[0], (3 * components + 1) * patch**2, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)  # type: ignore[arg-type]
        start = torch.linspace(-2.0, 1.0, components)  # log widths of the components, relative to the pixel's scale
        self.register_buffer("start", start.view(1, -1, 1, 1), persistent=False)

    @property
    def radius(self) -> int:
        """How far a pixel can look, in pixels, rounded up to `multiple`."""
        sides = [self.patch * 2**level for level in range(len(self.blocks))]
        both_ways = sum(4 * count * side for count, side in zip(self.blocks[:-1], sides, strict=False))
        reach = self.patch + both_ways + 2 * self.blocks[-1] * sides[-1] + 2 * sides[-1]
        return -(-reach // self.multiple) * self.multiple

    def forward(self, readings: Tensor, seen: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The mixtures of all pixels given the readings, before each reading counts at its own pixel.

        Args:
            readings: intensities, 0 where nothing was read, with shape `(B, 1, H, W)`.
            seen: 1 where there is a reading, else 0, same shape.
            sigma: the standard deviation of each reading, 0 where there is none, same shape.

        Returns:
            Log-weights, centres and widths, with shape `(B, M, H, W)` each.
        """
        summary = summarise(readings, seen, sigma)
        with torch.autocast(readings.device.type, enabled=False):  # the interpolation keeps all its digits
            smooth, features = self._encode(readings, seen, sigma, summary)
        raw = self._tiles(features, F.silu(self.summary(summary)))
        return self._decode(raw.float(), smooth, summary)

    def _encode(self, readings: Tensor, seen: Tensor, sigma: Tensor, summary: Tensor) -> tuple[Tensor, Tensor]:
        """The interpolation `(B, 1, H, W)`, and the features `(B, 7, H, W)` relative to the picture's contrast."""
        mean, spread = summary[:, -2:].view(-1, 2, 1, 1, 1).unbind(1)  # (B, 1, 1, 1) each
        trust = seen / (1 + (sigma / TRUSTED).square())
        smooth = push_pull(readings * trust, trust)
        smooth = torch.where(trust.sum((1, 2, 3), keepdim=True) == 0, 0.5, smooth)
        features = [
            seen * (readings - mean) / (2 * spread),
            seen,
            (smooth - mean) / (2 * spread),
            2 * smooth - 1,
            (sigma / spread).clamp(max=4),
            seen * (torch.log10(sigma + 1e-3) + 3) / 2,
            torch.ones_like(seen),  # inside the picture; padding has 0
        ]
        return smooth, torch.cat(features, 1)

    def _tiles(self, features: Tensor, embedding: Tensor) -> Tensor:
        """Features `(B, 7, H, W)` to raw outputs `(B, 3 M + 1, H, W)`, tile by tile where the picture is large."""
        height, width = features.shape[-2:]
        padded = F.pad(features, (0, -width % self.multiple, 0, -height % self.multiple))
        if padded.shape[2] * padded.shape[3] <= TILE**2:
            return self._middle(padded, embedding)[..., :height, :width]
        around, lines = self.radius, []
        for top in range(0, padded.shape[2], TILE):
            line = []
            for left in range(0, padded.shape[3], TILE):
                first_row, first_column = max(top - around, 0), max(left - around, 0)
                part = padded[:, :, first_row : top + TILE + around, first_column : left + TILE + around]
                found = self._middle(part, embedding)
                row, column = top - first_row, left - first_column
                line.append(found[..., row : row + TILE, column : column + TILE])
            lines.append(torch.cat(line, dim=3))
        return torch.cat(lines, dim=2)[..., :height, :width]

    def _middle(self, features: Tensor, embedding: Tensor) -> Tensor:
        """Padded features to raw outputs."""
        x = F.pixel_unshuffle(features, self.patch).contiguous(memory_format=torch.channels_last)
        x = down_and_up(self, self.stem(x), embedding)
        return F.pixel_shuffle(self.head(F.silu(x)), self.patch)

    def _decode(self, raw: Tensor, smooth: Tensor, summary: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Raw outputs to mixtures around the interpolation.

        A pixel has one scale for its shifts and widths, relative to the picture's contrast: the same outputs serve flat
        and rough pictures.
        """
        m = self.components
        logits, shift, log_width, log_scale = torch.split(raw, [m, m, m, 1], dim=1)  # (B, M, H, W) and (B, 1, H, W)
        contrast = summary[:, -1].view(-1, 1, 1, 1)
        log_scale = (log_scale + torch.log(0.2 * contrast)).clamp(math.log(0.002), math.log(0.5))
        centres = (smooth + log_scale.exp() * shift).clamp(-0.5, 1.5)
        log_widths = (self.start + log_width + log_scale).clamp(math.log(NARROWEST), math.log(WIDEST))
        return logits.log_softmax(1), centres, log_widths.exp()
