"""Train the value of a row, on the states that its own policy visits.

Three forms of the target, all in per cent of the error that reconstructor A has now:

    gain      the exact fall of the error when one more row is measured, for a few candidate rows per state
    gradient  minus the derivative of the error with respect to the mask: all rows from one backward pass
    rollout   the exact fall of the *final* error, when the budget is filled up with the rows of the static mask: a row
              takes the place of the static mask's least valuable one. Acting greedily on it improves on the static mask
              (policy improvement of a rollout), while the other two look one step ahead only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from sensewise import hub
from sensewise.data.scenes import Scenes
from sensewise.errors import BudgetError, ConfigError
from sensewise.files import fingerprint
from sensewise.kspace import acs_rows, keep_rows
from sensewise.loop import acquire
from sensewise.policies.base import Start
from sensewise.policies.starts import CentralBlock, count_rows
from sensewise.policies.value import (
    ValuePolicy,
    complete,
    mask_gradients,
    ranks,
    slice_errors,
    static_cores,
    with_rows,
)
from sensewise.sensors.rows import RowSensor
from sensewise.train.gradient import FitSettings, Objective
from sensewise.train.recipe import GradientRecipe

Form = Literal["gain", "gradient", "rollout"]
LARGEST = 10.0  # per cent: targets beyond it are rare and would dominate


@dataclass(frozen=True)
class RowValueSettings:
    """Everything that `sensewise train row-value` needs to know.

    Attributes:
        batch_size: states per step.
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


def load_orders(preset: str | Path, budgets: Sequence[float], rows: int, acs: int) -> list[Tensor]:
    """The searched masks' rows, the most valuable first, one tensor per budget."""
    orders = []
    for budget in budgets:
        folder = hub.find(f"mri/static-search-{budget:g}", preset, "order.npy")
        order = torch.from_numpy(np.load(folder / "order.npy", allow_pickle=False))
        if len(order) != count_rows(budget, rows, acs) or int(order.max()) >= rows:
            raise BudgetError(f"{folder}: {len(order)} rows do not fit the budget {budget:g} of {rows} rows")
        orders.append(order)
    return orders


class ValueObjective(Objective):
    """Regression of values on states under way, one slice each; every step each state measures one more row.

    What was drawn and counted stays on the CPU; the masks follow the device.

    Args:
        value: what is trained.
        network: reconstructor A, frozen.
        scenes: slices to learn from.
        held_out: slices on which the policy is run from time to time.
        acs: rows of the ACS block.
        form: of the target.
        counts: rows of each budget.
        orders: the static mask's rows at each budget, for form "rollout".
        settings: batch, candidates, exploration.
    """

    def __init__(
        self,
        value: nn.Module,
        network: nn.Module,
        scenes: Scenes,
        held_out: Scenes,
        *,
        acs: int,
        form: Form,
        counts: Sequence[int],
        orders: Sequence[Tensor] | None,
        settings: RowValueSettings,
    ) -> None:
        if form == "rollout" and orders is None:
            raise ConfigError(
                "form rollout needs the searched masks: run `sensewise train static-search` for every budget"
            )
        self.model, self.network, self.scenes, self.held_out = value, network, scenes, held_out
        self.frozen = (network,)
        self.form, self.orders, self.settings = form, orders, settings
        self.rows, self.counts = scenes.shape[-2], torch.tensor(counts)
        self.start: Start = CentralBlock(acs)
        self.starts = acs_rows(self.rows, acs).expand(len(counts), -1)  # (budgets, H)
        if orders is not None:
            cores = static_cores(orders, self.rows, acs, settings.share)
            self.start, self.starts = cores, torch.stack([cores.masks[k] for k in counts])
            self.rank = torch.stack([ranks(order, self.rows) for order in orders])
        batch = settings.batch_size
        self.index = torch.zeros(batch, dtype=torch.int64)
        self.budget = torch.zeros(batch, dtype=torch.int64)
        self.mask = torch.ones(batch, self.rows, dtype=torch.bool)  # nothing left to measure: replaced at once
        self.taken = self.mask.sum(1)  # rows that each state has measured

    def state(self) -> dict[str, Tensor]:
        return {"index": self.index, "budget": self.budget, "mask": self.mask}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.index, self.budget, self.mask = state["index"], state["budget"], state["mask"]
        self.taken = self.mask.sum(1)

    def restart(self, generator: Generator) -> Tensor:
        """Replace finished states; returns the number of rows `(B,)` that each may measure."""
        batch = self.settings.batch_size
        fresh = torch.randint(len(self.scenes), (batch,), generator=generator)
        drawn = torch.randint(len(self.counts), (batch,), generator=generator)
        ended = self.taken >= self.counts[self.budget]
        self.index = torch.where(ended, fresh, self.index)
        self.budget = torch.where(ended, drawn, self.budget)
        starts = self.starts[self.budget]  # (B, H)
        self.taken = torch.where(ended, starts.sum(1), self.taken)
        self.mask = torch.where(ended.unsqueeze(1).to(self.device), starts.to(self.device), self.mask.to(self.device))
        return self.counts[self.budget]

    def settled_rows(self, k: Tensor) -> Tensor:
        """Rows that need no value, `(B, H)`: measured, or in what the static mask fills up with."""
        if self.orders is None:
            return self.mask
        return complete(self.mask, self.rank[self.budget].to(self.device), k.to(self.device))

    def candidates(self, values: Tensor, settled: Tensor, open_rows: int, generator: Generator) -> Tensor:
        """Rows to try in each state, `(B, n)`: the best by value, and random ones; at least `open_rows` are open."""
        count = min(self.settings.candidates, open_rows)
        best = values.masked_fill(settled, -torch.inf).topk(count - count // 2, dim=1).indices
        noise = torch.rand(values.shape, generator=generator).to(self.device)
        noise = noise.masked_fill(settled, -1).scatter(1, best, -1)
        return torch.cat([best, noise.topk(count // 2, dim=1).indices], dim=1)

    def targets(self, kspace: Tensor, rows: Tensor, k: Tensor) -> Tensor:
        """What measuring each of the rows `(B, n)` is worth, in per cent, `(b, n)` for this process's `kspace`."""
        tried = with_rows(self.mask, rows)  # (B, n, H)
        now = self.settled_rows(k)
        if self.orders is not None:
            rank = self.rank[self.budget].to(self.device).repeat_interleave(rows.shape[1], dim=0)
            each = k.to(self.device).repeat_interleave(rows.shape[1])
            tried = complete(tried.flatten(0, 1), rank, each).view_as(tried)
        masks = self.team.share(torch.cat([now.unsqueeze(1), tried], dim=1))  # (b, n + 1, H)
        many = kspace.repeat_interleave(masks.shape[1], dim=0)
        error = slice_errors(self.network, many, masks.flatten(0, 1)).view(masks.shape[:2]).clone()
        return 100 * (1 - error[:, 1:] / error[:, :1])

    def loss(self, model: nn.Module, step: int, generator: Generator) -> Tensor:
        k = self.restart(generator)
        kspace, _ = self.draw(self.scenes, self.team.share(self.index))  # (b, H, W)
        mask = self.team.share(self.mask)  # (b, H)
        with torch.no_grad():
            drawn = self.network.complex_image(keep_rows(kspace, mask), mask)  # type: ignore[operator]
        values = model(drawn, mask, self.team.share(k).to(self.device) / self.rows)  # (b, H)
        every = self.team.gather(values.detach(), self.settings.batch_size)  # (B, H)
        settled = self.settled_rows(k)
        if self.form == "gradient":
            error, gradient = mask_gradients(self.network, kspace, mask)
            target = (-100 * gradient / error.unsqueeze(1)).clamp(-LARGEST, LARGEST)
            each = F.smooth_l1_loss(values, target, reduction="none")
            loss = (torch.where(mask, 0.0, each) if each.is_meta else each[~mask]).mean()
        else:
            most = self.taken.max() if self.orders is None else k.max()
            rows = self.candidates(every, settled, self.rows - int(most), generator)
            target = self.targets(kspace, rows, k).clamp(-LARGEST, LARGEST)
            loss = F.smooth_l1_loss(values.gather(1, self.team.share(rows)), target)
        self.advance(every, settled, generator)
        return loss

    def advance(self, values: Tensor, settled: Tensor, generator: Generator) -> None:
        """Every state measures one more row: its best, or a random one."""
        values = torch.where(settled, 0.0, values)  # a static row: no better, no worse than planned
        noise = torch.rand(values.shape, generator=generator).to(self.device)
        explore = torch.rand(len(values), 1, generator=generator).to(self.device) < self.settings.explore
        chosen = torch.where(explore, noise, values + 1e-6 * noise).masked_fill(self.mask, -torch.inf).argmax(1)
        self.mask = self.mask.scatter(1, chosen.unsqueeze(1), True)
        self.taken = self.taken + 1

    def validate(self, model: nn.Module) -> dict[str, float]:
        """A's NMSE after the policy has spent each budget on 16 held-out slices, in 8 steps."""
        kspace, _ = self.draw(self.held_out, slice(0, 16))
        policy, values = ValuePolicy(model, self.network, self.orders), {}
        for k, start in zip(self.counts.tolist(), self.starts, strict=True):
            steps = min(8, k - int(start.sum()))
            taken = acquire(policy, RowSensor(kspace), k, steps=steps, start=self.start)
            values[f"nmse_{k}"] = slice_errors(self.network, kspace, taken.mask).mean().item()
        return values


@dataclass(frozen=True)
class RowValueRecipe(GradientRecipe):
    """How the value of a row is trained, in one of its forms, at all budgets together."""

    settings: RowValueSettings
    scenes: Scenes
    held_out: Scenes
    acs: int
    network: nn.Module
    form: Form
    budgets: tuple[float, ...]
    orders: Sequence[Tensor] | None = None

    kind = "row-value"
    elsewhere = ("width", "layers")

    def model(self) -> dict[str, Any]:
        return {"network": {"width": self.settings.width, "layers": self.settings.layers}}

    def about(self) -> dict[str, Any]:
        return {"form": self.form, "reconstructor": fingerprint(self.network)}

    def objective(self, model: nn.Module) -> ValueObjective:
        return ValueObjective(
            model,
            self.network,
            self.scenes,
            self.held_out,
            acs=self.acs,
            form=self.form,
            counts=[count_rows(budget, self.scenes.shape[-2], self.acs) for budget in self.budgets],
            orders=self.orders,
            settings=self.settings,
        )
