"""A phantom in a real scanner: k-space that no one simulated, which comes with the package.

Siemens 3 T, gradient echo, 160 x 160, 2 coils, fully sampled, from the PyPI source distribution twixtools 0.24 (MIT
licence), `example_data/gre.dat`. Arrays only, readout oversampling removed; no header data.
"""

from pathlib import Path

import numpy as np
import torch

from sensewise.data.arrays import bundled_arrays
from sensewise.data.scenes import Dataset, Root, Scenes
from sensewise.data.stored import MRSlice
from sensewise.errors import DataError
from sensewise.kspace import centre_crop


def pack_phantom(source: Path, path: Path) -> None:
    """Write the k-space of a Siemens file, slices x coils x lines x samples: how the bundled phantom was made."""
    from sensewise.data.twix import read_twix

    np.savez_compressed(path, kspace=np.asarray(read_twix(source).kspace, np.complex64))


def phantom_slice(size: tuple[int, int]) -> MRSlice:
    """Its only slice, the middle rows and columns of k-space."""
    kspace = torch.from_numpy(bundled_arrays("phantom.npz")["kspace"])  # (1, coils, 160, 160)
    rows, columns = kspace.shape[-2:]
    if size[0] > rows or size[1] > columns:
        raise DataError(f"the phantom has k-space of {rows} x {columns}, less than {size[0]} x {size[1]}")
    done = f"phantom of {kspace.shape[1]} coils, the middle {size[0]} x {size[1]} of {rows} x {columns}"
    return MRSlice(centre_crop(kspace, *size).contiguous(), rows, done=done)


def bundled_phantom(size: tuple[int, int] = (128, 128)) -> Scenes:
    """The phantom as a data set of one slice, k-space `(1, coils, rows, columns)`."""
    return Scenes("phantom", "val", phantom_slice(size).kspace, licence=PHANTOM.licence, sources=("phantom:0",))


def _load(split: str, _root: Root = None) -> Scenes:
    if split != "val":
        raise DataError(f"there is no split {split!r} of the bundled phantom: val is all there is")
    return bundled_phantom()


def _first(count: int | None) -> Scenes:
    return bundled_phantom().bundled(count)


PHANTOM = Dataset(
    name="phantom",
    title="A phantom in a 3 T scanner, 2 coils",
    licence="MIT (twixtools 0.24)",
    load=_load,
    bundled=_first,
)
