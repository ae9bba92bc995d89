"""The coarse row profile: how much energy each row holds, in 8 bins, and a discrete prior over it.

A profile is the logarithm of each row's mean magnitude, relative to the ACS block alone: the block is always measured,
so normalising never looks at a row that was not. The prior is an absorbing D3PM over the rows, shape `(1, rows, 1)`.
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Unpack, get_args

import torch
from torch import Generator, Tensor

from sensewise import information
from sensewise.checkpoint import build_prior, load_prior, read_json
from sensewise.data.fastmri import Slices
from sensewise.diffusion import cross_entropy
from sensewise.errors import CheckpointError, ConfigError
from sensewise.mri.kspace import acs_rows
from sensewise.policies import Policy
from sensewise.priors import UNKNOWN, Prior
from sensewise.sensors import Side
from sensewise.tokens import MASK
from sensewise.training import FitSettings, How, Objective, fit

BINS = 8
RowScore = Literal["entropy", "energy"]


@dataclass(frozen=True)
class RowProfile:
    """How rows become tokens.

    Attributes:
        acs: rows of the ACS block.
        low: log-level of the first bin's lower edge.
        high: log-level of the last bin's upper edge.
    """

    acs: int
    low: float
    high: float

    @classmethod
    def of(cls, kspace: Tensor, acs: int) -> "RowProfile":
        """Bins that hold all but the outermost thousandth of the rows of some slices `(n, H, W)`."""
        levels = row_levels(kspace, acs).flatten().double().sort().values
        cut = len(levels) // 1000
        return cls(acs, round(levels[cut].item(), 4), round(levels[-1 - cut].item(), 4))

    def tokens(self, kspace: Tensor, mask: Tensor | None = None) -> Tensor:
        """Tokens 1..8 of measured rows, 0 elsewhere, `(B, 1, H, 1)`; without a mask, of every row."""
        place = (row_levels(kspace, self.acs) - self.low) / (self.high - self.low)
        token = (place * BINS).floor().nan_to_num(neginf=0.0).clamp(0, BINS - 1).long() + 1  # (B, H)
        shown = token if mask is None else torch.where(mask, token, MASK)
        return shown[:, None, :, None]

    @property
    def energy(self) -> Tensor:
        """The energy of a row in the middle of each bin, relative to the ACS block, `(8,)`."""
        centres = self.low + (torch.arange(BINS) + 0.5) * (self.high - self.low) / BINS
        return (2 * centres).exp()


def row_levels(kspace: Tensor, acs: int) -> Tensor:
    """The log of each row's mean magnitude over the mean of the ACS block, `(B, H)`."""
    mean = kspace.abs().mean(-1)
    return (mean / mean[:, acs_rows(mean.shape[1], acs)].mean(1, keepdim=True)).log()


class SequentialRows(Policy):
    """The rows where the coarse prior is most uncertain, or, as a control, where it expects the most energy.

    Args:
        prior: over tokens `(B, 1, H, 1)`.
        profile: how rows become tokens.
        score: "entropy" or "energy".
    """

    def __init__(self, prior: Prior, profile: RowProfile, score: RowScore = "entropy") -> None:
        if score not in get_args(RowScore):
            raise ConfigError(f"score {score!r} is not known: choose one of {', '.join(get_args(RowScore))}")
        self.prior, self.profile, self.score = prior, profile, score

    def scores(self, observation: Tensor, mask: Tensor, side: Side, generator: Generator | None = None) -> Tensor:
        def measure(log_probs: Tensor) -> Tensor:
            if self.score == "entropy":
                return information.per_pixel(information.entropy(log_probs))
            return information.per_pixel((log_probs.exp() * self.profile.energy).sum(-1))

        return self.prior.read(measure, self.profile.tokens(observation, mask), None)


@dataclass(frozen=True)
class RowPriorSettings:
    """Everything that `sensewise train row-prior` needs to know."""

    batch_size: int = 64
    width: int = 64
    layers: int = 4
    fit: FitSettings = field(default_factory=FitSettings)


class RowPriorObjective(Objective):
    """Cross-entropy of hidden rows; the ACS block is always seen, the others survive with a uniform probability."""

    model: Prior

    def __init__(self, prior: Prior, train: Tensor, val: Tensor, acs: int, batch_size: int) -> None:
        self.model, self.train, self.val, self.batch_size = prior, train, val, batch_size
        self.block = acs_rows(train.shape[2], acs)

    def _masks(self, batch: int, generator: Generator) -> Tensor:
        survival = torch.rand(batch, 1, generator=generator)
        return (torch.rand(batch, len(self.block), generator=generator) < survival) | self.block

    def _nats(self, model: Prior, x: Tensor, mask: Tensor) -> Tensor:
        y = torch.where(mask[:, None, :, None], x, MASK)
        log_probs = model.predict(y, torch.full((len(y),), UNKNOWN), None)
        return cross_entropy(log_probs, x, y == MASK) / (~mask).sum(1).clamp(min=1)

    def loss(self, model: Prior, step: int, generator: Generator) -> Tensor:
        x = self.train[torch.randint(len(self.train), (self.batch_size,), generator=generator)]
        return self._nats(model, self.share(x), self.share(self._masks(len(x), generator))).mean()

    @torch.inference_mode()
    def validate(self, model: Prior) -> dict[str, float]:
        """Nats per hidden row on held-out slices, fixed masks."""
        masks = self._masks(len(self.val), torch.Generator().manual_seed(0))
        return {"nats_per_row": self._nats(model, self.val, masks).mean().item()}


def train_row_prior(
    settings: RowPriorSettings,
    train: Slices,
    val: Slices,
    acs: int,
    folder: Path,
    **how: Unpack[How],
) -> bool:
    """Train the coarse prior in `folder`; True if the run is complete."""
    profile = RowProfile.of(train.kspace, acs)
    training = dataclasses.asdict(settings)
    network = {"network": "rows", "width": training.pop("width"), "layers": training.pop("layers")}
    shape = [1, train.kspace.shape[1], 1]
    config = {
        "kind": "prior",
        "data": train.name,
        "model": {"shape": shape, "num_states": BINS, "num_labels": None, **network},
        "profile": dataclasses.asdict(profile),
        "training": training,
    }
    with torch.random.fork_rng():
        torch.manual_seed(settings.fit.seed)
        prior = build_prior(config)
    tokens = (profile.tokens(train.kspace), profile.tokens(val.kspace))
    objective = RowPriorObjective(prior, *tokens, acs, settings.batch_size)
    return fit(objective, settings.fit, config, folder, **how)


def load_row_prior(folder: Path) -> tuple[Prior, RowProfile]:
    """A trained coarse prior and how it reads rows."""
    try:
        profile = RowProfile(**read_json(folder / "config.json")["profile"])
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{folder} does not hold a prior over rows: {error!r}") from error
    return load_prior(folder), profile
