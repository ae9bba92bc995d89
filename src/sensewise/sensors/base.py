"""What every sensor is, what is known beforehand, and how a prior looks at what was measured."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sensewise.errors import BudgetError, ConfigError


@dataclass(frozen=True)
class Side:
    """What is known before anything is measured.

    Attributes:
        label: classes, -1 where unknown, with shape `(B,)`; None for "unknown" everywhere.
        summary: a coarse first look, or None: intensities `(B, 1, 8, 8)` of images, z-scored scouts `(B, n, n)` of MR
            slices.
    """

    label: Tensor | None = None
    summary: Tensor | None = None

    def __getitem__(self, scenes: slice | Tensor) -> "Side":
        """What is known of some of the scenes."""
        label = None if self.label is None else self.label[scenes]
        return Side(label, None if self.summary is None else self.summary[scenes])


class Sensor(ABC):
    """Base of every sensor: `batch` scenes, and the same possible measurements of each.

    Attributes:
        batch: scenes, `B`.
        grid: how the actions lie to each other: `(H, W)` for pixels, `(rows,)` for rows of k-space.
        device: where the truth lies.
    """

    batch: int
    grid: tuple[int, ...]
    device: torch.device = torch.device("cpu")

    def __getattr__(self, name: str) -> Any:
        """What is missing from a sensor of one's own, in a sentence."""
        kind = type(self).__name__
        if name in ("batch", "grid"):
            example = "the number of scenes" if name == "batch" else "(H, W) for pixels"
            raise ConfigError(f"{kind} does not say its {name}: set self.{name} in its __init__ ({example})")
        raise AttributeError(f"{kind!r} object has no attribute {name!r}")

    @property
    def num_actions(self) -> int:
        """`K`."""
        return math.prod(self.grid)

    @abstractmethod
    def reveal(self, mask: Tensor) -> Tensor:
        """What the actions of `mask` `(B, K)` reveal, and nothing more."""

    def __call__(self, mask: Tensor) -> Tensor:
        if mask.dtype != torch.bool or tuple(mask.shape) != (self.batch, self.num_actions):
            raise BudgetError(
                f"a mask for this sensor is bool with shape ({self.batch}, {self.num_actions}), "
                f"got {mask.dtype} with shape {tuple(mask.shape)}"
            )
        seen = self.reveal(mask)
        if len(seen) != self.batch:
            raise ConfigError(
                f"{type(self).__name__}.reveal returned shape {tuple(seen.shape)}: one observation for each of the "
                f"{self.batch} scenes is needed, the scenes first"
            )
        return seen


class View(ABC):
    """How a prior looks through a sensor: what was measured as tokens, and what sites are worth as actions."""

    @abstractmethod
    def tokens(self, observation: Tensor, mask: Tensor) -> Tensor:
        """Tokens `(B, C, H, W)` for the prior, 0 where hidden, from what the actions of `mask` `(B, K)` revealed."""

    @abstractmethod
    def per_action(self, sites: Tensor) -> Tensor:
        """Values per site `(B, C, H, W)`, added up over what one action measures; `(B, K)`."""

    def offered(self, mask: Tensor) -> Tensor | None:
        """Which actions may be taken next, `(B, K)`; None for all that have not been taken."""
        return None
