"""What the page can show: every bundled prior with its images, and recorded acquisitions.

Priors are found once, by name, among the bundled ones; nothing that comes with a request is ever used as a path.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sensewise.checkpoint import ASSETS, load_prior, read_json
from sensewise.data import Images
from sensewise.data.catalog import CATALOG, Entry
from sensewise.errors import CheckpointError, ConfigError, DataError
from sensewise.experiments.record import record
from sensewise.figures.film import Film
from sensewise.priors import Prior

KEPT = 32  # recorded acquisitions in memory, for pixels and downloads
AT_ONCE = 2  # acquisitions that run at the same time; others wait their turn


@dataclass(frozen=True)
class Order:
    """One acquisition, as the page asks for it.

    Attributes:
        prior: a bundled name.
        image: number of a bundled image, or None.
        tokens: a drawn image's tokens, one byte each in the order `(C, H, W)`, or None.
        label: the class, or None where it is not known.
        budget: a fraction of the pixels.
        steps: `R`.
        policy: a key of `STRATEGIES`.
        seed: of everything random.
    """

    prior: str
    image: int | None
    tokens: bytes | None
    label: int | None
    budget: float
    steps: int
    policy: str
    seed: int


class Exhibit:
    """One bundled prior and the images that go with it; both are loaded when they are first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, folder.name
        self.config: dict[str, Any] = read_json(folder / "config.json")
        self._lock = threading.Lock()

    @property
    def entry(self) -> Entry:
        data = str(self.config.get("data", self.name))
        return CATALOG.get(data, Entry(data, "not recorded"))

    @cached_property
    def _prior(self) -> Prior:
        return load_prior(self.folder)

    @cached_property
    def _images(self) -> Images | None:
        return None if self.entry.bundled is None else self.entry.bundled()

    @property
    def prior(self) -> Prior:
        with self._lock:
            return self._prior

    @property
    def images(self) -> Images | None:
        with self._lock:
            return self._images

    def describe(self) -> dict[str, Any]:
        """What the page needs to know before anything is acquired."""
        model, images = self.config["model"], self.images
        classes = model.get("num_labels") or 0
        names = list(self.entry.classes) if len(self.entry.classes) == classes else [str(i) for i in range(classes)]
        return {
            "name": self.name,
            "title": self.config.get("title", self.entry.title),
            "shape": model["shape"],
            "states": model["num_states"],
            "labels": names,
            "images": 0 if images is None else len(images),
        }

    def image(self, number: int) -> Tensor:
        """Bundled image `number` as tokens `(1, C, H, W)`."""
        images = self.images
        if images is None or not 0 <= number < len(images):
            last = "there are none" if images is None else f"0 to {len(images) - 1} are there"
            raise DataError(f"no bundled image {number} for {self.name}: {last}")
        return images[slice(number, number + 1)][0]

    def drawn(self, tokens: bytes) -> Tensor:
        """A drawn image as tokens `(1, C, H, W)`."""
        shape, states = self.prior.shape, self.prior.num_states
        wanted = shape[0] * shape[1] * shape[2]
        if len(tokens) != wanted:
            raise DataError(f"a picture for {self.name} has {wanted} tokens, got {len(tokens)}")
        if not 1 <= min(tokens) <= max(tokens) <= states:
            raise DataError(f"tokens must be 1..{states}, got {min(tokens)}..{max(tokens)}")
        return torch.tensor(list(tokens)).view(1, *shape)


def bundled_exhibits(assets: Path) -> dict[str, Exhibit]:
    """Every bundled prior for images that has its weights; the one with the shortest name first."""
    folders = sorted((path.parent for path in assets.glob("*/weights.safetensors")), key=lambda f: (len(f.name), f))
    found = [Exhibit(folder) for folder in folders if (folder / "config.json").is_file()]
    return {exhibit.name: exhibit for exhibit in found if exhibit.config.get("kind") == "prior"}


class Studio:
    """Records acquisitions and keeps the last ones."""

    def __init__(self, assets: Path = ASSETS) -> None:
        self.exhibits = bundled_exhibits(assets)
        if not self.exhibits:
            raise CheckpointError(
                "no bundled weights were found: install sensewise from a release or a complete checkout"
            )
        self._films: OrderedDict[Order, Film] = OrderedDict()
        self._lock, self._turns = threading.Lock(), threading.BoundedSemaphore(AT_ONCE)

    def exhibit(self, name: str) -> Exhibit:
        if name not in self.exhibits:
            raise ConfigError(f"no bundled prior of that name: choose one of {', '.join(self.exhibits)}")
        return self.exhibits[name]

    def film(self, order: Order) -> Film:
        """The acquisition of an order: recorded now, or kept from before, since an order decides everything."""
        with self._lock:
            if order in self._films:
                self._films.move_to_end(order)
                return self._films[order]
        exhibit = self.exhibit(order.prior)
        if (order.image is None) == (order.tokens is None):
            raise DataError("give either the number of a bundled image or the tokens of a drawn one")
        x = exhibit.image(order.image) if order.image is not None else exhibit.drawn(order.tokens or b"")
        label = exhibit.prior.known_label(order.label)
        with self._turns:
            film = record(exhibit.prior, order.policy, x, label, order.budget, steps=order.steps, seed=order.seed)
        with self._lock:
            self._films[order] = film
            while len(self._films) > KEPT:
                self._films.popitem(last=False)
        return film

    def warm_up(self) -> None:
        """Load the first prior and run it once, so that the first person does not wait."""
        exhibit = next(iter(self.exhibits.values()))
        prior = exhibit.prior
        nothing = torch.zeros((1, *prior.shape), dtype=torch.int64)
        prior.read(lambda log_probs: log_probs, nothing, None)
