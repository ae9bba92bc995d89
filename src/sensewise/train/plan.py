"""Fit the coefficients of a plan to exact errors of reconstructor A, one budget at a time.

A step takes some slices, tries a few masks on each, and adds them to the normal equations of a ridge regression of the
log error; what differs between slices drops out, because only masks of the same slice are compared. After every epoch
the equations are solved and the next masks are those of the new plan with some rows swapped; old equations fade. Which
static mask and which coefficients are kept is decided on held-out training slices. The rows measured first, the core,
are the most valuable ones of the static mask.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from sensewise import hub
from sensewise.data.scenes import Scenes
from sensewise.errors import ConfigError
from sensewise.files import fingerprint
from sensewise.kspace import acs_rows, keep_rows
from sensewise.masks import bottom_k, centre_log_density, gumbel
from sensewise.policies.planned import (
    WINDOWS,
    ZONES,
    RowPlan,
    improve,
    log_energy,
    overlap_matrix,
    pair_terms,
    zones,
)
from sensewise.policies.simple import draw_rows
from sensewise.policies.starts import count_rows
from sensewise.policies.value import core_size, slice_errors
from sensewise.train.fit import Job, step_generator
from sensewise.train.processes import Team
from sensewise.train.recipe import Recipe

LOOK = 64  # slices of a look at held-out slices
STARTS = 32  # random masks that the search for the static mask starts from


@dataclass(frozen=True)
class PlanSettings:
    """Everything that `sensewise train row-plan` needs to know.

    Attributes:
        epochs: passes over the training slices.
        batch_size: slices per step.
        tries: masks tried on each slice of a step.
        swaps: most rows of a plan that are swapped in a try.
        share: of the rows beyond the ACS block, what is left to be planned after the core is measured.
        fade: what earlier epochs count beside the last one.
        ridge: of the regression, for what all slices share.
        ridge_slopes: for what adapts to the slice.
        sigma: of the density that swapped-in rows are drawn from; 1 = half the rows.
        seed: of the masks.
    """

    epochs: int = 6
    batch_size: int = 32
    tries: int = 4
    swaps: int = 8
    share: float = 0.5
    fade: float = 0.85
    ridge: float = 1.0
    ridge_slopes: float = 3.0
    sigma: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.tries < 2 or min(self.epochs, self.batch_size, self.swaps) < 1:
            raise ConfigError("tries must be at least 2; epochs, batch_size and swaps at least 1")
        if not 0 < self.share <= 1 or not 0 <= self.fade <= 1 or min(self.ridge, self.ridge_slopes, self.sigma) <= 0:
            raise ConfigError("0 < share <= 1, 0 <= fade <= 1 and positive ridge, ridge_slopes and sigma are needed")


def swap_some(mask: Tensor, acs: int, most: int, sigma: float, generator: Generator) -> Tensor:
    """Masks `(B, rows)` with 1 to `most` of their rows outside the ACS block swapped for hidden ones."""
    rows = mask.shape[1]
    free = mask & ~acs_rows(rows, acs)
    count = torch.randint(1, most + 1, (len(mask),), generator=generator)
    count = torch.minimum(count, torch.minimum(free.sum(1), (~mask).sum(1)))
    drop = bottom_k(torch.rand(mask.shape, generator=generator).masked_fill(~free, torch.inf), count)
    density = centre_log_density(rows, 1, sigma) + gumbel((len(mask), rows), generator)
    add = bottom_k((-density).masked_fill(mask, torch.inf), count)
    return (mask & ~drop) | add


class PlanFit(Job):
    """The regression at one budget. Reconstructions are shared and go to the device; the rest is small and stays.

    Args:
        plan: what is fitted.
        network: reconstructor A, frozen.
        scenes: slices to learn from.
        held_out: slices that decide which masks and coefficients are kept.
        settings: how many masks, how they are drawn.
    """

    def __init__(
        self, plan: RowPlan, network: nn.Module, scenes: Scenes, held_out: Scenes, settings: PlanSettings
    ) -> None:
        self.plan, self.network, self.kspace, self.settings = plan, network, scenes.values, settings
        self.held_out = held_out.values[:LOOK]
        self.steps_per_epoch = -(-len(self.kspace) // settings.batch_size)
        self.steps = settings.epochs * self.steps_per_epoch
        energy = log_energy(self.kspace, plan.acs)
        plan.usual, plan.spread = energy.mean(0), energy.std(0).clamp(min=1e-3)
        self.free = (~acs_rows(plan.rows, plan.acs)).nonzero()[:, 0]
        self.zones = zones(plan.rows)
        self.shared = len(self.free) + pair_terms(plan.static.unsqueeze(0)).shape[1]
        terms = self.shared + len(WINDOWS) * ZONES
        self.gram = torch.zeros(terms, terms, dtype=torch.float64)
        self.moment = torch.zeros(terms, dtype=torch.float64)
        self.best = {"plan": torch.inf, "static": torch.inf}
        self.proposal = plan.static.clone()  # the static mask of the latest coefficients, good or not
        self.kept = {name: tensor.clone() for name, tensor in plan.state_dict().items()}

    def begin(self, team: Team, *, compiled: bool) -> None:
        super().begin(team, compiled=compiled)
        self.network.to(team.device)
        if compiled:
            self.network.compile()

    def errors(self, kspace: Tensor, mask: Tensor) -> Tensor:
        """A's NMSE of slices `(n, H, W)` under masks `(n, H)`, each process with its share; `(n,)` on the CPU."""
        mine, rows = self.team.part(kspace).to(self.team.device), self.team.part(mask).to(self.team.device)
        with self.team.autocast():
            found = slice_errors(self.network, mine, rows)
        return self.team.gather(found, len(kspace)).cpu()

    def terms(self, mask: Tensor, unusual: Tensor) -> Tensor:
        """What the log error is linear in, `(n, terms)`, for masks `(n, rows)` of slices `(n, windows, rows)`."""
        local = (mask.unsqueeze(1) * unusual) @ self.zones  # (n, windows, ZONES)
        return torch.cat([mask[:, self.free].float(), pair_terms(mask), local.flatten(1)], dim=1)

    def _unusual(self, kspace: Tensor) -> Tensor:
        core = self.plan.core.expand(len(kspace), -1)
        return self.plan.unusual(keep_rows(kspace, core), core)

    def _masks(self, step: int, unusual: Tensor) -> Tensor:
        """Masks to try on each slice, `(B, tries, rows)`: random at first, then swaps of plan and proposal in turn."""
        s, plan, batch = self.settings, self.plan, len(unusual)
        generator = step_generator(s.seed, step)
        if step < self.steps_per_epoch:
            drawn = draw_rows("acs-variable-density", batch * s.tries, plan.rows, plan.k, plan.acs, generator)
            return drawn.view(batch, s.tries, -1)
        own = plan.plan(plan.worth_in(unusual), plan.core.expand(batch, -1))
        both = torch.stack([own, self.proposal.expand(batch, -1)], dim=1).repeat(1, -(-s.tries // 2), 1)[:, : s.tries]
        return swap_some(both.flatten(0, 1), plan.acs, s.swaps, s.sigma, generator).view(batch, s.tries, -1)

    def advance(self, step: int) -> dict[str, float]:
        s = self.settings
        epoch, place = divmod(step, self.steps_per_epoch)
        order = torch.randperm(len(self.kspace), generator=step_generator(s.seed, -1 - epoch))
        kspace = self.kspace[order[place * s.batch_size : (place + 1) * s.batch_size]]
        unusual = self._unusual(kspace)
        masks = self._masks(step, unusual)  # (B, tries, rows)
        each, flat = kspace.repeat_interleave(s.tries, dim=0), masks.flatten(0, 1)
        error = self.errors(each, flat).log().view(len(kspace), s.tries, 1)
        terms = self.terms(flat, unusual.repeat_interleave(s.tries, dim=0)).view(len(kspace), s.tries, -1)
        x = (terms - terms.mean(1, keepdim=True)).flatten(0, 1).double()
        y = (error - error.mean(1, keepdim=True)).flatten().double()
        self.gram += x.T @ x
        self.moment += x.T @ y
        return {}

    def looks_at(self, step: int) -> bool:
        return step % self.steps_per_epoch == 0

    def look(self, over: Callable[[], bool]) -> dict[str, float]:
        """At the end of an epoch solve and plan anew; A's NMSE on held-out slices by kind of mask."""
        self._solve()
        self.gram, self.moment = self.settings.fade * self.gram, self.settings.fade * self.moment
        return self._judge()

    def _coefficients(self, count: int) -> Tensor:
        ridge = torch.full((count,), self.settings.ridge, dtype=torch.float64)
        ridge[self.shared :] = self.settings.ridge_slopes
        return torch.linalg.solve(self.gram[:count, :count] + torch.diag(ridge), self.moment[:count]).float()

    def _parts(self, coefficients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        plan, count = self.plan, len(self.free)
        worth = torch.zeros(plan.rows).index_copy(0, self.free, coefficients[:count])
        slopes = coefficients[self.shared :].view(-1, ZONES) @ self.zones.T  # (windows, rows), empty without
        return worth, overlap_matrix(coefficients[count : self.shared], plan.rows), slopes

    def _solve(self) -> None:
        """The coefficients, and a proposal for the static mask from those that all slices share."""
        plan = self.plan
        worth, overlap, _ = self._parts(self._coefficients(self.shared))
        generator = torch.Generator().manual_seed(self.settings.seed)
        starts = draw_rows("acs-variable-density", STARTS, plan.rows, plan.k, plan.acs, generator)
        if int(plan.static.sum()) == plan.k:
            starts = torch.cat([plan.static.unsqueeze(0), starts])
        block = acs_rows(plan.rows, plan.acs)
        found = improve(worth.expand(len(starts), -1), overlap, starts, block.expand(len(starts), -1))
        predicted = found.float() @ worth + ((found.float() @ overlap) * found).sum(1)
        self.proposal = found[predicted.argmin()]
        plan.worth, plan.overlap, plan.slopes = self._parts(self._coefficients(len(self.moment)))

    def _judge(self) -> dict[str, float]:
        """Take the proposal if it is better, and keep the coefficients that did best."""
        plan, many = self.plan, (len(self.held_out), -1)
        found = {"static": self._mean_error(self.proposal.expand(many))}
        if found["static"] < self.best["static"]:
            self.best["static"], plan.static = found["static"], self.proposal.clone()
            plan.core = self._core(plan.static)
        unusual = self._unusual(self.held_out)
        for name, shift in (("plan", 0), ("another's", len(self.held_out) // 2)):
            seen = unusual.roll(shift, 0)  # another slice's energies: a control
            found[name] = self._mean_error(plan.plan(plan.worth_in(seen), plan.core.expand(many)))
        if found["plan"] < self.best["plan"]:
            self.best["plan"] = found["plan"]
            self.kept = {name: tensor.clone() for name, tensor in plan.state_dict().items()}
        return found

    def _mean_error(self, mask: Tensor) -> float:
        return self.errors(self.held_out, mask).mean().item()

    def _core(self, mask: Tensor) -> Tensor:
        """The ACS block and the most valuable other rows of a mask `(rows,)`."""
        plan = self.plan
        slope = plan.worth + 2 * mask.float() @ plan.overlap
        slope = slope.masked_fill(~mask, torch.inf).masked_fill(acs_rows(plan.rows, plan.acs), -torch.inf)
        kept = slope.argsort()[: core_size(plan.k, plan.acs, self.settings.share)]
        return torch.zeros_like(mask).index_fill(0, kept, True)

    def state(self) -> dict[str, Tensor]:
        tensors = {f"plan.{name}": tensor for name, tensor in self.plan.state_dict().items()}
        tensors |= {f"kept.{name}": tensor for name, tensor in self.kept.items()}
        best = torch.tensor([self.best["plan"], self.best["static"]], dtype=torch.float64)
        return tensors | {"gram": self.gram, "moment": self.moment, "proposal": self.proposal, "best": best}

    def load_state(self, state: Mapping[str, Tensor], path: Path) -> None:
        hub.load_weights(self.plan, {name[5:]: t for name, t in state.items() if name.startswith("plan.")}, path)
        self.kept = {name[5:]: t for name, t in state.items() if name.startswith("kept.")}
        self.gram, self.moment, self.proposal = state["gram"], state["moment"], state["proposal"]
        self.best = dict(zip(("plan", "static"), state["best"].tolist(), strict=True))

    def validation(self, logged: Mapping[str, float]) -> dict[str, float]:
        return self.best

    def export(self, folder: Path, card: Mapping[str, Any]) -> None:
        """The coefficients that did best so far."""
        kept = RowPlan(self.plan.rows, self.plan.acs, self.plan.k)
        kept.load_state_dict(self.kept)
        hub.save(folder, card, kept)


@dataclass(frozen=True)
class PlanRecipe(Recipe):
    """How a plan of rows is fitted at one budget."""

    settings: PlanSettings
    scenes: Scenes
    held_out: Scenes
    acs: int
    network: nn.Module
    budget: float

    kind = "row-plan"

    def model(self) -> dict[str, Any]:
        rows = self.scenes.shape[-2]
        return {"rows": rows, "acs": self.acs, "k": count_rows(self.budget, rows, self.acs)}

    def about(self) -> dict[str, Any]:
        return {"reconstructor": fingerprint(self.network)}

    def job(self, *, fresh: bool) -> PlanFit:
        return PlanFit(RowPlan(**self.model()), self.network, self.scenes, self.held_out, self.settings)
