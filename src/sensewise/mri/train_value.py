"""Train the value of a row, on the states that its own policy visits.

Three forms of the target, all in per cent of the error that reconstructor A has now:

    gain      the exact fall of the error when one more row is measured, for a few candidate rows a state
    gradient  minus the derivative of the error with respect to the mask: all rows from one backward pass
    rollout   the exact fall of the *final* error, when the budget is filled up with the rows of the static mask: a row
              takes the place of the static mask's least valuable one. Acting greedily on it improves on the static mask
              (policy improvement of a rollout), while the other two look one step ahead only.
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from sensewise.acquire import acquire
from sensewise.checkpoint import fingerprint
from sensewise.data.fastmri import Slices
from sensewise.errors import BudgetError, ConfigError
from sensewise.mri.kspace import acs_rows, keep_rows
from sensewise.mri.models import build, find
from sensewise.mri.row_masks import acs_start, count_rows
from sensewise.mri.settings import MRISettings
from sensewise.mri.value import (
    ValuePolicy,
    complete,
    mask_gradients,
    ranks,
    slice_errors,
    static_core,
    with_rows,
)
from sensewise.sensors import KSpaceRowSensor
from sensewise.training import FitSettings, How, Objective, fit

Form = Literal["gain", "gradient", "rollout"]
LARGEST = 10.0  # per cent: targets beyond it are rare and would dominate


@dataclass(frozen=True)
class RowValueSettings:
    """Everything that `sensewise train row-value` needs to know.

    Attributes:
        batch_size: states to a step.
        candidates: rows tried exactly in each state; half of them the policy's own best, half random.
        explore: the fraction of rows measured at random, so that states differ from what the policy expects.
        share: of the rows beyond the ACS block, what form "rollout" leaves to the policy.
        width: of the network.
        layers: of the network.
    """

    batch_size: int = 8
    candidates: int = 6
    explore: float = 0.2
    share: float = 0.5
    width: int = 48
    layers: int = 4
    fit: FitSettings = field(default_factory=FitSettings)

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.candidates < 2 or not 0 <= self.explore <= 1 or not 0 < self.share <= 1:
            raise ConfigError("batch_size >= 1, candidates >= 2, 0 <= explore <= 1 and 0 < share <= 1 are needed")


def load_orders(preset: str, mri: MRISettings) -> list[Tensor]:
    """The searched masks' rows, the most valuable first, one tensor a budget."""
    orders = []
    for budget in mri.budgets:
        folder = find(preset, f"static-search-{budget:g}", "order.npy")
        order = torch.from_numpy(np.load(folder / "order.npy", allow_pickle=False))
        if len(order) != count_rows(budget, mri.rows, mri.acs) or int(order.max()) >= mri.rows:
            raise BudgetError(f"{folder}: {len(order)} rows do not fit the budget {budget:g} of {mri.rows} rows")
        orders.append(order)
    return orders


class ValueObjective(Objective):
    """Regression of values on states under way, one slice each; every step each state measures one more row.

    Args:
        value: what is trained.
        network: reconstructor A, frozen.
        train: slices to learn from.
        val: slices on which the policy is run from time to time.
        acs: rows of the ACS block.
        form: of the target.
        counts: rows of each budget.
        orders: the static mask's rows at each budget, for form "rollout".
        settings: batch, candidates, exploration.
    """

    forward_methods = ()

    def __init__(
        self,
        value: nn.Module,
        network: Any,
        train: Slices,
        val: Slices,
        acs: int,
        form: Form,
        counts: list[int],
        orders: list[Tensor] | None,
        settings: RowValueSettings,
    ) -> None:
        if form == "rollout" and orders is None:
            raise ConfigError("form rollout needs the searched masks: run `sensewise search-mask` for every budget")
        self.model, self.network, self.train, self.val = value, network, train, val
        self.acs, self.form, self.counts, self.orders, self.settings = acs, form, counts, orders, settings
        self.rows = train.kspace.shape[1]
        self.rank = torch.stack([ranks(order, self.rows) for order in orders or []]) if orders else None
        batch = settings.batch_size
        self.index, self.budget = torch.zeros(batch, dtype=torch.int64), torch.zeros(batch, dtype=torch.int64)
        self.mask = torch.ones(batch, self.rows, dtype=torch.bool)  # nothing left to measure: replaced at once

    def state(self) -> dict[str, Tensor]:
        return {"index": self.index, "budget": self.budget, "mask": self.mask}

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.index, self.budget, self.mask = state["index"], state["budget"], state["mask"]

    def _start(self, number: int, generator: Generator) -> Tensor:
        k = self.counts[number]
        if self.orders is None:
            return acs_rows(self.rows, self.acs)
        return static_core(self.orders[number], self.rows, self.acs, self.settings.share)(1, k, generator)[0]

    def _restart(self, generator: Generator) -> Tensor:
        """Replace finished states; returns the number of rows `(B,)` that each may measure."""
        batch = self.settings.batch_size
        fresh = torch.randint(len(self.train), (batch,), generator=generator)
        drawn = torch.randint(len(self.counts), (batch,), generator=generator)
        counts = torch.tensor(self.counts)
        ended = self.mask.sum(1) >= counts[self.budget]
        self.index, self.budget = torch.where(ended, fresh, self.index), torch.where(ended, drawn, self.budget)
        starts = torch.stack([self._start(number, generator) for number in self.budget.tolist()])
        self.mask = torch.where(ended.unsqueeze(1), starts, self.mask)
        return counts[self.budget]

    def _settled(self, k: Tensor) -> Tensor:
        """Rows that need no value, `(B, H)`: measured, or in what the static mask fills up with."""
        return self.mask if self.rank is None else complete(self.mask, self.rank[self.budget], k)

    def _candidates(self, values: Tensor, settled: Tensor, generator: Generator) -> Tensor:
        """Rows to try in each state, `(B, n)`: the best by value, and random ones."""
        count = min(self.settings.candidates, int((~settled).sum(1).min()))
        best = values.masked_fill(settled, -torch.inf).topk(count - count // 2, dim=1).indices
        noise = torch.rand(values.shape, generator=generator).masked_fill(settled, -1).scatter(1, best, -1)
        return torch.cat([best, noise.topk(count // 2, dim=1).indices], dim=1)

    def _targets(self, kspace: Tensor, rows: Tensor, k: Tensor) -> Tensor:
        """What measuring each of the rows `(B, n)` is worth, in per cent, `(b, n)` for this process's `kspace`."""
        tried = with_rows(self.mask, rows)  # (B, n, H)
        now = self._settled(k)
        if self.rank is not None:
            many = self.rank[self.budget].repeat_interleave(rows.shape[1], dim=0)
            tried = complete(tried.flatten(0, 1), many, k.repeat_interleave(rows.shape[1])).view_as(tried)
        masks = self.share(torch.cat([now.unsqueeze(1), tried], dim=1))  # (b, n + 1, H)
        each = kspace.repeat_interleave(masks.shape[1], dim=0)
        error = slice_errors(self.network, each, masks.flatten(0, 1)).view(masks.shape[:2]).clone()
        return 100 * (1 - error[:, 1:] / error[:, :1])

    def loss(self, model: nn.Module, step: int, generator: Generator) -> Tensor:
        k = self._restart(generator)
        kspace, mask = self.train.kspace[self.share(self.index)], self.share(self.mask)  # (b, H, W), (b, H)
        with torch.no_grad():
            drawn = self.network.complex_image(keep_rows(kspace, mask), mask)
        values = model(drawn, mask, self.share(k) / self.rows)  # (b, H)
        every = self.gather(values.detach())  # (B, H)
        if self.form == "gradient":
            error, gradient = mask_gradients(self.network, kspace, mask)
            target = (-100 * gradient / error.unsqueeze(1)).clamp(-LARGEST, LARGEST)
            loss = F.smooth_l1_loss(values, target, reduction="none")[~mask].mean()
        else:
            rows = self._candidates(every, self._settled(k), generator)
            target = self._targets(kspace, rows, k).clamp(-LARGEST, LARGEST)
            loss = F.smooth_l1_loss(values.gather(1, self.share(rows)), target)
        self._advance(every, k, generator)
        return loss

    def _advance(self, values: Tensor, k: Tensor, generator: Generator) -> None:
        """Every state measures one more row: its best, or a random one."""
        values = torch.where(self._settled(k), 0.0, values)  # a static row: no better, no worse than planned
        noise = torch.rand(values.shape, generator=generator)
        explore = torch.rand(len(values), 1, generator=generator) < self.settings.explore
        chosen = torch.where(explore, noise, values + 1e-6 * noise).masked_fill(self.mask, -torch.inf).argmax(1)
        self.mask = self.mask.scatter(1, chosen.unsqueeze(1), True)

    def validate(self, model: nn.Module) -> dict[str, float]:
        """A's NMSE after the policy has spent each budget on 16 held-out slices, in 8 steps."""
        kspace, values = self.val.kspace[:16], {}
        for number, k in enumerate(self.counts):
            order = None if self.orders is None else self.orders[number]
            start = acs_start(self.rows, self.acs)
            if order is not None:
                start = static_core(order, self.rows, self.acs, self.settings.share)
            left = k - int(start(1, k, torch.Generator())[0].sum())
            policy = ValuePolicy(model, self.network, order)
            taken = acquire(policy, KSpaceRowSensor(kspace), k, steps=min(8, left), start=start)
            values[f"nmse_{k}"] = slice_errors(self.network, kspace, taken.mask).mean().item()
        return values


def train_row_value(
    settings: RowValueSettings,
    train: Slices,
    val: Slices,
    acs: int,
    network: nn.Module,
    form: Form,
    budgets: tuple[float, ...],
    orders: list[Tensor] | None,
    folder: Path,
    **how: Unpack[How],
) -> bool:
    """Train the value of a row in `folder`; True if the run is complete."""
    training = dataclasses.asdict(settings)
    sizes = {"width": training.pop("width"), "layers": training.pop("layers")}
    config = {
        "kind": "row-value",
        "data": train.name,
        "form": form,
        "reconstructor": fingerprint(network),
        "model": {"network": sizes},
        "training": training,
    }
    with torch.random.fork_rng():
        torch.manual_seed(settings.fit.seed)
        value = build(config, "row-value")
    counts = [count_rows(budget, train.kspace.shape[1], acs) for budget in budgets]
    objective = ValueObjective(value, network, train, val, acs, form, counts, orders, settings)
    return fit(objective, settings.fit, config, folder, **how)
