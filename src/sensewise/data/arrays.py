"""Arrays from `.npy` and `.npz` files. Nothing is ever unpickled, and a small file cannot fill the memory.

An `.npy` array stays on the disk until it is used. The arrays of an `.npz` file are unpacked into the memory, so there
is a limit to their size. Headers are compared with what is there before anything is unpacked.
"""

import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from sensewise.errors import DataError
from sensewise.files import check_npy, read_npy

ASSETS = Path(__file__).parents[1] / "assets"
LARGEST_UNPACKED = 800_000_000  # bytes of all arrays of an .npz file
LARGEST_NPY = 64_000_000_000  # bytes; never in the memory as a whole
LARGEST_DIRECTORY = 1_000_000  # bytes of the list of parts of an .npz file: a million empty parts take long to list
_END, _END_64, _TAIL = b"PK\x05\x06", b"PK\x06\x07", 22 + 20 + 65_535  # how a ZIP file ends


def load_arrays(path: Path, alone: str = "array") -> dict[str, np.ndarray]:
    """The arrays of an `.npz` file by name; the one of an `.npy` file has the name `alone`."""
    try:
        if path.exists() and not path.is_file():
            raise DataError(f"{path} is not a file")
        with path.open("rb") as stream:
            if stream.read(2) == b"PK":
                return _unpack(stream, path)
        return {alone: read_npy(path, LARGEST_NPY)}
    except DataError:
        raise
    except Exception as error:  # a damaged file can raise almost anything
        raise DataError(f"{path} cannot be read as an array: {error or type(error).__name__}") from error


def _unpack(stream: IO[bytes], path: Path) -> dict[str, np.ndarray]:
    _check_directory(stream)
    with zipfile.ZipFile(stream) as archive:
        parts = archive.infolist()
        if (unpacked := sum(part.file_size for part in parts)) > LARGEST_UNPACKED:
            raise DataError(
                f"{path} would unpack to {unpacked:,} bytes, and at most {LARGEST_UNPACKED:,} are read: "
                "it is damaged, or save the images as .npy"
            )
        return {part.filename.removesuffix(".npy"): _read_part(archive, part) for part in parts}


def _check_directory(stream: IO[bytes]) -> None:
    """Refuse an archive whose list of parts alone would keep the processor busy."""
    stream.seek(0, 2)
    stream.seek(max(0, stream.tell() - _TAIL))
    tail = stream.read()
    end = tail.rfind(_END)
    size = int.from_bytes(tail[end + 12 : end + 16], "little")
    if end < 0 or size > LARGEST_DIRECTORY or _END_64 in tail[max(0, end - 20) : end]:
        raise ValueError("it is damaged, or holds far too many parts")
    stream.seek(0)


def _read_part(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(part) as stream:
        check_npy(stream, part.file_size)
    with archive.open(part) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def bundled_arrays(name: str) -> dict[str, np.ndarray]:
    """The arrays of a file that comes with the package."""
    return load_arrays(ASSETS / name)
