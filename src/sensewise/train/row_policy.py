"""Train the one-shot row policy of the paper: rows chosen before anything but the scout is measured.

Trained on the zero-filled error plus the entropy that the coarse prior has left, with a penalty that holds the expected
density at the budget. For independent rows the expected zero-filled error (of the complex image) is the energy of the
rows left out, in closed form (Parseval); the entropy's gradient is estimated by antithetic pairs (Dong et al.,
"DisARM", 2020).
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Generator, Tensor, nn

from sensewise import information
from sensewise.data.scenes import Scenes
from sensewise.errors import ConfigError
from sensewise.estimators import antithetic_pair, disarm
from sensewise.files import fingerprint
from sensewise.kspace import acs_rows, scout
from sensewise.predictions import Prediction
from sensewise.priors.base import Prior
from sensewise.sensors.rows import RowProfile
from sensewise.tokens import MASK
from sensewise.train.gradient import FitSettings, Objective
from sensewise.train.recipe import GradientRecipe


@dataclass(frozen=True)
class RowPolicySettings:
    """Everything that `sensewise train row-policy` needs to know.

    Attributes:
        batch_size: slices per step.
        min_budget: lowest budget in training.
        max_budget: highest.
        penalty: lambda, the weight of the squared distance from the budget.
        width: channels of the network.
        layers: of the network.
    """

    batch_size: int = 32
    min_budget: float = 0.1
    max_budget: float = 0.4
    penalty: float = 50.0
    width: int = 32
    layers: int = 3
    fit: FitSettings = field(default_factory=FitSettings)

    def __post_init__(self) -> None:
        if self.batch_size < 1 or not 0 < self.min_budget <= self.max_budget < 1:
            raise ConfigError("batch_size must be at least 1 and 0 < min_budget <= max_budget < 1")


def _mean_entropy(prediction: Prediction) -> Tensor:
    return information.whole_image(prediction.entropy())


class RowPolicyObjective(Objective):
    """Zero-filled error, coarse entropy and budget.

    Args:
        network: what is trained.
        prior: the coarse prior, frozen.
        profile: how rows become tokens.
        scenes: slices to learn from.
        held_out: slices to judge by.
        settings: batch, budgets, penalty.
    """

    def __init__(
        self,
        network: nn.Module,
        prior: Prior,
        profile: RowProfile,
        scenes: Scenes,
        held_out: Scenes,
        settings: RowPolicySettings,
    ) -> None:
        self.model, self.prior, self.profile = network, prior, profile
        self.frozen = (prior,)
        self.scenes, self.held_out, self.settings = scenes, held_out, settings

    def _terms(self, model: nn.Module, kspace: Tensor, budget: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Expected error, entropy and squared distance from the budget, `(B,)` each."""
        block = acs_rows(kspace.shape[-2], self.profile.acs).to(self.device)
        logits = model(scout(kspace, self.profile.acs), budget)
        probs = torch.where(block, 1.0, logits.sigmoid())
        energy = kspace.abs().square().sum(-1)
        error = ((1 - probs) * energy).sum(1) / energy.sum(1)
        fixed, tokens = logits.detach(), self.profile.all_tokens(kspace)

        def left(mask: Tensor) -> Tensor:
            seen = torch.where((mask | block)[:, None, :, None], tokens, MASK)
            return self.prior.in_chunks(_mean_entropy, seen, None).clone()

        first, second = (left(mask) for mask in antithetic_pair(fixed, u))
        gradient = torch.where(block, 0.0, disarm(fixed, u, first, second))
        linear = (logits * gradient).sum(1)
        entropy = (first + second) / 2 + linear - linear.detach()
        return error, entropy, (probs.mean(1) - budget).square()

    def loss(self, model: nn.Module, step: int, generator: Generator) -> Tensor:
        s = self.settings
        index = torch.randint(len(self.scenes), (s.batch_size,), generator=generator)
        budget = s.min_budget + (s.max_budget - s.min_budget) * torch.rand(s.batch_size, generator=generator)
        u = torch.rand(s.batch_size, self.scenes.shape[-2], generator=generator)
        kspace, _ = self.draw(self.scenes, self.team.share(index))
        budget, u = self.team.share(budget).to(self.device), self.team.share(u).to(self.device)
        error, entropy, off_budget = self._terms(model, kspace, budget, u)
        return (error + entropy + s.penalty * off_budget).mean()

    @torch.inference_mode()
    def validate(self, model: nn.Module) -> dict[str, float]:
        """Error, entropy and distance from the budget at s = 0.25 on held-out slices."""
        kspace, _ = self.draw(self.held_out, slice(0, 64))
        budget = torch.full((len(kspace),), 0.25, device=self.device)
        u = torch.rand(kspace.shape[:2], generator=torch.Generator().manual_seed(0)).to(self.device)
        error, entropy, off_budget = self._terms(model, kspace, budget, u)
        return {
            "error": error.mean().item(),
            "entropy": entropy.mean().item(),
            "off_budget": off_budget.mean().item(),
        }


@dataclass(frozen=True)
class RowPolicyRecipe(GradientRecipe):
    """How the one-shot row policy is trained, with or without the scout (`adaptive`)."""

    settings: RowPolicySettings
    scenes: Scenes
    held_out: Scenes
    acs: int
    prior: Prior
    profile: RowProfile
    adaptive: bool

    kind = "row-policy"
    part_of_model = ("width", "layers")

    def __post_init__(self) -> None:
        if self.profile.acs != self.acs:
            raise ConfigError(f"the row prior was trained with {self.profile.acs} ACS rows, the preset has {self.acs}")

    def model(self) -> dict[str, Any]:
        sizes = {"width": self.settings.width, "layers": self.settings.layers}
        return {"network": {"rows": self.scenes.shape[-2], "adaptive": self.adaptive, **sizes}}

    def about(self) -> dict[str, Any]:
        return {"prior": fingerprint(self.prior)}

    def objective(self, model: nn.Module) -> RowPolicyObjective:
        return RowPolicyObjective(model, self.prior, self.profile, self.scenes, self.held_out, self.settings)
