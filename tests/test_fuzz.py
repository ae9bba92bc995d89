"""Every reader with damaged, hostile and random files: it reads them or says what is wrong, soon and in little memory.

A file is a valid one with a few changes (bytes flipped, cut out, repeated, numbers in its header made huge, words of
its text exchanged), or random bytes. `make test` tries 200 of each reader, `make test-slow` 10,000.
"""

import asyncio
import functools
import gzip
import io
import json
import struct
import tarfile
from pathlib import Path
from urllib.parse import quote

import h5py
import httpx
import numpy as np
import pytest
import torch
from PIL import Image

from apps.web_fixtures import write_assets
from conftest import make_absorbing
from fuzzing import Reader, fuzz, join_header, limits, seal_npy, seal_png, sealed, split_header, zipped
from sensewise import Greedy, Session, hub, presets
from sensewise.apps.web.app import create_app
from sensewise.apps.web.recorder import Recorder
from sensewise.data import import_images, load, load_imported
from sensewise.data.fastmri import read_volume
from sensewise.data.pictures import read_array, read_picture, scaled
from sensewise.errors import SensewiseError
from sensewise.evaluate.journal import Journal, join
from sensewise.evaluate.results import Results, read_arrays, read_results
from sensewise.evaluate.rows import Row
from sensewise.files import read_json, read_tensors, write_json
from sensewise.hub import load_prior
from sensewise.policies.starts import RandomProbe
from sensewise.train.prior import PriorSettings
from tiny_runs import PRESET

AMOUNTS = [200, pytest.param(10_000, marks=pytest.mark.slow)]
GENERATOR = np.random.default_rng(0)
TINY = PRESET.format(steps=10, save_minutes=0.0)


# The files, as small as they can be.


def write_idx(folder):
    digits = GENERATOR.integers(0, 255, (2, 28, 28), dtype=np.uint8)
    (folder / "t10k-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, 2, 28, 28) + digits.tobytes())
    (folder / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 2) + b"\x03\x07")


def write_idx_gz(folder):
    write_idx(folder)
    for path in list(folder.iterdir()):
        Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


def write_binary(folder):
    (folder / "test_batch.bin").write_bytes(b"\x03" + bytes(3072))


def write_tar(folder):
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w") as tar:  # not packed, so that changes get through
        for name in ("readme.html", "test_batch.bin"):
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            entry.size = 3073
            tar.addfile(entry, io.BytesIO(b"\x03" + bytes(3072)))


def write_tar_gz(folder):
    write_tar(folder)
    path = folder / "cifar-10-binary.tar.gz"
    path.write_bytes(gzip.compress(path.read_bytes()))


def write_volume(folder, **options):
    with h5py.File(folder / "volume.h5", "w") as file:
        kspace = GENERATOR.normal(size=(2, 8, 6)) + 1j
        file.create_dataset("kspace", data=kspace.astype(np.complex64), **options)
        file.attrs["independent_slices"] = True


@functools.cache
def prior():
    return make_absorbing()


def write_run(folder):
    model = {"shape": [1, 8, 8], "num_states": 2, "num_labels": 10, "network": "unet"}
    sizes = {"widths": [8, 16], "blocks": [1, 1], "embedding": 8}
    config = {"kind": "prior", "model": model | sizes}
    hub.save(folder, config, prior())
    write_json(folder / "config.json", config)  # without the hash, which would keep all that is behind it untested


def session():
    return Session(Greedy(prior()), prior().shape, 12, steps=3, start=RandomProbe())


def write_session(folder):
    begun = session()
    begun.ask()
    begun.save(folder / "session")


def read_session(path):
    resumed = session().restore(path)
    pixels = resumed.ask()
    if pixels is not None:
        resumed.tell(np.ones(len(pixels), np.int64))
    return resumed.reconstruction


def write_run_header(folder):
    write_run(folder)
    split_header(folder / "weights.safetensors")


def read_run_header(path):
    return load_prior(join_header(path, "weights.safetensors").parent)


def write_session_header(folder):
    write_session(folder)
    split_header(folder / "session")


def read_session_header(path):
    return read_session(join_header(path, "session"))


def picture_writer(kind, mode="RGB", **options):
    def write(folder):
        pixels = GENERATOR.integers(0, 255, (5, 6, 4), dtype=np.uint8)
        Image.fromarray(pixels).convert(mode).save(folder / f"picture.{kind}", **options)

    return write


def write_npy(folder):
    np.save(folder / "images.npy", GENERATOR.integers(0, 255, (3, 6, 6), dtype=np.uint8))


def write_npz(folder):
    np.savez(folder / "images.npz", images=GENERATOR.random((3, 6, 6)), labels=np.arange(3))


def write_imported(folder):
    np.save(folder / "pictures.npy", GENERATOR.integers(0, 255, (20, 4, 4), dtype=np.uint8))
    import_images(folder / "pictures.npy", folder / "data", size=24, levels=2)


def check_images(images):
    """What reads without an error is what it should be."""
    assert images.values.dtype == torch.uint8
    assert len(images.shape) == 3
    if len(images):
        assert 1 <= images.values.min() <= images.values.max() <= images.num_states
    if images.labels is not None:
        assert images.labels.dtype == torch.int64
        assert images.labels.shape == images.values.shape[:1]
        assert all(0 <= label < images.num_labels for label in images.labels.tolist())


def read_mnist(path):
    check_images(load("mnist", "test", path.parent))


def read_cifar10(path):
    check_images(load("cifar10", "test", path.parent))


def read_imported(path):
    check_images(load_imported(path.parent, "train"))


def check_values(values, shape):
    assert values.shape[1:] == shape
    assert np.isfinite(values).all()
    assert 0 <= values.min() <= values.max() <= 1


def write_preset(folder):
    (folder / "own.toml").write_text(TINY)


def write_results(folder):
    row = Row("mnist", "random", 4, 0.1, 0.1, "errors", 2.0, 0.7, 16, 2, prior="on-policy")
    arrays = {"x": np.zeros((2, 2)), "y": np.ones(3)}
    weights = {"on-policy": "0" * 8}
    Results("mnist-sequential", "cpu", "mnist", [row], weights, ["A note."], arrays).write(folder / "results.json")


ORIGIN = {"experiment": "tiny", "code": "1"}


def write_journal(folder):
    journal = Journal(folder / "tiny.partial.jsonl", ORIGIN)
    for key, value in {"a": {"errors": 1.5}, '["b", 2]': {"errors": 2.0}}.items():
        journal.recall(key, lambda value=value: value)


def read_journal(path):
    join([path, path], path.with_name("joined"))
    journal = Journal(path, ORIGIN)
    value = journal.recall("a", lambda: {"errors": 1.5})
    assert sum(value.values()) + journal.seconds_before is not None


@functools.cache
def app(folder):
    return create_app(Recorder(write_assets(folder)))


def ask_server(path, method, address, **options):
    """A request to the server of the folder; what the server does not handle is raised here."""

    async def ask():
        transport = httpx.ASGITransport(app(path.parent))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, address, **options)

    answer = asyncio.run(ask())
    assert answer.is_success or answer.is_client_error
    return answer


def poster(address):
    kind = {"Content-Type": "application/json"}
    return lambda path: ask_server(path, "POST", address, content=path.read_bytes(), headers=kind)


def read_query(path):
    return ask_server(path, "GET", "/api/images?" + quote(path.read_bytes()[:2000], safe="=&"))


def write_order(folder):
    order = {"prior": "colours", "tokens": "AQgB" * 64, "label": None, "budget": 0.1, "steps": 2, "policy": "greedy"}
    write_json(folder / "order.json", order | {"seed": 1})


def write_pixel(folder):
    order = {"prior": "mnist", "image": 3, "label": 0, "budget": 0.1, "steps": 2, "policy": "greedy"}
    write_json(folder / "order.json", order | {"row": 3, "column": 4})


def write_query(folder):
    (folder / "query").write_text("prior=mnist&first=12")


def read_grey(path):
    check_values(read_picture(path, (1, 8, 8)).numpy(), (8, 8))


def read_colour(path):
    check_values(read_picture(path, (3, 8, 8)).numpy(), (8, 8))


def read_images(path):
    images, _ = read_array(path)
    check_values(scaled(images), images.shape[1:])


PICTURES = {
    "png": Reader(picture_writer("png"), "picture.png", read_grey),
    "png, sealed": Reader(picture_writer("png", "RGBA"), "picture.png", sealed(seal_png, read_colour)),
    "png, palette": Reader(picture_writer("png", "P"), "picture.png", sealed(seal_png, read_grey)),
    "gif": Reader(picture_writer("gif", "P"), "picture.gif", read_grey),
    "tiff": Reader(picture_writer("tiff"), "picture.tiff", read_colour),
    "bmp": Reader(picture_writer("bmp"), "picture.bmp", read_grey),
    "jpeg": Reader(picture_writer("jpeg"), "picture.jpeg", read_colour),
    "webp": Reader(picture_writer("webp"), "picture.webp", read_colour),
    "ppm": Reader(picture_writer("ppm"), "picture.ppm", read_grey),
}
READERS = PICTURES | {
    "idx images": Reader(write_idx, "t10k-images-idx3-ubyte", read_mnist),
    "idx labels": Reader(write_idx, "t10k-labels-idx1-ubyte", read_mnist),
    "idx gz": Reader(write_idx_gz, "t10k-images-idx3-ubyte.gz", read_mnist),
    "cifar binary": Reader(write_binary, "test_batch.bin", read_cifar10),
    "cifar tar": Reader(write_tar, "cifar-10-binary.tar.gz", read_cifar10),
    "cifar tar gz": Reader(write_tar_gz, "cifar-10-binary.tar.gz", read_cifar10),
    "hdf5": Reader(write_volume, "volume.h5", lambda p: read_volume(p, (6, 6))),
    "hdf5, packed": Reader(
        lambda folder: write_volume(folder, compression="gzip", chunks=(1, 8, 6)),
        "volume.h5",
        lambda p: read_volume(p, (6, 6), axis="rows"),
    ),
    "config": Reader(write_run, "config.json", lambda p: load_prior(p.parent)),
    "weights": Reader(write_run, "weights.safetensors", lambda p: load_prior(p.parent)),
    "weights, sealed": Reader(write_run_header, "header.json", read_run_header),
    "tensors": Reader(write_session, "session", read_tensors),
    "json": Reader(write_run, "config.json", read_json),
    "session": Reader(write_session, "session", read_session),
    "session, sealed": Reader(write_session_header, "header.json", read_session_header),
    "npy": Reader(write_npy, "images.npy", read_images),
    "npz": Reader(write_npz, "images.npz", read_images),
    "npy, sealed": Reader(write_npy, "images.npy", sealed(seal_npy, read_images)),
    "npz, sealed": Reader(write_npy, "images.npy", sealed(zipped, read_images)),
    "imported json": Reader(write_imported, "data/dataset.json", read_imported),
    "imported npz": Reader(write_imported, "data/images.npz", read_imported),
    "preset": Reader(write_preset, "own.toml", lambda p: presets.load(p, "prior.imported.mixed", PriorSettings)),
    "results": Reader(write_results, "results.json", read_results),
    "results npz": Reader(write_results, "results.npz", read_arrays),
    "journal": Reader(write_journal, "tiny.partial.jsonl", read_journal),
    "http order": Reader(write_order, "order.json", poster("/api/acquire")),
    "http pixel": Reader(write_pixel, "order.json", poster("/api/pixel")),
    "http animation": Reader(write_order, "order.json", poster("/api/animation.gif")),
    "http query": Reader(write_query, "query", read_query),
}


@pytest.mark.parametrize("examples", AMOUNTS)
@pytest.mark.parametrize("name", READERS)
def test_a_reader_takes_a_file_or_says_what_is_wrong(name, examples, tmp_path):
    fuzz(READERS[name], tmp_path, examples)


def bomb():
    return bytes(70_000_000)  # packs to a thousandth


def packed_tar():
    """A header that says how long its own text is."""
    entry = tarfile.TarInfo("test_batch.bin")
    entry.type, entry.size = tarfile.XHDTYPE, 2_000_000_000
    return gzip.compress(entry.tobuf() + bomb(), 1)


def empty_volume():
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file.create_dataset("kspace", (1, 30_000, 30_000), np.complex64, chunks=(1, 100, 100))
    return buffer.getvalue()


def blank_png():
    buffer = io.BytesIO()
    Image.new("1", (5000, 5000)).save(buffer, "png")
    return buffer.getvalue()


def npy(shape):
    """The header of an array of bytes."""
    header = str({"descr": "|u1", "fortran_order": False, "shape": shape}).encode()
    return b"\x93NUMPY\x01\x00\x76\x00" + header.ljust(117) + b"\n"


def config(**sizes):
    model = {"shape": [1, 8, 8], "num_states": 2, "num_labels": 10, "network": "unet"}
    return json.dumps({"kind": "prior", "model": model | {"widths": [8], "blocks": [1]} | sizes}).encode()


HOSTILE = {
    "zeros in gzip": ("idx gz", lambda: gzip.compress(bomb(), 1), "unpack to more than"),
    "a header of 2 GB": ("cifar tar gz", packed_tar, "is damaged"),
    "an array of 3.5 GB in zip": ("npz", lambda: zipped(npy((3500, 1000, 1000)) + bomb()), "its header says"),
    "an array of 2 TB": ("npy", lambda: npy((2000, 1000, 1_000_000)), "cannot be read as an array"),
    "chunks that are not there": ("hdf5", empty_volume, "would unpack to"),
    "a blank picture": ("png", blank_png, "at most 16,000,000"),
    "wide layers": ("config", lambda: config(widths=[3_000]), "far larger than"),
    "many layers": ("config", lambda: config(blocks=[4000]), "far larger than"),
    "a billion layers": ("config", lambda: config(blocks=[10**9]), "at most 4,096 is allowed"),
    "a picture of 16,000 x 16,000": ("config", lambda: config(shape=[1, 16_000, 16_000]), "at most 4,096 is allowed"),
    "deep JSON": ("json", lambda: b"[" * 100_000, "recursion"),
    "deep TOML": ("preset", lambda: b"a = " + b"[" * 900, "recursion"),
    "a long chain of keys": ("preset", lambda: b"a." * 14_000 + b"a = 1", "1,000 in a line"),
    "a number beyond all floats": (
        "preset",
        lambda: TINY.replace("0.5", "9" * 400).encode(),
        "must be a finite number",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused(name, tmp_path):
    kind, make, message = HOSTILE[name]
    reader = READERS[kind]
    reader.write(tmp_path)
    (tmp_path / reader.file).write_bytes(make())
    with limits(), pytest.raises(SensewiseError, match=message):
        reader.read(tmp_path / reader.file)
