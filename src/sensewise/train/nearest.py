"""Search a few masks for slices that look alike, so that a new slice can take that of its nearest ones.

Slices begin in clusters of similar scouts. A sweep improves the mask of each cluster by some rounds of the static
search on its own slices; then a slice goes to another mask if that is better for it and its nearest together.
Clusters start from the static mask for all slices, which stays among the masks, and a cluster whose mask is worse than
that one on its slices starts from it again: no mask is ever worse on its own training slices than the static one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from sensewise import hub
from sensewise.data.scenes import Scenes
from sensewise.errors import BudgetError, ConfigError
from sensewise.files import fingerprint
from sensewise.kspace import acs_rows, scout
from sensewise.policies.nearest import NearestRows, features
from sensewise.policies.starts import count_rows
from sensewise.train.fit import Job
from sensewise.train.processes import Team
from sensewise.train.recipe import Recipe
from sensewise.train.search import MaskError, Search, SearchSettings

LLOYD = 50  # rounds of k-means at most


@dataclass(frozen=True)
class NearestSettings:
    """Everything that `sensewise train nearest-mask` needs to know.

    Attributes:
        clusters: masks beside the static one.
        sweeps: how often slices go to another mask.
        rounds: of the search in each cluster, per sweep.
        size: side of what scouts are compared by.
        nearest: training slices that choose the mask of a new one; 1 is the nearest neighbour alone.
        search: how hard to search; what it says of starts, rounds and seeds is not used.
        seed: of the clusters.
    """

    clusters: int = 4
    sweeps: int = 2
    rounds: int = 2
    size: int = 8
    nearest: int = 1
    search: SearchSettings = field(default_factory=SearchSettings)
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("clusters", "sweeps", "rounds", "size", "nearest"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")


def k_means(points: Tensor, count: int, generator: Generator) -> Tensor:
    """The number of each point's cluster `(n,)`; the first centres lie as far apart as points `(n, d)` do."""
    centres = points[torch.randint(len(points), (1,), generator=generator)]
    while len(centres) < count:
        centres = torch.cat([centres, points[torch.cdist(points, centres).amin(1).argmax()][None]])
    found = torch.full((len(points),), -1)
    for _ in range(LLOYD):
        before, found = found, torch.cdist(points, centres).argmin(1)
        if torch.equal(before, found):
            break
        for number in sorted(set(found.tolist())):
            centres[number] = points[found == number].mean(0)
    return found


class ClusterSearch(Job):
    """The masks of one budget; a step is a round of the search in one cluster.

    Args:
        model: what is made; its size is known, its numbers are not.
        network: reconstructor A; frozen.
        scenes: slices to search on.
        held_out: slices to look at.
        start: the static mask, with shape `(rows,)`.
        acs: rows of the ACS block.
        settings: how many masks, how long.
    """

    def __init__(
        self,
        model: NearestRows,
        network: nn.Module,
        scenes: Scenes,
        held_out: Scenes,
        start: Tensor,
        acs: int,
        settings: NearestSettings,
    ) -> None:
        if len(scenes) < settings.clusters:
            raise ConfigError(f"{settings.clusters} clusters need as many slices, {len(scenes)} are here")
        self.model, self.network, self.acs, self.settings = model, network, acs, settings
        self.kspace, self.held_out = scenes.values, held_out.values
        self.per_sweep = settings.rounds * settings.clusters
        self.steps = settings.sweeps * self.per_sweep
        model.masks = start.repeat(settings.clusters + 1, 1)
        model.features = features(scout(self.kspace, acs), model.size)
        self.errors = torch.zeros(len(scenes), settings.clusters + 1)  # of every slice under every mask
        self.judged = model.masks.clone()  # what they are the errors of
        self.assigned = torch.zeros(len(scenes), dtype=torch.int64)  # 0: the static mask
        self.searches: dict[int, Search] = {}
        draw = torch.Generator().manual_seed(settings.seed)
        self.order = torch.randperm(len(scenes), generator=draw)  # the first of a cluster screen for it

    def begin(self, team: Team, *, compiled: bool) -> None:
        super().begin(team, compiled=compiled)
        self.network.to(team.device)
        if compiled:
            self.network.compile()

    def _each(self, kspace: Tensor, masks: Tensor) -> Tensor:
        """A's NMSE of slices `(n, H, W)` under one mask `(H,)` or one each `(n, H)`; `(n,)`."""
        return MaskError(self.network, kspace, self.team).each(masks).cpu()

    def _search(self, number: int) -> Search:
        """A search on the slices of one cluster, from its mask or, where that is better for them, the static one."""
        members = self.order[self.assigned[self.order] == number]
        found = Search(self.network, self.kspace[members], self.model.k, self.acs, self.settings.search)
        found.begin(self.team, compiled=False)
        static, own = self.errors[members][:, [0, number]].double().mean(0).tolist()
        found.mask = self.model.masks[0 if static < own else number].clone()
        found.nmse = min(static, own)
        return found

    def _assign(self, step: int) -> None:
        """Every slice to a mask, and a search for every mask that has slices."""
        if step == 0:
            self.errors[:] = self._each(self.kspace, self.model.masks[0])[:, None]
            draw = torch.Generator().manual_seed(self.settings.seed)
            self.assigned = 1 + k_means(self.model.features, self.settings.clusters, draw)
        else:
            expected = self.model.expected(self.model.features)
            own = expected.gather(1, self.assigned[:, None])[:, 0]
            self.assigned = torch.where(expected.amin(1) < own, expected.argmin(1), self.assigned)
        taken = sorted(set(self.assigned.tolist()) - {0})
        self.searches = {number: self._search(number) for number in taken}

    def advance(self, step: int) -> dict[str, float]:
        place = step % self.per_sweep
        if place == 0:
            self._assign(step)
        number = 1 + place % self.settings.clusters
        search = self.searches.get(number)
        if search is not None and not search.settled():
            search.advance(step)
            self.model.masks[number] = search.mask
        if place == self.per_sweep - 1:
            self._judge()
        return {} if search is None else {"nmse": search.nmse}

    def _judge(self) -> None:
        """The errors of all slices under the masks that have changed."""
        for number in (self.model.masks != self.judged).any(1).nonzero()[:, 0].tolist():
            self.errors[:, number] = self._each(self.kspace, self.model.masks[number])
        self.judged = self.model.masks.clone()
        self.model.worth = (self.errors / self.errors[:, :1]).log()

    def looks_at(self, step: int) -> bool:
        return step % self.per_sweep == 0

    def look(self, over: Callable[[], bool]) -> dict[str, float]:
        """NMSE under the static mask and under the nearest one, in training (a slice is its own neighbour) and not."""
        chosen = self.model.choose(self.model.features)
        held = self.model.choose(features(scout(self.held_out, self.acs), self.model.size))
        return {
            "train_static": self.errors[:, 0].mean().item(),
            "train_nearest": self.errors.gather(1, chosen[:, None]).mean().item(),
            "static": self._each(self.held_out, self.model.masks[0]).mean().item(),
            "nearest": self._each(self.held_out, self.model.masks[held]).mean().item(),
        }

    def state(self) -> dict[str, Tensor]:
        searches = {f"{n}.{name}": t for n, search in self.searches.items() for name, t in search.state().items()}
        own = {"masks": self.model.masks, "worth": self.model.worth}
        return own | {"errors": self.errors, "judged": self.judged, "assigned": self.assigned} | searches

    def load_state(self, state: Mapping[str, Tensor], path: Path) -> None:
        self.model.masks, self.model.worth = state["masks"], state["worth"]
        self.errors, self.judged, self.assigned = state["errors"], state["judged"], state["assigned"]
        numbers = {int(name.partition(".")[0]) for name in state if "." in name}
        self.searches = {number: self._search(number) for number in sorted(numbers)}
        for number, search in self.searches.items():
            own = f"{number}."
            search.load_state({name.removeprefix(own): t for name, t in state.items() if name.startswith(own)}, path)

    def export(self, folder: Path, card: Mapping[str, Any]) -> None:
        hub.save(folder, card, self.model)


@dataclass(frozen=True)
class NearestRecipe(Recipe):
    """How the masks of one budget are searched from the static one."""

    settings: NearestSettings
    scenes: Scenes
    held_out: Scenes
    acs: int
    network: nn.Module
    budget: float
    start: Tensor

    kind = "nearest-mask"

    def model(self) -> dict[str, Any]:
        rows, settings = self.scenes.shape[-2], self.settings
        k = count_rows(self.budget, rows, self.acs)
        if self.start.shape != (rows,) or int(self.start.sum()) != k or not self.start[acs_rows(rows, self.acs)].all():
            raise BudgetError(f"the search starts from a static mask of {k} of {rows} rows with the ACS block")
        size = {"masks": settings.clusters + 1, "slices": len(self.scenes)}
        return {"rows": rows, "k": k, **size, "size": settings.size, "nearest": settings.nearest}

    def about(self) -> dict[str, Any]:
        return {"reconstructor": fingerprint(self.network), "start": self.start.nonzero()[:, 0].tolist()}

    def job(self, *, fresh: bool) -> ClusterSearch:
        model = NearestRows(**self.model())
        return ClusterSearch(model, self.network, self.scenes, self.held_out, self.start, self.acs, self.settings)
