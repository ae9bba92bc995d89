"""Every exhibit of the page by name, and the films that were made of them."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from sensewise import hub
from sensewise.apps.web.exhibits import AcquireRequest, Exhibit, StoppablePrior, Stopped
from sensewise.apps.web.film import Ending, Event, Film, Shot, Title
from sensewise.apps.web.grey_exhibit import GreyExhibit
from sensewise.apps.web.row_exhibit import row_exhibits
from sensewise.apps.web.token_exhibit import TokenExhibit
from sensewise.errors import CheckpointError, ConfigError
from sensewise.files import read_json

__all__ = ["AcquireRequest", "Recorder", "StoppablePrior", "Stopped"]

KEPT_BYTES = 40_000_000  # of films in memory, for pixels and downloads: two of 512 x 512 in 32 steps
CONTROL = "scalar"  # the encoding of a bundled prior that serves a control of the paper


def prior_exhibit(folder: Path, name: str) -> Exhibit | None:
    """What the page shows of a prior; None if the folder holds another kind of model."""
    config = read_json(folder / hub.CONFIG)
    if not isinstance(config, dict) or config.get("kind") != "prior" or "profile" in config:
        return None
    model = config.get("model", {})
    if model.get("network") == hub.ANY_SIZE:
        return GreyExhibit(folder, name)
    # a prior over readings that may be wrong takes other observations than tokens
    return TokenExhibit(folder, name) if "shape" in model and model.get("encoding") != hub.NOISY else None


def _any_size_first(exhibit: Exhibit) -> tuple[bool, int, str]:
    return not isinstance(exhibit, GreyExhibit), len(exhibit.name), exhibit.name


def _for_visitors(folder: Path) -> bool:
    """Whether a bundled prior stands for itself: it neither decides for another one nor is a control of the paper."""
    config = read_json(folder / hub.CONFIG)
    control = isinstance(config, dict) and config.get("model", {}).get("encoding") == CONTROL
    return not folder.name.endswith(hub.GUIDE) and not control


def bundled_exhibits(assets: Path) -> list[Exhibit]:
    """Every bundled prior for pictures that has its weights: any size first, then short names first; then slices."""
    folders = [path.parent for path in assets.glob(f"*/{hub.WEIGHTS}") if (path.parent / hub.CONFIG).is_file()]
    found = [exhibit for folder in folders if _for_visitors(folder) and (exhibit := prior_exhibit(folder, folder.name))]
    return sorted(found, key=_any_size_first) + (row_exhibits() if (assets / "mri").is_dir() else [])


def own_exhibits(names: Sequence[str]) -> list[Exhibit]:
    """The priors of a user: run folders or names."""
    found = []
    for name in names:
        folder = hub.find(name)
        exhibit = prior_exhibit(folder, f"own-{folder.name}")
        if exhibit is None:
            raise ConfigError(f"{folder} holds no prior for pictures: give the folder of `sensewise train prior`")
        exhibit.warm_up()  # what is wrong with it is said before the page opens
        found.append(exhibit)
    return found


class Recorder:
    """Films acquisitions and keeps the last ones, as many as `KEPT_BYTES` hold.

    Args:
        assets: the folder of bundled models.
        own: priors of the user, shown first.
    """

    def __init__(self, assets: Path = hub.ASSETS, own: Sequence[str] = ()) -> None:
        bundled = bundled_exhibits(assets)
        if not bundled:
            raise CheckpointError(
                "no bundled weights were found: install sensewise from a release or a complete checkout"
            )
        self.exhibits = {exhibit.name: exhibit for exhibit in [*own_exhibits(own), *bundled]}
        self._films: OrderedDict[AcquireRequest, Film] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def exhibit(self, name: str) -> Exhibit:
        if name not in self.exhibits:
            raise ConfigError(f"no bundled prior of that name: choose one of {', '.join(self.exhibits)}")
        return self.exhibits[name]

    @cached_property
    def catalog(self) -> list[dict[str, Any]]:
        """Every exhibit, as the page needs to know it."""
        return [exhibit.describe() for exhibit in self.exhibits.values()]

    def kept(self, request: AcquireRequest) -> Film | None:
        """The film of a request if it was made before: a request decides everything."""
        with self._lock:
            if request not in self._films:
                return None
            self._films.move_to_end(request)
            return self._films[request]

    def film(
        self,
        request: AcquireRequest,
        stop: threading.Event | None = None,
        show: Callable[[Event], None] | None = None,
    ) -> Film:
        """The film of a request: kept from before, or made now.

        Args:
            stop: ends it between its steps with `Stopped`.
            show: is given each event of a film as it is made.
        """
        kept = self.kept(request)
        if kept is not None:
            return kept
        film = self._record(request, stop or threading.Event(), show or _nowhere)
        with self._lock:
            if request not in self._films:
                self._films[request] = film
                self._bytes += film.nbytes
            while self._bytes > KEPT_BYTES and len(self._films) > 1:
                self._bytes -= self._films.popitem(last=False)[1].nbytes
        return film

    def _record(self, request: AcquireRequest, stop: threading.Event, show: Callable[[Event], None]) -> Film:
        title: Title | None = None
        shots: list[Shot] = []
        ending = Ending()
        for event in self.exhibit(request.prior).film(request, stop):
            if isinstance(event, Title):
                title = event
            elif isinstance(event, Shot):
                shots.append(event)
            else:
                ending = event
            show(event)
        assert title is not None
        return Film(title, tuple(shots), ending)

    def warm_up(self) -> None:
        """Load all pictures and the first prior, and run it once, so that the first person does not wait."""
        assert self.catalog
        next(iter(self.exhibits.values())).warm_up()


def _nowhere(_: Event) -> None:
    """Nobody watches."""
