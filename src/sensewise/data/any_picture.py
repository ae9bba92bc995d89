"""One picture at its own size and with all its levels: what an engineer's microscope or camera wrote.

PNG, JPEG, TIFF (8 or 16 bits, floating point), BMP, `.npy` arrays, DICOM and scans of atomic force microscopes. Values
are scaled to [0, 1], and what they were is kept, so that results can be scaled back.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from sensewise.data.arrays import load_arrays
from sensewise.data.pictures import MAX_PIXELS, decode
from sensewise.errors import DataError

DICOM = (".dcm", ".ima")
AFM = (".gwy", ".ibw", ".jpk", ".spm", ".stp", ".top", ".asd", ".h5-jpk")
SMALLEST = 16  # pixels of a side


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
        raw = decode(path, _pixels)
    return scaled_to_grey(raw, str(path))


def _pixels(picture: Image.Image) -> np.ndarray:
    """A decoded picture as it is; palettes and transparency are shown as viewers show them."""
    if picture.mode in ("LA", "PA", "La", "RGBA", "RGBa") or "transparency" in picture.info:
        solid = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", solid.size, "white"), solid).convert("RGB")
    if picture.mode in ("P", "CMYK", "YCbCr", "LAB", "HSV"):
        picture = picture.convert("RGB")
    return np.asarray(picture)


def _dicom(path: Path) -> np.ndarray:
    """The pixels of a DICOM file, its first frame; nothing of its header is kept."""
    try:
        import pydicom
    except ImportError as error:
        raise DataError(f"{path} needs a package that is not installed: pip install 'sensewise[mri]'") from error
    try:
        pixels = np.asarray(pydicom.dcmread(path).pixel_array)
    except Exception as error:  # pydicom has errors of its own
        raise DataError(f"{path} is not a DICOM picture that can be read: {error}") from error
    return pixels[0] if pixels.ndim == 3 and pixels.shape[2] not in (3, 4) else pixels


def _afm(path: Path) -> np.ndarray:
    """The height channel of a scan, read by AFMReader."""
    try:
        from AFMReader import general_loader
    except ImportError as error:
        raise DataError(f"{path} needs a package that is not installed: pip install 'sensewise[afm]'") from error
    try:
        found = general_loader.LoadFile(path, "Height").load()
    except Exception as error:  # AFMReader and its formats have errors of their own
        raise DataError(f"{path} is not a scan that can be read: {error}") from error
    return np.asarray(found[0])


def scaled_to_grey(raw: np.ndarray, name: str) -> GreyPicture:
    """An array `(H, W)` or `(H, W, 3)` as grey intensities.

    Whole numbers of 8 or 16 bits keep their range; all other numbers are scaled so that the smallest is 0 and the
    largest 1.
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
    low, high = (0.0, float(2**bits - 1)) if bits else (float(values.min()), float(values.max()))
    if values.min() == values.max():
        raise DataError(f"{name} is the same everywhere ({values.flat[0]:g}): there is nothing to find out")
    kind = ("colour made grey, " if colour else "") + (f"{bits} bits" if bits else f"{raw.dtype.name} values")
    return GreyPicture(((values - low) / (high - low)).astype(np.float32), low, high, kind)
