"""The relaxed row profile: one score per row, trained against reconstructor A through a straight-through top-k mask."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from sensewise import hub
from sensewise.data.scenes import Scenes
from sensewise.files import fingerprint, write_json
from sensewise.kspace import acs_rows, magnitude, relaxed_rows
from sensewise.metrics import nmse
from sensewise.policies.simple import best_rows, row_energy
from sensewise.policies.starts import count_rows
from sensewise.train.gradient import FitSettings, Objective
from sensewise.train.recipe import GradientRecipe
from sensewise.train.search import MaskError


@dataclass(frozen=True)
class RelaxedSettings:
    """Everything that `sensewise train row-profile` needs to know.

    Attributes:
        batch_size: slices per step.
        temperature: of the sigmoid whose gradient stands in for the top-k's.
        judge_slices: training slices on which the best mask is kept.
    """

    batch_size: int = 8
    temperature: float = 0.25
    judge_slices: int = 128
    fit: FitSettings = field(default_factory=FitSettings)


class RowScores(nn.Module):
    """One score per row, at the start the log of its energy, in units of its spread.

    Args:
        energy: share of the energy in each row, with shape `(H,)`.
        k: rows of the mask.
        acs: rows of the ACS block.
        temperature: of the straight-through sigmoid.
    """

    free: Tensor
    index: Tensor

    def __init__(self, energy: Tensor, k: int, acs: int, temperature: float) -> None:
        super().__init__()
        level = energy.log()
        self.scores = nn.Parameter((level - level.mean()) / level.std())
        self.k, self.acs, self.temperature = k, acs, temperature
        free = ~acs_rows(len(energy), acs)
        self.register_buffer("free", free, persistent=False)
        self.register_buffer("index", free.nonzero()[:, 0], persistent=False)

    def hard(self) -> Tensor:
        """The mask of the present scores, bool `(H,)`."""
        return best_rows(self.scores.detach(), self.k, self.acs)

    def forward(self) -> Tensor:
        """The hard mask as numbers `(H,)`, with the gradient of a sigmoid around the threshold."""
        ordered = self.scores.detach()[self.index].sort(descending=True).values
        left = self.k - self.acs
        threshold = (ordered[max(left - 1, 0)] + ordered[min(left, len(ordered) - 1)]) / 2
        soft = ((self.scores - threshold) / self.temperature).sigmoid()
        return self.hard().float() + torch.where(self.free, soft - soft.detach(), 0.0)


class RelaxedObjective(Objective):
    """A's mean NMSE under the straight-through mask; the best mask on the training split is kept.

    Args:
        scores: what is trained.
        network: reconstructor A; frozen.
        scenes: slices to learn from.
        settings: batch, and how many slices judge a mask.
    """

    model: RowScores

    def __init__(self, scores: RowScores, network: nn.Module, scenes: Scenes, settings: RelaxedSettings) -> None:
        self.model, self.network, self.scenes, self.settings = scores, network, scenes, settings
        self.frozen = (network,)
        self.best = scores.hard()
        self.best_nmse = torch.tensor(torch.inf)

    def state(self) -> dict[str, Tensor]:
        return {"best": self.best, "best_nmse": self.best_nmse}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.best, self.best_nmse = state["best"], state["best_nmse"]

    def loss(self, model: nn.Module, step: int, generator: Generator) -> Tensor:
        index = torch.randint(len(self.scenes), (self.settings.batch_size,), generator=generator)
        kspace, _ = self.draw(self.scenes, self.team.share(index))
        weights = model()
        x_hat = self.network(relaxed_rows(kspace, weights), weights.expand(len(kspace), -1))
        return nmse(x_hat, magnitude(kspace)).mean()

    def validate(self, model: RowScores) -> dict[str, float]:
        """A's NMSE on some training slices with the present mask."""
        mask = model.hard().cpu()
        error = MaskError(self.network, self.scenes.values, device=self.device)
        value = error(mask, self.settings.judge_slices)
        changed = int((mask & ~self.best).sum())
        if value < self.best_nmse:
            self.best, self.best_nmse = mask, torch.tensor(value)
        return {"nmse": value, "best": float(self.best_nmse), "rows_changed": changed}

    def export(self, folder: Path, card: Mapping[str, Any], average: nn.Module) -> None:
        """The best mask: it is all that comes of the scores."""
        hub.save_mask(folder, self.best)
        write_json(folder / hub.CONFIG, card)


@dataclass(frozen=True)
class RelaxedRecipe(GradientRecipe):
    """How a row profile is trained at one budget."""

    settings: RelaxedSettings
    scenes: Scenes
    acs: int
    network: nn.Module
    budget: float

    kind = "relaxed-profile"

    def model(self) -> dict[str, Any]:
        return {"k": count_rows(self.budget, self.scenes.shape[-2], self.acs), "acs": self.acs}

    def about(self) -> dict[str, Any]:
        return {"reconstructor": fingerprint(self.network)}

    def fresh(self) -> RowScores:
        return RowScores(row_energy(self.scenes.values), **self.model(), temperature=self.settings.temperature)

    def objective(self, model: RowScores) -> RelaxedObjective:
        return RelaxedObjective(model, self.network, self.scenes, self.settings)
