"""The relaxed row profile: one score a row, trained against reconstructor A through a straight-through top-k mask."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack

import torch
from torch import Generator, Tensor, nn

from sensewise.checkpoint import fingerprint
from sensewise.data.fastmri import Slices
from sensewise.metrics import nmse
from sensewise.mri.kspace import acs_rows, magnitude, relaxed_rows
from sensewise.mri.row_masks import best_rows, count_rows, row_energy
from sensewise.mri.search import MaskError, export_mask
from sensewise.training import FitSettings, How, Objective, fit


@dataclass(frozen=True)
class RelaxedSettings:
    """Everything that `sensewise train row-profile` needs to know.

    Attributes:
        batch_size: slices to a step.
        temperature: of the sigmoid whose gradient stands in for the top-k's.
        judge_slices: training slices on which the best mask is kept.
    """

    batch_size: int = 8
    temperature: float = 0.25
    judge_slices: int = 128
    fit: FitSettings = field(default_factory=FitSettings)


class RowScores(nn.Module):
    """One score a row, at the start the log of its energy, in units of its spread.

    Args:
        energy: share of the energy in each row, with shape `(H,)`.
        k: rows of the mask.
        acs: rows of the ACS block.
        temperature: of the straight-through sigmoid.
    """

    def __init__(self, energy: Tensor, k: int, acs: int, temperature: float) -> None:
        super().__init__()
        level = energy.log()
        self.scores = nn.Parameter((level - level.mean()) / level.std())
        self.k, self.acs, self.temperature = k, acs, temperature

    def hard(self) -> Tensor:
        """The mask of the present scores, bool `(H,)`."""
        return best_rows(self.scores.detach(), self.k, self.acs)

    def forward(self) -> Tensor:
        """The hard mask as numbers `(H,)`, with the gradient of a sigmoid around the threshold."""
        hard = self.hard()
        free = ~acs_rows(len(hard), self.acs)
        ordered = self.scores.detach()[free].sort(descending=True).values
        left = self.k - self.acs
        threshold = (ordered[max(left - 1, 0)] + ordered[min(left, len(ordered) - 1)]) / 2
        soft = ((self.scores - threshold) / self.temperature).sigmoid()
        return hard.float() + torch.where(free, soft - soft.detach(), 0.0)


class RelaxedObjective(Objective):
    """A's mean NMSE under the straight-through mask; the best mask on the training split is kept."""

    model: RowScores
    forward_methods = ()

    def __init__(self, model: RowScores, network: nn.Module, train: Tensor, settings: RelaxedSettings) -> None:
        self.model, self.network, self.train, self.settings = model, network, train, settings
        self.error = MaskError(network, train)
        self.best, self.best_nmse = model.hard(), torch.tensor(torch.inf)

    def state(self) -> dict[str, Tensor]:
        return {"best": self.best, "best_nmse": self.best_nmse}

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.best, self.best_nmse = state["best"], state["best_nmse"]

    def loss(self, model: nn.Module, step: int, generator: Generator) -> Tensor:
        index = torch.randint(len(self.train), (self.settings.batch_size,), generator=generator)
        kspace = self.train[self.share(index)]
        weights = model()
        x_hat = self.network(relaxed_rows(kspace, weights), weights.expand(len(kspace), -1))
        return nmse(x_hat, magnitude(kspace)).mean()

    def validate(self, model: RowScores) -> dict[str, float]:
        """A's NMSE on some training slices with the present mask."""
        mask = model.hard()
        value = self.error(mask, self.settings.judge_slices)
        changed = int((mask & ~self.best).sum())
        if value < self.best_nmse:
            self.best, self.best_nmse = mask, torch.tensor(value)
        return {"nmse": value, "best": float(self.best_nmse), "rows_changed": changed}


def train_relaxed(
    settings: RelaxedSettings,
    train: Slices,
    val: Slices,  # noqa: ARG001 -- every trainer takes the same arguments
    acs: int,
    network: nn.Module,
    budget: float,
    folder: Path,
    **how: Unpack[How],
) -> bool:
    """Train a profile for one budget in `folder` and export its best mask; True if the run is complete."""
    k = count_rows(budget, train.kspace.shape[1], acs)
    config = {
        "kind": "relaxed-profile",
        "data": train.name,
        "reconstructor": fingerprint(network),
        "model": {"k": k, "acs": acs},
        "training": dataclasses.asdict(settings),
    }
    scores = RowScores(row_energy(train.kspace), k, acs, settings.temperature)
    objective = RelaxedObjective(scores, network, train.kspace, settings)
    complete = fit(objective, settings.fit, config, folder, **how)
    if complete:
        export_mask(folder, objective.best)
    return complete
