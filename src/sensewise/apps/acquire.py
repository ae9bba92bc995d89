"""`sensewise acquire`: a picture, a bundled image or a slice of k-space, measured as a policy says, and shown.

A source is read into a `Subject`: a picture with a prior, or a slice with what its preset fixes. All files of one
acquisition appear together or not at all.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sensewise import hub
from sensewise.apps import slices
from sensewise.apps.grey import AnyPicture
from sensewise.apps.slices import Slice
from sensewise.apps.subject import Settings, Subject
from sensewise.apps.wishes import NOT_REACHED, Wanted, parse_stop
from sensewise.data import DATASETS, bundled_knee
from sensewise.data.any_picture import read_any
from sensewise.data.kspace_files import is_kspace, read_slice
from sensewise.data.phantom import phantom_slice
from sensewise.data.pictures import find_pictures, read_fitted
from sensewise.data.prepare import knee_slice
from sensewise.errors import ConfigError, DataError
from sensewise.evaluate.method import method_from_text
from sensewise.evaluate.record import record
from sensewise.evaluate.recording import Recording
from sensewise.files import whole_folder, write_json
from sensewise.metrics import psnr
from sensewise.presets.mri import load_settings
from sensewise.priors.base import Prior
from sensewise.priors.readings import ReadingPrior
from sensewise.report.figures import recording as pictures
from sensewise.report.figures.style import intensities, rgb, save
from sensewise.sensors.base import Side
from sensewise.tokens import dequantize, quantize

__all__ = ["FILES", "Settings", "acquire_source", "read_subject"]

DEFAULT = "any-grey"  # the prior of picture files
BUNDLED = {"digit": "mnist", "photo": "cifar10"}
"""What `NAME:N` means: the data set, whose prior has the same name."""
FILES = slices.FILES | {
    "animation.gif",
    "samples.png",
    "steps.png",
    "uncertainty.npy",
    "uncertainty.png",
}
"""Everything that an acquisition writes."""


@dataclass(frozen=True)
class Picture(Subject):
    """Pixels of a token image.

    Attributes:
        prior: reconstructs, and guides the policies that need a prior.
        x: true tokens, with shape `(1, C, H, W)`.
        name: of the prior.
        story: what was done to a file until it was these tokens; empty for bundled images.
    """

    prior: Prior
    x: Tensor
    name: str
    story: str = ""

    def acquire(self, settings: Settings, folder: Path) -> str:
        text = settings.policy or ("greedy" if self.prior.num_states == 2 else "spread-variance-greedy")
        method = method_from_text(text, self.prior, 16 if settings.steps is None else settings.steps)
        label = self.prior.known_label(settings.label)
        budget = 0.1 if settings.budget is None else settings.budget
        if settings.noise is not None:
            raise ConfigError(f"prior {self.name} takes readings without noise: leave --noise out, or --prior")
        stop = parse_stop(settings.stop, self.name, self.prior.num_states)
        rebuild = Wanted(settings.reconstructor or ("mode" if self.prior.num_states == 2 else "mean"), self.prior)
        found = record(self.prior, method, self.x, label, budget, seed=settings.seed, stop=stop)
        last, entropy = found.steps, found.entropy[found.steps]
        mask = found.mask(last)
        hub.save_array(folder / "mask.npy", mask)
        save(pictures.png(mask), folder / "mask.png")
        hub.save_array(folder / "uncertainty.npy", entropy)
        save(pictures.png(entropy / max(float(found.entropy.max()), 1e-9)), folder / "uncertainty.png")
        y = torch.from_numpy(found.observation(last).astype(np.int64))[None]
        best = rebuild(y, torch.from_numpy(mask).view(1, -1), Side(label=label), settings.generator())[0].numpy()
        hub.save_array(folder / "reconstruction.npy", best)
        save(pictures.png(rgb(best)), folder / "reconstruction.png")
        save(pictures.sheet(found), folder / "steps.png")
        save(pictures.gif(found), folder / "animation.gif")
        if samples := 4 if settings.samples is None else settings.samples:
            save(self._possible(found, label, settings, samples), folder / "samples.png")
        numbers = {
            "reconstructor": rebuild.name,
            "stop": settings.stop,
            "stopped": None if stop is None else last < method.steps,
        }
        return self._outcome(found, best, numbers, folder)

    def _possible(self, found: Recording, label: Tensor | None, settings: Settings, samples: int) -> bytes:
        """Images that agree with what was measured, side by side, as PNG."""
        y = torch.from_numpy(found.observation(found.steps).astype(np.int64))[None]
        drawn = self.prior.sample(y, label, settings.generator(), samples=samples)[:, 0]  # (samples, C, H, W)
        framed = [
            np.pad(rgb(intensities(x.numpy(), found.levels)), ((1, 1), (1, 1), (0, 0)), constant_values=0.5)
            for x in drawn
        ]
        sheet = np.concatenate(framed, axis=1)  # (H + 2, samples (W + 2), 3)
        return pictures.png(sheet, 4 * sheet.shape[1])

    def _outcome(self, found: Recording, best: np.ndarray, asked: dict[str, Any], folder: Path) -> str:
        assert found.expected_errors is not None
        last, size = found.steps, found.entropy[0].size
        measured = int(found.mask(last).sum())
        rounded = self._rounded(found, best, asked["reconstructor"])
        numbers: dict[str, Any] = {
            "measured": measured,
            "density": measured / size,
            "steps": found.steps,
            "errors": int((rounded != found.target).sum()),
            "expected_errors": round(float(found.expected_errors[last]), 4),
            "nats_left": round(float(found.entropy[last].sum()), 4),
            **asked,
        }
        verdict = f"{numbers['errors']} wrong"
        if found.levels > 2:
            numbers["psnr"] = round(float(psnr(torch.from_numpy(best)[None], dequantize(self.x, found.levels))), 3)
            verdict = f"{numbers['psnr']:.1f} dB"
        if self.story:
            numbers["input"] = self.story
        write_json(folder / "acquisition.json", numbers)
        before = f"{self.story}: " if self.story else ""
        said = f"{before}{measured} of {size} pixels measured in {last} steps, {verdict} in the reconstruction"
        return said if asked["stopped"] is not False else f"{said}\n{NOT_REACHED}"

    @staticmethod
    def _rounded(found: Recording, best: np.ndarray, name: str) -> np.ndarray:
        """Tokens of a reconstruction; where it is a mean, the most probable ones, which are not those nearest to it."""
        return found.mode[found.steps] if name == "mean" else 1 + (best * (found.levels - 1)).round()


def _number(source: str, count: int) -> int:
    """N of `NAME:N`, below `count`."""
    kind, _, text = source.partition(":")
    if not text.isdecimal() or len(text) > 4 or int(text) >= count:
        raise DataError(f"{kind}:{text[:9]} is not possible: give {kind}:0 to {kind}:{count - 1}")
    return int(text)


def _read_bundled(source: str, settings: Settings) -> Picture:
    """`digit:N` or `photo:N`."""
    name = BUNDLED[source.partition(":")[0]]
    bundled = DATASETS[name].bundled
    assert bundled is not None
    images = bundled(None)
    number = _number(source, len(images))
    prior = settings.prior or name
    return Picture(hub.load_prior(prior), images[slice(number, number + 1)][0], prior)


def _read_knee(source: str, settings: Settings) -> Slice:
    """`knee:N`."""
    mri = load_settings(settings.preset)
    return Slice(knee_slice(_number(source, len(bundled_knee())), (mri.rows, mri.columns)), mri)


def _read_phantom(source: str, settings: Settings) -> Slice:
    """`phantom:0`."""
    mri = load_settings(settings.preset)
    _number(source, 1)
    return Slice(phantom_slice((mri.rows, mri.columns)), mri)


def _read_kspace(source: str, settings: Settings) -> Slice:
    """One slice of a k-space file."""
    mri = load_settings(settings.preset)
    axis = mri.axis if settings.axis == "auto" else settings.axis
    return Slice(read_slice(Path(source), (mri.rows, mri.columns), settings.slice, axis), mri)


def _read_file(source: str | Path, prior: Prior, name: str) -> Subject:
    """A picture file: at its own size for a prior that takes any, else cut and scaled to the prior's."""
    if isinstance(prior, ReadingPrior):
        return AnyPicture(read_any(Path(source)), prior, name)
    return _fitted(Path(source), prior, name)


def _fitted(path: Path, prior: Prior, name: str) -> Picture:
    """A picture file cut and scaled to the size of a prior; refuses one of which rounding leaves nothing."""
    found, levels = read_fitted(path, prior.shape), prior.num_states
    x = quantize(found.values, levels)
    if bool((x == x.flatten()[0]).all()):
        low, high = float(found.values.min()), float(found.values.max())
        raise DataError(
            f"{path} ({found.story}) is the same everywhere once it has {levels} levels: its values lie between "
            f"{low:.1%} and {high:.1%} of their range; stretch them first, or leave --prior out"
        )
    story = f"{found.story}, {levels} levels"
    if levels == 2 and (grey := float(((found.values > 0) & (found.values < 1)).float().mean())):
        story += f" (cut at half of the range: {grey:.0%} of the pixels were grey)"
    return Picture(prior, x[None], name, f"{story}, prior {name}")


NUMBERED = {"digit": _read_bundled, "photo": _read_bundled, "knee": _read_knee, "phantom": _read_phantom}
"""How `NAME:N` is read."""


def read_subject(source: str, settings: Settings) -> Subject:
    """`digit:N`, `photo:N`, `knee:N`, `phantom:0`, a k-space file (`.h5`, `.dat`, `.npy`) or a picture file."""
    if (kind := _numbered(source)) is not None:
        return NUMBERED[kind](source, settings)
    if is_kspace(source):
        return _read_kspace(source, settings)
    name = settings.prior or DEFAULT
    return _read_file(source, hub.load_prior(name), name)


def _numbered(source: str) -> str | None:
    """NAME of `NAME:N`; None for a path."""
    kind, colon, _ = source.partition(":")
    return kind if colon and kind in NUMBERED else None


def acquire_source(source: str, folder: Path, settings: Settings) -> str:
    """Acquire one source, or every picture of a folder, and write what came of it into `folder`.

    Returns:
        What a person wants to know of it, one line per picture.
    """
    with whole_folder(folder, FILES) as temporary:
        if _numbered(source) is None and Path(source).is_dir():
            return "\n".join([*_acquire_all(Path(source), temporary, settings), f"See {folder}"])
        outcome, *remarks = read_subject(source, settings).acquire(settings, temporary).splitlines()
        return "\n".join([f"{outcome}: see {folder}", *remarks])


def _acquire_all(source: Path, folder: Path, settings: Settings) -> list[str]:
    """Every picture of a folder, each into a folder of its own; those that cannot be read are left out."""
    name = settings.prior or DEFAULT
    prior = hub.load_prior(name)
    lines, left_out = [], []
    for path in find_pictures(source):
        try:
            subject = _read_file(path, prior, name)
        except DataError as error:
            left_out.append(f"left out: {error}")
            continue
        lines.append(f"{path.name}: {subject.acquire(settings, folder / path.name)}")
    if not lines:
        raise DataError(f"no picture that can be read in {source}" + (f": {left_out[0]}" if left_out else ""))
    return lines + left_out
