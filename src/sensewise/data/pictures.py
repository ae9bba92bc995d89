"""Pictures from files and arrays to intensities of one size, with one clear sentence for what cannot be read.

Every picture becomes its middle square, scaled by averaging. Transparency is shown on white, as viewers do; 16-bit
pictures keep their whole range; of an animation the first frame is taken. Only a few common formats are read: the
decoders of all others never see a file.
"""

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from sensewise.data.arrays import load_arrays
from sensewise.errors import DataError

T = TypeVar("T")
MAX_PIXELS = 16_000_000
LARGEST_FILE = 200_000_000  # bytes: the pixels with four channels of 16 bits, not compressed, and some notes
MOST_READS = 400_000  # decoders look for the parts of a file byte by byte: one of 10 MB without any takes many seconds
FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "GIF", "WEBP", "PPM")  # as Pillow calls them; PPM is PGM and PBM as well
_DEEP = {"I;16", "I;16B", "I;16L", "I;16N", "I"}
_LARGEST = {"bool": 1, "uint8": 255, "uint16": 65535}


class _Impatient(io.BufferedReader):
    """A file that may be asked only so often."""

    asked = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.asked += 1
        if self.asked > MOST_READS:
            raise DataError("has far too many parts: it is damaged")
        return super().read(size)


def _intensities(picture: Image.Image, channels: int) -> np.ndarray:
    """A decoded picture as float32 `(H, W, channels)` in [0, 1]."""
    if picture.mode in _DEEP:
        deep = np.asarray(picture).astype(np.float32)
        if deep.min() < 0 or deep.max() > 65535:
            raise DataError("has 32-bit values; save it with 8 or 16 bits")
        return np.repeat(deep[..., None] / 65535, channels, axis=2)
    if picture.mode == "F":
        raise DataError("has floating-point values; save it with 8 or 16 bits, or give an .npy array in [0, 1]")
    if picture.mode in ("LA", "PA", "La", "RGBA", "RGBa") or "transparency" in picture.info:
        solid = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", solid.size, "white"), solid)
    values = np.asarray(picture.convert("L" if channels == 1 else "RGB"), dtype=np.float32) / 255
    return values.reshape(*values.shape[:2], channels)


def find_pictures(folder: Path, pattern: str = "*") -> list[Path]:
    """The files of a folder that are called like pictures, in order; not all of them can be read."""
    suffixes = set(Image.registered_extensions())
    return sorted(path for path in folder.glob(pattern) if path.suffix.lower() in suffixes and path.is_file())


def decode(path: Path, convert: Callable[[Image.Image], T]) -> T:
    """What `convert` makes of a picture file; whatever a decoder can raise becomes one sentence."""
    try:
        if path.exists() and not path.is_file():
            raise DataError("is not a file")  # a pipe would be waited for
        with warnings.catch_warnings(), _Impatient(io.FileIO(path)) as file:
            warnings.simplefilter("ignore")  # a picture with damaged notes is still a picture
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            if (size := path.stat().st_size) > LARGEST_FILE:
                raise DataError(f"has {size:,} bytes, and at most {LARGEST_FILE:,} are read; make it smaller first")
            with Image.open(file, formats=FORMATS) as picture:
                if picture.width * picture.height > MAX_PIXELS:
                    sides = f"{picture.width:,} x {picture.height:,} pixels"
                    raise DataError(f"has {sides}, and at most {MAX_PIXELS:,} in all are read; make it smaller first")
                return convert(picture)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError(f"{path} is far too large: at most {MAX_PIXELS:,} pixels are read; make it smaller") from None
    except DataError as error:
        raise DataError(f"{path} {error}") from None
    except UnidentifiedImageError as error:
        raise DataError(f"{path} is not a picture that can be read; read are {', '.join(FORMATS)}") from error
    except Exception as error:  # a decoder can raise almost anything
        reason = f"{error or type(error).__name__}; read are {', '.join(FORMATS)}"
        raise DataError(f"{path} is not a picture that can be read: {reason}") from error


@dataclass(frozen=True)
class Fitted:
    """A picture made to fit.

    Attributes:
        values: intensities in [0, 1], `(C, H, W)`.
        story: what it was and what was done to it: "512 x 640, 16 bits -> its middle 512 x 512, averaged to 32 x 32".
    """

    values: Tensor
    story: str


def _kind(picture: Image.Image, channels: int) -> str:
    """How a file holds a picture, for people."""
    bits = "16 bits" if picture.mode in _DEEP else "1 bit" if picture.mode == "1" else "8 bits"
    grey = picture.mode in ("1", "L", "LA", "La") or picture.mode in _DEEP
    return bits if grey or channels == 3 else f"colour made grey, {bits}"


def read_fitted(path: Path, shape: tuple[int, int, int]) -> Fitted:
    """A picture file in the shape `(C, H, W)`, for C = 1 (grey) or 3 (colour), and what was done to it."""
    channels, height, width = shape
    if channels not in (1, 3):
        raise DataError(f"pictures have 1 or 3 channels, not {channels}")

    def convert(picture: Image.Image) -> tuple[np.ndarray, str]:
        return _intensities(picture, channels), _kind(picture, channels)

    values, kind = decode(path, convert)
    h, w = values.shape[:2]
    crop_h, crop_w = _middle((h, w), (height, width))
    story = f"{h} x {w}, {kind} -> " + ("" if (crop_h, crop_w) == (h, w) else f"its middle {crop_h} x {crop_w}, ")
    if crop_h != height:
        story += "averaged to " if crop_h > height else "enlarged to "
    fitted = fit(torch.from_numpy(values).movedim(2, 0)[None], shape)[0]
    return Fitted(fitted, f"{story}{height} x {width}")


def read_picture(path: Path, shape: tuple[int, int, int]) -> Tensor:
    """A picture file as intensities `(C, H, W)` in [0, 1], for C = 1 (grey) or 3 (colour)."""
    return read_fitted(path, shape).values


def _middle(size: tuple[int, int], wanted: tuple[int, int]) -> tuple[int, int]:
    """The largest size within another one, in the proportions of a third."""
    (h, w), (height, width) = size, wanted
    return min(h, round(w * height / width) or 1), min(w, round(h * width / height) or 1)


def fit(values: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """The middle of each picture `(n, C, h, w)`, in the wanted proportions, averaged or repeated to `(n, C, H, W)`."""
    _, height, width = shape
    h, w = values.shape[2:]
    crop_h, crop_w = _middle((h, w), (height, width))
    top, left = (h - crop_h) // 2, (w - crop_w) // 2
    square = values[:, :, top : top + crop_h, left : left + crop_w]
    return F.adaptive_avg_pool2d(square, (height, width)).clamp(0, 1)


def read_array(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Images `(n, C, h, w)` and labels `(n,)` or None from an `.npy` or `.npz` file; `scaled` makes them intensities.

    An array is `(n, h, w)`, `(n, h, w, C)` or `(n, C, h, w)` with C = 1 or 3: bool, 8 or 16 bits, or floats in [0, 1].
    An `.npz` file holds `images` and, if they are known, `labels`.
    """
    parts = load_arrays(path, "images")
    if "images" not in parts:
        raise DataError(f"{path} holds {', '.join(parts) or 'nothing'}: the array must be called images")
    images, labels = parts["images"], parts.get("labels")
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim == 4 and images.shape[3] in (1, 3) and images.shape[1] not in (1, 3):
        images = np.moveaxis(images, 3, 1)
    if images.ndim != 4 or images.shape[1] not in (1, 3) or 0 in images.shape:
        raise DataError(f"{path}: images have shape {parts['images'].shape}; (n, h, w) or (n, h, w, 3) is needed")
    if images.shape[2] * images.shape[3] > MAX_PIXELS:
        raise DataError(f"{path}: images of {images.shape[2]:,} x {images.shape[3]:,}; at most {MAX_PIXELS:,} pixels")
    if labels is not None and labels.shape != images.shape[:1]:
        raise DataError(f"{path}: {len(images)} images but labels of shape {labels.shape}")
    if images.dtype.name not in _LARGEST and not np.issubdtype(images.dtype, np.floating):
        raise DataError(f"{path}: images are {images.dtype}; bool, uint8, uint16 or floats in [0, 1] are needed")
    return images, labels


def scaled(images: np.ndarray) -> np.ndarray:
    """Some images of `read_array` as intensities, float32 in [0, 1]."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = images.astype(np.float32)
    values /= _LARGEST.get(images.dtype.name, 1)
    if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1):
        raise DataError("floats must lie in [0, 1]; divide 8-bit values by 255")
    return values
