"""Rows of k-space on the page: knee slices, and a phantom that was in a real scanner."""

import threading
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sensewise import metrics
from sensewise.apps.slices import ROW_METHODS, Slice, reconstructor
from sensewise.apps.subject import Settings
from sensewise.apps.web.exhibits import (
    AcquireRequest,
    Exhibit,
    Lens,
    Stopped,
    Thumbnail,
    bundled_number,
    described,
    find_policy,
    shots,
    small,
)
from sensewise.apps.web.film import Ending, Event, Shot, Title
from sensewise.data import bundled_knee
from sensewise.data.phantom import phantom_slice
from sensewise.data.prepare import knee_slice
from sensewise.data.stored import MRSlice
from sensewise.errors import ConfigError
from sensewise.evaluate.method import Method
from sensewise.kspace import acs_rows, magnitude, over_coils
from sensewise.loop import Acquisition
from sensewise.policies.base import Context, Policy
from sensewise.policies.simple import Fixed
from sensewise.policies.starts import CentralBlock, FixedStart
from sensewise.presets.mri import MRISettings, load_settings
from sensewise.reconstruct.base import Reconstructor
from sensewise.sensors.base import Side
from sensewise.sensors.rows import RowSensor

PRESET, RECONSTRUCTOR = "cpu", "unet-a"
LIMIT = 0.1  # the error that is shown brightest, as a fraction of the largest value
TITLES = {
    "sequential-value": "Planned from the first rows",
    "static-search": "Searched, the same for all slices",
    "acs-variable-density": "Middle, then variable density",
    "acs-equispaced": "Middle, then evenly spaced",
    "acs-random": "Middle, then random",
}
assert set(TITLES) == set(ROW_METHODS)


class FromTheMiddle(Policy):
    """The rows of a mask `(rows,)`, the lowest frequencies first."""

    def __init__(self, rows: Tensor) -> None:
        distance = (torch.arange(len(rows)) - len(rows) // 2).abs()
        self.order = torch.where(rows, len(rows) - distance, 0).float()

    def scores(self, observation: Tensor, mask: Tensor, context: Context) -> Tensor:
        return self.order.expand_as(mask)


class RowLens(Lens):
    """Slices: the reconstruction of a network, and its true error; what was measured is k-space.

    Args:
        scan: the truth.
        reconstruct: what was measured to magnitudes.
        stop: ends the acquisition between its steps.
    """

    def __init__(self, scan: MRSlice, reconstruct: Reconstructor, stop: threading.Event) -> None:
        self.scan, self.reconstruct, self.stop = scan, reconstruct, stop
        self.x = scan.shown(magnitude(scan.kspace))
        self.peak = float(self.x.max())
        level = over_coils(scan.kspace)[0].clamp(min=1e-12).log()
        low = float(level.flatten().quantile(0.02))
        self.rows = small((level - low) / (float(level.max()) - low))  # (rows, W)

    def __call__(self, loop: Acquisition, actions: np.ndarray) -> Shot:
        if self.stop.is_set():
            raise Stopped
        x_hat = self.scan.shown(self.reconstruct(loop.observation, loop.mask))
        numbers = {
            "measured": int(loop.mask.sum()),
            "psnr": float(metrics.peak_psnr(x_hat, self.x)),
            "nmse": float(metrics.nmse(x_hat, self.x)),
        }
        error = (x_hat - self.x).abs()[0] / (LIMIT * self.peak)
        return Shot(actions, self.rows[actions], small(x_hat / self.peak), small(error), numbers)


class RowExhibit(Exhibit):
    """Slices of one kind.

    Args:
        name: of the exhibit.
        title: for people.
        scans: the slices, made when they are first needed.
    """

    def __init__(self, name: str, title: str, scans: Callable[[MRISettings], list[MRSlice]]) -> None:
        self.name, self.title, self._scans = name, title, scans
        self._lock = threading.Lock()

    @cached_property
    def mri(self) -> MRISettings:
        return load_settings(PRESET)

    @cached_property
    def _loaded(self) -> list[MRSlice]:
        return self._scans(self.mri)

    @property
    def scans(self) -> list[MRSlice]:
        with self._lock:
            return self._loaded

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "kind": "rows",
            "shape": [1, self.mri.rows, self.mri.columns],
            "states": 256,
            "labels": [],
            "images": len(self.scans),
            "goal": "psnr",
            "draw": False,
            "limit": LIMIT,
            "budgets": [0.15, 0.75, 0.25],
            "steps": 16,
            **described(TITLES, "sequential-value", "acs-random"),
        }

    def gallery(self, first: int, most: int) -> list[Thumbnail]:
        scans = self.scans[first : first + most] if first >= 0 else []
        return [Thumbnail(small(_shown(scan)), "slice") for scan in scans]

    def film(self, request: AcquireRequest, stop: threading.Event) -> Iterator[Event]:
        name = find_policy(request, TITLES)
        number = bundled_number(request, len(self.scans))
        if number is None or request.noise or request.stop is not None or request.label is not None:
            raise ConfigError(f"{self.name} is a bundled slice: without tokens, noise, stop or label")
        scan = self.scans[number]
        settings = Settings(budget=request.budget, steps=request.steps, preset=PRESET, seed=request.seed)
        sensor = RowSensor(scan.kspace)
        loop = self._begin(scan, name, sensor, settings)
        lens = RowLens(scan, _network(), stop)
        yield Title(small(lens.x / lens.peak), sensor.grid, loop.budget, loop.steps)
        yield from shots(loop, sensor, lens)
        yield Ending()

    def _begin(self, scan: MRSlice, name: str, sensor: RowSensor, settings: Settings) -> Acquisition:
        """The acquisition; rows that were all chosen at once are measured from the middle on, in as many steps."""
        method, k, _ = Slice(scan, self.mri).method(name, settings)
        block = None if isinstance(method.policy, Fixed) else CentralBlock(self.mri.acs)
        side, generator = Side(summary=sensor.summary(self.mri.acs)), settings.generator()
        if method.steps == 1 and settings.steps is not None:
            mask = method.spend(sensor, k, side=side, start=block, generator=generator).mask[0]
            core = FixedStart({k: mask & acs_rows(self.mri.rows, self.mri.acs)})
            method = Method(name, FromTheMiddle(mask), settings.steps, core)
        return method.begin(sensor, k, side=side, start=block, generator=generator)

    def warm_up(self) -> None:
        request = AcquireRequest(self.name, 0, None, None, 0.25, 1, "acs-random", 0)
        assert list(self.film(request, threading.Event()))


@cache
def _network() -> Reconstructor:
    return reconstructor(RECONSTRUCTOR, PRESET)


def _shown(scan: MRSlice) -> Tensor:
    """The truth of a slice, `(1, H, W)` in [0, 1]."""
    x = scan.shown(magnitude(scan.kspace))
    return x / x.max()


def _knees(mri: MRISettings) -> list[MRSlice]:
    return [knee_slice(number, (mri.rows, mri.columns)) for number in range(len(bundled_knee()))]


def _phantom(mri: MRISettings) -> list[MRSlice]:
    return [phantom_slice((mri.rows, mri.columns))]


def row_exhibits() -> list[Exhibit]:
    """Every bundled slice."""
    return [
        RowExhibit("knee", "MR: knee slices, rows", _knees),
        RowExhibit("phantom", "MR: a phantom in a real scanner, rows", _phantom),
    ]
