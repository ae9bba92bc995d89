"""LOUPE for whole rows: a probability a row, trained together with a U-Net of its own.

Bahadir et al., "Deep-learning-based optimization of the under-sampling pattern in MRI", 2020. As in the original, the
forward model starts from magnitudes, so its k-space is Hermitian, which real k-space is not.
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack

import torch
from torch import Generator, Tensor, nn

from sensewise.data.fastmri import Slices
from sensewise.errors import ConfigError
from sensewise.metrics import nmse
from sensewise.mri.kspace import keep_rows, magnitude, relaxed_rows, to_kspace
from sensewise.mri.row_masks import best_rows, count_rows
from sensewise.mri.search import export_mask
from sensewise.networks.recon_unet import PaperUNet
from sensewise.training import FitSettings, How, Objective, fit

PROBABILITY_SLOPE, THRESHOLD_SLOPE = 5.0, 12.0


def rescaled(probs: Tensor, budget: float) -> Tensor:
    """Probabilities moved linearly towards 0 or 1, so that their mean is the budget; order and range are kept."""
    mean = probs.mean()
    return torch.where(mean >= budget, probs * budget / mean, 1 - (1 - probs) * (1 - budget) / (1 - mean))


class LoupeRows(nn.Module):
    """The mask layers and the reconstructor.

    Args:
        rows: of k-space.
        budget: the mean of the probabilities.
        base: channels of the U-Net at full resolution.
    """

    def __init__(self, rows: int, budget: float, base: int) -> None:
        super().__init__()
        start = torch.rand(rows).clamp(0.01, 0.99)
        self.logits = nn.Parameter(torch.logit(start) / PROBABILITY_SLOPE)
        self.budget = budget
        self.network = PaperUNet(base)

    def probabilities(self) -> Tensor:
        """The chance of each row, mean = budget, `(H,)`."""
        return rescaled((PROBABILITY_SLOPE * self.logits).sigmoid(), self.budget)

    def forward(self, image: Tensor, noise: Tensor) -> Tensor:
        """Reconstructions of magnitudes `(B, H, W)` from rows drawn with uniform noise `(B, H)`."""
        weights = (THRESHOLD_SLOPE * (self.probabilities() - noise)).sigmoid()
        return self.network(relaxed_rows(to_kspace(image.to(torch.complex64)), weights), weights)


@dataclass(frozen=True)
class LoupeRowsSettings:
    """Everything that `sensewise train loupe-rows` needs to know."""

    batch_size: int = 8
    base: int = 16
    fit: FitSettings = field(default_factory=FitSettings)

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.base % 8:
            raise ConfigError("batch_size must be at least 1 and base a multiple of 8")


class LoupeRowsObjective(Objective):
    """Mean absolute error of magnitudes, each slice scaled by its maximum."""

    model: LoupeRows
    forward_methods = ()

    def __init__(self, model: LoupeRows, train: Tensor, val: Tensor, k: int, acs: int, batch_size: int) -> None:
        self.model, self.train, self.val, self.k, self.acs, self.batch_size = model, train, val, k, acs, batch_size
        self.last = self.mask(model)

    def mask(self, model: LoupeRows) -> Tensor:
        """The ACS block and the rows of highest probability, bool `(H,)`."""
        return best_rows(model.probabilities().detach(), self.k, self.acs)

    def loss(self, model: nn.Module, step: int, generator: Generator) -> Tensor:
        index = torch.randint(len(self.train), (self.batch_size,), generator=generator)
        u = torch.rand(self.batch_size, self.train.shape[1], generator=generator)
        x = magnitude(self.train[self.share(index)])
        x = x / x.amax((1, 2), keepdim=True)
        return (model(x, self.share(u)) - x).abs().mean()

    @torch.inference_mode()
    def validate(self, model: LoupeRows) -> dict[str, float]:
        """NMSE of its own U-Net under its mask, and the fraction of rows that changed since the last look."""
        mask, kspace = self.mask(model), self.val[:32]
        changed = int((mask & ~self.last).sum()) / self.k
        self.last = mask
        rows = mask.expand(len(kspace), -1)
        own = nmse(model.network(keep_rows(kspace, rows), rows), magnitude(kspace)).mean().item()
        return {"nmse": own, "changed": changed}


def train_loupe_rows(
    settings: LoupeRowsSettings,
    train: Slices,
    val: Slices,
    acs: int,
    budget: float,
    folder: Path,
    **how: Unpack[How],
) -> bool:
    """Train LOUPE for one budget in `folder` and export its mask; True if the run is complete."""
    rows = train.kspace.shape[1]
    k = count_rows(budget, rows, acs)
    config = {
        "kind": "loupe-rows",
        "data": train.name,
        "model": {"rows": rows, "k": k, "acs": acs},
        "training": dataclasses.asdict(settings),
    }
    with torch.random.fork_rng():
        torch.manual_seed(settings.fit.seed)
        model = LoupeRows(rows, budget, settings.base)
    objective = LoupeRowsObjective(model, train.kspace, val.kspace, k, acs, settings.batch_size)
    complete = fit(objective, settings.fit, config, folder, **how)
    if complete:
        export_mask(folder, objective.mask(model))
    return complete
