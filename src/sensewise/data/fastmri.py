"""k-space in the layout of fastMRI: a folder of HDF5 volumes, each with a complex data set `kspace`.

Zbontar et al., "fastMRI: An Open Dataset and Benchmarks for Accelerated MRI", 2018. Its licence forbids passing the
data on, so this is the reader alone. `kspace` is slices x readout x phase-encode lines, or slices x coils x readout x
phase-encode lines: fastMRI's masks act on the last axis. Its readouts are oversampled. The ISMRMRD header in the file
says so; without one, the size of the reconstruction does. Files of `sensewise data prepare` have lines as rows and say
that they are simulated.

A volume gives its middle slice, unless its attribute `independent_slices` says that it is a pack of unrelated ones
(`sensewise data prepare --pack`).
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import h5py
import torch
from torch import Tensor

from sensewise.data.ismrmrd import LARGEST_VOLUME, Header, is_raw, parse_header, read_raw, read_text
from sensewise.data.scenes import Dataset, Root, Scenes
from sensewise.data.sources import check_unpacked, data_root
from sensewise.data.stored import MOST, Axis, Stored
from sensewise.errors import DataError
from sensewise.files import check_size

Choice = Literal["middle", "all"]
LICENCES = {
    "fastmri": "LicenseRef-fastMRI (data sharing agreement, NYU Langone Health)",
    "brain-t1": "CC-BY-4.0 (J. Cheng, figshare 1512427)",
}
"""Of the data sets of the presets."""
SIZE = (300, 300)  # the paper's centre crop
OVERSAMPLED = 1.5  # samples per line from which a readout counts as sampled twice, where nothing in the file says so
FOLDERS = {
    "train": ("train", "singlecoil_train", "multicoil_train"),
    "val": ("val", "singlecoil_val", "multicoil_val"),
}


@contextmanager
def open_volume(path: Path, axis: Axis = "auto") -> Iterator[Stored]:
    """The k-space of an HDF5 file in fastMRI's layout, or of raw ISMRMRD acquisitions.

    Args:
        axis: which of the last two axes is phase-encoded; "auto" asks the file.
    """
    try:
        with h5py.File(check_size(path, LARGEST_VOLUME), "r") as file:
            raw = "kspace" not in file and is_raw(file)
            yield read_raw(file, path) if raw else _stored(file, path, axis)
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except Exception as error:  # a damaged file can raise almost anything
        raise DataError(f"{path} is damaged, cut short or not an HDF5 file: {error}") from error


def read_volume(path: Path, size: tuple[int, int], choice: Choice | None = None, axis: Axis = "auto") -> Tensor:
    """The slices of one HDF5 file, centre-cropped.

    Args:
        path: of the file.
        size: rows and columns of the crop, phase-encode rows first.
        choice: "middle" or "all" slices; None lets the file's attribute `independent_slices` decide.
        axis: as for `open_volume`.

    Returns:
        Complex64 k-space, with shape `(n, *size)`, or `(n, coils, *size)` from two coils on.
    """
    with open_volume(path, axis) as stored:
        every = stored.independent if choice is None else choice == "all"
        numbers = range(len(stored)) if every else [len(stored) // 2]
        return torch.cat([stored.slice(number, size).kspace for number in numbers])


def _stored(file: Any, path: Path, axis: Axis) -> Stored:
    """How `kspace` of an open file lies."""
    kspace = _checked(file, path)
    simulated = file.attrs.get("acquisition") == "simulated"
    independent = bool(file.attrs.get("independent_slices", False))
    header = _header(file, path)
    plain = Stored(path, kspace)  # checks the shape before it is looked at
    if axis != "auto":
        return _placed(plain, axis, "as given", header, _drawn(file), independent)
    if simulated:
        return Stored(path, kspace, axis="rows", why="simulated", independent=independent)
    if header is None:
        return _placed(plain, "columns", "as fastMRI has it", None, _drawn(file), independent)
    found, sides = (header.samples, header.lines), tuple(kspace.shape[-2:])
    if sides not in (found, found[::-1]):
        raise DataError(
            f"{path}: its ISMRMRD header describes {found[0]} samples x {found[1]} lines, but kspace has {sides[0]} x "
            f"{sides[1]}: give --axis rows or columns to read it all the same"
        )
    axis = "columns" if sides == found else "rows"
    return _placed(plain, axis, "ISMRMRD header", header, _drawn(file), independent)


def _placed(
    plain: Stored, axis: Axis, why: str, header: Header | None, drawn: tuple[int, int] | None, independent: bool
) -> Stored:
    """What a header, else the size of the reconstruction `(samples, lines)`, says about oversampling and the image."""
    sides = plain.kspace.shape[-2:]
    samples, lines = sides if axis == "columns" else sides[::-1]
    readout, shown, origin = None, None, 0
    if header is not None and (samples, lines) == (header.samples, header.lines):
        readout, shown, origin = header.readout, header.shown, header.origin
    elif drawn is not None:
        readout, shown = drawn
    elif axis == "columns" and samples >= OVERSAMPLED * lines:
        readout = samples // 2  # as all of fastMRI
    kept = None if readout is None or readout >= samples else readout
    return Stored(plain.path, plain.kspace, axis, why, kept, shown, origin, independent)


def _own(file: Any, name: str) -> Any | None:
    """An object of an open file, if there is one in the file itself."""
    if not isinstance(file.get(name, getlink=True), h5py.HardLink) or not isinstance(file[name], h5py.Dataset):
        return None
    return None if file[name].external or file[name].is_virtual else file[name]


def _drawn(file: Any) -> tuple[int, int] | None:
    """Sides of the reconstruction in the file, samples and lines, if there is one."""
    for name in ("reconstruction_rss", "reconstruction_esc"):
        if (found := _own(file, name)) is not None and found.ndim == 3:
            return int(found.shape[1]), int(found.shape[2])
    return None


def _header(file: Any, path: Path) -> Header | None:
    found = _own(file, "ismrmrd_header")
    return None if found is None else parse_header(read_text(found, path), path)


def _checked(file: Any, path: Path) -> Any:
    """The data set `kspace` of an open file, if it lies in the file itself and can be read piece by piece."""
    if "kspace" not in file or not isinstance(file["kspace"], h5py.Dataset):
        found = ", ".join(sorted(file)) or "nothing"
        raise DataError(f"{path} has no data set 'kspace' (it holds {found}): fastMRI test files have none either")
    kspace = file["kspace"]
    if _own(file, "kspace") is None:
        raise DataError(f"{path}: kspace lies in another file, and only what is in the file itself is read")
    if kspace.chunks is not None:
        chunk = kspace.dtype.itemsize
        for side in kspace.chunks:
            chunk *= side
        check_unpacked(chunk, path)
        if chunk > MOST:
            raise DataError(
                f"{path}: kspace is stored in chunks of {chunk:,} bytes, and at most {MOST:,} are read at once: "
                "store it in chunks of one slice"
            )
    return kspace


def find_folder(name: str, split: str, root: Root = None) -> Path:
    """The folder of one split: `root/name/train`, `root/train` or fastMRI's own `singlecoil_train`."""
    if split not in FOLDERS:
        raise DataError(f"split {split!r} is not known: train or val")
    base = data_root(root)
    places = [parent / folder for parent in (base / name, base) for folder in FOLDERS[split]]
    for place in places:
        if place.is_dir():
            return place
    raise DataError(
        f"{name} is not here: none of {', '.join(map(str, places))} exists. Give its folder with --data or "
        f"SENSEWISE_DATA; magnitudes become k-space with `sensewise data prepare {name} --images DIR`"
    )


def load_slices(
    name: str,
    split: str,
    size: tuple[int, int],
    root: Root = None,
    *,
    choice: Choice | None = None,
    axis: Axis = "auto",
    coils: int | None = None,
) -> Scenes:
    """Every slice of one split, in file order; arguments as for `read_volume`.

    Args:
        coils: refuse files with another number of coils; None takes any, as long as all have the same.
    """
    folder = find_folder(name, split, root)
    paths = sorted(path for path in folder.iterdir() if path.suffix in (".h5", ".hdf5"))
    if not paths:
        raise DataError(f"{folder} holds no .h5 file")
    parts, sources = [], []
    for path in paths:
        parts.append(read_volume(path, size, choice, axis))
        found = _coils(parts[-1])
        coils = coils or found
        if found != coils:
            raise DataError(
                f"{path} has {found} coils, and {coils} are expected: all files of a data set have the same number, "
                "which `coils` in [mri.data] of the preset says"
            )
        sources += [f"{path.name}:{number}" for number in range(len(parts[-1]))]
    return Scenes(name, split, torch.cat(parts), licence=LICENCES.get(name, ""), sources=tuple(sources))


def _coils(kspace: Tensor) -> int:
    return kspace.shape[1] if kspace.dim() == 4 else 1


def _digests(kspace: Tensor) -> Iterable[str]:
    return (hashlib.sha256(one.contiguous().numpy().tobytes()).hexdigest() for one in kspace)


def check_disjoint(train: Scenes, val: Scenes) -> None:
    """Refuse splits that share a slice: by content, because file names may repeat or change."""
    seen = dict(zip(_digests(train.values), train.sources, strict=True))
    for digest, source in zip(_digests(val.values), val.sources, strict=True):
        if digest in seen:
            raise DataError(
                f"train and val share a file: {seen[digest]} of train is {source} of val. Remove it from one of them"
            )


def load_splits(
    name: str,
    size: tuple[int, int],
    root: Root = None,
    *,
    choice: Choice | None = None,
    axis: Axis = "auto",
    coils: int | None = None,
) -> tuple[Scenes, Scenes]:
    """Train and val, with no slice in both; arguments as for `load_slices`."""
    train = load_slices(name, "train", size, root, choice=choice, axis=axis, coils=coils)
    val = load_slices(name, "val", size, root, choice=choice, axis=axis, coils=coils or _coils(train.values))
    check_disjoint(train, val)
    return train, val


def load_fastmri(split: str, root: Root = None) -> Scenes:
    """The middle slices of fastMRI's single-coil knees, of the size that the paper takes."""
    return load_slices("fastmri", split, SIZE, root)


FASTMRI = Dataset(name="fastmri", title="fastMRI knee slices", licence=LICENCES["fastmri"], load=load_fastmri)
