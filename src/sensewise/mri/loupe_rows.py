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
from sensewise.loupe import ProbabilityMap, relaxed_mask
from sensewise.metrics import nmse
from sensewise.mri.kspace import keep_rows, magnitude, relaxed_rows, to_kspace
from sensewise.mri.row_masks import best_rows, count_rows
from sensewise.mri.search import export_mask
from sensewise.networks.recon_unet import PaperUNet
from sensewise.training import FitSettings, How, Objective, fit


class LoupeRows(nn.Module):
    """The mask layers and the reconstructor.

    Args:
        rows: of k-space.
        budget: the mean of the probabilities.
        base: channels of the U-Net at full resolution.
    """

    def __init__(self, rows: int, budget: float, base: int) -> None:
        super().__init__()
        self.map = ProbabilityMap((rows,), budget)
        self.network = PaperUNet(base)

    def forward(self, image: Tensor, noise: Tensor) -> Tensor:
        """Reconstructions of magnitudes `(B, H, W)` from rows drawn with uniform noise `(B, H)`."""
        weights = relaxed_mask(self.map(), noise)
        return self.network(relaxed_rows(to_kspace(image.to(torch.complex64)), weights), weights)


@dataclass(frozen=True)
class LoupeRowsSettings:
    """Everything that `sensewise train loupe-rows` needs to know.

    Attributes:
        batch_size: slices to a step.
        base: channels of its U-Net at full resolution.
        calm: the run ends when at most this fraction of the rows has changed from one look to the next,
        patience: so many times in a row.
    """

    batch_size: int = 8
    base: int = 16
    calm: float = 0.02
    patience: int = 20
    fit: FitSettings = field(default_factory=FitSettings)

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.base % 8 or self.patience < 1:
            raise ConfigError("batch_size and patience must be at least 1 and base a multiple of 8")


class LoupeRowsObjective(Objective):
    """Mean absolute error of magnitudes, each slice scaled by its maximum."""

    model: LoupeRows
    forward_methods = ()

    def __init__(
        self, model: LoupeRows, train: Tensor, val: Tensor, k: int, acs: int, settings: LoupeRowsSettings
    ) -> None:
        self.model, self.train, self.val, self.k, self.acs = model, train, val, k, acs
        self.settings = settings
        self.last, self.calm = self.mask(model), torch.zeros((), dtype=torch.int64)  # calm: looks in a row

    def state(self) -> dict[str, Tensor]:
        return {"last": self.last, "calm": self.calm}

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.last, self.calm = state["last"], state["calm"]

    def settled(self) -> bool:
        return int(self.calm) >= self.settings.patience

    def mask(self, model: LoupeRows) -> Tensor:
        """The ACS block and the rows of highest probability, bool `(H,)`."""
        return best_rows(model.map().detach(), self.k, self.acs)

    def loss(self, model: nn.Module, step: int, generator: Generator) -> Tensor:
        index = torch.randint(len(self.train), (self.settings.batch_size,), generator=generator)
        u = torch.rand(self.settings.batch_size, self.train.shape[1], generator=generator)
        x = magnitude(self.train[self.share(index)])
        x = x / x.amax((1, 2), keepdim=True)
        return (model(x, self.share(u)) - x).abs().mean()

    @torch.inference_mode()
    def validate(self, model: LoupeRows) -> dict[str, float]:
        """NMSE of its own U-Net under its mask, and the fraction of rows that changed since the last look."""
        mask, kspace = self.mask(model), self.val[:32]
        changed = int((mask & ~self.last).sum()) / self.k
        self.last, self.calm = mask, self.calm + 1 if changed <= self.settings.calm else torch.zeros_like(self.calm)
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
    objective = LoupeRowsObjective(model, train.kspace, val.kspace, k, acs, settings)
    complete = fit(objective, settings.fit, config, folder, **how)
    if complete:
        export_mask(folder, objective.mask(model))
    return complete
