"""Train the coarse prior over profiles of k-space rows: an absorbing prior over tokens `(1, rows, 1)`."""

from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Generator, Tensor

from sensewise.data.scenes import Scenes
from sensewise.kspace import acs_rows
from sensewise.priors.base import Prior
from sensewise.sensors.rows import BINS, RowProfile
from sensewise.tokens import MASK, UNKNOWN
from sensewise.train.gradient import FitSettings, Objective
from sensewise.train.recipe import GradientRecipe


@dataclass(frozen=True)
class RowPriorSettings:
    """Everything that `sensewise train row-prior` needs to know."""

    batch_size: int = 64
    width: int = 64
    layers: int = 4
    fit: FitSettings = field(default_factory=FitSettings)


class RowPriorObjective(Objective):
    """Cross-entropy of hidden rows; the ACS block is always seen, the others survive with a uniform probability.

    Args:
        prior: what is trained.
        tokens: profiles to learn from, with shape `(n, 1, H, 1)`.
        held_out: profiles to judge by, likewise.
        acs: rows of the ACS block.
        batch_size: over all processes.
    """

    model: Prior
    forward_methods = ("predict",)

    def __init__(self, prior: Prior, tokens: Tensor, held_out: Tensor, acs: int, batch_size: int) -> None:
        self.model, self.tokens, self.held_out, self.batch_size = prior, tokens, held_out, batch_size
        self.block = acs_rows(tokens.shape[2], acs)

    def _masks(self, batch: int, generator: Generator) -> Tensor:
        survival = torch.rand(batch, 1, generator=generator)
        return (torch.rand(batch, len(self.block), generator=generator) < survival) | self.block

    def _nats(self, model: Prior, x: Tensor, mask: Tensor) -> Tensor:
        x, mask = x.to(self.device), mask.to(self.device)
        y = torch.where(mask[:, None, :, None], x, MASK)
        prediction = model.predict(y, torch.full((len(y),), UNKNOWN, device=self.device), None)
        return prediction.cross_entropy(x, y == MASK) / (~mask).sum(1).clamp(min=1)

    def loss(self, model: Prior, step: int, generator: Generator) -> Tensor:
        index = torch.randint(len(self.tokens), (self.batch_size,), generator=generator)
        mask = self._masks(self.batch_size, generator)
        x = self.tokens[self.team.share(index).to(self.tokens.device)]
        return self._nats(model, x, self.team.share(mask)).mean()

    @torch.inference_mode()
    def validate(self, model: Prior) -> dict[str, float]:
        """Nats per hidden row on held-out slices, fixed masks."""
        mask = self._masks(len(self.held_out), torch.Generator().manual_seed(0))
        return {"nats_per_row": self._nats(model, self.held_out, mask).mean().item()}


@dataclass(frozen=True)
class RowPriorRecipe(GradientRecipe):
    """How the coarse prior over rows is trained."""

    settings: RowPriorSettings
    scenes: Scenes
    held_out: Scenes
    acs: int

    kind = "prior"
    elsewhere = ("width", "layers")

    @cached_property
    def profile(self) -> RowProfile:
        """How rows become tokens, from the slices to learn from."""
        return RowProfile.of(self.scenes.values, self.acs)

    def model(self) -> dict[str, Any]:
        settings = self.settings
        network = {"network": "rows", "width": settings.width, "layers": settings.layers}
        return {"shape": [1, self.scenes.shape[-2], 1], "num_states": BINS, "num_labels": None, **network}

    def about(self) -> dict[str, Any]:
        return {"profile": asdict(self.profile)}

    def objective(self, model: Prior) -> RowPriorObjective:
        tokens = self.profile.all_tokens(self.scenes.values)
        held_out = self.profile.all_tokens(self.held_out.values)
        return RowPriorObjective(model, tokens, held_out, self.acs, self.settings.batch_size)
