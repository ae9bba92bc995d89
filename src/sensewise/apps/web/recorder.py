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

from sensewise import predictions
from sensewise.data import DATASETS, Dataset, Scenes
from sensewise.errors import CheckpointError, ConfigError, DataError
from sensewise.evaluate.method import PIXEL_METHODS, pixel_methods
from sensewise.evaluate.record import record
from sensewise.evaluate.recording import Recording
from sensewise.files import read_json
from sensewise.hub import ASSETS, CONFIG, WEIGHTS, load_prior
from sensewise.predictions import Prediction
from sensewise.priors.base import Prior

KEPT_BYTES = 32_000_000  # of recorded acquisitions in memory, for pixels and downloads


@dataclass(frozen=True)
class AcquireRequest:
    """One acquisition, as the page asks for it.

    Attributes:
        prior: a bundled name.
        image: number of a bundled image, or None.
        tokens: a drawn image's tokens, one byte each in the order `(C, H, W)`, or None.
        label: the class, or None where it is not known.
        budget: a fraction of the pixels.
        steps: `R`.
        policy: a key of `PIXEL_METHODS`.
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


class BundledPrior:
    """One bundled prior and the images that go with it; both are loaded when they are first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, folder.name
        self.config: dict[str, Any] = read_json(folder / CONFIG)
        self._lock = threading.Lock()

    @property
    def dataset(self) -> Dataset | None:
        return DATASETS.get(str(self.config.get("data", self.name)))

    @cached_property
    def _prior(self) -> Prior:
        return load_prior(self.folder)

    @cached_property
    def _images(self) -> Scenes | None:
        dataset = self.dataset
        return None if dataset is None or dataset.bundled is None else dataset.bundled(None)

    @property
    def prior(self) -> Prior:
        with self._lock:
            return self._prior

    @property
    def images(self) -> Scenes | None:
        with self._lock:
            return self._images

    def describe(self) -> dict[str, Any]:
        """What the page needs to know before anything is acquired."""
        model, images, dataset = self.config["model"], self.images, self.dataset
        names = [str(number) for number in range(model.get("num_labels") or 0)]
        title = str(self.config.get("data", self.name))
        if dataset is not None:
            title = dataset.title
            names = list(dataset.classes) if len(dataset.classes) == len(names) else names
        return {
            "name": self.name,
            "title": self.config.get("title", title),
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


def _shortest_first(folder: Path) -> tuple[int, Path]:
    return len(folder.name), folder


def bundled_priors(assets: Path) -> dict[str, BundledPrior]:
    """Every bundled prior for images that has its weights; the one with the shortest name first."""
    folders = [path.parent for path in assets.glob(f"*/{WEIGHTS}") if (path.parent / CONFIG).is_file()]
    found = [BundledPrior(folder) for folder in sorted(folders, key=_shortest_first)]
    return {prior.name: prior for prior in found if prior.config.get("kind") == "prior"}


class Stopped(Exception):
    """Nobody waits for this acquisition any more."""


class StoppablePrior(Prior):
    """A prior that answers until an event is set: how an acquisition is ended between its steps.

    Args:
        prior: to be asked.
        stop: set from any thread.
    """

    def __init__(self, prior: Prior, stop: threading.Event) -> None:
        super().__init__()
        self.prior, self.stop = prior, stop
        self.channels, self.size = prior.channels, prior.size
        self.num_states, self.num_labels = prior.num_states, prior.num_labels

    def predict(self, y: Tensor, label: Tensor, t: Tensor | None) -> Prediction:
        if self.stop.is_set():
            raise Stopped
        return self.prior.predict(y, label, t)


class Recorder:
    """Records acquisitions and keeps the last ones, as many as `KEPT_BYTES` hold."""

    def __init__(self, assets: Path = ASSETS) -> None:
        self.priors = bundled_priors(assets)
        if not self.priors:
            raise CheckpointError(
                "no bundled weights were found: install sensewise from a release or a complete checkout"
            )
        self._recordings: OrderedDict[AcquireRequest, Recording] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def bundled(self, name: str) -> BundledPrior:
        if name not in self.priors:
            raise ConfigError(f"no bundled prior of that name: choose one of {', '.join(self.priors)}")
        return self.priors[name]

    @cached_property
    def catalog(self) -> list[dict[str, Any]]:
        """Every bundled prior, as the page needs to know it."""
        return [bundled.describe() for bundled in self.priors.values()]

    def kept(self, request: AcquireRequest) -> Recording | None:
        """The acquisition of a request if it was recorded before: a request decides everything."""
        with self._lock:
            if request not in self._recordings:
                return None
            self._recordings.move_to_end(request)
            return self._recordings[request]

    def recording(self, request: AcquireRequest, stop: threading.Event | None = None) -> Recording:
        """The acquisition of a request: kept from before, or recorded now.

        Args:
            stop: ends it between its steps with `Stopped`.
        """
        kept = self.kept(request)
        if kept is not None:
            return kept
        recording = self._record(request, stop or threading.Event())
        with self._lock:
            if request not in self._recordings:
                self._recordings[request] = recording
                self._bytes += recording.nbytes
            while self._bytes > KEPT_BYTES and len(self._recordings) > 1:
                self._bytes -= self._recordings.popitem(last=False)[1].nbytes
        return recording

    def _record(self, request: AcquireRequest, stop: threading.Event) -> Recording:
        bundled = self.bundled(request.prior)
        if (request.image is None) == (request.tokens is None):
            raise DataError("give either the number of a bundled image or the tokens of a drawn one")
        if request.policy not in PIXEL_METHODS:  # by name alone: a request never names a module
            raise ConfigError(f"no policy of that name: choose one of {', '.join(PIXEL_METHODS)}")
        x = bundled.image(request.image) if request.image is not None else bundled.drawn(request.tokens or b"")
        label = bundled.prior.known_label(request.label)
        prior = StoppablePrior(bundled.prior, stop)
        method = pixel_methods(prior, request.steps)[request.policy]
        return record(prior, method, x, label, request.budget, seed=request.seed, probs=True)

    def warm_up(self) -> None:
        """Load all images and the first prior, and run it once, so that the first person does not wait."""
        assert self.catalog
        prior = next(iter(self.priors.values())).prior
        nothing = torch.zeros((1, *prior.shape), dtype=torch.int64)
        prior.in_chunks(predictions.entropy, nothing, None)
