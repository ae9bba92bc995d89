r"""A plan: the rows of a budget chosen together, by what they are worth beside each other and in this slice.

The error of reconstructor A under a mask is described by a quadratic form of the mask,

$$\log \mathrm{NMSE}(x, m) \approx c(x) + \sum_j m_j \Big(u_j + \sum_s b_{sj} z_{sj}(y)\Big) + m^\top W m.$$

$u_j$ is what row j is worth in any slice and $W$ how far neighbours and mirror rows (a real object's k-space is nearly
conjugate symmetric) repeat each other. $z_{sj}$ says how much more energy than usual has been measured in this slice
around row j or around its mirror row, through windows of several widths: what adapts the plan to the slice. It needs
nothing but measured rows and a few hundred numbers, so a scanner can plan in milliseconds, without the network.

The plan is what single swaps of rows lead to from the static mask, the best one for all slices together, as long as
each promises enough. `train.plan` fits the coefficients.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from sensewise.errors import BudgetError
from sensewise.kspace import acs_block, acs_rows, over_coils
from sensewise.masks import top_k
from sensewise.policies.base import Context, Policy
from sensewise.policies.value import core_size

ZONES = 6  # bumps from the centre of k-space to its edge: coefficients change slowly from one to the next
LAGS = range(1, 9)  # rows apart
MIRROR_LAGS = range(-3, 4)  # rows from the mirror row
WINDOWS = ((1.5, False), (5.0, False), (15.0, False), (2.0, True), (6.0, True))  # width in rows, around the mirror row?
PRIOR_WEIGHT = 0.3  # of "nothing unusual": a row far from everything measured is not judged by it
MARGIN = 0.005  # of the log error that a swap must promise before a plan leaves the static mask: coefficients are noisy


def zones(rows: int) -> Tensor:
    """Bumps over the distance from the centre that add up to 1, with shape `(rows, ZONES)`."""
    distance = (torch.arange(rows) - rows // 2).abs() / (rows / 2)
    bumps = torch.exp(-(((distance.unsqueeze(1) - torch.linspace(0, 1, ZONES)) / 0.15) ** 2))
    return bumps / bumps.sum(1, keepdim=True)


def partners(rows: int) -> Tensor:
    """Pairs of rows that may repeat each other, by kind of pair: `(kinds, rows)`, -1 where a row has no such partner.

    Kinds are the `LAGS`, then the `MIRROR_LAGS`; every pair stands once, at one of its rows.
    """
    index = torch.arange(rows)
    kinds = [index + lag for lag in LAGS] + [rows + lag - index for lag in MIRROR_LAGS]
    found = torch.stack(kinds)
    return torch.where((found > index) & (found < rows), found, -1)


def pair_terms(mask: Tensor) -> Tensor:
    """How many pairs of each kind and zone a mask holds: `(B, rows)` to `(B, kinds ZONES)`."""
    rows = mask.shape[1]
    other, weights = partners(rows).to(mask.device), mask.float()
    both = weights.unsqueeze(1) * torch.where(other >= 0, weights[:, other], 0.0)  # (B, kinds, rows)
    zone = zones(rows).to(mask.device)
    near = both @ zone  # (B, kinds, ZONES)
    far = torch.stack([one @ zone[place.clamp(min=0)] for one, place in zip(both.unbind(1), other, strict=True)], dim=1)
    return (0.5 * (near + far)).flatten(1)


def overlap_matrix(coefficients: Tensor, rows: int) -> Tensor:
    """The symmetric `W` `(rows, rows)` with `m W m = pair_terms(m) @ coefficients`; those are `(kinds ZONES,)`."""
    matrix, zone = torch.zeros(rows, rows), zones(rows)
    for place, weights in zip(partners(rows), coefficients.view(-1, ZONES), strict=True):
        row = (place >= 0).nonzero()[:, 0]
        matrix[row, place[row]] += 0.5 * (zone[row] + zone[place[row]]) @ weights
    return 0.5 * (matrix + matrix.T)


def windows(rows: int) -> Tensor:
    """How much each row's neighbourhood counts in each window, with shape `(windows, rows, rows)`."""
    index = torch.arange(rows, dtype=torch.float32)
    distances = [(rows - index if mirrored else index) - index.unsqueeze(1) for _, mirrored in WINDOWS]
    widths = torch.tensor([width for width, _ in WINDOWS]).view(-1, 1, 1)
    return torch.exp(-(torch.stack(distances) ** 2) / (2 * widths**2))


def log_energy(y: Tensor, acs: int) -> Tensor:
    """The log of each row's energy over the ACS block's, which is always measured; `(B, rows)`, low where hidden."""
    energy = over_coils(y).square().sum(2)  # (B, rows)
    block = acs_block(energy, acs).sum(1, keepdim=True)
    return (energy / block + 1e-12).log()


def improve(worth: Tensor, overlap: Tensor, mask: Tensor, fixed: Tensor, margin: float = 1e-6) -> Tensor:
    """Masks of the same size with the lowest predicted error that swaps of one row for another lead to.

    Args:
        worth: linear part of the predicted log error, with shape `(B, rows)`; negative: worth measuring.
        overlap: quadratic part, symmetric with a diagonal of 0, with shape `(rows, rows)`.
        mask: where to start, with shape `(B, rows)`.
        fixed: rows that stay, with shape `(B, rows)`.
        margin: what a swap has to promise.
    """
    mask, rows = mask.clone(), mask.shape[1]
    for _ in range(4 * rows):
        slope = worth + 2 * mask.float() @ overlap  # (B, rows)
        change = slope.unsqueeze(1) - slope.unsqueeze(2) - 2 * overlap  # (B, drop, add)
        stays = (~mask | fixed).unsqueeze(2) | mask.unsqueeze(1)
        best, pair = change.masked_fill(stays, torch.inf).flatten(1).min(1)
        moved = (best < -margin).unsqueeze(1)  # (B, 1)
        if not moved.is_meta and not bool(moved.any()):
            break
        drop, add = (pair // rows).unsqueeze(1), (pair % rows).unsqueeze(1)
        mask.scatter_(1, drop, mask.gather(1, drop) & ~moved)
        mask.scatter_(1, add, mask.gather(1, add) | moved)
    return mask


class RowPlan(nn.Module):
    """The coefficients at one budget, and what they say of a slice.

    Attributes:
        worth: $u$, with shape `(rows,)`.
        overlap: $W$, with shape `(rows, rows)`.
        slopes: $b$, with shape `(windows, rows)`.
        usual: mean of the log energy of each row in the training split, with shape `(rows,)`.
        spread: its standard deviation, with shape `(rows,)`.
        core: True on the rows that are measured first in every slice, with shape `(rows,)`.
        static: True on the rows of the best mask for all slices together, with shape `(rows,)`.

    Args:
        rows: phase-encode rows.
        acs: rows of the ACS block.
        k: rows of the budget, the ACS block included.
    """

    worth: Tensor
    overlap: Tensor
    slopes: Tensor
    usual: Tensor
    spread: Tensor
    core: Tensor
    static: Tensor

    def __init__(self, rows: int, acs: int, k: int) -> None:
        super().__init__()
        self.rows, self.acs, self.k = rows, acs, k
        shapes = {"worth": (rows,), "overlap": (rows, rows), "slopes": (len(WINDOWS), rows), "usual": (rows,)}
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(shape))
        self.register_buffer("spread", torch.ones(rows))
        self.register_buffer("core", acs_rows(rows, acs))
        self.register_buffer("static", acs_rows(rows, acs))

    def unusual(self, y: Tensor, mask: Tensor) -> Tensor:
        """How much more energy than usual was measured around each row and its mirror, `(B, windows, rows)`.

        Args:
            y: measured k-space, with shape `(B, rows, columns)`.
            mask: True where measured, with shape `(B, rows)`.
        """
        deviation = torch.where(mask, (log_energy(y, self.acs) - self.usual) / self.spread, 0.0)
        window = windows(self.rows).to(y.device)
        total = torch.einsum("bk,sjk->bsj", deviation, window)
        return total / (torch.einsum("bk,sjk->bsj", mask.float(), window) + PRIOR_WEIGHT)

    def worth_in(self, unusual: Tensor) -> Tensor:
        """What each row is worth in slices that are unusual in this way, `(B, rows)`."""
        return self.worth + (self.slopes * unusual).sum(1)

    def plan(self, worth: Tensor, mask: Tensor) -> Tensor:
        """The rows of the budget, `(B, rows)`: the measured ones and the best others, from the static mask on."""
        start = top_k(4.0 * mask.float() + 2.0 * self.static.float() - torch.sigmoid(worth), self.k)
        return improve(worth, self.overlap, start, mask, MARGIN)

    def with_budget(self, k: int) -> "RowPlan":
        """The same coefficients for another number of rows: a static mask and a core of their own, nothing fitted."""
        other = RowPlan(self.rows, self.acs, k)
        other.load_state_dict(self.state_dict())
        block = acs_rows(self.rows, self.acs)
        slope = self.worth + 2 * self.static.float() @ self.overlap
        first = top_k((4.0 * block.float() + 2.0 * self.static.float() - torch.sigmoid(slope))[None], k)
        other.static = improve(self.worth[None], self.overlap, first, block[None])[0]
        left = int((self.static & ~self.core).sum()) / max(1, self.k - self.acs)
        slope = self.worth + 2 * other.static.float() @ self.overlap
        slope = slope.masked_fill(~other.static, torch.inf).masked_fill(block, -torch.inf)
        kept = slope.argsort()[: core_size(k, self.acs, left)]
        other.core = torch.zeros_like(block).index_fill(0, kept, True)
        return other.eval().requires_grad_(False)


class OfBudget(Protocol):
    """What was made for `k` of so many rows."""

    k: int
    rows: int


Made = TypeVar("Made", bound=OfBudget)


def of_budget(made: Mapping[int, Made], budget: int, rows: int, what: str) -> Made:
    """What was made for a budget, by its number of rows; refuses another budget or another number of rows."""
    found = made.get(budget)
    if found is None or rows != found.rows:
        known = ", ".join(f"{one.k} of {one.rows}" for one in made.values())
        raise BudgetError(f"{what} are for {known} rows, not for {budget} of {rows}")
    return found


class PlannedRows(Policy):
    """Rows of a plan that is made anew at every step, from everything measured so far; the most valuable first.

    Start it from `plan.core`. Planned rows have scores of 1 and more, all others from 0 to 0.9.

    Args:
        plans: fitted coefficients, one plan per budget.
        shift: show each slice the measurements of the one so many places before it in the batch: a control.
    """

    def __init__(self, plans: Iterable[RowPlan], shift: int = 0) -> None:
        self.plans, self.shift = {plan.k: plan for plan in plans}, shift

    @torch.inference_mode()
    def scores(self, observation: Tensor, mask: Tensor, context: Context) -> Tensor:
        model = of_budget(self.plans, context.budget, mask.shape[1], "plans")
        worth = model.worth_in(model.unusual(observation, mask).roll(self.shift, 0))
        chosen = model.plan(worth, mask)
        slope = worth + 2 * chosen.float() @ model.overlap
        low, high = slope.amin(1, keepdim=True), slope.amax(1, keepdim=True)
        return chosen + 0.9 * (high - slope) / (high - low).clamp(min=1e-9)
