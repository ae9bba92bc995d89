"""Policies that learn nothing from what they measure."""

from collections.abc import Iterable

import torch
from torch import Generator, Tensor

from sensewise import masks
from sensewise.errors import BudgetError, ConfigError
from sensewise.kspace import acs_rows, over_coils
from sensewise.policies.base import Context, Policy
from sensewise.policies.starts import check_rows
from sensewise.sensors.base import Side


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
        shape = masks.plane(context.grid)
        density = masks.centre_log_density(*shape, self.sigma).to(mask.device)
        density = density.repeat(mask.shape[1] // density.numel())
        return density + masks.gumbel((mask.shape[0], mask.shape[1]), context.generator).to(mask.device)


class Raster(Policy):
    """A regular grid over the image: the middle of each of as many cells as the budget has actions."""

    def scores(self, observation: Tensor, mask: Tensor, context: Context) -> Tensor:
        height, width = masks.plane(context.grid)
        on_grid = masks.regular_grid((height, width), min(context.budget, height * width)).to(mask.device)
        return on_grid.float().repeat(mask.shape[1] // on_grid.numel()).expand(mask.shape)


class Equispaced(Policy):
    """What is left of the budget at even distance over the free actions, each scene with its own offset."""

    random = True

    def scores(self, observation: Tensor, mask: Tensor, context: Context) -> Tensor:
        free = (~mask).sum(1, keepdim=True)  # (B, 1)
        left = context.budget - mask.sum(1, keepdim=True)
        number = torch.arange(mask.shape[1], device=mask.device)
        places = number + masks.uniform((len(mask), 1), context.generator).to(mask.device)  # (B, K)
        rank = (places * free / left).long().minimum(free - 1)
        index = mask.byte().argsort(dim=1, stable=True).gather(1, rank)  # free actions come first, in their order
        wanted = (number < left).float()  # only the first `left` places count
        return torch.zeros(mask.shape, device=mask.device).scatter_reduce_(1, index, wanted, "amax")


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


ROW_FAMILIES: dict[str, Policy] = {
    "random": Random(),
    "equispaced": Equispaced(),
    "variable-density": VariableDensity(0.3),
}
"""Heuristic masks of k-space rows by name; `acs-NAME` starts from the ACS block."""
FAMILY_NAMES = (*ROW_FAMILIES, *(f"acs-{name}" for name in ROW_FAMILIES))


def draw_rows(family: str, batch: int, rows: int, k: int, acs: int, generator: Generator) -> Tensor:
    """Masks of one family without a sensor, redrawn for each slice, exactly `k` rows each.

    Args:
        family: one of `FAMILY_NAMES`; names that begin with `acs-` always measure the ACS block.
        k: rows in all, the ACS block included.

    Returns:
        True where a row is measured, with shape `(B, rows)`.
    """
    if family not in FAMILY_NAMES:
        raise ConfigError(f"no family of row masks {family!r}: choose one of {', '.join(FAMILY_NAMES)}")
    kept = torch.zeros(rows, dtype=torch.bool)
    if family.startswith("acs-"):
        check_rows(k, rows, acs)
        kept = acs_rows(rows, acs)
    if k == int(kept.sum()):
        return kept.expand(batch, -1).clone()
    context = Context(side=Side(), budget=k, generator=generator, step=1, grid=(rows,))
    taken = kept.expand(batch, -1)
    scores = ROW_FAMILIES[family.removeprefix("acs-")].scores(torch.empty(batch, 0), taken, context)
    return masks.top_k(scores.masked_fill(kept, torch.inf), k)


def best_rows(values: Tensor, k: int, acs: int) -> Tensor:
    """The ACS block and the rows of highest value `(rows,)`, `k` in all: the static mask of a profile; `(rows,)`."""
    check_rows(k, len(values), acs)
    kept = acs_rows(len(values), acs).to(values.device)
    return masks.top_k(values.masked_fill(kept, torch.inf)[None], k)[0]


def row_energy(kspace: Tensor) -> Tensor:
    """The mean over slices of each row's share of the energy, `(rows,)`: `best_rows` of it is the energy oracle."""
    energy = over_coils(kspace).square().sum(-1)  # (B, rows)
    return (energy / energy.sum(1, keepdim=True)).mean(0)
