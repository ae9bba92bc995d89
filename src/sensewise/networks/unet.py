"""A small U-Net with the cheapest normalisation there is: the default, because on a CPU it earns the most per second.

Pixels are folded 2 x 2 into channels first, so that the widest maps have a quarter of the positions. Residual blocks
start as the identity (their last convolution is zero). Each image is divided by one number, its root mean square,
before a convolution: that keeps high learning rates stable and costs a twentieth of a pass (GroupNorm: two fifths).
"""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sensewise.networks.encodings import ENCODINGS


class ImageNorm(nn.Module):
    """Each image divided by its root mean square over all channels and positions, then a gain per channel."""

    over: tuple[int, ...] = (1, 2, 3)
    floor = 1e-6

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x * (torch.rsqrt(x.square().mean(dim=self.over, keepdim=True) + self.floor) * self.gain)


class PixelNorm(ImageNorm):
    """The same position by position: what is far away does not matter."""

    over = (1,)
    floor = 1e-4

    def forward(self, x: Tensor) -> Tensor:
        """One factor after the other: their product would be as large as `x`, and in another memory order."""
        return x * torch.rsqrt(x.square().mean(dim=self.over, keepdim=True) + self.floor) * self.gain.to(x.dtype)


Norms = tuple[Callable[[int], nn.Module], Callable[[int], nn.Module]]
"""What makes the normalisations before the first and the second non-linearity of a block, from its width."""


class Block(nn.Module):
    """`x + conv(silu(norm(conv(silu(norm(x)))) + condition))`, with the second convolution zero at the start."""

    def __init__(self, width: int, embedding: int, norms: Norms = (ImageNorm, ImageNorm)) -> None:
        super().__init__()
        self.norm_first, self.norm_second = norms[0](width), norms[1](width)
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.condition = nn.Linear(embedding, width)
        nn.init.zeros_(self.second.weight)
        nn.init.zeros_(self.second.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        h = self.norm_second(self.first(F.silu(self.norm_first(x))))
        return x + self.second(F.silu(h + self.condition(embedding)[:, :, None, None]))


class Condition(nn.Module):
    """Label and survival to one vector per image, with shape `(B, embedding)`."""

    rates: Tensor

    def __init__(self, num_labels: int | None, embedding: int, frequencies: int = 8) -> None:
        super().__init__()
        self.label = None if num_labels is None else nn.Embedding(num_labels + 1, embedding)
        self.survival = nn.Sequential(nn.Linear(2 * frequencies, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        self.register_buffer("rates", torch.exp(torch.linspace(0, math.log(64), frequencies)), persistent=False)

    def forward(self, label: Tensor, survival: Tensor) -> Tensor:
        angles = survival[:, None] * self.rates  # (B, frequencies)
        vector = self.survival(torch.cat([angles.sin(), angles.cos()], dim=1))
        if self.label is not None:
            vector = vector + self.label(label)
        return F.silu(vector)


def add_levels(
    network: nn.Module,
    widths: tuple[int, ...],
    blocks: tuple[int, ...],
    embedding: int,
    norms: Norms = (ImageNorm, ImageNorm),
) -> None:
    """Give a network what `down_and_up` goes through: blocks at each resolution, and what leads to the next."""

    def level(width: int, count: int) -> nn.ModuleList:
        return nn.ModuleList(Block(width, embedding, norms) for _ in range(count))

    network.down = nn.ModuleList(level(w, n) for w, n in zip(widths, blocks, strict=True))
    network.shrink = nn.ModuleList(nn.Conv2d(a, b, 2, stride=2) for a, b in pairwise(widths))
    network.grow = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in pairwise(widths))
    network.up = nn.ModuleList(level(w, n) for w, n in zip(widths[:-1], blocks[:-1], strict=True))


def down_and_up(network: Any, x: Tensor, embedding: Tensor) -> Tensor:
    """The middle of a U-Net: through `down` and `shrink`, back through `grow` and `up`, each level with its skip."""
    skips = []
    for i, level in enumerate(network.down):
        for block in level.children():
            x = block(x, embedding)
        if i < len(network.shrink):
            skips.append(x)
            x = network.shrink[i](x)
    for grow, level in zip(reversed(network.grow), reversed(network.up), strict=True):
        x = grow(x) + skips.pop()
        for block in level.children():
            x = block(x, embedding)
    return x


def fold(x: Tensor, patch: int) -> Tensor:
    """`F.pixel_unshuffle` into channels-last memory, which convolutions want, with one copy instead of two."""
    batch, channels, height, width = x.shape
    squares = x.view(batch, channels, height // patch, patch, width // patch, patch).permute(0, 2, 4, 1, 3, 5)
    return squares.reshape(batch, height // patch, width // patch, -1).permute(0, 3, 1, 2)  # (B, C patch^2, h, w)


class Fine(nn.Module):
    """Blocks at the resolution of the image, which add to what the levels below say of each pixel.

    Their last layer is zero at the start: a network that is given them says what it said without.

    Args:
        inputs: feature channels of a pixel.
        outputs: raw output channels of a pixel.
        width: channels of the blocks.
        blocks: how many.
        below: channels of the widest level below.
        patch: how much finer this level is.
        embedding: width of the vector that carries label and survival.
    """

    def __init__(
        self, inputs: int, outputs: int, width: int, blocks: int, below: int, patch: int, embedding: int
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(inputs, width, 3, padding=1)
        self.grow = nn.ConvTranspose2d(below, width, patch, stride=patch)
        self.blocks = nn.ModuleList(Block(width, embedding) for _ in range(blocks))
        self.head = nn.Conv2d(width, outputs, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)  # type: ignore[arg-type]

    def forward(self, features: Tensor, below: Tensor, embedding: Tensor) -> Tensor:
        x = self.stem(features.contiguous(memory_format=torch.channels_last)) + self.grow(below)
        for block in self.blocks.children():
            x = block(x, embedding)
        return self.head(F.silu(x))


class UNet(nn.Module):
    """Full skips, two convolutions a block, widths per resolution.

    Args:
        channels: image channels `C`.
        num_states: data states `N`.
        num_labels: classes, or None for a network without labels; the index `num_labels` means "unknown".
        widths: channels at each resolution, from `H / patch` down.
        blocks: residual blocks at each resolution, on the way down and again on the way up.
        patch: side of the square of pixels that is folded into channels.
        embedding: width of the vector that carries label and survival.
        encoding: "one-hot", "ordinal" where the states are ordered levels, or "scalar", as in the paper.
        fine: width of the blocks at the resolution of the image itself, 0 for none.
        fine_blocks: how many of them.
    """

    def __init__(
        self,
        channels: int,
        num_states: int,
        num_labels: int | None,
        widths: tuple[int, ...] = (32, 64, 128),
        blocks: tuple[int, ...] = (1, 2, 2),
        patch: int = 2,
        embedding: int = 128,
        encoding: str = "one-hot",
        fine: int = 0,
        fine_blocks: int = 2,
    ) -> None:
        super().__init__()
        if len(widths) != len(blocks):
            raise ValueError(f"widths and blocks must have one entry per resolution, got {widths} and {blocks}")
        if min(patch, embedding, fine_blocks, *widths, *blocks) < 1 or fine < 0:
            raise ValueError(f"sizes must be at least 1, got {widths=}, {blocks=}, {patch=}, {embedding=}, {fine=}")
        if encoding not in ENCODINGS:
            raise ValueError(f"encoding {encoding!r} is not known: {', '.join(ENCODINGS)}")
        self.encoding, self.patch = ENCODINGS[encoding](channels, num_states), patch
        self.multiple = patch * 2 ** (len(widths) - 1)  # image sides must be divisible by this
        self.condition = Condition(num_labels, embedding)
        self.stem = nn.Conv2d(self.encoding.inputs * patch**2, widths[0], 3, padding=1)
        add_levels(self, widths, blocks, embedding)
        self.head = nn.Conv2d(widths[0], self.encoding.outputs * patch**2, 1)
        sizes = (self.encoding.inputs, self.encoding.outputs, fine, fine_blocks, widths[0], patch, embedding)
        self.fine = Fine(*sizes) if fine else None

    def forward(self, y: Tensor, label: Tensor, survival: Tensor) -> Tensor:
        embedding = self.condition(label, survival)
        features = self.encoding.encode(y)  # (B, inputs, H, W)
        x = fold(features, self.patch)
        x = F.silu(down_and_up(self, self.stem(x), embedding))
        raw = F.pixel_shuffle(self.head(x), self.patch)  # (B, outputs, H, W)
        if self.fine is not None:
            raw = raw + self.fine(features, x, embedding)
        return self.encoding.logits(raw, features)  # (B, C, H, W, N)
