"""Grey pictures of any size on the page: bundled ones, and whatever a visitor drops."""

import threading
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sensewise import predictions
from sensewise.apps.grey import STEPS
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
from sensewise.channels import Gaussian
from sensewise.data.samples import SAMPLES, bundled_pictures
from sensewise.errors import DataError
from sensewise.evaluate.method import PIXEL_METHODS, reading_methods
from sensewise.files import read_json
from sensewise.hub import CONFIG, load_prior
from sensewise.loop import Acquisition
from sensewise.masks import count
from sensewise.metrics import psnr
from sensewise.policies.starts import AuditedStart
from sensewise.priors.audit import audit_share
from sensewise.priors.base import Prior
from sensewise.sensors.base import Side
from sensewise.sensors.readings import Readings, ReadingSensor

LEAST, MOST = 16, 512  # pixels of a side
LIMIT = 0.25  # the standard deviation that is shown brightest
THUMBNAIL = 96  # pixels of a side, about


class ReadingLens(Lens):
    """Grey pictures: the expected picture, and the standard deviation of each pixel.

    Args:
        prior: that believes.
        image: the truth, intensities `(1, 1, H, W)`.
    """

    def __init__(self, prior: Prior, image: Tensor) -> None:
        self.prior, self.image = prior, image

    def __call__(self, loop: Acquisition, actions: np.ndarray) -> Shot:
        found = self.prior(loop.observation)
        mean, variance = found.mean().clamp(0, 1), found.variance()
        numbers = {
            "measured": int(loop.mask.sum()),
            "psnr": float(psnr(mean, self.image)),
            "expected_psnr": expected_psnr(variance),
        }
        readings = small(loop.observation[0, 0].flatten()[torch.from_numpy(actions).long()])
        return Shot(actions, readings[:, None], small(mean)[0], small(variance[0, 0].sqrt() / LIMIT), numbers)


class GreyExhibit(Exhibit):
    """A prior for grey pictures of any size.

    Args:
        folder: of the prior.
        name: of the exhibit.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self._lock = threading.Lock()

    @cached_property
    def _prior(self) -> Prior:
        return load_prior(self.folder)

    @property
    def prior(self) -> Prior:
        with self._lock:
            return self._prior

    @cached_property
    def pictures(self) -> list[np.ndarray]:
        """The bundled ones, uint8 `(H, W)` each."""
        return bundled_pictures()

    def describe(self) -> dict[str, Any]:
        titles = {name: PIXEL_METHODS[name] for name in reading_methods(self.prior, 1)}
        return {
            "name": self.name,
            "title": read_json(self.folder / CONFIG).get("title", "Any grey picture"),
            "kind": "readings",
            "shape": None,
            "states": 256,
            "labels": [],
            "images": len(self.pictures),
            "goal": "psnr",
            "draw": False,
            "sides": [LEAST, MOST],
            "limit": LIMIT,
            "budgets": [0.01, 0.5, 0.1],
            "steps": STEPS,
            **described(titles, next(iter(titles)), "random"),
        }

    def gallery(self, first: int, most: int) -> list[Thumbnail]:
        parts = self.pictures[first : first + most] if first >= 0 else []
        return [Thumbnail(_shrunk(part)[None], SAMPLES[first + i].title) for i, part in enumerate(parts)]

    def _picture(self, request: AcquireRequest) -> Tensor:
        """What is asked for as intensities `(1, 1, H, W)`."""
        number = bundled_number(request, len(self.pictures))
        if number is not None:
            grey = self.pictures[number]
        else:
            height, width = request.size or (0, 0)
            if not (LEAST <= height <= MOST and LEAST <= width <= MOST):
                raise DataError(f"a picture has {LEAST} to {MOST} pixels a side, got {height} x {width}")
            tokens = request.tokens or b""
            if len(tokens) != height * width:
                raise DataError(f"{height} x {width} pixels are {height * width:,} bytes, got {len(tokens):,}")
            grey = np.frombuffer(tokens, np.uint8).reshape(height, width)
        return torch.from_numpy(grey.astype(np.float32) / 255)[None, None]

    def film(self, request: AcquireRequest, stop: threading.Event) -> Iterator[Event]:
        prior, channel = StoppablePrior(self.prior, stop), Gaussian(request.noise)
        methods = reading_methods(prior, request.steps, channel)
        method = watched(methods[find_policy(request, methods)], prior, Readings())
        prior.known_label(request.label)  # there is none
        image, generator = self._picture(request), torch.Generator().manual_seed(request.seed)
        sensor = ReadingSensor(image, channel, generator=generator)
        audited = AuditedStart(None, audit_share(count(request.budget, sensor.num_actions)))
        loop = method.begin(
            sensor,
            request.budget,
            side=Side(),
            start=audited,
            generator=generator,
            stop=expected_stop(request.stop, two_levels=False),
        )
        yield Title(small(image)[0], sensor.grid, loop.budget, loop.steps)
        yield from shots(loop, sensor, ReadingLens(prior, image))
        yield Audit(audited, prior, None).ending(loop)

    def warm_up(self) -> None:
        self.prior.in_chunks(predictions.variance, self.prior.blank((256, 256)), None)


def _shrunk(grey: np.ndarray) -> np.ndarray:
    """Every so many-th pixel: about `THUMBNAIL` a side."""
    step = max(1, round(max(grey.shape) / THUMBNAIL))
    height, width = (side // step * step for side in grey.shape)
    cells = grey[:height, :width].reshape(height // step, step, width // step, step)
    return cells.mean((1, 3)).round().astype(np.uint8)
