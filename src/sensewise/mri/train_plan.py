"""Fit the coefficients of a plan to exact errors of reconstructor A, one budget at a time.

A step takes some slices, tries a few masks on each, and adds them to the normal equations of a ridge regression of the
log error; what differs between slices drops out, because only masks of the same slice are compared. After every epoch
the equations are solved and the next masks are those of the new plan with some rows swapped; old equations fade. Which
static mask and which coefficients are kept is decided on held-out training slices. The rows measured first, the core,
are the most valuable ones of the static mask.
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
from sensewise.masks import centre_log_density, gumbel, lowest
from sensewise.mri import row_masks
from sensewise.mri.kspace import acs_rows, keep_rows
from sensewise.mri.plan import WINDOWS, ZONES, RowPlan, improve, log_energy, overlap_matrix, pair_terms, zones
from sensewise.mri.value import core_size, slice_errors
from sensewise.training import begin_run, step_generator, stop_signal, trim_log

LOOK = 64  # slices of a look at held-out slices
SAVE_EVERY = 10  # steps between two checkpoints
STARTS = 32  # random masks that the search for the static mask starts from


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
    drop = lowest(torch.rand(mask.shape, generator=generator).masked_fill(~free, torch.inf), count)
    density = centre_log_density(rows, 1, sigma) + gumbel((len(mask), rows), generator)
    add = lowest((-density).masked_fill(mask, torch.inf), count)
    return (mask & ~drop) | add


class PlanFit:
    """The regression at one budget.

    Args:
        plan: what is fitted.
        network: reconstructor A, frozen.
        train: slices to learn from.
        val: slices that decide which masks and coefficients are kept.
        settings: how many masks, how they are drawn.
    """

    def __init__(self, plan: RowPlan, network: nn.Module, train: Slices, val: Slices, settings: PlanSettings) -> None:
        self.plan, self.network, self.kspace, self.settings = plan, network, train.kspace, settings
        self.val = val.kspace[:LOOK]
        energy = log_energy(self.kspace, plan.acs)
        plan.usual, plan.spread = energy.mean(0), energy.std(0).clamp(min=1e-3)
        self.free = (~acs_rows(plan.rows, plan.acs)).nonzero()[:, 0]
        self.zones = zones(plan.rows)
        self.shared = len(self.free) + pair_terms(plan.static.unsqueeze(0)).shape[1]
        terms = self.shared + len(WINDOWS) * ZONES
        self.gram, self.moment = torch.zeros(terms, terms, dtype=torch.float64), torch.zeros(terms, dtype=torch.float64)
        self.step = 0
        self.best = {"plan": torch.inf, "static": torch.inf}
        self.proposal = plan.static.clone()  # the static mask of the latest coefficients, good or not
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
        """Masks to try on each slice, `(B, tries, rows)`: random at first, then swaps of plan and proposal in turn."""
        s, plan, batch = self.settings, self.plan, len(unusual)
        if self.step < self.steps_per_epoch:
            count = batch * s.tries
            drawn = row_masks.draw("acs-variable-density", count, plan.rows, plan.k, plan.acs, generator)
            return drawn.view(batch, s.tries, -1)
        own = plan.plan(plan.worth_in(unusual), plan.core.expand(batch, -1))
        both = torch.stack([own, self.proposal.expand(batch, -1)], dim=1).repeat(1, -(-s.tries // 2), 1)[:, : s.tries]
        return swap_some(both.flatten(0, 1), plan.acs, s.swaps, s.sigma, generator).view(batch, s.tries, -1)

    def advance(self) -> dict[str, float]:
        """One step; at the end of an epoch solve, plan anew and look: A's NMSE on held-out slices by kind of mask."""
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
        if self.step % self.steps_per_epoch:
            return {}
        self._solve()
        self.gram, self.moment = s.fade * self.gram, s.fade * self.moment
        return self._look()

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
        starts = row_masks.draw("acs-variable-density", STARTS, plan.rows, plan.k, plan.acs, generator)
        if int(plan.static.sum()) == plan.k:
            starts = torch.cat([plan.static.unsqueeze(0), starts])
        block = acs_rows(plan.rows, plan.acs)
        found = improve(worth.expand(len(starts), -1), overlap, starts, block.expand(len(starts), -1))
        predicted = found.float() @ worth + ((found.float() @ overlap) * found).sum(1)
        self.proposal = found[predicted.argmin()]
        plan.worth, plan.overlap, plan.slopes = self._parts(self._coefficients(len(self.moment)))

    def _look(self) -> dict[str, float]:
        """Take the proposal if it is better, and keep the coefficients that did best."""
        plan, many = self.plan, (len(self.val), -1)
        found = {"static": self._error(self.proposal.expand(many))}
        if found["static"] < self.best["static"]:
            self.best["static"], plan.static = found["static"], self.proposal.clone()
            plan.core = self._core(plan.static)
        unusual = self._unusual(self.val)
        for name, shift in (("plan", 0), ("another's", len(self.val) // 2)):
            seen = unusual.roll(shift, 0)  # another slice's energies: a control
            found[name] = self._error(plan.plan(plan.worth_in(seen), plan.core.expand(many)))
        if found["plan"] < self.best["plan"]:
            self.best["plan"] = found["plan"]
            self.kept = {name: tensor.clone() for name, tensor in plan.state_dict().items()}
        return found

    def _error(self, mask: Tensor) -> float:
        return slice_errors(self.network, self.val, mask).mean().item()

    def _core(self, mask: Tensor) -> Tensor:
        """The ACS block and the most valuable other rows of a mask `(rows,)`."""
        plan = self.plan
        slope = plan.worth + 2 * mask.float() @ plan.overlap
        slope = slope.masked_fill(~mask, torch.inf).masked_fill(acs_rows(plan.rows, plan.acs), -torch.inf)
        kept = slope.argsort()[: core_size(plan.k, plan.acs, self.settings.share)]
        return torch.zeros_like(mask).index_fill(0, kept, True)

    def save(self, path: Path, seconds: float) -> None:
        tensors = {f"plan.{name}": tensor for name, tensor in self.plan.state_dict().items()}
        tensors |= {f"kept.{name}": tensor for name, tensor in self.kept.items()}
        tensors |= {"gram": self.gram, "moment": self.moment, "proposal": self.proposal}
        numbers = {"step": self.step, "seconds": seconds, **self.best}
        write_tensors(path, tensors, {name: str(value) for name, value in numbers.items()})

    def load(self, path: Path) -> float:
        """Take up a saved fit; returns the seconds it has taken."""
        tensors, metadata = read_tensors(path)
        self.plan.load_state_dict({name[5:]: t for name, t in tensors.items() if name.startswith("plan.")})
        self.kept = {name[5:]: t for name, t in tensors.items() if name.startswith("kept.")}
        self.gram, self.moment, self.proposal = tensors["gram"], tensors["moment"], tensors["proposal"]
        self.step, self.best = int(metadata["step"]), {name: float(metadata[name]) for name in self.best}
        return float(metadata["seconds"])


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
    fit, checkpoint = PlanFit(plan, network, train, val, settings), folder / "checkpoint.safetensors"
    log = folder / "log.jsonl"
    with locked(folder / ".lock"), stop_signal() as stop, Progress(console=console) as progress:
        begin_run(folder, config, resume)
        before = fit.load(checkpoint) if resume and checkpoint.exists() else 0.0
        trim_log(log, fit.step)
        begun = time.monotonic()
        bar = progress.add_task(folder.name, total=fit.steps, completed=fit.step)
        while fit.step < fit.steps:
            values = fit.advance()
            progress.update(bar, completed=fit.step)
            seconds = time.monotonic() - begun
            if values:
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
