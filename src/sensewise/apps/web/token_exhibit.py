"""Token images on the page: digits, photographs, and what a prior of one's own was trained on."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sensewise import predictions
from sensewise.apps.web.exhibits import (
    AcquireRequest,
    Audit,
    Exhibit,
    Lens,
    StoppablePrior,
    Thumbnail,
    bundled_number,
    described,
    expected_psnr,
    expected_stop,
    find_policy,
    shots,
    small,
    watched,
)
from sensewise.apps.web.film import Event, Shot, Title
from sensewise.data import DATASETS, Dataset, Scenes, is_imported, load_imported
from sensewise.errors import ConfigError, DataError
from sensewise.evaluate.method import AMORTISED, PIXEL_METHODS, Method, amortised, pixel_methods
from sensewise.files import read_json
from sensewise.hub import CONFIG, find_guide, load_prior
from sensewise.information import per_pixel
from sensewise.loop import Acquisition
from sensewise.masks import count
from sensewise.metrics import psnr
from sensewise.policies.starts import AuditedStart
from sensewise.predictions import Categorical
from sensewise.priors.audit import PIXELS, audit_share
from sensewise.priors.base import Prior
from sensewise.sensors.base import Side
from sensewise.sensors.pixels import PixelSensor
from sensewise.tokens import dequantize

FEW = 16  # states that a pixel's distribution is shown of


class TokenLens(Lens):
    """Token images: the most probable picture of two levels, else the expected one; entropy.

    Args:
        prior: that believes.
        x: the truth, with shape `(1, C, H, W)`.
        label: as the prior takes it.
    """

    def __init__(self, prior: Prior, x: Tensor, label: Tensor | None) -> None:
        self.prior, self.x, self.label = prior, x, label
        self.truth = dequantize(x, prior.num_states)
        self.values = small(self.truth)[0].reshape(x.shape[1], -1)  # (C, K)
        self.most = x.shape[1] * float(np.log(prior.num_states))  # nats per pixel

    def __call__(self, loop: Acquisition, actions: np.ndarray) -> Shot:
        found = self.prior(loop.observation, self.label)
        mode, mean, variance = found.mode(), found.mean(), found.variance()
        entropy = per_pixel(found.entropy()).view(self.x.shape[2:])
        numbers = {
            "measured": int(loop.mask.sum()),
            "errors": int((mode != self.x).sum()),
            "expected_errors": float(found.expected_errors().double().sum()),
            "nats": float(entropy.sum()),
            "psnr": float(psnr(mean, self.truth)),
            "expected_psnr": expected_psnr(variance),
        }
        states = self.prior.num_states
        probs = found.log_probs[0].exp().numpy() if isinstance(found, Categorical) and states <= FEW else None
        return Shot(
            actions,
            np.ascontiguousarray(self.values[:, actions].T),
            small(dequantize(mode, states) if states == 2 else mean)[0],
            small(entropy / self.most),
            numbers,
            probs,
        )


class TokenExhibit(Exhibit):
    """A prior for token images and the pictures that go with it; both are loaded when they are first needed.

    Args:
        folder: of the prior.
        name: of the exhibit.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.config: dict[str, Any] = read_json(folder / CONFIG)
        self._lock = threading.Lock()

    @property
    def data(self) -> str:
        """What the prior was trained on: a data set's name or the folder of an imported one."""
        return str(self.config.get("data", self.name))

    @property
    def dataset(self) -> Dataset | None:
        return DATASETS.get(self.data)

    @cached_property
    def _prior(self) -> Prior:
        return load_prior(self.folder)

    @cached_property
    def _guide(self) -> Prior | None:
        folder = find_guide(self.config["model"])
        return None if folder is None else load_prior(folder)

    @cached_property
    def _images(self) -> Scenes | None:
        if self.dataset is not None:
            return None if self.dataset.bundled is None else self.dataset.bundled(None)
        return load_imported(self.data, "test") if is_imported(self.data) else None

    @property
    def prior(self) -> Prior:
        with self._lock:
            return self._prior

    @property
    def guide(self) -> Prior | None:
        """The small prior that can decide in place of the full one, if there is one."""
        with self._lock:
            return self._guide

    @property
    def policies(self) -> dict[str, str]:
        """Names and titles."""
        return PIXEL_METHODS | (AMORTISED if self.guide is not None else {})

    @property
    def images(self) -> Scenes | None:
        with self._lock:
            return self._images

    @property
    def states(self) -> int:
        return int(self.config["model"]["num_states"])

    def describe(self) -> dict[str, Any]:
        model, images, dataset = self.config["model"], self.images, self.dataset
        names = [str(number) for number in range(model.get("num_labels") or 0)]
        title = Path(self.data).name
        if dataset is not None:
            title = dataset.title
            names = list(dataset.classes) if len(dataset.classes) == len(names) else names
        two = self.states == 2
        return {
            "name": self.name,
            "title": self.config.get("title", title),
            "kind": "tokens",
            "shape": model["shape"],
            "states": self.states,
            "labels": names,
            "images": 0 if images is None else len(images),
            "goal": "errors" if two else "psnr",
            "draw": two and model["shape"][0] == 1,
            "budgets": [0.01, 0.5, 0.1],
            "steps": 16,
            **described(self.policies, "spread-greedy" if two else "spread-variance-greedy", "random"),
        }

    def gallery(self, first: int, most: int) -> list[Thumbnail]:
        images = self.images
        if images is None or not 0 <= first < len(images):
            return []
        tokens, labels = images[slice(first, first + most)]
        names = self.describe()["labels"]
        known = [None] * len(tokens) if labels is None else labels.tolist()
        pictures = [small(dequantize(x, self.states)) for x in tokens]
        titles = ["picture" if label is None or not names else names[label] for label in known]
        return [Thumbnail(*parts) for parts in zip(pictures, titles, known, strict=True)]

    def _picture(self, request: AcquireRequest) -> Tensor:
        """What is asked for as tokens `(1, C, H, W)`."""
        images = self.images
        number = bundled_number(request, 0 if images is None else len(images))
        if number is None or images is None:
            return self._drawn(request.tokens or b"")
        return images[slice(number, number + 1)][0]

    def _drawn(self, tokens: bytes) -> Tensor:
        shape = self.prior.shape
        wanted = shape[0] * shape[1] * shape[2]
        if len(tokens) != wanted:
            raise DataError(f"a picture for {self.name} has {wanted} tokens, got {len(tokens)}")
        if not 1 <= min(tokens) <= max(tokens) <= self.states:
            raise DataError(f"tokens must be 1..{self.states}, got {min(tokens)}..{max(tokens)}")
        return torch.tensor(list(tokens)).view(1, *shape)

    def film(self, request: AcquireRequest, stop: threading.Event) -> Iterator[Event]:
        if request.noise:
            raise ConfigError(f"{self.name} takes readings without noise: leave noise at 0")
        find_policy(request, self.policies)
        x, label = self._picture(request), self.prior.known_label(request.label)
        prior = StoppablePrior(self.prior, stop)
        sensor = PixelSensor(x)
        method = watched(self._method(prior, request), prior)
        budget = count(request.budget, sensor.num_actions)
        own = request.image is None and budget > 4 * PIXELS  # a picture that a visitor brought: does the prior know it?
        audited = AuditedStart(method.start, audit_share(budget)) if own else None
        loop = replace(method, start=audited or method.start).begin(
            sensor,
            budget,
            side=Side(label=label),
            start=None,
            generator=torch.Generator().manual_seed(request.seed),
            stop=expected_stop(request.stop, self.states == 2),
        )
        lens = TokenLens(prior, x, label)
        yield Title(small(lens.truth)[0], sensor.grid, loop.budget, loop.steps)
        yield from shots(loop, sensor, lens)
        yield Audit(audited, prior, label).ending(loop)

    def _method(self, prior: Prior, request: AcquireRequest) -> Method:
        if request.policy in AMORTISED and self.guide is not None:
            return amortised(prior, self.guide, request.steps)
        return pixel_methods(prior, request.steps)[request.policy]

    def warm_up(self) -> None:
        nothing = torch.zeros((1, *self.prior.shape), dtype=torch.int64)
        self.prior.in_chunks(predictions.entropy, nothing, None)
