r"""A U-Net for grey pictures of any size whose outputs are mixtures of Gaussians: many levels, noisy readings.

It sees the readings, where they were taken, how noisy they are, a push-pull interpolation of them, and a few numbers
about the readings as a whole. Its mixtures are centred on the interpolation. Activations are divided by their root mean
square over the channels of one position, never over positions, so that what it says depends on a bounded neighbourhood
and on that summary: tiles with overlap agree with one pass, and memory stays bounded for any picture.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sensewise.networks.push_pull import OVERLAPPING, push_pull
from sensewise.networks.unet import PixelNorm, add_levels, down_and_up, fold
from sensewise.tokens import Place

BINS = 16
SUMMARY = BINS + 6
PRIOR_READINGS = 2.0  # readings that the prior belief about mean and spread counts as
NARROWEST, WIDEST = 0.0012, 1.0  # widths of a component, in intensities
TRUSTED = 0.1  # the noise at which a reading counts half in the interpolation
TILE = 512  # pixels of a tile's side, without its overlap
LARGE = 96 * 96  # pixels from which on bfloat16 saves more time than batches do

Parts = tuple[Tensor, Tensor, Tensor]
"""Log-weights, centres and widths of mixtures, `(B, M, H, W)` each."""


def has_bfloat16(device: torch.device) -> bool:
    """Whether a device multiplies bfloat16 faster than float32: CPUs with instructions of their own for it.

    oneDNN says so of every CPU with AVX-512, and imitates bfloat16 where the instructions are missing, slower than
    float32. Versions of torch that do not tell what the CPU has count as having nothing.
    """
    known: Callable[[], Mapping[str, Any]] = getattr(torch.cpu, "get_capabilities", dict)
    return device.type == "cpu" and bool(known().get("avx512_bf16", False))


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
        add_levels(self, widths, blocks, embedding, norms=(PixelNorm, nn.Identity))
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

    def forward(self, readings: Tensor, seen: Tensor, sigma: Tensor) -> Parts:
        """The mixtures of all pixels given the readings, before each reading counts at its own pixel.

        Args:
            readings: intensities, 0 where nothing was read, with shape `(B, 1, H, W)`.
            seen: 1 where there is a reading, else 0, same shape.
            sigma: the standard deviation of each reading, 0 where there is none, same shape.
        """
        found = list(self.tiles(readings, seen, sigma))
        if len(found) == 1:
            return found[0][1]
        log_weights, centres, widths = (part.new_empty(*part.shape[:2], *seen.shape[2:]) for part in found[0][1])
        for (rows, columns), tile in found:
            for whole, part in zip((log_weights, centres, widths), tile, strict=True):
                whole[..., rows, columns] = part
        return log_weights, centres, widths

    def tiles(self, readings: Tensor, seen: Tensor, sigma: Tensor) -> Iterator[tuple[Place, Parts]]:
        """The same tile by tile, one for all but large pictures: memory for one tile at a time, whatever the size."""
        height, width = seen.shape[2:]
        summary = summarise(readings, seen, sigma)
        embedding = F.silu(self.summary(summary))
        with torch.autocast(readings.device.type, enabled=False):  # the interpolation keeps all its digits
            trust = seen / (1 + (sigma / TRUSTED).square())
            smooth = push_pull(readings * trust, trust, OVERLAPPING)
            smooth = torch.where(trust.sum((1, 2, 3), keepdim=True) == 0, 0.5, smooth)
        side = max(height, width) if height * width <= TILE**2 else TILE
        for top in range(0, height, side):
            for left in range(0, width, side):
                place = slice(top, min(top + side, height)), slice(left, min(left + side, width))
                first_row, first_column = max(top - self.radius, 0), max(left - self.radius, 0)
                rows = slice(first_row, top + side + self.radius)
                columns = slice(first_column, left + side + self.radius)
                around = [known[..., rows, columns] for known in (readings, seen, sigma, smooth)]
                raw = self._outputs(self._features(around, summary), embedding)
                inside = raw[..., top - first_row : place[0].stop - first_row, :]
                inside = inside[..., left - first_column : place[1].stop - first_column]
                yield place, self._decode(inside.float(), smooth[..., place[0], place[1]], summary)

    @staticmethod
    def _features(known: Sequence[Tensor], summary: Tensor) -> Tensor:
        """Readings, where they are, their noise and the interpolation, relative to the contrast; `(B, 7, H, W)`."""
        readings, seen, sigma, smooth = known
        mean, spread = summary[:, -2:].view(-1, 2, 1, 1, 1).unbind(1)  # (B, 1, 1, 1) each
        features = [
            seen * (readings - mean) / (2 * spread),
            seen,
            (smooth - mean) / (2 * spread),
            2 * smooth - 1,
            (sigma / spread).clamp(max=4),
            seen * (torch.log10(sigma + 1e-3) + 3) / 2,
            torch.ones_like(seen),  # inside the picture; padding has 0
        ]
        return torch.cat(features, 1)

    def _outputs(self, features: Tensor, embedding: Tensor) -> Tensor:
        """Features `(B, 7, H, W)` to raw outputs `(B, 3 M + 1, H', W')`, padded.

        Large pictures in bfloat16 where that is faster, one by one: what is said of one would depend on the others in
        the last of its few digits. Not in training, which sets a precision of its own.
        """
        height, width = features.shape[-2:]
        features = F.pad(features, (0, -width % self.multiple, 0, -height % self.multiple))
        if self.training or height * width < LARGE or not has_bfloat16(features.device):
            return self._middle(features, embedding)
        with torch.autocast(features.device.type, torch.bfloat16):
            pictures = zip(torch.split(features, 1), torch.split(embedding, 1), strict=True)
            return torch.cat([self._middle(*picture) for picture in pictures])

    def _middle(self, features: Tensor, embedding: Tensor) -> Tensor:
        """Padded features to raw outputs."""
        x = fold(features, self.patch)
        x = down_and_up(self, self.stem(x), embedding)
        return F.pixel_shuffle(self.head(F.silu(x)), self.patch)

    def _decode(self, raw: Tensor, smooth: Tensor, summary: Tensor) -> Parts:
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
