"""The one-shot row policy of the paper: rows chosen before anything but the scout is measured.

Trained on the zero-filled error plus the entropy that the coarse prior has left, with a penalty that holds the expected
density at the budget. For independent rows the expected zero-filled error (of the complex image) is the energy of the
rows left out, in closed form (Parseval); the entropy's gradient is estimated by antithetic pairs (Dong et al.,
"DisARM", 2020).
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack

import torch
from torch import Generator, Tensor, nn

from sensewise import information
from sensewise.checkpoint import fingerprint
from sensewise.data.fastmri import Slices
from sensewise.errors import ConfigError, DataError
from sensewise.estimators import antithetic_pair, disarm
from sensewise.mri.kspace import acs_rows, scout
from sensewise.mri.models import build
from sensewise.mri.profile import RowProfile
from sensewise.policies import Policy
from sensewise.priors import Prior
from sensewise.sensors import Side
from sensewise.tokens import MASK
from sensewise.training import FitSettings, How, Objective, fit


@dataclass(frozen=True)
class RowPolicySettings:
    """Everything that `sensewise train row-policy` needs to know.

    Attributes:
        batch_size: slices to a step.
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


class OneShotRows(Policy):
    """Rows by the trained policy's log-odds: the same before and after measuring, so one step is all it takes.

    Args:
        network: scout and budget to log-odds `(B, H)`.
    """

    def __init__(self, network: nn.Module) -> None:
        self.network = network

    @torch.inference_mode()
    def scores(self, observation: Tensor, mask: Tensor, side: Side, generator: Generator | None = None) -> Tensor:
        if side.scout is None:
            raise DataError("this policy needs a scout: Side(scout=sensor.scout(acs))")
        return self.network(side.scout, torch.full((len(mask),), side.budget or 0.25))


class RowPolicyObjective(Objective):
    """Zero-filled error, coarse entropy and budget.

    Args:
        network: what is trained.
        prior: the coarse prior, frozen.
        profile: how rows become tokens.
        train: slices to learn from, with shape `(n, H, W)`.
        val: held-out slices.
        settings: batch, budgets, penalty.
    """

    forward_methods = ()

    def __init__(
        self,
        network: nn.Module,
        prior: Prior,
        profile: RowProfile,
        train: Tensor,
        val: Tensor,
        settings: RowPolicySettings,
    ) -> None:
        self.model, self.prior, self.profile = network, prior, profile
        self.train, self.val, self.settings = train, val, settings
        self.block = acs_rows(train.shape[1], profile.acs)

    def _entropy(self, tokens: Tensor, mask: Tensor) -> Tensor:
        seen = torch.where((mask | self.block)[:, None, :, None], tokens, MASK)
        return self.prior.read(information.whole_image, seen, None).clone()

    def _terms(self, model: nn.Module, kspace: Tensor, budget: Tensor, u: Tensor) -> tuple[Tensor, ...]:
        logits = model(scout(kspace, self.profile.acs), budget)
        probs = torch.where(self.block, 1.0, logits.sigmoid())
        energy = kspace.abs().square().sum(-1)
        error = ((1 - probs) * energy).sum(1) / energy.sum(1)
        fixed, tokens = logits.detach(), self.profile.tokens(kspace)
        first, second = (self._entropy(tokens, mask) for mask in antithetic_pair(fixed, u))
        gradient = torch.where(self.block, 0.0, disarm(fixed, u, first, second))
        linear = (logits * gradient).sum(1)
        entropy = (first + second) / 2 + linear - linear.detach()
        return error, entropy, (probs.mean(1) - budget).square()

    def loss(self, model: nn.Module, step: int, generator: Generator) -> Tensor:
        s = self.settings
        kspace = self.train[self.share(torch.randint(len(self.train), (s.batch_size,), generator=generator))]
        budget = s.min_budget + (s.max_budget - s.min_budget) * torch.rand(s.batch_size, generator=generator)
        u = torch.rand(s.batch_size, self.train.shape[1], generator=generator)
        error, entropy, off_budget = self._terms(model, kspace, self.share(budget), self.share(u))
        return (error + entropy + s.penalty * off_budget).mean()

    @torch.inference_mode()
    def validate(self, model: nn.Module) -> dict[str, float]:
        """Error, entropy and distance from the budget at s = 0.25 on held-out slices."""
        kspace = self.val[:64]
        budget = torch.full((len(kspace),), 0.25)
        u = torch.rand(kspace.shape[:2], generator=torch.Generator().manual_seed(0))
        terms = self._terms(model, kspace, budget, u)
        return dict(zip(("error", "entropy", "off_budget"), (term.mean().item() for term in terms), strict=True))


def train_row_policy(
    settings: RowPolicySettings,
    train: Slices,
    val: Slices,
    acs: int,
    prior: Prior,
    profile: RowProfile,
    adaptive: bool,
    folder: Path,
    **how: Unpack[How],
) -> bool:
    """Train the one-shot policy in `folder`; True if the run is complete."""
    if profile.acs != acs:
        raise ConfigError(f"the row prior was trained with {profile.acs} ACS rows, the preset has {acs}")
    training = dataclasses.asdict(settings)
    sizes = {"width": training.pop("width"), "layers": training.pop("layers")}
    config = {
        "kind": "row-policy",
        "data": train.name,
        "prior": fingerprint(prior),
        "model": {"network": {"rows": train.kspace.shape[1], "adaptive": adaptive, **sizes}},
        "training": training,
    }
    with torch.random.fork_rng():
        torch.manual_seed(settings.fit.seed)
        network = build(config, "row-policy")
    objective = RowPolicyObjective(network, prior, profile, train.kspace, val.kspace, settings)
    return fit(objective, settings.fit, config, folder, **how)
