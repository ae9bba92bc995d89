"""Train the two reconstructors: U-Net A, which masks are optimised against, and U-Net B, which judges them.

Both see the six heuristic families of masks only, so a trained mask never meets B before it is scored. The loss is
the NMSE divided by the zero-filled NMSE of the same sample: plain NMSE would let low budgets dominate.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn

from sensewise.data.scenes import Scenes
from sensewise.errors import ConfigError
from sensewise.kspace import keep_rows, magnitude, mirror
from sensewise.metrics import nmse
from sensewise.policies.simple import FAMILY_NAMES, draw_rows
from sensewise.policies.starts import count_rows
from sensewise.reconstruct.unet import UNetReconstructor
from sensewise.train.gradient import FitSettings, Objective
from sensewise.train.recipe import GradientRecipe


@dataclass(frozen=True)
class ReconNetworkSettings:
    """Which network, and how large: `base` and `levels` are the paper's, the others the fast one's."""

    name: Literal["complex-unet", "paper-unet"] = "complex-unet"
    widths: tuple[int, ...] = (32, 64, 96)
    blocks: tuple[int, ...] = (1, 1, 1)
    patch: int = 2
    cascades: int = 1
    embedding: int = 64
    base: int = 32
    levels: int = 4

    def options(self, rows: int) -> dict[str, Any]:
        """What the network of this name takes."""
        if self.name == "paper-unet":
            return {"base": self.base, "levels": self.levels}
        return {
            "rows": rows,
            "widths": list(self.widths),
            "blocks": list(self.blocks),
            "patch": self.patch,
            "cascades": self.cascades,
            "embedding": self.embedding,
        }


@dataclass(frozen=True)
class ReconstructorSettings:
    """Everything that `sensewise train reconstructor` needs to know.

    Attributes:
        batch_size: slices per step.
        min_budget: lowest fraction of rows in training.
        max_budget: highest.
        augment: mirror half of the slices and turn each one's phase by a constant.
    """

    batch_size: int = 8
    min_budget: float = 0.10
    max_budget: float = 0.75
    augment: bool = True
    network: ReconNetworkSettings = field(default_factory=ReconNetworkSettings)
    fit: FitSettings = field(default_factory=FitSettings)

    def __post_init__(self) -> None:
        if self.batch_size < 1 or not 0 < self.min_budget <= self.max_budget < 1:
            raise ConfigError("batch_size must be at least 1 and 0 < min_budget <= max_budget < 1")


def training_masks(batch: int, rows: int, acs: int, low: float, high: float, generator: Generator) -> Tensor:
    """One mask per slice, of a random family and a random budget; `(B, rows)`."""
    families = torch.randint(len(FAMILY_NAMES), (batch,), generator=generator).tolist()
    budgets = (low + (high - low) * torch.rand(batch, generator=generator)).tolist()
    drawn = []
    for number, budget in zip(families, budgets, strict=True):
        family, k = FAMILY_NAMES[number], max(2, round(budget * rows))
        k = max(k, acs) if family.startswith("acs-") else k
        drawn.append(draw_rows(family, 1, rows, k, acs, generator))
    return torch.cat(drawn)


def augmented(kspace: Tensor, generator: Generator) -> Tensor:
    """Slices `(B, H, W)` or `(B, coils, H, W)`, half mirrored, each with its phase turned by a constant."""
    each = (len(kspace), *[1] * (kspace.dim() - 1))
    flip = torch.rand(each, generator=generator) < 0.5
    angle = 2 * torch.pi * torch.rand(each, generator=generator)
    turn = torch.polar(torch.ones(()), angle).to(kspace.device)
    return torch.where(flip.to(kspace.device), mirror(kspace), kspace) * turn


class ReconstructionObjective(Objective):
    """NMSE relative to zero filling, on heuristic masks.

    Args:
        network: k-space and mask to magnitudes.
        scenes: slices to learn from.
        held_out: slices to look at from time to time, on fixed masks; they decide nothing.
        acs: rows of the ACS block.
        settings: batch, budgets, augmentation.
    """

    def __init__(
        self, network: nn.Module, scenes: Scenes, held_out: Scenes, acs: int, settings: ReconstructorSettings
    ) -> None:
        self.model, self.scenes, self.held_out, self.acs, self.settings = network, scenes, held_out, acs, settings

    def loss(self, model: nn.Module, step: int, generator: Generator) -> Tensor:
        s, rows = self.settings, self.scenes.shape[-2]
        kspace, _ = self.draw(self.scenes, torch.randint(len(self.scenes), (s.batch_size,), generator=generator))
        kspace = augmented(kspace, generator) if s.augment else kspace
        mask = training_masks(s.batch_size, rows, self.acs, s.min_budget, s.max_budget, generator)
        kspace, mask = self.team.share(kspace), self.team.share(mask).to(self.device)
        x, y = magnitude(kspace), keep_rows(kspace, mask)
        return (nmse(model(y, mask), x) / nmse(magnitude(y), x)).mean()

    def validate(self, model: nn.Module) -> dict[str, float]:
        """NMSE on variable density with the ACS block, at two budgets, beside zero filling's."""
        kspace, _ = self.draw(self.held_out, slice(0, 64))
        x, rows, values = magnitude(kspace), kspace.shape[-2], {}
        for budget in (0.25, 0.50):
            k = count_rows(budget, rows, self.acs)
            generator = torch.Generator().manual_seed(0)
            mask = draw_rows("acs-variable-density", len(kspace), rows, k, self.acs, generator).to(self.device)
            y = keep_rows(kspace, mask)
            values[f"nmse_{budget}"] = nmse(UNetReconstructor(model)(y, mask), x).mean().item()
            values[f"zero_filled_{budget}"] = nmse(magnitude(y), x).mean().item()
        return values


@dataclass(frozen=True)
class ReconstructorRecipe(GradientRecipe):
    """How a reconstructor is trained."""

    settings: ReconstructorSettings
    scenes: Scenes
    held_out: Scenes
    acs: int

    kind = "reconstructor"
    elsewhere = ("network",)

    def model(self) -> dict[str, Any]:
        height, width = self.scenes.shape[-2:]
        network = self.settings.network
        return {
            "shape": [height, width],
            "acs": self.acs,
            "network": {"name": network.name, **network.options(height)},
        }

    def objective(self, model: nn.Module) -> ReconstructionObjective:
        return ReconstructionObjective(model, self.scenes, self.held_out, self.acs, self.settings)
