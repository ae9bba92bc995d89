"""First masks: a probe before a policy begins, or rows that are always measured."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from sensewise import masks
from sensewise.errors import BudgetError
from sensewise.kspace import acs_rows
from sensewise.policies.base import Start


@dataclass(frozen=True)
class RandomProbe(Start):
    """A uniform probe that takes `fraction` of the budget."""

    fraction: float = 0.2
    random = True

    def __call__(self, batch: int, grid: tuple[int, ...], budget: int, generator: Generator) -> Tensor:
        return masks.random(batch, torch.Size(grid).numel(), round(self.fraction * budget), generator)


@dataclass(frozen=True)
class GridProbe(Start):
    """A jittered-grid probe that takes `fraction` of the budget."""

    fraction: float = 0.2
    random = True

    def __call__(self, batch: int, grid: tuple[int, ...], budget: int, generator: Generator) -> Tensor:
        height, width = (*grid, 1)[:2]
        return masks.jittered_grid(batch, (height, width), max(1, round(self.fraction * budget)), generator)


class AuditedStart(Start):
    """Another start, and random actions beside it that say whether a prior fits.

    Args:
        start: what is measured anyway; None for nothing.
        fraction: of the budget that is spent on the audit; at least one action.
    """

    random = True

    def __init__(self, start: Start | None, fraction: float) -> None:
        self.start, self.fraction = start, fraction
        self._audit: Tensor | None = None

    @property
    def audit(self) -> Tensor:
        """The actions of the audit, `(B, K)`; known once the start has been drawn."""
        if self._audit is None:
            raise BudgetError("the audit has not been drawn yet: begin the acquisition first")
        return self._audit

    def __call__(self, batch: int, grid: tuple[int, ...], budget: int, generator: Generator) -> Tensor:
        actions = torch.Size(grid).numel()
        first = torch.zeros(batch, actions, dtype=torch.bool)
        if self.start is not None:
            first = self.start(batch, grid, budget, generator)
        scores = masks.uniform((batch, actions), generator).to(first.device).masked_fill(first, -1.0)
        self._audit = masks.top_k(scores, max(1, round(self.fraction * budget)))
        return first | self._audit


def check_rows(k: int, rows: int, acs: int) -> int:
    """`k`, the rows of a budget, the ACS block included; a budget below the block is refused."""
    if k < acs:
        raise BudgetError(
            f"a budget of {k} of {rows} rows is less than the {acs} rows of the ACS block, which is always "
            f"measured: give at least {acs / rows:.3f}"
        )
    return k


def count_rows(budget: float | int, rows: int, acs: int) -> int:
    """The exact number of rows of a budget, the ACS block included; a budget below the block is refused."""
    return check_rows(masks.count(budget, rows), rows, acs)


@dataclass(frozen=True)
class CentralBlock(Start):
    """The `acs` central rows, the auto-calibration block."""

    acs: int

    def __call__(self, batch: int, grid: tuple[int, ...], budget: int, generator: Generator) -> Tensor:
        check_rows(budget, grid[0], self.acs)
        return acs_rows(grid[0], self.acs).expand(batch, -1).clone()


class FixedStart(Start):
    """The same actions first in every scene, budget by budget.

    Args:
        masks: the number of actions in all to a mask `(K,)`.
    """

    def __init__(self, masks: Mapping[int, Tensor]) -> None:
        self.masks = dict(masks)

    def __call__(self, batch: int, grid: tuple[int, ...], budget: int, generator: Generator) -> Tensor:
        if budget not in self.masks:
            raise BudgetError(f"a start for {', '.join(map(str, self.masks))} actions, not for {budget}")
        return self.masks[budget].expand(batch, -1).clone()
