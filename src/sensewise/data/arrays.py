"""Arrays from `.npy` and `.npz` files. Nothing is ever unpickled, and a small file cannot fill the memory."""

import zipfile
from pathlib import Path

import numpy as np

from sensewise.data.sources import check_unpacked
from sensewise.errors import DataError

ASSETS = Path(__file__).parents[1] / "assets"


def load_arrays(path: Path, alone: str = "array") -> dict[str, np.ndarray]:
    """The arrays of an `.npz` file by name; the one of an `.npy` file has the name `alone`."""
    try:
        with path.open("rb") as stream:  # NumPy leaves a damaged file open
            if zipfile.is_zipfile(stream):
                with zipfile.ZipFile(stream) as archive:
                    check_unpacked(sum(part.file_size for part in archive.infolist()), path)
            stream.seek(0)
            found = np.load(stream, allow_pickle=False)
            parts = {alone: found} if isinstance(found, np.ndarray) else dict(found)
    except DataError:
        raise
    except Exception as error:  # a damaged file can raise almost anything
        raise DataError(f"{path} cannot be read as an array: {error or type(error).__name__}") from error
    if strange := [name for name, part in parts.items() if not isinstance(part, np.ndarray)]:
        raise DataError(f"{path} cannot be read as an array: {strange[0]!r} in it is none")
    return parts


def bundled_arrays(name: str) -> dict[str, np.ndarray]:
    """The arrays of a file that comes with the package."""
    return load_arrays(ASSETS / name)
