"""The one-shot mask designer: side information in, the log-odds of measuring each pixel out.

It chooses the whole mask before anything is measured, from a coarse 8 x 8 summary, the label and the budget. How it is
trained against a frozen prior is in `train.designer` (paper, Section 4.2).
"""

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sensewise.errors import ConfigError, DataError
from sensewise.networks.base import MaskNetwork
from sensewise.networks.unet import Block
from sensewise.tokens import UNKNOWN

SUMMARY = 8  # side of the summary
Decoder = Literal["paper", "full"]


class PaperDecoder(nn.Module):
    """The paper's decoder: everything on the 8 x 8 grid, then twice bilinear x 2; 19,490 weights with ten labels.

    Keep and drop have a logit each, made at half resolution: its masks cannot be pixel-sharp.
    """

    def __init__(self, shape: tuple[int, int, int], num_labels: int | None) -> None:
        super().__init__()
        self.size = (shape[1], shape[2])
        self.budget = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 16))
        self.label = None if num_labels is None else nn.Embedding(num_labels, 32)
        self.encode = nn.Conv2d(17 if num_labels is None else 49, 32, 3, padding=1)
        self.norm = nn.BatchNorm2d(32)
        self.decode = nn.Conv2d(32, 16, 3, padding=1)
        self.head = nn.Conv2d(16, 2, 1)

    def forward(self, summary: Tensor, label: Tensor, budget: Tensor) -> Tensor:
        parts = [summary, _spread(self.budget(budget[:, None]))]
        if self.label is not None:
            parts.append(_spread(_embed(self.label, label)))
        x = self.norm(F.relu(self.encode(torch.cat(parts, dim=1))))  # (B, 32, 8, 8)
        half = (self.size[0] // 2, self.size[1] // 2)
        x = F.relu(self.decode(F.interpolate(x, half, mode="bilinear")))  # (B, 16, H / 2, W / 2)
        keep, drop = self.head(F.interpolate(x, self.size, mode="bilinear")).unbind(1)
        return (keep - drop).flatten(1)  # (B, K)


class FullDecoder(nn.Module):
    """A decoder with a logit of its own for every pixel, and positions that it knows apart.

    Residual blocks at 8 x 8 and at half resolution, conditioned on label and budget; the last convolution makes the
    four logits of each 2 x 2 square. It starts as a random mask on budget: all logits are the log-odds of `s`.
    """

    def __init__(self, shape: tuple[int, int, int], num_labels: int | None, widths: tuple[int, int] = (64, 32)) -> None:
        super().__init__()
        coarse, fine = widths
        self.half_size = (shape[1] // 2, shape[2] // 2)
        self.label = None if num_labels is None else nn.Embedding(num_labels, 64)
        self.budget = nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64))
        self.stem = nn.Conv2d(1, coarse, 3, padding=1)
        self.coarse_position = nn.Parameter(torch.randn(1, coarse, SUMMARY, SUMMARY) * 0.1)
        self.coarse = nn.ModuleList(Block(coarse, 64) for _ in range(2))
        self.grow = nn.Conv2d(coarse, fine, 3, padding=1)
        self.fine_position = nn.Parameter(torch.empty(1, fine, *self.half_size))  # so that its size is known, and
        self.fine_position.data = torch.randn(1, fine, *self.half_size) * 0.1  # refused, before anything is drawn
        self.fine = nn.ModuleList(Block(fine, 64) for _ in range(1))
        self.head = nn.Conv2d(fine, 4, 3, padding=1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)  # type: ignore[arg-type]

    def forward(self, summary: Tensor, label: Tensor, budget: Tensor) -> Tensor:
        odds = torch.logit(budget, eps=1e-4)
        condition = self.budget(torch.stack([budget, 0.25 * odds], dim=1))  # (B, 64)
        if self.label is not None:
            condition = condition + _embed(self.label, label)
        condition = F.silu(condition)
        x = (self.stem(summary) + self.coarse_position).contiguous(memory_format=torch.channels_last)
        for block in self.coarse:
            x = block(x, condition)
        x = self.grow(F.interpolate(x, self.half_size, mode="bilinear")) + self.fine_position
        for block in self.fine:
            x = block(x, condition)
        logits = F.pixel_shuffle(self.head(F.silu(x)), 2).flatten(1)  # (B, K)
        return logits + odds[:, None]


def _spread(vector: Tensor) -> Tensor:
    """A vector per image `(B, D)` at every place of the summary's grid, `(B, D, 8, 8)`."""
    return vector[:, :, None, None].expand(-1, -1, SUMMARY, SUMMARY)


def _embed(table: nn.Embedding, label: Tensor) -> Tensor:
    """Embeddings `(B, D)`, zero where the label is not known."""
    return table(label.clamp(min=0)) * (label != UNKNOWN)[:, None]


class MaskDesigner(MaskNetwork):
    """Summary, label and budget to the log-odds of measuring each pixel.

    Args:
        shape: `(C, H, W)` of the images; sides divisible by 8.
        num_labels: classes, or None for a designer that does not look at labels.
        decoder: "paper" (bilinear from 16 x 16) or "full" (full resolution).
    """

    def __init__(self, shape: tuple[int, int, int], num_labels: int | None, decoder: Decoder = "full") -> None:
        super().__init__()
        if decoder not in get_args(Decoder):
            raise ConfigError(f"decoder {decoder!r} is not known: choose one of {', '.join(get_args(Decoder))}")
        if shape[1] % SUMMARY or shape[2] % SUMMARY:
            raise ConfigError(f"a designer needs image sides divisible by {SUMMARY}, got {shape[1]} x {shape[2]}")
        self.shape, self.num_labels = shape, num_labels
        make = PaperDecoder if decoder == "paper" else FullDecoder
        self.decoder: nn.Module = make(shape, num_labels)

    def forward(self, summary: Tensor, label: Tensor | None, budget: Tensor) -> Tensor:
        """Log-odds of measuring each pixel.

        Args:
            summary: coarse intensities, with shape `(B, 1, 8, 8)`.
            label: classes, `UNKNOWN` where not known, with shape `(B,)`; None for "not known" everywhere.
            budget: the fraction to be measured, with shape `(B,)`.

        Returns:
            Logits, with shape `(B, H W)`.
        """
        return self.decoder(summary, self.check(summary, label), budget)

    def check(self, summary: Tensor, label: Tensor | None) -> Tensor:
        """Labels `(B,)`; refuses a summary or labels that do not fit."""
        if summary.dim() != 4 or tuple(summary.shape[1:]) != (1, SUMMARY, SUMMARY):
            raise DataError(f"a summary has shape (B, 1, {SUMMARY}, {SUMMARY}), got {tuple(summary.shape)}")
        if label is None:
            return torch.full((len(summary),), UNKNOWN, device=summary.device)
        if label.shape != summary.shape[:1]:
            raise DataError(f"one label per image is needed, shape ({len(summary)},), got {tuple(label.shape)}")
        classes = self.num_labels or 0
        if label.numel() and not label.is_meta and not UNKNOWN <= int(label.min()) <= int(label.max()) < classes:
            found = f"{int(label.min())}..{int(label.max())}"
            raise DataError(f"labels {found} are not possible: this designer knows {classes} classes")
        return label

    def keep_logits(self, summary: Tensor | None, label: Tensor | None, budget: Tensor) -> Tensor:
        if summary is None:
            raise DataError("the one-shot designer needs a summary: give Side(summary=..., label=...)")
        if len(summary) != len(budget):
            raise DataError(f"one summary per image is needed: {len(budget)} images, {len(summary)} summaries")
        return self(summary, None if self.num_labels is None else label, budget)
