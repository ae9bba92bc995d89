"""Static search: one mask for every slice, optimised directly against reconstructor A.

It starts at the best of some fixed variable-density draws and the energy oracle. Then the gradient with respect to the
mask ranks swaps of a measured row for another one; a few slices screen them, and a swap is accepted only if the NMSE on
the whole training split falls. ACS rows are never swapped. It ends at a local optimum: no proposed swap helps, not even
when four times as many are proposed.
Related: Gozcu et al., "Learning-based compressive MRI", 2018, which builds masks greedily.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sensewise import hub
from sensewise.data.scenes import Scenes
from sensewise.errors import ConfigError
from sensewise.files import fingerprint, read_json, write_json
from sensewise.kspace import acs_rows, magnitude, relaxed_rows
from sensewise.metrics import nmse
from sensewise.policies.simple import best_rows, draw_rows, row_energy
from sensewise.policies.starts import check_rows, count_rows
from sensewise.policies.value import CHUNK, slice_errors
from sensewise.train.fit import Job
from sensewise.train.processes import Team
from sensewise.train.recipe import Recipe

ALONE = Team()
STORY = "search.json"


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


def _chunks(values: Tensor) -> list[Tensor]:
    """Values `(n, ...)` in chunks; none of nothing."""
    return [part for part in torch.split(values, CHUNK) if len(part)]


class MaskError:
    """The mean NMSE of one mask for all of some slices, and its gradient with respect to the mask.

    Args:
        network: k-space and mask to magnitudes; frozen.
        kspace: fully sampled slices, with shape `(n, H, W)`.
        team: the processes that share the slices.
        device: where the network lies.
    """

    def __init__(
        self, network: nn.Module, kspace: Tensor, team: Team = ALONE, device: torch.device | None = None
    ) -> None:
        self.network, self.kspace, self.team = network, kspace, team
        self.device = device or team.device

    def __call__(self, mask: Tensor, slices: int | None = None) -> float:
        """The mean over the first `slices` of them (None: all), for one mask `(H,)` or one per slice `(n, H)`."""
        every = self.each(mask, slices)
        return sum(part.sum().item() for part in torch.split(every, CHUNK)) / len(every)

    def each(self, mask: Tensor, slices: int | None = None) -> Tensor:
        """The same for every slice, `(slices,)`."""
        chosen = self.kspace[:slices]
        rows = self.team.part(mask.to(self.device).expand(len(chosen), -1))
        found = [torch.zeros(0, device=self.device)]  # what a process has of fewer slices than processes
        for part, kept in zip(_chunks(self.team.part(chosen)), _chunks(rows), strict=True):
            with self.team.autocast():
                found.append(slice_errors(self.network, part.to(self.device), kept))
        return self.team.gather(torch.cat(found), len(chosen))

    def gradient(self, mask: Tensor, slices: int | None = None) -> Tensor:
        """The derivative of the mean NMSE with respect to each row's weight, `(H,)`; negative: worth measuring."""
        weights = mask.to(self.device).float().requires_grad_()
        total = torch.zeros_like(weights)
        chosen = self.kspace[:slices]
        for part in _chunks(self.team.part(chosen)):
            kspace = part.to(self.device)
            with self.team.autocast():
                x_hat = self.network(relaxed_rows(kspace, weights), weights.expand(len(part), -1))
            total += torch.autograd.grad(nmse(x_hat, magnitude(kspace)).sum(), weights)[0]
        return (self.team.sum(total) / len(chosen)).cpu()


@dataclass(frozen=True)
class Swap:
    """One row given up for another, and the NMSE on the whole training split before and after."""

    drop: int
    add: int
    before: float
    after: float


@dataclass(frozen=True)
class SearchStory:
    """How a mask was found; NMSE of U-Net A on the whole training split.

    Attributes:
        start: which of the starts.
        redrawn_nmse: of variable density drawn anew for each slice.
        start_nmse: of the start.
        nmse: of the mask that was found.
        swaps: that were accepted.
    """

    start: str
    redrawn_nmse: float
    start_nmse: float
    nmse: float
    swaps: tuple[Swap, ...]

    @property
    def start_share(self) -> float:
        """The share of the gain on redrawn variable density that the start alone has."""
        return (self.redrawn_nmse - self.start_nmse) / (self.redrawn_nmse - self.nmse)


def read_story(folder: Path) -> SearchStory | None:
    """How the search of a folder went; None where that was not kept."""
    path = folder / STORY
    found = read_json(path) if path.is_file() else None
    if not isinstance(found, dict) or "redrawn_nmse" not in found:
        return None
    return SearchStory(**(found | {"swaps": tuple(Swap(**swap) for swap in found["swaps"])}))


class Search(Job):
    """One search at one budget; a step is a round of proposals.

    Args:
        network: reconstructor A; frozen.
        kspace: the training split, with shape `(n, H, W)`.
        k: rows of the mask, the ACS block included.
        acs: rows of the ACS block.
        settings: how hard to search.
    """

    def __init__(self, network: nn.Module, kspace: Tensor, k: int, acs: int, settings: SearchSettings) -> None:
        self.rows, self.k, self.acs, self.settings = (
            kspace.shape[-2],
            check_rows(k, kspace.shape[-2], acs),
            acs,
            settings,
        )
        self.steps = settings.max_rounds
        self.error = MaskError(network, kspace)
        self.mask = torch.zeros(self.rows, dtype=torch.bool)  # empty until the first round
        self.nmse = self.start_nmse = self.redrawn_nmse = float("inf")
        self.start = 0  # which of the starts
        self.swaps: list[Swap] = []
        self.failures = 0  # rounds since a swap helped
        self.tried: list[tuple[int, int]] = []  # swaps of the present mask that did not help
        self.order: Tensor | None = None

    def begin(self, team: Team, *, compiled: bool) -> None:
        super().begin(team, compiled=compiled)
        network = self.error.network.to(team.device)
        if compiled:
            network.compile()
        self.error = MaskError(network, self.error.kspace, team)

    def starts(self) -> dict[str, Tensor]:
        """Masks to start from, by name."""
        generator = torch.Generator().manual_seed(self.settings.seed)
        drawn = draw_rows("acs-variable-density", self.settings.draws, self.rows, self.k, self.acs, generator)
        named = {f"variable-density {number}": mask for number, mask in enumerate(drawn)}
        return named | {"energy-oracle": best_rows(row_energy(self.error.kspace), self.k, self.acs)}

    def find_start(self) -> None:
        """Take the best start: all are screened, the best few evaluated on the whole training split."""
        starts = self.starts()
        screened = {name: self.error(mask, self.settings.screen) for name, mask in starts.items()}
        promising = sorted(screened, key=screened.__getitem__)[: self.settings.exact]
        exact = {name: self.error(starts[name]) for name in promising}
        best = min(exact, key=exact.__getitem__)
        self.mask, self.nmse, self.start_nmse = starts[best], exact[best], exact[best]
        self.start = list(starts).index(best)
        self.redrawn_nmse = self.error(self.redrawn())

    def redrawn(self) -> Tensor:
        """Variable density drawn anew for each slice, which every gain is counted from; `(n, H)`."""
        generator = torch.Generator().manual_seed(self.settings.seed + 1)
        return draw_rows("acs-variable-density", len(self.error.kspace), self.rows, self.k, self.acs, generator)

    def proposals(self) -> list[tuple[int, int]]:
        """Swaps (drop, add) in the order of what the gradient promises, without those that did not help.

        After a round in which none helped there are four times as many.
        """
        gradient = self.error.gradient(self.mask, self.settings.screen)
        free = self.mask & ~acs_rows(self.rows, self.acs)
        drops = gradient.masked_fill(~free, -torch.inf).argsort(descending=True)[: int(free.sum())]
        adds = gradient.masked_fill(self.mask, torch.inf).argsort()[: int((~self.mask).sum())]
        tried, wider = set(self.tried), 1 + self.failures
        pairs = [
            (drop, add)
            for drop in drops[: wider * self.settings.drops].tolist()
            for add in adds[: wider * self.settings.adds].tolist()
            if (drop, add) not in tried
        ]
        return sorted(pairs, key=lambda pair: float(gradient[pair[1]] - gradient[pair[0]]))

    def advance(self, step: int) -> dict[str, float]:
        """Propose, screen, evaluate the best few one after another, accept each that still helps."""
        if not bool(self.mask.any()):
            self.find_start()
        screen, known = self.settings.screen, len(self.swaps)
        reference = self.error(self.mask, screen)
        screened = [(self.error(swapped(self.mask, *pair), screen), pair) for pair in self.proposals()]
        promising = disjoint([pair for value, pair in sorted(screened) if value < reference])
        for drop, add in promising[: self.settings.exact]:
            value = self.error(swapped(self.mask, drop, add))
            if value < self.nmse:
                self.swaps.append(Swap(drop, add, before=self.nmse, after=value))
                self.mask, self.nmse = swapped(self.mask, drop, add), value
        helped = len(self.swaps) > known
        self.failures = 0 if helped else self.failures + 1
        self.tried = [] if helped else [*self.tried, *(pair for _, pair in screened)]
        return {"nmse": self.nmse}

    def looks_at(self, step: int) -> bool:
        return True

    def look(self, over: Callable[[], bool]) -> dict[str, float]:
        return {"nmse": self.nmse, "swaps": len(self.swaps)}

    def settled(self) -> bool:
        return self.failures > 1

    def finish(self) -> None:
        self.order = worth_order(self.error, self.mask, self.acs, self.settings.screen)

    def state(self) -> dict[str, Tensor]:
        swaps = [[swap.drop, swap.add, swap.before, swap.after] for swap in self.swaps]
        return {
            "mask": self.mask,
            "nmse": torch.tensor([self.nmse, self.start_nmse, self.redrawn_nmse], dtype=torch.float64),
            "counts": torch.tensor([self.start, self.failures]),
            "swaps": torch.tensor(swaps, dtype=torch.float64).view(-1, 4),
            "tried": torch.tensor(self.tried, dtype=torch.int64).view(-1, 2),
        }

    def load_state(self, state: Mapping[str, Tensor], path: Path) -> None:
        self.mask = state["mask"]
        self.nmse, self.start_nmse, self.redrawn_nmse = state["nmse"].tolist()
        self.start, self.failures = state["counts"].tolist()
        self.swaps = [Swap(int(drop), int(add), before, after) for drop, add, before, after in state["swaps"].tolist()]
        self.tried = [(drop, add) for drop, add in state["tried"].tolist()]

    def validation(self, logged: Mapping[str, float]) -> dict[str, float]:
        return {"nmse": self.nmse, "start_nmse": self.start_nmse, "redrawn_nmse": self.redrawn_nmse}

    def export(self, folder: Path, card: Mapping[str, Any]) -> None:
        """The mask, how it was found, and, once complete, its rows in the order of what they are worth."""
        hub.save_mask(folder, self.mask)
        if self.order is not None:
            hub.save_array(folder / "order.npy", self.order.numpy())
        story = SearchStory(
            start=list(self.starts())[self.start],
            redrawn_nmse=self.redrawn_nmse,
            start_nmse=self.start_nmse,
            nmse=self.nmse,
            swaps=tuple(self.swaps),
        )
        write_json(folder / STORY, asdict(story))
        write_json(folder / hub.CONFIG, card)


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


@dataclass(frozen=True)
class SearchRecipe(Recipe):
    """How a static mask is searched at one budget, on all of the slices."""

    settings: SearchSettings
    scenes: Scenes
    acs: int
    network: nn.Module
    budget: float

    kind = "static-search"

    @property
    def k(self) -> int:
        """Rows of the mask, the ACS block included."""
        return count_rows(self.budget, self.scenes.shape[-2], self.acs)

    def model(self) -> dict[str, Any]:
        return {"rows": self.scenes.shape[-2], "k": self.k, "acs": self.acs}

    def about(self) -> dict[str, Any]:
        return {"reconstructor": fingerprint(self.network), "slices": len(self.scenes)}

    def job(self, *, fresh: bool) -> Search:
        return Search(self.network, self.scenes.values, self.k, self.acs, self.settings)
