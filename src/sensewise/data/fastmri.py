"""Single-coil k-space in the layout of fastMRI: a folder of HDF5 volumes, each with a complex data set `kspace`.

Zbontar et al., "fastMRI: An Open Dataset and Benchmarks for Accelerated MRI", 2018. Its licence forbids passing the
data on, so this is the reader alone. `kspace` has shape slices x rows x columns; a volume gives its middle slice,
unless its attribute `independent_slices` says that it is a pack of unrelated ones (`sensewise data prepare --pack`).
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import torch
from torch import Tensor

from sensewise.data.scenes import Dataset, Root, Scenes
from sensewise.data.sources import check_unpacked, data_root
from sensewise.errors import DataError
from sensewise.kspace import centre_crop

Choice = Literal["middle", "all"]
Axis = Literal["rows", "columns"]
LICENCES = {
    "fastmri": "fastMRI data sharing agreement (NYU Langone Health)",
    "brain-t1": "CC BY 4.0 (J. Cheng, figshare 1512427)",
}
"""Of the data sets of the presets."""
SIZE = (300, 300)  # the paper's centre crop
FOLDERS = {"train": ("train", "singlecoil_train"), "val": ("val", "singlecoil_val")}


def read_volume(path: Path, size: tuple[int, int], choice: Choice | None = None, axis: Axis = "rows") -> Tensor:
    """The slices of one HDF5 file, centre-cropped.

    Args:
        path: of the file.
        size: rows and columns of the crop, phase-encode rows first.
        choice: "middle" or "all" slices; None lets the file's attribute `independent_slices` decide.
        axis: which axis of the file is phase-encoded; "columns" are turned into rows.

    Returns:
        Complex64 k-space, with shape `(n, *size)`.
    """
    try:
        with h5py.File(path, "r") as file:
            kspace = _checked(file, path)
            if choice is None:
                choice = "all" if bool(file.attrs.get("independent_slices", False)) else "middle"
            wanted = slice(None) if choice == "all" else slice(len(kspace) // 2, len(kspace) // 2 + 1)
            check_unpacked(kspace.nbytes // (1 if choice == "all" else len(kspace)), path)
            with np.errstate(over="ignore", invalid="ignore"):
                found = torch.from_numpy(np.asarray(kspace[wanted], dtype=np.complex64))
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except Exception as error:  # a damaged file can raise almost anything
        raise DataError(f"{path} is damaged, cut short or not an HDF5 file: {error}") from error
    found = found.transpose(1, 2) if axis == "columns" else found
    rows, columns = found.shape[1:]
    if rows < size[0] or columns < size[1]:
        raise DataError(f"{path}: k-space of {rows} x {columns} is smaller than the crop of {size[0]} x {size[1]}")
    if not bool(torch.isfinite(torch.view_as_real(found)).all()):
        raise DataError(f"{path}: k-space holds numbers that are not finite")
    if bool((found.abs().amax((1, 2)) == 0).any()):
        raise DataError(f"{path}: a slice of k-space is zero everywhere")
    return centre_crop(found, *size).contiguous()


def _checked(file: Any, path: Path) -> Any:
    """The data set `kspace` of an open file, if it is what it should be."""
    if "kspace" not in file or not isinstance(file["kspace"], h5py.Dataset):
        found = ", ".join(sorted(file)) or "nothing"
        raise DataError(f"{path} has no data set 'kspace' (it holds {found}): fastMRI test files have none either")
    kspace = file["kspace"]
    if not isinstance(file.get("kspace", getlink=True), h5py.HardLink) or kspace.external or kspace.is_virtual:
        raise DataError(f"{path}: kspace lies in another file, and only what is in the file itself is read")
    if kspace.ndim == 4:
        raise DataError(
            f"{path} is multi-coil: kspace has shape {kspace.shape} (slices x coils x rows x columns). "
            "Only the single-coil files are read"
        )
    if kspace.ndim != 3 or 0 in kspace.shape:
        raise DataError(f"{path}: kspace must be slices x rows x columns, got shape {kspace.shape}")
    if kspace.dtype.kind != "c":
        raise DataError(f"{path}: kspace must be complex, got {kspace.dtype}: magnitudes are not k-space")
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
    axis: Axis = "rows",
) -> Scenes:
    """Every slice of one split, in file order; arguments as for `read_volume`."""
    folder = find_folder(name, split, root)
    paths = sorted(path for path in folder.iterdir() if path.suffix in (".h5", ".hdf5"))
    if not paths:
        raise DataError(f"{folder} holds no .h5 file")
    parts, sources = [], []
    for path in paths:
        parts.append(read_volume(path, size, choice, axis))
        sources += [f"{path.name}:{number}" for number in range(len(parts[-1]))]
    return Scenes(name, split, torch.cat(parts), licence=LICENCES.get(name, ""), sources=tuple(sources))


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
    axis: Axis = "rows",
) -> tuple[Scenes, Scenes]:
    """Train and val, with no slice in both."""
    train = load_slices(name, "train", size, root, choice=choice, axis=axis)
    val = load_slices(name, "val", size, root, choice=choice, axis=axis)
    check_disjoint(train, val)
    return train, val


def load_fastmri(split: str, root: Root = None) -> Scenes:
    """The middle slices of fastMRI's single-coil knees, of the size that the paper takes."""
    return load_slices("fastmri", split, SIZE, root)


FASTMRI = Dataset(name="fastmri", title="fastMRI knee slices", licence=LICENCES["fastmri"], load=load_fastmri)
