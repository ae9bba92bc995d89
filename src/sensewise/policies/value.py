"""What a row is worth to the reconstructor: the policy beyond the paper, and its ceiling.

A row's own energy or entropy is the wrong criterion even when it is known exactly; what counts is how much the
reconstruction improves. `ValuePolicy` follows a network that predicts it from what has been measured. `OneStepOracle`
knows the truth and adds the row that helps most: no policy can do better one step at a time, and none may be trained
or judged by it. Both score with reconstructor A, never with the judge.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from sensewise.errors import BudgetError
from sensewise.kspace import keep_rows, magnitude, relaxed_rows
from sensewise.metrics import nmse
from sensewise.policies.base import Context, Policy
from sensewise.policies.starts import FixedStart

CHUNK = 32
TIE = 1e-3  # far below any gain: keeps rows of the static mask in their order


def slice_errors(network: nn.Module, kspace: Tensor, mask: Tensor) -> Tensor:
    """The NMSE of each slice `(B, H, W)` under its mask `(B, H)`, with shape `(B,)`."""
    parts = zip(torch.split(kspace, CHUNK), torch.split(mask, CHUNK), strict=True)
    with torch.inference_mode():
        found = [nmse(network(keep_rows(k, m), m), magnitude(k)) for k, m in parts]
    return torch.cat(found)


def mask_gradients(network: nn.Module, kspace: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Each slice's NMSE `(B,)` and its derivative with respect to its own mask `(B, H)`: one pass for all rows."""
    errors, gradients = [], []
    for k, m in zip(torch.split(kspace, CHUNK), torch.split(mask, CHUNK), strict=True):
        weights = m.float().requires_grad_()
        error = nmse(network(relaxed_rows(k, weights), weights), magnitude(k))
        gradients.append(torch.autograd.grad(error.sum(), weights)[0])
        errors.append(error.detach())
    return torch.cat(errors), torch.cat(gradients)


def with_rows(mask: Tensor, rows: Tensor) -> Tensor:
    """Masks `(B, H)` with one more row each, for every one of the rows `(B, n)`: `(B, n, H)`."""
    tried = mask.unsqueeze(1).repeat(1, rows.shape[1], 1)
    return tried.scatter(2, rows.unsqueeze(2), True)


def complete(mask: Tensor, rank: Tensor, k: Tensor) -> Tensor:
    """Masks filled up to `k` rows with those of the static mask, the most valuable first.

    Args:
        mask: True where measured, with shape `(B, H)`.
        rank: position of each row in the static order, large for rows outside it, with shape `(B, H)`.
        k: rows in all, with shape `(B,)`.
    """
    missing = k - mask.sum(1)
    place = rank.masked_fill(mask, rank.max() + 1).argsort(dim=1).argsort(dim=1)
    return mask | (place < missing.unsqueeze(1))


def ranks(order: Tensor, rows: int) -> Tensor:
    """The position of each row in an order `(k,)`; rows outside it come after all others; `(rows,)`."""
    rank = torch.full((rows,), rows, device=order.device)
    return rank.scatter(0, order, torch.arange(len(order), device=order.device))


def rows_by_worth(orders: Mapping[int, Tensor], k: int, rows: int) -> Tensor:
    """A static mask `(rows,)` of exactly `k` rows from masks for other numbers of rows.

    It has the most valuable rows of the nearest one, and what that lacks from the next nearest; rows that none of them
    has come last, from the middle of k-space outwards.

    Args:
        orders: the rows of each mask, the most valuable first, by their number.
    """
    nearest = sorted(orders, key=lambda count: (abs(count - k), count))
    outwards = (torch.arange(rows) - rows // 2).abs().argsort(stable=True)
    ranked = torch.cat([*(orders[count] for count in nearest), outwards]).tolist()
    chosen = list(dict.fromkeys(ranked))[:k]
    return torch.zeros(rows, dtype=torch.bool).index_fill(0, torch.tensor(chosen), True)


class ValuePolicy(Policy):
    """Rows by what a network predicts they are worth to reconstructor A.

    Args:
        value: reconstruction, mask and budget to a value per row.
        network: reconstructor A, with `complex_image`.
        orders: the rows of the static masks, one tensor per budget, the most valuable first, for a value that was
            trained against completing with them (form "rollout"): such a row is worth 0, and the others are worth what
            replacing the last one brings. None for the other forms.
    """

    def __init__(self, value: nn.Module, network: nn.Module, orders: Iterable[Tensor] | None = None) -> None:
        self.value, self.network = value, network
        self.orders = None if orders is None else {len(order): order for order in orders}

    @torch.inference_mode()
    def scores(self, observation: Tensor, mask: Tensor, context: Context) -> Tensor:
        found = []
        for y, m in zip(torch.split(observation, CHUNK), torch.split(mask, CHUNK), strict=True):
            budget = torch.full((len(y),), context.fraction, device=y.device)
            drawn = self.network.complex_image(y, m)  # type: ignore[operator]
            found.append(self.value(drawn, m, budget))
        values = torch.cat(found)
        if self.orders is None:
            return values
        if context.budget not in self.orders:
            known = ", ".join(map(str, self.orders))
            raise BudgetError(f"static masks are here for {known} rows, not for {context.budget}")
        return self._against_static(values, mask, self.orders[context.budget])

    def _against_static(self, values: Tensor, mask: Tensor, order: Tensor) -> Tensor:
        rank = ranks(order, mask.shape[1]).to(mask.device).expand(mask.shape)
        base = complete(mask, rank, torch.full((len(mask),), len(order), device=mask.device))
        return torch.where(base, TIE * (1 - rank / mask.shape[1]), values)


def static_cores(orders: Iterable[Tensor], rows: int, acs: int, share: float) -> FixedStart:
    """A start that measures the most valuable rows of the static mask and leaves `share` of the rest to the policy."""
    cores = {}
    for order in orders:
        core = torch.zeros(rows, dtype=torch.bool)
        core[order[: core_size(len(order), acs, share)]] = True
        cores[len(order)] = core
    return FixedStart(cores)


def core_size(k: int, acs: int, share: float) -> int:
    """Rows that are measured first, when `share` of those beyond the ACS block is left: at least one of `k` is left."""
    return min(acs + round((1 - share) * (k - acs)), k - 1)


def one_step_gains(network: nn.Module, kspace: Tensor, mask: Tensor, shortlist: int | None, samples: int = 1) -> Tensor:
    """By how much each further row lowers the error, on average over what a slice may be; `(B, H)`.

    Args:
        network: reconstructor A.
        kspace: what the slices may be, one after another, with shape `(B samples, H, W)`.
        mask: True where measured, with shape `(B, H)`.
        shortlist: rows that are tried exactly, those of steepest gradient; all others come last. None tries every row.
        samples: of each slice.
    """
    hidden = mask.shape[1] if mask.is_meta else int((~mask[0]).sum())
    tries = hidden if shortlist is None else min(hidden, shortlist)
    error, gradient = mask_gradients(network, kspace, mask.repeat_interleave(samples, dim=0))
    promise = -gradient.view(len(mask), samples, -1).mean(1)
    rows = promise.masked_fill(mask, -torch.inf).topk(tries, dim=1).indices  # (B, tries)
    tried = with_rows(mask, rows).repeat_interleave(samples, dim=0).flatten(0, 1)  # (B samples tries, H)
    after = slice_errors(network, kspace.repeat_interleave(tries, dim=0), tried)
    gain = error.view(len(mask), samples, 1) - after.view(len(mask), samples, tries)
    return torch.full(mask.shape, -1e9, device=mask.device).scatter(1, rows, gain.mean(1))


class OneStepOracle(Policy):
    """The ceiling: knows the truth, and takes the rows whose addition lowers A's error most.

    Args:
        network: reconstructor A.
        kspace: the true slices, with shape `(B, H, W)`, in the order of the batch.
        shortlist: rows that are tried exactly, those of steepest gradient; None tries every row.
    """

    def __init__(self, network: nn.Module, kspace: Tensor, shortlist: int | None = 24) -> None:
        self.network, self.kspace, self.shortlist = network, kspace, shortlist

    def scores(self, observation: Tensor, mask: Tensor, context: Context) -> Tensor:
        return one_step_gains(self.network, self.kspace, mask, self.shortlist)
