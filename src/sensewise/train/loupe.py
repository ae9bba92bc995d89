"""Train LOUPE, budget by budget: on pixels and on rows of k-space, each with a U-Net of its own.

Bahadir et al., "Deep-learning-based optimization of the under-sampling pattern in MRI", 2020. As in the original, the
forward model of rows starts from magnitudes, so its k-space is Hermitian, which real k-space is not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from sensewise import hub, masks
from sensewise.data.scenes import Scenes
from sensewise.errors import ConfigError
from sensewise.kspace import keep_rows, magnitude, mirrored_pairs
from sensewise.metrics import errors, nmse
from sensewise.networks.loupe import Loupe, LoupeRows
from sensewise.policies.simple import best_rows
from sensewise.policies.starts import count_rows
from sensewise.reconstruct.unet import LoupeReconstructor
from sensewise.tokens import dequantize, observe, quantize
from sensewise.train.gradient import FitSettings, Objective
from sensewise.train.recipe import GradientRecipe


class Settling(Objective):
    """Base of objectives whose run ends when their mask has settled.

    Attributes:
        settings: `calm`, the fraction of a mask that may change from one look to the next, and `patience`, how many
            looks in a row have to be calm.
        first: the mask of the fresh weights.
        last: the mask at the last look.
        calm: calm looks in a row.
    """

    settings: "LoupeSettings | LoupeRowsSettings"
    first: Tensor
    last: Tensor
    calm: Tensor

    def start_from(self, mask: Tensor) -> None:
        """Begin with the mask of the fresh weights, bool `(K,)`."""
        self.rates = {"map.weight": self.settings.map_rate}
        self.first = mask
        self.last = mask.clone()
        self.calm = torch.zeros((), dtype=torch.int64)

    def state(self) -> dict[str, Tensor]:
        return {"first": self.first, "last": self.last, "calm": self.calm}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.first, self.last, self.calm = state["first"], state["last"], state["calm"]

    def settled(self) -> bool:
        return int(self.calm) >= self.settings.patience

    def compare(self, mask: Tensor) -> dict[str, float]:
        """The fraction that changed since the last look, and for how many looks in a row that was little."""
        changed = int((mask & ~self.last.to(mask.device)).sum()) / int(mask.sum())
        self.calm = self.calm + 1 if changed <= self.settings.calm else torch.zeros_like(self.calm)
        self.last = mask
        return {"changed": changed, "calm": int(self.calm)}

    def from_start(self, chosen: Tensor) -> float:
        """The fraction of chosen actions that the first mask had."""
        return int((chosen & self.first.to(chosen.device)).sum()) / max(1, int(chosen.sum()))


@dataclass(frozen=True)
class LoupeSettings:
    """Everything that `sensewise train loupe` needs to know.

    Attributes:
        budgets: one run each.
        batch_size: images per step.
        widths: of its U-Net.
        blocks: of its U-Net.
        calm: the run ends when at most this fraction of the top-k pixels has changed from one look to the next,
        patience: so many times in a row.
        map_rate: learning rate of the probabilities over that of the U-Net.
        hard: whether masks of 0 and 1 are shown to the U-Net; the paper's are soft.
    """

    budgets: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3)
    batch_size: int = 64
    widths: tuple[int, ...] = (32, 64, 128)
    blocks: tuple[int, ...] = (1, 1, 1)
    fit: FitSettings = field(default_factory=FitSettings)
    calm: float = 0.02
    patience: int = 20
    map_rate: float = 1.0
    hard: bool = False

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.patience < 1:
            raise ConfigError(f"batch_size and patience must be at least 1, got {self.batch_size} and {self.patience}")
        wrong = [budget for budget in self.budgets if not 0 < budget < 1]
        if wrong or not self.budgets:
            raise ConfigError(f"budgets must be fractions between 0 and 1, got {list(self.budgets)}")


class LoupeObjective(Settling):
    """The mean absolute error of the reconstruction from relaxed masks.

    Args:
        loupe: what is trained.
        scenes: images to learn from.
        held_out: images to judge by, at most 512 of them.
        settings: batch, and when the mask has settled.
    """

    model: Loupe

    def __init__(self, loupe: Loupe, scenes: Scenes, held_out: Scenes, settings: LoupeSettings) -> None:
        self.model, self.scenes, self.held_out, self.settings = loupe, scenes, held_out.first(512), settings
        self.start_from(self.mask(loupe))

    @torch.no_grad()
    def mask(self, model: Loupe) -> Tensor:
        """The pixels of highest probability, bool `(K,)`."""
        probs = model.map().flatten()
        return masks.top_k(probs[None], masks.count(model.map.budget, len(probs)))[0]

    def loss(self, model: Loupe, step: int, generator: Generator) -> Tensor:
        index = torch.randint(len(self.scenes), (self.settings.batch_size,), generator=generator)
        u = torch.rand(self.settings.batch_size, *self.scenes.shape[1:], generator=generator)
        x, _ = self.draw(self.scenes, self.team.share(index))
        target = dequantize(x, self.model.num_states)
        return (model(x, self.team.share(u).to(self.device)) - target).abs().mean()

    @torch.inference_mode()
    def validate(self, model: Loupe) -> dict[str, float]:
        """How its masks do under its own U-Net, how its map moves, and what became of the pixels it began with.

        Returns:
            Errors per image with the top-k mask and with sampled ones; the fraction of probabilities between 0.1 and
            0.9; the fraction of the top-k mask that changed since the last look, and for how many looks in a row that
            was little; the fraction of it that the first mask had.
        """
        x, _ = self.draw(self.held_out, slice(None))
        budget = torch.full((len(x),), model.map.budget, device=self.device)
        logits = model.keep_logits(None, None, budget).cpu()
        k = masks.count(model.map.budget, logits.shape[1])
        drawn = {
            "topk": masks.top_k(logits, k),
            "sampled": masks.sample_on_budget(logits, k, torch.Generator().manual_seed(0)),
        }
        rebuild, values = LoupeReconstructor(model), {}
        for name, mask in drawn.items():
            mask = mask.to(self.device)
            x_hat = quantize(rebuild(observe(x, mask), mask), model.num_states)
            values[f"errors_{name}"] = errors(x_hat, x).mean().item()
        p = torch.sigmoid(logits[0])
        values["undecided"] = ((p > 0.1) & (p < 0.9)).float().mean().item()
        mask = self.mask(model)
        return values | self.compare(mask) | {"from_start": self.from_start(mask)}


@dataclass(frozen=True)
class LoupeRecipe(GradientRecipe):
    """How LOUPE for pixels is trained at one budget."""

    settings: LoupeSettings
    scenes: Scenes
    held_out: Scenes
    budget: float

    kind = "loupe"
    elsewhere = ("budgets", "widths", "blocks", "hard")

    def model(self) -> dict[str, Any]:
        return {
            "shape": list(self.scenes.shape),
            "num_states": self.scenes.num_states,
            "budget": self.budget,
            "widths": list(self.settings.widths),
            "blocks": list(self.settings.blocks),
            **({"hard": True} if self.settings.hard else {}),
        }

    def objective(self, model: Loupe) -> LoupeObjective:
        return LoupeObjective(model, self.scenes, self.held_out, self.settings)


def loupe_name(dataset: str, budget: float) -> str:
    """How the run of one budget is called, and its folder in `runs/` or among the bundled models."""
    return f"{dataset}-loupe-{budget:g}"


def loupe_recipes(settings: LoupeSettings, scenes: Scenes, held_out: Scenes) -> dict[str, LoupeRecipe]:
    """One recipe per budget of the settings, by the names of their runs."""
    return {
        loupe_name(scenes.name, budget): LoupeRecipe(settings, scenes, held_out, budget) for budget in settings.budgets
    }


@dataclass(frozen=True)
class LoupeRowsSettings:
    """Everything that `sensewise train loupe-rows` needs to know.

    Attributes:
        batch_size: slices per step.
        base: channels of its U-Net at full resolution.
        calm: the run ends when at most this fraction of the rows has changed from one look to the next,
        patience: so many times in a row.
        map_rate: learning rate of the probabilities over that of the U-Net.
    """

    batch_size: int = 8
    base: int = 16
    calm: float = 0.02
    patience: int = 20
    map_rate: float = 1.0
    fit: FitSettings = field(default_factory=FitSettings)

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.base % 8 or self.patience < 1:
            raise ConfigError("batch_size and patience must be at least 1 and base a multiple of 8")


class LoupeRowsObjective(Settling):
    """Mean absolute error of magnitudes, each slice scaled by its maximum.

    Args:
        loupe: what is trained.
        scenes: slices to learn from.
        held_out: slices to judge by.
        k: rows of the mask, the ACS block included.
        acs: rows of the ACS block.
        settings: batch, and when the mask has settled.
    """

    model: LoupeRows

    def __init__(
        self, loupe: LoupeRows, scenes: Scenes, held_out: Scenes, k: int, acs: int, settings: LoupeRowsSettings
    ) -> None:
        self.model, self.scenes, self.held_out = loupe, scenes, held_out
        self.k, self.acs, self.settings = k, acs, settings
        self.start_from(self.mask(loupe))

    def mask(self, model: LoupeRows) -> Tensor:
        """The ACS block and the rows of highest probability, bool `(H,)`."""
        return best_rows(model.probs().detach(), self.k, self.acs)

    def loss(self, model: LoupeRows, step: int, generator: Generator) -> Tensor:
        index = torch.randint(len(self.scenes), (self.settings.batch_size,), generator=generator)
        u = torch.rand(self.settings.batch_size, self.scenes.shape[-2], generator=generator)
        kspace, _ = self.draw(self.scenes, self.team.share(index))
        x = magnitude(kspace)
        x = x / x.amax((1, 2), keepdim=True)
        return (model(x, self.team.share(u).to(self.device)) - x).abs().mean()

    @torch.inference_mode()
    def validate(self, model: LoupeRows) -> dict[str, float]:
        """How its mask does under its own U-Net, how it moves, and what became of the rows it began with.

        Returns:
            NMSE; the fraction of rows that changed since the last look, and for how many looks in a row that was
            little; of the rows outside the ACS block, the fraction that the first mask had, and how many lie in
            mirrored pairs; the fraction of probabilities between 0.1 and 0.9.
        """
        mask = self.mask(model)
        kspace, _ = self.draw(self.held_out, slice(0, 32))
        rows = mask.expand(len(kspace), -1)
        own = nmse(model.network(keep_rows(kspace, rows), rows), magnitude(kspace)).mean().item()
        chosen = mask & model.free
        p = model.map()
        return {
            "nmse": own,
            **self.compare(mask),
            "from_start": self.from_start(chosen),
            "pairs": int(mirrored_pairs(chosen)),
            "undecided": ((p > 0.1) & (p < 0.9)).float().mean().item(),
        }

    def export(self, folder: Path, card: Mapping[str, Any], average: nn.Module) -> None:
        hub.save_mask(folder, self.mask(self.model))
        super().export(folder, card, average)


@dataclass(frozen=True)
class LoupeRowsRecipe(GradientRecipe):
    """How LOUPE for rows of k-space is trained at one budget."""

    settings: LoupeRowsSettings
    scenes: Scenes
    held_out: Scenes
    acs: int
    budget: float

    kind = "loupe-rows"

    @property
    def k(self) -> int:
        """Rows of the mask, the ACS block included."""
        return count_rows(self.budget, self.scenes.shape[-2], self.acs)

    def model(self) -> dict[str, Any]:
        rows = self.scenes.shape[-2]
        return {"rows": rows, "budget": self.budget, "base": self.settings.base, "k": self.k, "acs": self.acs}

    def objective(self, model: LoupeRows) -> LoupeRowsObjective:
        return LoupeRowsObjective(model, self.scenes, self.held_out, self.k, self.acs, self.settings)
