"""One slice from any file of k-space: fastMRI's HDF5, ISMRMRD, Siemens raw data, or an array."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sensewise.data.arrays import load_arrays
from sensewise.data.fastmri import open_volume
from sensewise.data.stored import Axis, MRSlice, Stored
from sensewise.data.twix import read_twix
from sensewise.errors import DataError

SUFFIXES = (".h5", ".hdf5", ".mrd", ".dat", ".npy")


def is_kspace(source: str) -> bool:
    """Whether a file is called like one of k-space; `.npy` is, if it holds complex numbers."""
    path = Path(source)
    if path.suffix.lower() != ".npy":
        return path.suffix.lower() in SUFFIXES
    try:
        return load_arrays(path)["array"].dtype.kind == "c"
    except (DataError, LookupError):  # whoever reads it next says what is wrong
        return False


@contextmanager
def open_kspace(path: str | Path, axis: Axis = "auto") -> Iterator[Stored]:
    """The k-space of a file, by its suffix: `.h5`, `.hdf5` and `.mrd`, `.dat` (Siemens), or `.npy`.

    Args:
        axis: which of the last two axes is phase-encoded; "auto" asks the file. Arrays have lines as rows.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == ".dat":
        yield read_twix(path)
    elif suffix == ".npy":
        yield _read_array(path, axis)
    else:
        with open_volume(path, axis) as stored:
            yield stored


def _read_array(path: Path, axis: Axis) -> Stored:
    if not path.exists():
        raise DataError(f"{path} does not exist")
    parts = load_arrays(path)
    if "array" not in parts:
        raise DataError(f"{path} is an archive: give one array of k-space as .npy")
    kspace = parts["array"]
    kspace = kspace[None] if kspace.ndim == 2 else kspace
    return Stored(path, kspace, axis="rows" if axis == "auto" else axis, why="--axis" if axis != "auto" else "an array")


def read_slice(path: str | Path, size: tuple[int, int], number: int | None = None, axis: Axis = "auto") -> MRSlice:
    """One slice of a file.

    Args:
        path: as for `open_kspace`.
        size: rows and columns of the crop around the centre of k-space, phase-encode rows first.
        number: of the slice, from 0; None for the middle one.
        axis: as for `open_kspace`.
    """
    with open_kspace(path, axis) as stored:
        return stored.slice(len(stored) // 2 if number is None else number, size)
