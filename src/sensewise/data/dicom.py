"""DICOM: the pixels of a file and nothing of its header. Read with pydicom (the extra `mri`)."""

from pathlib import Path

import numpy as np

from sensewise.data.sources import check_unpacked
from sensewise.errors import DataError
from sensewise.files import check_size

DEFLATED = "1.2.840.10008.1.2.1.99"  # unpacked whole when the file is opened
LARGEST = 400_000_000  # bytes


def read_dicom(path: Path, most: int) -> np.ndarray:
    """The pixels, as the file has them.

    Args:
        most: pixels, of all frames together.
    """
    try:
        import pydicom
    except ImportError as error:
        raise DataError(f"{path} needs a package that is not installed: install the extra `mri`") from error
    try:
        check_size(path, LARGEST)
        if pydicom.filereader.read_file_meta_info(path).get("TransferSyntaxUID") == DEFLATED:
            raise DataError(f"{path} is a deflated DICOM file: save it without compression")
        found = pydicom.dcmread(path)
        sides = (found.get(name, 1) for name in ("Rows", "Columns", "SamplesPerPixel", "NumberOfFrames"))
        check_pixels(int(np.prod([int(side or 1) for side in sides], dtype=np.float64)), path, most)
        return np.asarray(found.pixel_array)
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except DataError:
        raise
    except Exception as error:  # pydicom has errors of its own
        raise DataError(f"{path} is not a picture that can be read: {error}") from error


def check_pixels(pixels: int, path: Path, most: int) -> None:
    """Refuse a volume that its file cannot hold, or that fills the memory."""
    check_unpacked(pixels, path)
    if pixels > most:
        raise DataError(f"{path} has {pixels:,} pixels, and at most {most:,} are read: split it")
