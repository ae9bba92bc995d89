"""Masks of k-space rows with exact budgets: random, equispaced, variable density, with and without the ACS block.

A family is one function that scores rows; the template puts the ACS block first and takes the best `k`. Lustig et al.,
"Sparse MRI", 2007, is the source of variable density with a fully sampled centre.
"""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from sensewise import masks
from sensewise.errors import BudgetError, ConfigError
from sensewise.mri.kspace import acs_rows
from sensewise.policies import Policy, Start
from sensewise.sensors import Side

DENSITY_SIGMA = 0.3  # of the Gaussian over row index, 1 = half the rows


def count_rows(budget: float | int, rows: int, acs: int) -> int:
    """The exact number of rows of a budget, the ACS block included; a budget below the block is refused."""
    k = masks.count(budget, rows)
    if k < acs:
        raise BudgetError(
            f"budget {budget:g} is {k} of {rows} rows, fewer than the {acs} rows of the ACS block, which is always "
            f"measured: give at least {acs / rows:.3f}"
        )
    return k


def _random(free: Tensor, _: int, batch: int, generator: Generator) -> Tensor:
    return torch.rand(batch, len(free), generator=generator)


def _equispaced(free: Tensor, k: int, batch: int, generator: Generator) -> Tensor:
    """`k` of the free rows at even distance, each slice with its own offset."""
    places = torch.arange(k) + torch.rand(batch, 1, generator=generator)  # (B, k)
    rank = (places * int(free.sum()) / k).long().clamp(max=int(free.sum()) - 1)
    index = free.nonzero()[:, 0][rank]
    return torch.zeros(batch, len(free)).scatter_(1, index, 1.0)


def _variable_density(free: Tensor, _: int, batch: int, generator: Generator) -> Tensor:
    density = masks.centre_log_density(len(free), 1, DENSITY_SIGMA)
    return density + masks.gumbel((batch, len(free)), generator)


_SCORES: dict[str, Callable[[Tensor, int, int, Generator], Tensor]] = {
    "random": _random,
    "equispaced": _equispaced,
    "variable-density": _variable_density,
}
FAMILIES = (*_SCORES, *(f"acs-{name}" for name in _SCORES))


def draw(family: str, batch: int, rows: int, k: int, acs: int, generator: Generator) -> Tensor:
    """Masks of one family, redrawn for each slice, exactly `k` rows each.

    Args:
        family: one of `FAMILIES`; names that begin with `acs-` always measure the ACS block.
        k: rows in all, the ACS block included.

    Returns:
        True where a row is measured, with shape `(B, rows)`.
    """
    if family not in FAMILIES:
        raise ConfigError(f"no family of row masks {family!r}: choose one of {', '.join(FAMILIES)}")
    kept = torch.zeros(rows, dtype=torch.bool)
    if family.startswith("acs-"):
        count_rows(k, rows, acs)
        kept = acs_rows(rows, acs)
    left = k - int(kept.sum())
    if left == 0:
        return kept.expand(batch, -1).clone()
    scores = _SCORES[family.removeprefix("acs-")](~kept, left, batch, generator)
    return masks.top_k(scores.masked_fill(kept, torch.inf), k)


def best_rows(values: Tensor, k: int, acs: int) -> Tensor:
    """The ACS block and the rows of highest value `(rows,)`, `k` in all: the static mask of a profile; `(rows,)`."""
    kept = acs_rows(len(values), acs)
    count_rows(k, len(values), acs)
    return masks.top_k(values.masked_fill(kept, torch.inf)[None], k)[0]


def row_energy(kspace: Tensor) -> Tensor:
    """The mean over slices of each row's share of the energy, `(rows,)`: `best_rows` of it is the energy oracle."""
    energy = kspace.abs().square().sum(-1)  # (B, rows)
    return (energy / energy.sum(1, keepdim=True)).mean(0)


class Family(Policy):
    """A family of row masks as a policy; with `acs_start` as the start, its `acs-` form."""

    def __init__(self, family: str) -> None:
        if family not in _SCORES:
            raise ConfigError(f"no family of rows {family!r}: choose one of {', '.join(_SCORES)}")
        self.family = family

    def scores(self, observation: Tensor, mask: Tensor, side: Side, generator: Generator | None = None) -> Tensor:
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        batch, rows = mask.shape
        left = masks.count(side.budget or 0.5, rows) - int(mask[0].sum())
        return _SCORES[self.family](~mask[0], left, batch, generator)


class FixedRows(Policy):
    """One mask for every slice.

    Args:
        mask: True where a row is measured, with shape `(rows,)`.
    """

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def scores(self, observation: Tensor, mask: Tensor, side: Side, generator: Generator | None = None) -> Tensor:
        if len(self.mask) != mask.shape[1]:
            raise BudgetError(f"this mask has {len(self.mask)} rows, the slices have {mask.shape[1]}")
        return self.mask.float().expand(mask.shape)


def acs_start(rows: int, acs: int) -> Start:
    """The ACS block as the start of an acquisition."""

    def start(batch: int, k: int, generator: Generator) -> Tensor:
        count_rows(k, rows, acs)
        return fixed_start(acs_rows(rows, acs))(batch, k, generator)

    return start


def fixed_start(mask: Tensor) -> Start:
    """The same rows `(rows,)` as the start of every acquisition."""
    return lambda batch, _k, _generator: mask.expand(batch, -1).clone()
