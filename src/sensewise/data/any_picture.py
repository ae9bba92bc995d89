"""One picture at its own size and with all its levels: what an engineer's microscope or camera wrote.

PNG, JPEG, TIFF (8 or 16 bits, floating point), BMP, `.npy` arrays, DICOM and scans of atomic force microscopes. Values
are scaled to [0, 1], and what they were is kept, so that results can be scaled back.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from sensewise.data.arrays import load_arrays
from sensewise.data.dicom import read_dicom
from sensewise.data.pictures import LARGEST_FILE, MAX_PIXELS, decode
from sensewise.errors import DataError
from sensewise.files import check_size

TIFF = (".tif", ".tiff")
DICOM = (".dcm", ".ima")
AFM = (".gwy", ".ibw", ".jpk", ".spm", ".stp", ".top", ".asd")
HEIGHTS = ("Height", "HeightTrace", "HeightTracee", "height_trace", "measuredHeight_trace", "ZSensor")
SMALLEST = 16  # pixels of a side
LARGEST_SCAN, MOST_HEADER = 50_000_000, 1_000_000  # bytes; some readers make an object of every number


@dataclass(frozen=True)
class GreyPicture:
    """Intensities and what they were before.

    Attributes:
        values: float32 in [0, 1], with shape `(H, W)`.
        low: what 0 stands for.
        high: what 1 stands for.
        kind: how the file holds it, for people: "8 bits", "floating point", "colour, 8 bits".
    """

    values: np.ndarray
    low: float
    high: float
    kind: str


def read_any(path: Path) -> GreyPicture:
    """A picture file as grey intensities at its own size; one sentence for what cannot be read."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        raw = load_arrays(path, "picture")["picture"]
    elif suffix in DICOM:
        raw = _dicom(path)
    elif suffix in AFM:
        raw = _afm(path)
    else:
        raw = _tiff(path) if suffix in TIFF and _is_deep(path) else decode(path, _pixels)
    return scaled_to_grey(raw, str(path))


def _pixels(picture: Image.Image) -> np.ndarray:
    """A decoded picture as it is; palettes and transparency are shown as viewers show them."""
    if picture.mode in ("LA", "PA", "La", "RGBA", "RGBa") or "transparency" in picture.info:
        solid = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", solid.size, "white"), solid).convert("RGB")
    if picture.mode in ("P", "CMYK", "YCbCr", "LAB", "HSV"):
        picture = picture.convert("RGB")
    return np.asarray(picture)


def _is_deep(path: Path) -> bool:
    """Whether a TIFF file holds numbers that Pillow does not know, such as 64-bit ones."""
    try:
        decode(path, np.asarray)
    except DataError as error:
        return isinstance(error.__cause__, UnidentifiedImageError)
    return False


def _tiff(path: Path) -> np.ndarray:
    """The first page of a TIFF file."""
    from tifffile import TiffFile

    if (size := path.stat().st_size) > LARGEST_FILE:
        raise DataError(f"{path} has {size:,} bytes, and at most {LARGEST_FILE:,} are read; make it smaller first")
    try:
        with TiffFile(path) as file:
            page = file.pages.first
            if math.prod(page.shape) > 4 * MAX_PIXELS:
                raise DataError(f"{path} has shape {page.shape}: at most {MAX_PIXELS:,} pixels are read")
            return np.asarray(page.asarray())
    except DataError:
        raise
    except Exception as error:  # a damaged file can raise almost anything
        raise DataError(f"{path} is not a TIFF picture that can be read: {error}") from error


def _dicom(path: Path) -> np.ndarray:
    """The first frame of a DICOM file."""
    pixels = read_dicom(path, MAX_PIXELS)
    return pixels[0] if pixels.ndim == 3 and pixels.shape[2] not in (3, 4) else pixels


def _afm(path: Path) -> np.ndarray:
    """The height channel of a scan, read by AFMReader; makers call it by different names."""
    try:
        from AFMReader import general_loader
        from loguru import logger
    except ImportError as error:
        raise DataError(f"{path} needs a package that is not installed: install the extra `afm`") from error
    logger.disable("AFMReader")
    reasons = []
    try:
        check_size(path, LARGEST_SCAN)
        if path.suffix.lower() == ".spm":
            _check_spm(path)
        for channel in HEIGHTS:
            found, _ = general_loader.LoadFile(path, channel).load()
            if isinstance(found, np.ndarray):
                return found
            reasons.append(str(found))  # a channel that is not there is a message, not an exception
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except DataError:
        raise
    except Exception as error:  # AFMReader and its formats have errors of their own
        raise DataError(f"{path} is not a scan that can be read: {error}") from error
    raise DataError(f"{path} has no channel of heights: {reasons[0]}")


def _check_spm(path: Path) -> None:
    """Refuse a header without an end, which its reader would look for for ever, or with pixels of many bytes."""
    with path.open("rb") as file:
        lines = [line.rstrip().replace(b"\\", b"") for line in file.read(MOST_HEADER).split(b"\n")]
    if b"*File list end" not in lines:
        raise DataError(f"{path} is not a scan that can be read: its header has no end")
    sizes = [line.split(b": ")[1].strip() for line in lines if line.startswith(b"Bytes/pixel: ")]
    if not {*sizes} <= {b"2", b"4", b"8"}:  # its reader takes 256 to this power
        raise DataError(f"{path} is not a scan that can be read: its pixels have neither 2, 4 nor 8 bytes")


def scaled_to_grey(raw: np.ndarray, name: str) -> GreyPicture:
    """An array `(H, W)` or `(H, W, 3)` as grey intensities.

    One or eight bits keep their range; all other numbers, whose range is seldom filled (a camera of 12 bits writes 16),
    are scaled so that the smallest is 0 and the largest 1.
    """
    if raw.dtype.kind not in "biuf":
        raise DataError(f"{name} holds {raw.dtype}: a picture is an array of real numbers")
    colour = raw.ndim == 3 and raw.shape[2] in (3, 4)
    if raw.ndim != 2 and not colour:
        raise DataError(f"{name} has shape {raw.shape}: a picture has shape (H, W), or (H, W, 3) in colour")
    height, width = raw.shape[:2]
    if height * width > MAX_PIXELS or min(height, width) < SMALLEST:
        raise DataError(
            f"{name} has {height:,} x {width:,} pixels: sides of at least {SMALLEST} and at most {MAX_PIXELS:,} pixels "
            "in all are needed"
        )
    values = raw[..., :3].mean(2) if colour else raw.astype(np.float64)
    if not np.isfinite(values).all():
        raise DataError(f"{name} holds numbers that are not finite: replace them first")
    bits = {"bool": 1, "uint8": 8, "uint16": 16}.get(raw.dtype.name)
    low, high = (0.0, float(2**bits - 1)) if bits in (1, 8) else (float(values.min()), float(values.max()))
    if values.min() == values.max():
        raise DataError(f"{name} is the same everywhere ({values.flat[0]:g}): there is nothing to find out")
    kind = ("colour made grey, " if colour else "") + (f"{bits} bits" if bits else f"{raw.dtype.name} values")
    return GreyPicture(((values - low) / (high - low)).astype(np.float32), low, high, kind)
