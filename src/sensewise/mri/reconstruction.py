"""Train the two reconstructors: U-Net A, which masks are optimised against, and U-Net B, which judges them.

Both see the six heuristic families of masks only, so a trained mask never meets B before it is scored. The loss is
the NMSE divided by the zero-filled NMSE of the same sample: plain NMSE would let low budgets dominate.
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Unpack

import torch
from torch import Generator, Tensor, nn

from sensewise.data.fastmri import Slices
from sensewise.errors import ConfigError
from sensewise.metrics import nmse
from sensewise.mri import row_masks
from sensewise.mri.kspace import keep_rows, magnitude, mirror
from sensewise.mri.models import build_reconstructor
from sensewise.reconstruct import UNetReconstructor
from sensewise.sensors import Side
from sensewise.training import FitSettings, How, Objective, fit


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
        batch_size: slices to a step.
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
    """One mask a slice, of a random family and a random budget; `(B, rows)`."""
    families = torch.randint(len(row_masks.FAMILIES), (batch,), generator=generator).tolist()
    budgets = (low + (high - low) * torch.rand(batch, generator=generator)).tolist()
    drawn = []
    for number, budget in zip(families, budgets, strict=True):
        family, k = row_masks.FAMILIES[number], max(2, round(budget * rows))
        k = max(k, acs) if family.startswith("acs-") else k
        drawn.append(row_masks.draw(family, 1, rows, k, acs, generator))
    return torch.cat(drawn)


def augmented(kspace: Tensor, generator: Generator) -> Tensor:
    """Slices `(B, H, W)`, half of them mirrored, each with its phase turned by a constant."""
    flip = torch.rand(len(kspace), 1, 1, generator=generator) < 0.5
    angle = 2 * torch.pi * torch.rand(len(kspace), 1, 1, generator=generator)
    return torch.where(flip, mirror(kspace), kspace) * torch.polar(torch.ones(()), angle)


class ReconstructionObjective(Objective):
    """NMSE relative to zero filling, on heuristic masks.

    Args:
        network: k-space and mask to magnitudes.
        train: slices to learn from.
        val: slices to look at from time to time, on fixed masks; they decide nothing.
        acs: rows of the ACS block.
        settings: batch, budgets, augmentation.
    """

    forward_methods = ()

    def __init__(
        self, network: nn.Module, train: Slices, val: Slices, acs: int, settings: ReconstructorSettings
    ) -> None:
        self.model, self.train, self.val, self.acs, self.settings = network, train, val, acs, settings

    def loss(self, model: nn.Module, step: int, generator: Generator) -> Tensor:
        s = self.settings
        kspace = self.train.kspace[torch.randint(len(self.train), (s.batch_size,), generator=generator)]
        kspace = augmented(kspace, generator) if s.augment else kspace
        mask = training_masks(len(kspace), kspace.shape[1], self.acs, s.min_budget, s.max_budget, generator)
        kspace, mask = self.share(kspace), self.share(mask)
        x, y = magnitude(kspace), keep_rows(kspace, mask)
        return (nmse(model(y, mask), x) / nmse(magnitude(y), x)).mean()

    def validate(self, model: nn.Module) -> dict[str, float]:
        """NMSE on variable density with the ACS block, at two budgets, beside zero filling's."""
        kspace = self.val.kspace[:64]
        x, values = magnitude(kspace), {}
        for budget in (0.25, 0.50):
            k = row_masks.count_rows(budget, kspace.shape[1], self.acs)
            generator = torch.Generator().manual_seed(0)
            mask = row_masks.draw("acs-variable-density", len(kspace), kspace.shape[1], k, self.acs, generator)
            y = keep_rows(kspace, mask)
            values[f"nmse_{budget}"] = nmse(UNetReconstructor(model)(y, mask, Side()), x).mean().item()
            values[f"zero_filled_{budget}"] = nmse(magnitude(y), x).mean().item()
        return values


def train_reconstructor(
    settings: ReconstructorSettings,
    train: Slices,
    val: Slices,
    acs: int,
    folder: Path,
    **how: Unpack[How],
) -> bool:
    """Train a reconstructor in `folder`; True if the run is complete."""
    height, width = train.kspace.shape[1:]
    network = {"name": settings.network.name, **settings.network.options(height)}
    training = dataclasses.asdict(settings)
    training.pop("network")
    config = {
        "kind": "reconstructor",
        "data": train.name,
        "model": {"shape": [height, width], "acs": acs, "network": network},
        "training": training,
    }
    with torch.random.fork_rng():
        torch.manual_seed(settings.fit.seed)
        model = build_reconstructor(config)
    objective = ReconstructionObjective(model, train, val, acs, settings)
    return fit(objective, settings.fit, config, folder, **how)
