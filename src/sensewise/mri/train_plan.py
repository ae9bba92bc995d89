"""Fit the coefficients of a plan to exact errors of reconstructor A, one budget at a time.

A step takes some slices, tries a few masks on each, and adds them to the normal equations of a ridge regression of the
log error; what differs between slices drops out, because only masks of the same slice are compared. After every epoch
the equations are solved and the next masks are those of the new plan with some rows swapped; old equations fade. The
rows measured first, the core, are chosen anew in the first half of the epochs, then kept.
"""

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Generator, Tensor, nn

from sensewise.checkpoint import append_json, fingerprint, locked, read_tensors, save_run, write_tensors
from sensewise.data.fastmri import Slices
from sensewise.errors import ConfigError
from sensewise.masks import centre_log_density, gumbel
from sensewise.mri import row_masks
from sensewise.mri.kspace import acs_rows, keep_rows
from sensewise.mri.plan import WINDOWS, ZONES, RowPlan, improve, log_energy, overlap_matrix, pair_terms, zones
from sensewise.mri.value import core_size, slice_errors
from sensewise.training import begin_run, step_generator, stop_signal, trim_log

LOOK = 64  # slices of a look at held-out slices
SAVE_EVERY = 10  # steps between two checkpoints


@dataclass(frozen=True)
class PlanSettings:
    """Everything that `sensewise train row-plan` needs to know.

    Attributes:
        epochs: passes over the training slices.
        batch_size: slices to a step.
        tries: masks tried on each slice of a step.
        swaps: most rows of a plan that are swapped in a try.
        share: of the rows beyond the ACS block, what is left to be planned after the core is measured.
        fade: what earlier epochs count beside the last one.
        ridge: of the regression, for what all slices share.
        ridge_slopes: for what adapts to the slice.
        sigma: of the density that swapped-in rows are drawn from; 1 = half the rows.
        seed: of the masks.
    """

    epochs: int = 8
    batch_size: int = 32
    tries: int = 4
    swaps: int = 8
    share: float = 0.5
    fade: float = 0.7
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
    count = torch.randint(1, most + 1, (len(mask), 1), generator=generator)
    count = torch.minimum(count, torch.minimum(free.sum(1, keepdim=True), (~mask).sum(1, keepdim=True)))
    drop = torch.rand(mask.shape, generator=generator).masked_fill(~free, 2.0).argsort(1).argsort(1) < count
    density = centre_log_density(rows, 1, sigma) + gumbel((len(mask), rows), generator)
    add = density.masked_fill(mask, -torch.inf).argsort(1, descending=True).argsort(1) < count
    return (mask & ~drop) | add


class PlanFit:
    """The regression at one budget.

    Args:
        plan: what is fitted.
        network: reconstructor A, frozen.
        train: slices to learn from.
        settings: how many masks, how they are drawn.
    """

    def __init__(self, plan: RowPlan, network: nn.Module, train: Slices, settings: PlanSettings) -> None:
        self.plan, self.network, self.kspace, self.settings = plan, network, train.kspace, settings
        energy = log_energy(self.kspace, plan.acs)
        plan.usual, plan.spread = energy.mean(0), energy.std(0).clamp(min=1e-3)
        self.free = (~acs_rows(plan.rows, plan.acs)).nonzero()[:, 0]
        self.zones = zones(plan.rows)
        self.shared = len(self.free) + pair_terms(plan.static.unsqueeze(0)).shape[1]
        terms = self.shared + len(WINDOWS) * ZONES
        self.gram, self.moment = torch.zeros(terms, terms, dtype=torch.float64), torch.zeros(terms, dtype=torch.float64)
        self.step = 0
        self.best = {"plan": torch.inf, "static": torch.inf}
        self.kept = {name: tensor.clone() for name, tensor in plan.state_dict().items()}

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.kspace) // self.settings.batch_size)

    @property
    def steps(self) -> int:
        return self.settings.epochs * self.steps_per_epoch

    def terms(self, mask: Tensor, unusual: Tensor) -> Tensor:
        """What the log error is linear in, `(n, terms)`, for masks `(n, rows)` of slices `(n, windows, rows)`."""
        local = (mask.unsqueeze(1) * unusual) @ self.zones  # (n, windows, ZONES)
        return torch.cat([mask[:, self.free].float(), pair_terms(mask), local.flatten(1)], dim=1)

    def _unusual(self, kspace: Tensor) -> Tensor:
        core = self.plan.core.expand(len(kspace), -1)
        return self.plan.unusual(keep_rows(kspace, core), core)

    def _masks(self, unusual: Tensor, generator: Generator) -> Tensor:
        """Masks to try on each slice, `(B, tries, rows)`: random at first, then swaps of both kinds of plan."""
        s, plan, batch = self.settings, self.plan, len(unusual)
        if self.step < self.steps_per_epoch:
            drawn = row_masks.draw("acs-variable-density", batch * s.tries, plan.rows, plan.k, plan.acs, generator)
            return drawn.view(batch, s.tries, -1)
        own = plan.plan(plan.worth_in(unusual), plan.core.expand(batch, -1))
        both = torch.stack([own, plan.static.expand(batch, -1)], dim=1).repeat(1, -(-s.tries // 2), 1)[:, : s.tries]
        return swap_some(both.flatten(0, 1), plan.acs, s.swaps, s.sigma, generator).view(batch, s.tries, -1)

    def advance(self) -> None:
        """One step; at the end of an epoch, solve and plan anew."""
        s, (epoch, place) = self.settings, divmod(self.step, self.steps_per_epoch)
        order = torch.randperm(len(self.kspace), generator=step_generator(s.seed, -1 - epoch))
        kspace = self.kspace[order[place * s.batch_size : (place + 1) * s.batch_size]]
        unusual = self._unusual(kspace)
        masks = self._masks(unusual, step_generator(s.seed, self.step))  # (B, tries, rows)
        each, flat = kspace.repeat_interleave(s.tries, dim=0), masks.flatten(0, 1)
        error = slice_errors(self.network, each, flat).log().view(len(kspace), s.tries, 1)
        terms = self.terms(flat, unusual.repeat_interleave(s.tries, dim=0)).view(len(kspace), s.tries, -1)
        x = (terms - terms.mean(1, keepdim=True)).flatten(0, 1).double()
        y = (error - error.mean(1, keepdim=True)).flatten().double()
        self.gram += x.T @ x
        self.moment += x.T @ y
        self.step += 1
        if place == self.steps_per_epoch - 1:
            self.gram, self.moment = s.fade * self.gram, s.fade * self.moment
            core = self.plan.core
            self.solve(self.step <= self.steps // 2)
            if not torch.equal(core, self.plan.core):  # what is unusual around a row means something else now
                for part in (self.gram, self.gram.T, self.moment):
                    part[self.shared :] = 0.0

    def _coefficients(self, count: int) -> Tensor:
        ridge = torch.full((count,), self.settings.ridge, dtype=torch.float64)
        ridge[self.shared :] = self.settings.ridge_slopes
        return torch.linalg.solve(self.gram[:count, :count] + torch.diag(ridge), self.moment[:count]).float()

    def solve(self, new_core: bool) -> None:
        """The static mask from what all slices share, then the coefficients with what adapts to the slice."""
        plan = self.plan
        acs = acs_rows(plan.rows, plan.acs)
        worth, overlap, _ = self._parts(self._coefficients(self.shared))
        starts = row_masks.draw(
            "acs-variable-density", 32, plan.rows, plan.k, plan.acs, torch.Generator().manual_seed(self.settings.seed)
        )
        starts = torch.cat([plan.static.unsqueeze(0), starts]) if int(plan.static.sum()) == plan.k else starts
        found = improve(worth.expand(len(starts), -1), overlap, starts, acs.expand(len(starts), -1))
        predicted = found.float() @ worth + ((found.float() @ overlap) * found).sum(1)
        plan.static = found[predicted.argmin()]
        plan.worth, plan.overlap, plan.slopes = self._parts(self._coefficients(len(self.moment)))
        if new_core:
            slope = worth + 2 * plan.static.float() @ overlap
            kept = core_size(plan.k, plan.acs, self.settings.share)
            rank = torch.where(acs, -torch.inf, slope).masked_fill(~plan.static, torch.inf).argsort()
            plan.core = torch.zeros_like(acs).index_fill(0, rank[:kept], True)

    def _parts(self, coefficients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        plan, count = self.plan, len(self.free)
        worth = torch.zeros(plan.rows).index_copy(0, self.free, coefficients[:count])
        slopes = coefficients[self.shared :].view(-1, ZONES) @ self.zones.T  # (windows, rows), empty without
        return worth, overlap_matrix(coefficients[count : self.shared], plan.rows), slopes

    def keep(self, found: dict[str, float]) -> None:
        """Keep the coefficients and the static mask of the epoch that did best on held-out training slices.

        The core has to be final for the coefficients: those of the first half of the epochs are not kept.
        """
        state = {name: tensor.clone() for name, tensor in self.plan.state_dict().items()}
        if found["static"] < self.best["static"]:
            self.best["static"], self.kept["static"] = found["static"], state["static"]
        if found["plan"] < self.best["plan"] and self.step > self.steps // 2:
            self.best["plan"], self.kept = found["plan"], {**state, "static": self.kept["static"]}

    def save(self, path: Path, seconds: float) -> None:
        tensors = {f"plan.{name}": tensor for name, tensor in self.plan.state_dict().items()}
        tensors |= {f"kept.{name}": tensor for name, tensor in self.kept.items()}
        tensors |= {"gram": self.gram, "moment": self.moment}
        numbers = {"step": self.step, "seconds": seconds, **self.best}
        write_tensors(path, tensors, {name: str(value) for name, value in numbers.items()})

    def load(self, path: Path) -> float:
        """Take up a saved fit; returns the seconds it has taken."""
        tensors, metadata = read_tensors(path)
        self.plan.load_state_dict({name[5:]: t for name, t in tensors.items() if name.startswith("plan.")})
        self.kept = {name[5:]: t for name, t in tensors.items() if name.startswith("kept.")}
        self.gram, self.moment, self.step = tensors["gram"], tensors["moment"], int(metadata["step"])
        self.best = {name: float(metadata[name]) for name in self.best}
        return float(metadata["seconds"])


def look(plan: RowPlan, network: nn.Module, val: Slices) -> dict[str, float]:
    """A's NMSE on held-out training slices: of the plan in one step, with another slice's energies, and static."""
    kspace = val.kspace[:LOOK]
    core = plan.core.expand(len(kspace), -1)
    unusual = plan.unusual(keep_rows(kspace, core), core)
    masks = {
        "plan": plan.plan(plan.worth_in(unusual), core),
        "another's": plan.plan(plan.worth_in(unusual.roll(len(kspace) // 2, 0)), core),
        "static": plan.static.expand(len(kspace), -1),
    }
    return {name: slice_errors(network, kspace, mask).mean().item() for name, mask in masks.items()}


def train_plan(
    settings: PlanSettings,
    train: Slices,
    val: Slices,
    acs: int,
    network: nn.Module,
    budget: float,
    folder: Path,
    *,
    resume: bool = False,
    max_minutes: float | None = None,
    console: Console | None = None,
) -> bool:
    """Fit a plan in `folder`; True if the run is complete. Ctrl-C saves and stops."""
    rows = train.kspace.shape[1]
    k = row_masks.count_rows(budget, rows, acs)
    config: dict[str, Any] = {
        "kind": "row-plan",
        "data": train.name,
        "reconstructor": fingerprint(network),
        "model": {"rows": rows, "acs": acs, "k": k},
        "training": dataclasses.asdict(settings),
    }
    plan, console = RowPlan(rows, acs, k), console or Console(stderr=True)
    fit, checkpoint = PlanFit(plan, network, train, settings), folder / "checkpoint.safetensors"
    log = folder / "log.jsonl"
    with locked(folder / ".lock"), stop_signal() as stop, Progress(console=console) as progress:
        begin_run(folder, config, resume)
        before = fit.load(checkpoint) if resume and checkpoint.exists() else 0.0
        trim_log(log, fit.step)
        begun = time.monotonic()
        bar = progress.add_task(folder.name, total=fit.steps, completed=fit.step)
        while fit.step < fit.steps:
            fit.advance()
            progress.update(bar, completed=fit.step)
            seconds = time.monotonic() - begun
            if fit.step % fit.steps_per_epoch == 0:
                values = look(plan, network, val)
                fit.keep(values)
                append_json(log, {"step": fit.step, "seconds": round(before + seconds, 1), **values})
                shown = "NMSE " + " ".join(f"{name} {value:.6f}" for name, value in values.items())
                left = (fit.steps - fit.step) * (before + seconds) / fit.step / 60
                console.print(f"step {fit.step}/{fit.steps} {shown} ({left:.0f} min left)", soft_wrap=True)
            time_is_up = stop.is_set() or (max_minutes is not None and seconds > 60 * max_minutes)
            if time_is_up or fit.step % SAVE_EVERY == 0 or fit.step == fit.steps:
                fit.save(checkpoint, before + time.monotonic() - begun)
            if time_is_up:
                break
        complete = fit.step == fit.steps
        if complete:
            minutes = round((before + time.monotonic() - begun) / 60, 1)
            plan.load_state_dict(fit.kept)
            save_run(folder, config | {"trained": {"steps": fit.step, "minutes": minutes, "nmse": fit.best}}, plan)
    return complete
