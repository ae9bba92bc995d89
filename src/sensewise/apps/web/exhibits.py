"""What the page can show: each exhibit has pictures, policies, and a way to film an acquisition of one of them.

Token images, grey pictures of any size and rows of k-space are in files of their own. Nothing that comes with a request
is ever used as a path.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sensewise.apps.web.film import Ending, Event, Shot
from sensewise.errors import ConfigError, DataError
from sensewise.evaluate.method import Method
from sensewise.loop import Acquisition
from sensewise.policies.base import Stop
from sensewise.policies.starts import AuditedStart
from sensewise.policies.stops import ExpectedErrors, ExpectedPSNR, Watched
from sensewise.predictions import Prediction
from sensewise.priors.audit import audit_fit
from sensewise.priors.base import Prior
from sensewise.sensors.base import Sensor, View


@dataclass(frozen=True)
class AcquireRequest:
    """One acquisition, as the page asks for it.

    Attributes:
        prior: the name of an exhibit.
        image: number of a bundled picture, or None.
        tokens: a visitor's picture, one byte each in the order `(C, H, W)`: tokens, or grey levels where a picture of
            any size is taken; or None.
        label: the class, or None where it is not known.
        budget: a fraction of the pixels or rows.
        steps: `R`.
        policy: a name of the exhibit's policies.
        seed: of everything random.
        size: height and width of a visitor's picture of any size; None for others.
        noise: standard deviation of a reading.
        stop: the expected error below which it ends: wrong pixels of two levels, else the root mean square as a
            fraction of the range; None for never.
    """

    prior: str
    image: int | None
    tokens: bytes | None
    label: int | None
    budget: float
    steps: int
    policy: str
    seed: int
    size: tuple[int, int] | None = None
    noise: float = 0.0
    stop: float | None = None


@dataclass(frozen=True)
class Thumbnail:
    """A bundled picture in the gallery.

    Attributes:
        picture: uint8 `(C, H, W)`.
        name: for people.
        label: its class, or None.
    """

    picture: np.ndarray
    name: str
    label: int | None = None


class Stopped(Exception):
    """Nobody waits for this acquisition any more."""


class StoppablePrior(Prior):
    """A prior that answers until an event is set, and is not asked the same twice: policy and film look at one pass.

    Args:
        prior: to be asked.
        stop: set from any thread, ends an acquisition between its steps.
    """

    def __init__(self, prior: Prior, stop: threading.Event) -> None:
        super().__init__()
        self.prior, self.stop = prior, stop
        self.channels, self.size = prior.channels, prior.size
        self.num_states, self.num_labels = prior.num_states, prior.num_labels
        self._last: tuple[bytes, Prediction] | None = None

    def blank(self, size: tuple[int, int]) -> Tensor:
        return self.prior.blank(size)

    def seen(self, y: Tensor) -> Tensor:
        return self.prior.seen(y)

    def check(self, y: Tensor, label: Tensor | None) -> Tensor:
        return self.prior.check(y, label)

    def predict(self, y: Tensor, label: Tensor, t: Tensor | None) -> Prediction:
        if self.stop.is_set():
            raise Stopped
        question = y.numpy().tobytes()
        if self._last is None or self._last[0] != question or t is not None:
            self._last = question, self.prior.predict(y, label, t)
        return self._last[1]


class Exhibit(ABC):
    """Base of everything that the page can show.

    Attributes:
        name: in requests and addresses.
    """

    name: str

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What the page needs to know before anything is acquired."""

    @abstractmethod
    def gallery(self, first: int, most: int) -> list[Thumbnail]:
        """Some of the bundled pictures."""

    @abstractmethod
    def film(self, request: AcquireRequest, stop: threading.Event) -> Iterator[Event]:
        """Acquire one picture: its title, a shot for the start and for each step, its ending."""

    @abstractmethod
    def warm_up(self) -> None:
        """Load what is needed, and run it once."""


def described(policies: Mapping[str, str], best: str, rival: str) -> dict[str, Any]:
    """The policies of an exhibit: all of them, the best, and what it is compared with."""
    titles = [{"name": name, "title": title} for name, title in policies.items()]
    return {"policies": titles, "best": best, "rival": rival}


def bundled_number(request: AcquireRequest, images: int) -> int | None:
    """The number of the bundled picture that is asked for; None for a visitor's own."""
    if (request.image is None) == (request.tokens is None):
        raise DataError("give either the number of a bundled picture or the tokens of a drawn one")
    if request.image is not None and not 0 <= request.image < images:
        last = f"0 to {images - 1} are there" if images else "there are none"
        raise DataError(f"no bundled picture {request.image} for {request.prior}: {last}")
    return request.image


def find_policy(request: AcquireRequest, policies: Mapping[str, Any]) -> str:
    """The policy of a request, by name alone: a request never names a module."""
    if request.policy not in policies:
        raise ConfigError(f"no policy of that name: choose one of {', '.join(policies)}")
    return request.policy


def small(values: Tensor) -> np.ndarray:
    """Values in [0, 1] as bytes."""
    return (255 * values).round().clamp(0, 255).to(torch.uint8).numpy()


class Lens(ABC):
    """How one exhibit looks at an acquisition under way."""

    @abstractmethod
    def __call__(self, loop: Acquisition, actions: np.ndarray) -> Shot:
        """What there is to see now, with the actions `(n,)` that are new."""


@torch.inference_mode()
def shots(loop: Acquisition, sensor: Sensor, lens: Lens) -> Iterator[Shot]:
    """Run an acquisition of one scene, and look at it after the start and after every step."""
    steps, before = loop.run(sensor), torch.zeros_like(loop.mask)

    def look() -> Shot:
        nonlocal before
        actions = (loop.mask & ~before)[0].nonzero()[:, 0].numpy().astype(np.int32)
        before = loop.mask
        return lens(loop, actions)

    if loop.next_step == 0:  # a start is part of the first shot
        next(steps)
    yield look()
    for _ in steps:
        yield look()


class Audit:
    """What pixels at random places say about a prior, if there are any.

    Args:
        start: that drew them; None for no audit.
        prior: that is audited.
        label: of the picture.
    """

    def __init__(self, start: AuditedStart | None, prior: Prior, label: Tensor | None) -> None:
        self.start, self.prior, self.label = start, prior, label

    def ending(self, loop: Acquisition) -> Ending:
        stopped = bool(loop.stopped[0])
        if self.start is None:
            return Ending(stopped)
        fit = audit_fit(self.prior, loop.observation, self.start.audit & loop.mask, self.label)
        return Ending(stopped) if fit is None else Ending(stopped, fit.pixels, fit.ratio, fit.fits)


def expected_stop(error: float | None, two_levels: bool) -> Stop | None:
    """The stop of a request."""
    if error is None:
        return None
    return ExpectedErrors(error) if two_levels else ExpectedPSNR(float(-20 * np.log10(error)))


def watched(method: Method, prior: Prior, view: View | None = None) -> Method:
    """A method that a stop can end, also if it believes in no prior."""
    return method if method.policy.prior is not None else replace(method, policy=Watched(method.policy, prior, view))


def expected_psnr(variance: Tensor) -> float:
    """The PSNR of the expected picture that a prior expects, in dB."""
    return float(-10 * torch.log10(variance.mean().clamp(min=1e-10)))
