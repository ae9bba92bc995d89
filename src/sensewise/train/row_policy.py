"""Train the one-shot row policy of the paper: rows chosen before anything but the scout is measured.

Trained on the zero-filled error plus the entropy that the coarse prior has left, with a penalty that holds the expected
density at the budget. Training and use follow one rule: a mask holds the ACS block and exactly as many of the other
rows as the budget leaves, those of the highest log-odds; in training with logistic noise on them, which matters less
and less as the log-odds grow.

For independent rows the expected zero-filled error (of the complex image) is the energy of the rows left out, in
closed form (Parseval). The entropy's gradient is estimated from antithetic pairs (Dong et al., "DisARM", 2020), each
row judged by the entropy of the rows that the prior's convolutions connect it with. At first a reward for undecided
rows keeps the choice open; it falls to nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from sensewise import masks
from sensewise.data.scenes import Scenes
from sensewise.errors import ConfigError
from sensewise.files import fingerprint
from sensewise.kspace import acs_rows, over_coils, scout
from sensewise.predictions import entropy
from sensewise.priors.base import Prior
from sensewise.sensors.rows import RowProfile
from sensewise.tokens import MASK
from sensewise.train.gradient import FitSettings, Objective
from sensewise.train.recipe import GradientRecipe

LOOK_AT = 0.25  # the budget of the paper's table
LEAST_SPREAD = 0.5  # of the sum of p (1 - p): a mask that is all but decided must not make the threshold jump


@dataclass(frozen=True)
class RowPolicySettings:
    """Everything that `sensewise train row-policy` needs to know.

    Attributes:
        batch_size: slices per step.
        min_budget: lowest budget in training; at least one row beside the ACS block is always learned.
        max_budget: highest.
        penalty: lambda, the weight of the squared distance from the budget.
        width: channels of the network.
        layers: of the network.
        places: learned numbers of each row that the network sees.
        reach: how many rows away the prior still feels a row.
        open_reward: weight, at first, of the mean entropy of the decisions themselves.
        open_steps: after so many steps that reward has fallen to 0.
        decided: the run may end when the mean of min(p, 1 - p) of the free rows is at most this,
        calm: and at most this fraction of the rows has changed from one look to the next,
        patience: so many times in a row.
    """

    batch_size: int = 32
    min_budget: float = 0.1
    max_budget: float = 0.4
    penalty: float = 50.0
    width: int = 32
    layers: int = 3
    places: int = 16
    reach: int = 10
    open_reward: float = 0.1
    open_steps: int = 2500
    decided: float = 0.01
    calm: float = 0.02
    patience: int = 20
    fit: FitSettings = field(default_factory=FitSettings)

    def __post_init__(self) -> None:
        if self.batch_size < 1 or not 0 < self.min_budget <= self.max_budget < 1:
            raise ConfigError("batch_size must be at least 1 and 0 < min_budget <= max_budget < 1")
        if self.patience < 1 or self.reach < 0 or self.open_steps < 1:
            raise ConfigError("patience and open_steps must be at least 1 and reach at least 0")


def onto_budget(logits: Tensor, free: Tensor, count: Tensor) -> Tensor:
    """Log-odds moved by one number per slice, so that `count` of the free rows are expected; with its gradient.

    Args:
        logits: with shape `(B, rows)`.
        free: rows that are decided on, bool `(rows,)`.
        count: how many of them, with shape `(B,)`.

    Returns:
        Log-odds `(B, rows)`.
    """
    open_rows = logits.masked_fill(~free, -torch.inf)
    wanted = count.to(logits.dtype).unsqueeze(1)  # (B, 1)
    with torch.no_grad():
        low = logits.amin(1, keepdim=True) - 20
        high = logits.amax(1, keepdim=True) + 20
        for _ in range(40):
            middle = (low + high) / 2
            too_many = torch.sigmoid(open_rows - middle).sum(1, keepdim=True) > wanted
            low, high = torch.where(too_many, middle, low), torch.where(too_many, high, middle)
    probs = torch.sigmoid(open_rows - middle)
    slope = (probs * (1 - probs)).detach().sum(1, keepdim=True).clamp(min=LEAST_SPREAD)
    return logits - middle - (probs.sum(1, keepdim=True) - wanted) / slope  # a Newton step: 0, but for its gradient


@dataclass(frozen=True)
class Slices:
    """All that the policy's training looks at of some slices.

    Attributes:
        scout: with shape `(n, acs, acs)`.
        tokens: of every row, with shape `(n, 1, rows, 1)`.
        energy: share of each row, with shape `(n, rows)`.
    """

    scout: Tensor
    tokens: Tensor
    energy: Tensor

    @classmethod
    def of(cls, kspace: Tensor, profile: RowProfile) -> "Slices":
        """What fully sampled k-space `(n, H, W)` shows."""
        energy = over_coils(kspace).square().sum(-1)
        return cls(scout(kspace, profile.acs), profile.all_tokens(kspace), energy / energy.sum(1, keepdim=True))

    def __len__(self) -> int:
        return len(self.energy)

    def at(self, index: Tensor | slice, device: torch.device) -> "Slices":
        """Some of them, on a device."""
        parts = (self.scout, self.tokens, self.energy)
        return Slices(
            *(part[index.to(part.device) if isinstance(index, Tensor) else index].to(device) for part in parts)
        )


class RowPolicyObjective(Objective):
    """Zero-filled error, coarse entropy and budget.

    Args:
        network: what is trained.
        prior: the coarse prior, frozen.
        profile: how rows become tokens.
        scenes: slices to learn from.
        held_out: slices to judge by.
        settings: batch, budgets, penalty, when it may end.
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
        self.rows, self.settings = scenes.shape[-2], settings
        self.slices, self.held_out = Slices.of(scenes.values, profile), Slices.of(held_out.values[:64], profile)
        self.free = ~acs_rows(self.rows, profile.acs)
        self.last = torch.zeros(0, dtype=torch.bool)  # masks of the last look
        self.calm = torch.zeros((), dtype=torch.int64)  # looks in a row
        self.undecided = torch.ones(())

    def to(self, device: torch.device) -> None:
        super().to(device)
        self.free = self.free.to(device)

    def state(self) -> dict[str, Tensor]:
        return {"last": self.last, "calm": self.calm, "undecided": self.undecided}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.last, self.calm, self.undecided = state["last"], state["calm"], state["undecided"]

    def settled(self) -> bool:
        return int(self.calm) >= self.settings.patience and float(self.undecided) <= self.settings.decided

    def free_count(self, budget: Tensor) -> Tensor:
        """Rows that budgets `(B,)` leave beside the ACS block, at least 1."""
        return (budget * self.rows).round().long().sub(self.profile.acs).clamp(min=1)

    def masks(self, scores: Tensor, count: Tensor) -> Tensor:
        """The ACS block and the `count` `(B,)` free rows of highest score, bool `(B, rows)`."""
        return masks.bottom_k((-scores).masked_fill(~self.free, torch.inf), count) | ~self.free

    def left(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """The entropy that a mask leaves in each row, `(B, rows)`."""
        seen = torch.where(mask[:, None, :, None], tokens, MASK)
        return self.prior.in_chunks(entropy, seen, None)[:, 0, :, 0].clone()

    def _entropy(self, logits: Tensor, tokens: Tensor, count: Tensor, noise: Tensor) -> Tensor:
        """The mean entropy of an antithetic pair of masks, with its estimated gradient; `(B,)`."""
        fixed = logits.detach()
        first, second = self.masks(fixed + noise, count), self.masks(fixed - noise, count)
        both = self.left(torch.cat([tokens, tokens]), torch.cat([first, second]))  # (2 B, rows)
        side = 2 * self.settings.reach + 1
        nearby = F.avg_pool1d(both.unsqueeze(1), side, stride=1, padding=self.settings.reach)[:, 0] * side
        one, other = (nearby / both.shape[1]).chunk(2)
        sign = first.to(fixed.dtype) - second.to(fixed.dtype)
        gradient = 0.5 * (one - other) * sign * torch.sigmoid(fixed.abs())  # `estimators.disarm` for masks on budget
        linear = (logits * gradient).sum(1)
        return both.mean(1).view(2, -1).mean(0) + linear - linear.detach()

    def loss(self, model: nn.Module, step: int, generator: Generator) -> Tensor:
        s = self.settings
        index = torch.randint(len(self.slices), (s.batch_size,), generator=generator)
        budget = s.min_budget + (s.max_budget - s.min_budget) * torch.rand(s.batch_size, generator=generator)
        noise = masks.logistic((s.batch_size, self.rows), generator)
        seen = self.slices.at(self.team.share(index), self.device)
        noise = self.team.share(noise).to(self.device)
        count = self.free_count(self.team.share(budget).to(self.device))
        budget = (count + self.profile.acs) / self.rows  # as it is on whole rows
        raw = model(seen.scout, budget)
        logits = onto_budget(raw, self.free, count)
        probs = torch.where(self.free, logits.sigmoid(), 1.0)
        error = ((1 - probs) * seen.energy).sum(1)
        left = self._entropy(logits, seen.tokens, count, noise)
        off_budget = (torch.where(self.free, raw.sigmoid(), 1.0).mean(1) - budget).square()
        still_open = torch.where(self.free, F.softplus(logits) - logits * logits.sigmoid(), 0.0).mean(1)
        reward = s.open_reward * max(0.0, 1 - step / s.open_steps)
        return (error + left + s.penalty * off_budget - reward * still_open).mean()

    @torch.inference_mode()
    def validate(self, model: nn.Module) -> dict[str, float]:
        """How its masks do on held-out slices at s = 0.25, and how far it has decided.

        Returns:
            Energy left out, and entropy left by the masks of highest log-odds and by drawn ones; the density that the
            log-odds ask for; the mean of min(p, 1 - p) over free rows; the fraction of rows that changed since the
            last look, and for how many looks in a row that was little; how many different masks there are.
        """
        seen = self.held_out.at(slice(None), self.device)
        budget = torch.full((len(seen),), LOOK_AT, device=self.device)
        count = self.free_count(budget)
        raw = model(seen.scout, budget)
        logits = onto_budget(raw, self.free, count)
        noise = masks.logistic((len(seen), self.rows), torch.Generator().manual_seed(0)).to(self.device)
        mask = self.masks(logits, count)
        probs = logits.sigmoid()[:, self.free]
        self.undecided = torch.minimum(probs, 1 - probs).mean().cpu()
        last = self.last.to(self.device) if self.last.shape == mask.shape else torch.zeros_like(mask)
        changed = (mask & ~last).sum().item() / mask.sum().item()
        self.calm = self.calm + 1 if changed <= self.settings.calm else torch.zeros_like(self.calm)
        self.last = mask.cpu()
        return {
            "error": torch.where(mask, 0.0, seen.energy).sum(1).mean().item(),
            "entropy": self.left(seen.tokens, mask).mean().item(),
            "entropy_drawn": self.left(seen.tokens, self.masks(logits + noise, count)).mean().item(),
            "density": torch.where(self.free, raw.sigmoid(), 1.0).mean().item(),
            "undecided": float(self.undecided),
            "changed": changed,
            "calm": int(self.calm),
            "different_masks": len({tuple(rows) for rows in mask.tolist()}),
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
    elsewhere = ("width", "layers", "places")

    def __post_init__(self) -> None:
        if self.profile.acs != self.acs:
            raise ConfigError(f"the row prior was trained with {self.profile.acs} ACS rows, the preset has {self.acs}")

    def model(self) -> dict[str, Any]:
        settings = self.settings
        sizes = {"width": settings.width, "layers": settings.layers, "places": settings.places}
        return {"network": {"rows": self.scenes.shape[-2], "adaptive": self.adaptive, **sizes}}

    def about(self) -> dict[str, Any]:
        return {"prior": fingerprint(self.prior)}

    def objective(self, model: nn.Module) -> RowPolicyObjective:
        return RowPolicyObjective(model, self.prior, self.profile, self.scenes, self.held_out, self.settings)
