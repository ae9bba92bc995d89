"""Policies that learn nothing from what they measure."""

from collections.abc import Iterable

import torch
from torch import Tensor

from sensewise import masks
from sensewise.errors import BudgetError
from sensewise.policies.base import Context, Policy


class Random(Policy):
    """Every action alike."""

    random = True

    def scores(self, observation: Tensor, mask: Tensor, context: Context) -> Tensor:
        return masks.uniform((mask.shape[0], mask.shape[1]), context.generator).to(mask.device)


class VariableDensity(Policy):
    """Actions near the centre sooner: log-density plus Gumbel noise, a draw without replacement.

    For rows of k-space: Lustig et al., "Sparse MRI", 2007, with a sigma of 0.3.

    Args:
        sigma: width of the Gaussian density, 1 = half the side.
    """

    random = True

    def __init__(self, sigma: float = 0.5) -> None:
        self.sigma = sigma

    def scores(self, observation: Tensor, mask: Tensor, context: Context) -> Tensor:
        height, width = (*context.grid, 1)[:2]
        density = masks.centre_log_density(height, width, self.sigma).to(mask.device)
        return density + masks.gumbel((mask.shape[0], mask.shape[1]), context.generator).to(mask.device)


class Equispaced(Policy):
    """What is left of the budget at even distance over the free actions, each scene with its own offset."""

    random = True

    def scores(self, observation: Tensor, mask: Tensor, context: Context) -> Tensor:
        free = ~mask[0]
        left = context.budget - int(mask[0].sum())
        places = torch.arange(left) + masks.uniform((len(mask), 1), context.generator)  # (B, left)
        rank = (places * int(free.sum()) / left).long().clamp(max=int(free.sum()) - 1)
        index = free.nonzero()[:, 0][rank.to(mask.device)]
        return torch.zeros(mask.shape, device=mask.device).scatter_(1, index, 1.0)


class Fixed(Policy):
    """One mask for every scene, budget by budget.

    Args:
        chosen: masks, bool `(K,)` each, with different numbers of actions.
    """

    def __init__(self, chosen: Iterable[Tensor]) -> None:
        self.masks = {int(mask.sum()): mask for mask in chosen}

    def scores(self, observation: Tensor, mask: Tensor, context: Context) -> Tensor:
        if context.budget not in self.masks:
            known = ", ".join(map(str, sorted(self.masks)))
            raise BudgetError(f"this mask takes {known} of the actions, the budget is {context.budget}: give that one")
        fixed = self.masks[context.budget].to(mask.device)
        if len(fixed) != mask.shape[1]:
            raise BudgetError(f"this mask is for {len(fixed)} actions, the sensor has {mask.shape[1]}")
        return fixed.float().expand(mask.shape)
