"""Static search: one mask for every slice, optimised directly against reconstructor A.

It starts at the best of some fixed variable-density draws and the energy oracle. Then the gradient with respect to the
mask ranks swaps of a measured row for another one; a few slices screen them, and a swap is accepted only if the NMSE on
the whole training split falls. ACS rows are never swapped. It ends at a local optimum: no proposed swap helps, not even
when four times as many are proposed.
Related: Gozcu et al., "Learning-based compressive MRI", 2018, which builds masks greedily.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn

from sensewise.checkpoint import append_json, atomic, fingerprint, read_json, write_json, write_text
from sensewise.errors import CheckpointError, ConfigError
from sensewise.figures.mri import rows_picture
from sensewise.figures.style import save
from sensewise.metrics import nmse
from sensewise.mri import row_masks
from sensewise.mri.kspace import acs_rows, keep_rows, magnitude, relaxed_rows

CHUNK = 32


@dataclass(frozen=True)
class SearchSettings:
    """How hard to search.

    Attributes:
        draws: fixed variable-density draws to start from.
        drops: measured rows that a round proposes to give up.
        adds: rows that a round proposes to take instead.
        screen: training slices that screen the proposals, and give the gradient.
        exact: proposals of a round, best first, that are evaluated on the whole training split.
        max_rounds: stop after so many rounds even if swaps still help.
        seed: of the draws.
    """

    draws: int = 16
    drops: int = 5
    adds: int = 6
    screen: int = 96
    exact: int = 3
    max_rounds: int = 60
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("draws", "drops", "adds", "screen", "exact", "max_rounds"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")


class MaskError:
    """The mean NMSE of one mask for all of some slices, and its gradient with respect to the mask.

    Args:
        network: k-space and mask to magnitudes; frozen.
        kspace: fully sampled slices, with shape `(n, H, W)`.
    """

    def __init__(self, network: nn.Module, kspace: Tensor) -> None:
        self.network, self.kspace = network, kspace

    @torch.inference_mode()
    def __call__(self, mask: Tensor, slices: int | None = None) -> float:
        """The mean over the first `slices` of them (None: all), for a mask `(H,)`."""
        total = 0.0
        chosen = self.kspace[:slices]
        for part in torch.split(chosen, CHUNK):
            rows = mask.expand(len(part), -1)
            total += nmse(self.network(keep_rows(part, rows), rows), magnitude(part)).sum().item()
        return total / len(chosen)

    def gradient(self, mask: Tensor, slices: int | None = None) -> Tensor:
        """The derivative of the mean NMSE with respect to each row's weight, `(H,)`; negative: worth measuring."""
        weights = mask.float().requires_grad_()
        total = torch.zeros_like(weights)
        chosen = self.kspace[:slices]
        for part in torch.split(chosen, CHUNK):
            x_hat = self.network(relaxed_rows(part, weights), weights.expand(len(part), -1))
            total += torch.autograd.grad(nmse(x_hat, magnitude(part)).sum(), weights)[0]
        return total / len(chosen)


@dataclass
class SearchState:
    """Where a search stands; written to `search.json` after every change."""

    mask: list[int] = field(default_factory=list)
    nmse: float = float("inf")
    start: str = ""
    start_nmse: float = float("inf")
    swaps: list[dict[str, float]] = field(default_factory=list)
    rounds: int = 0
    failures: int = 0  # rounds since a swap helped
    tried: list[list[int]] = field(default_factory=list)  # swaps of the present mask that did not help
    complete: bool = False
    seconds: float = 0.0

    def tensor(self, rows: int) -> Tensor:
        mask = torch.zeros(rows, dtype=torch.bool)
        mask[self.mask] = True
        return mask

    @classmethod
    def read(cls, path: Path, identity: dict[str, Any]) -> Self:
        """A saved state; refuses one of another search."""
        saved = read_json(path)
        if saved.pop("search") != identity:
            raise CheckpointError(f"{path.parent} is a search with other settings: it cannot be resumed")
        return cls(**saved)


class Search:
    """One search at one budget.

    Args:
        network: reconstructor A; frozen.
        kspace: the training split, with shape `(n, H, W)`.
        k: rows of the mask, the ACS block included.
        acs: rows of the ACS block.
        settings: how hard to search.
        folder: where state, log and masks go.
    """

    def __init__(
        self, network: nn.Module, kspace: Tensor, k: int, acs: int, settings: SearchSettings, folder: Path
    ) -> None:
        self.error, self.k, self.settings, self.folder = MaskError(network, kspace), k, settings, folder
        self.rows, self.acs = kspace.shape[1], acs
        row_masks.count_rows(k, self.rows, acs)
        self.identity = {"k": k, "acs": acs, "slices": len(kspace), "network": fingerprint(network), **vars(settings)}
        self.state = SearchState()

    def _save(self) -> None:
        write_json(self.folder / "search.json", {"search": self.identity, **vars(self.state)})

    def begin(self, resume: bool) -> None:
        """Take up the search in this folder, or find a start."""
        path = self.folder / "search.json"
        if resume and path.exists():
            self.state = SearchState.read(path, self.identity)
            return
        if path.exists():
            raise ConfigError(f"{self.folder} holds a search already: continue it with --resume, or remove it")
        generator = torch.Generator().manual_seed(self.settings.seed)
        drawn = row_masks.draw("acs-variable-density", self.settings.draws, self.rows, self.k, self.acs, generator)
        starts = {f"variable-density {n}": mask for n, mask in enumerate(drawn)}
        starts["energy-oracle"] = row_masks.best_rows(row_masks.row_energy(self.error.kspace), self.k, self.acs)
        screened = sorted(starts, key=lambda name: self.error(starts[name], self.settings.screen))
        exact = {name: self.error(starts[name]) for name in screened[: self.settings.exact]}
        best = min(exact, key=lambda name: exact[name])
        self.state = SearchState(starts[best].nonzero()[:, 0].tolist(), exact[best], best, exact[best])
        self._save()

    def proposals(self) -> list[tuple[int, int]]:
        """Swaps (drop, add) in the order of what the gradient promises, without those that did not help.

        After a round in which none helped there are four times as many.
        """
        mask = self.state.tensor(self.rows)
        gradient = self.error.gradient(mask, self.settings.screen)
        free = mask & ~acs_rows(self.rows, self.acs)
        drops = gradient.masked_fill(~free, -torch.inf).argsort(descending=True)[: min(len(mask), int(free.sum()))]
        adds = gradient.masked_fill(mask, torch.inf).argsort()[: int((~mask).sum())]
        tried, wider = {(drop, add) for drop, add in self.state.tried}, 1 + self.state.failures
        pairs = [
            (drop, add)
            for drop in drops[: wider * self.settings.drops].tolist()
            for add in adds[: wider * self.settings.adds].tolist()
            if (drop, add) not in tried
        ]
        return sorted(pairs, key=lambda pair: float(gradient[pair[1]] - gradient[pair[0]]))

    def round(self) -> None:
        """Propose, screen, evaluate the best few one after another, accept each that still helps."""
        proposals = self.proposals()
        mask = self.state.tensor(self.rows)
        reference = self.error(mask, self.settings.screen)
        screened = [(self.error(swapped(mask, *pair), self.settings.screen), pair) for pair in proposals]
        promising = disjoint([pair for value, pair in sorted(screened) if value < reference])[: self.settings.exact]
        self.state.rounds += 1
        helped = False
        for drop, add in promising:
            value = self.error(swapped(mask, drop, add))
            if value < self.state.nmse:
                self.state.swaps.append({"drop": drop, "add": add, "before": self.state.nmse, "after": value})
                mask = swapped(mask, drop, add)
                self.state.mask, self.state.nmse = mask.nonzero()[:, 0].tolist(), value
                helped = True
        self.state.failures = 0 if helped else self.state.failures + 1
        self.state.tried = [] if helped else [*self.state.tried, *(list(pair) for _, pair in screened)]

    def run(self, *, resume: bool = False, max_minutes: float | None = None, console: Console | None = None) -> bool:
        """Search until a local optimum or until the time is up; True if it is complete."""
        console = console or Console(stderr=True)
        begun = time.monotonic()
        self.begin(resume)
        before = self.state.seconds
        console.print(f"start {self.state.start}: NMSE {self.state.start_nmse:.6f}", soft_wrap=True)
        while not self.state.complete:
            if max_minutes is not None and time.monotonic() - begun > 60 * max_minutes:
                break
            known = len(self.state.swaps)
            self.round()
            self.state.complete = self.state.failures > 1 or self.state.rounds >= self.settings.max_rounds
            self.state.seconds = before + time.monotonic() - begun
            self._save()
            for swap in self.state.swaps[known:]:
                self._log(swap, console)
        if self.state.complete:
            mask = self.state.tensor(self.rows)
            export_mask(self.folder, mask)
            order = worth_order(self.error, mask, self.acs, self.settings.screen)
            _write_array(self.folder / "order.npy", order.numpy())
        console.print(f"{len(self.state.swaps)} swaps, NMSE {self.state.nmse:.6f}", soft_wrap=True)
        return self.state.complete

    def _log(self, swap: dict[str, float], console: Console) -> None:
        append_json(self.folder / "log.jsonl", {"round": self.state.rounds, **swap})
        console.print(
            f"round {self.state.rounds}: row {swap['drop']} for row {swap['add']}, "
            f"NMSE {swap['before']:.6f} to {swap['after']:.6f}",
            soft_wrap=True,
        )


def disjoint(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Swaps, best first, without those that share a row with a better one: what is left can all be made together."""
    kept: list[tuple[int, int]] = []
    used: set[int] = set()
    for pair in pairs:
        if used.isdisjoint(pair):
            kept.append(pair)
            used.update(pair)
    return kept


def swapped(mask: Tensor, drop: int, add: int) -> Tensor:
    """A mask `(H,)` with one row given up for another."""
    changed = mask.clone()
    changed[drop], changed[add] = False, True
    return changed


def worth_order(error: MaskError, mask: Tensor, acs: int, slices: int) -> Tensor:
    """The rows of a mask, the most valuable first, by what leaving each one out costs; ACS rows lead; `(k,)`."""
    cost = torch.full((len(mask),), -torch.inf)
    block = acs_rows(len(mask), acs)
    for row in (mask & ~block).nonzero()[:, 0].tolist():
        without = mask.clone()
        without[row] = False
        cost[row] = error(without, slices)
    cost[block] = torch.inf
    return cost.argsort(descending=True, stable=True)[: int(mask.sum())]


def _write_array(path: Path, values: np.ndarray) -> None:
    with atomic(path) as temporary, temporary.open("wb") as file:
        np.save(file, values, allow_pickle=False)


def export_mask(folder: Path, mask: Tensor) -> None:
    """A mask `(H,)` as `mask.npy`, as row numbers in `mask.txt`, and as a picture."""
    _write_array(folder / "mask.npy", mask.numpy())
    write_text(folder / "mask.txt", "".join(f"{row}\n" for row in mask.nonzero()[:, 0].tolist()))
    save(rows_picture({folder.name: mask.numpy()}), folder / "mask.png")
