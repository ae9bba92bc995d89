"""No file takes more than 1 GB or 2 seconds to be refused, however it was made; see `bounded`."""

import gzip
import json
import os
import shutil
import struct
import zipfile
import zlib
from functools import partial

import h5py
import pytest
from PIL import Image

from reliability.bounded import outcome, refused
from sensewise import hub
from sensewise.data import import_images, load, load_imported
from sensewise.data.any_picture import read_any
from sensewise.data.arrays import load_arrays
from sensewise.data.ismrmrd import read_measured
from sensewise.data.kspace_files import read_slice
from sensewise.data.lines import read_lines
from sensewise.data.pictures import read_picture
from sensewise.data.prepare import read_magnitudes
from sensewise.files import read_json, read_tensors

TERABYTE = 10**12


def hole(path, size=TERABYTE, head=b""):
    """A file with a beginning and a hole, which takes no room on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head)
    os.truncate(path, size)
    return path


def npy_header(shape, descr="|u1"):
    header = str({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    return b"\x93NUMPY\x01\x00\x76\x00" + header.ljust(117) + b"\n"


def picture(path):
    return read_picture(path, (1, 24, 24))


def import_one(source):
    return import_images(source, source.parent / "out", size=24, levels=2)


def mnist(path):
    return load("mnist", "test", path.parent)


def cifar10(path):
    return load("cifar10", "test", path.parent)


def slices(path):
    return read_slice(path, (8, 8))


def imported(path):
    return load_imported(path.parent, "train")


def mask(path):
    return hub.load_mask(path, 64)


def model(path):
    return hub.load(path.parent)


def card(path):
    return hub.card(path.parent)


BY_NAME = {
    "picture.png": picture,
    "picture.jpg": picture,
    "picture.ppm": picture,
    "images.npy": import_one,
    "images.npz": import_one,
    "t10k-images-idx3-ubyte": mnist,
    "t10k-images-idx3-ubyte.gz": mnist,
    "test_batch.bin": cifar10,
    "cifar-10-binary.tar.gz": cifar10,
    "dataset.json": imported,
    "mask.npy": mask,
    "mask.txt": mask,
    "config.json": model,
    "any.json": read_json,
    "grey.tif": read_any,
    "grey.npy": read_any,
    "grey.dcm": read_any,
    "grey.gwy": read_any,
    "grey.spm": read_any,
    "magnitudes.nii": read_magnitudes,
    "magnitudes.nii.gz": read_magnitudes,
    "magnitudes.dcm": read_magnitudes,
    "kspace.h5": slices,
    "kspace.mrd": slices,
    "kspace.dat": slices,
    "kspace.npy": slices,
    "measured.mrd": read_measured,
    "lines.txt": read_lines,
    "weights.safetensors": read_tensors,
}


@pytest.mark.parametrize("name", BY_NAME)
def test_a_terabyte_is_refused(name, tmp_path):
    refused(BY_NAME[name], hole(tmp_path / name))


@pytest.mark.parametrize("name", BY_NAME)
def test_a_pipe_is_not_waited_for(name, tmp_path):
    os.mkfifo(tmp_path / name)
    refused(BY_NAME[name], tmp_path / name)


def test_a_scan_whose_header_has_no_end(tmp_path):
    """Its reader looks for the end for ever."""
    pytest.importorskip("AFMReader")
    assert "its header has no end" in refused(read_any, hole(tmp_path / "scan.spm", 10**7))
    (tmp_path / "scan.spm").write_bytes(rb"\*File list" + b"\n")
    assert "its header has no end" in refused(read_any, tmp_path / "scan.spm")
    (tmp_path / "scan.spm").write_bytes(b"Bytes/pixel: 99999999999\n*File list end\n")
    assert "neither 2, 4 nor 8 bytes" in refused(read_any, tmp_path / "scan.spm")


def write_dicom(path, side, content, syntax):
    from pydicom.dataset import FileDataset, FileMetaDataset

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID, meta.TransferSyntaxUID = "1.2", "1.3", syntax
    found = FileDataset(str(path), {}, file_meta=meta, preamble=bytes(128))
    found.Rows = found.Columns = side
    found.SamplesPerPixel, found.PhotometricInterpretation, found.PixelRepresentation = 1, "MONOCHROME2", 0
    found.BitsAllocated, found.BitsStored, found.HighBit = 16, 16, 15
    found.PixelData = content
    found.save_as(path)
    return path


@pytest.mark.parametrize("read", [read_any, read_magnitudes])
def test_scans_that_unpack_to_far_more_than_they_are(read, tmp_path):
    pytest.importorskip("pydicom")
    large = write_dicom(tmp_path / "large.dcm", 65_535, bytes(2), "1.2.840.10008.1.2.1")
    assert "would unpack to 4,294,836,225 bytes" in refused(read, large)
    packed = write_dicom(tmp_path / "packed.dcm", 4000, bytes(300_000_000), "1.2.840.10008.1.2.1.99")
    assert packed.stat().st_size < 10**6
    assert "deflated" in refused(read, packed)


@pytest.mark.parametrize("name", ["t10k-images-idx3-ubyte.gz", "cifar-10-binary.tar.gz", "magnitudes.nii.gz"])
def test_gzip_files_that_unpack_to_three_gigabytes(name, tmp_path):
    """From three megabytes: parts one after another are one file to gzip."""
    header = struct.pack(">IIII", 2051, 10**6, 60, 50) if "idx" in name else b""
    (tmp_path / name).write_bytes(gzip.compress(header) + 60 * gzip.compress(bytes(50_000_000)))
    refused(BY_NAME[name], tmp_path / name)


def test_one_chunk_over_all_slices(tmp_path):
    """To read one of 16 slices, HDF5 would unpack all 2.1 GB."""
    with h5py.File(tmp_path / "kspace.h5", "w") as file:
        shape = (16, 4096, 4096)
        file.create_dataset("kspace", shape, "c8", chunks=shape, compression="gzip")
    assert "chunk" in refused(slices, tmp_path / "kspace.h5")


def test_weights_of_a_terabyte(tmp_path):
    shutil.copy(hub.ASSETS / "mnist" / "config.json", tmp_path)
    assert "at most 1,000,000,000" in refused(model, hole(tmp_path / "weights.safetensors"))


@pytest.mark.parametrize("count", [30_000, 1_000_000])
def test_a_million_empty_tensors(count, tmp_path):
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({format(n, "x"): entry for n in range(count)}).encode()
    path = tmp_path / "weights.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    assert "are read" in refused(read_tensors, path)


def write_zip(path, name, chunks):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive, archive.open(name, "w") as file:
        for chunk in chunks:
            file.write(chunk)


def test_an_array_that_unpacks_to_far_more_than_it_is(tmp_path):
    path = tmp_path / "images.npz"
    write_zip(path, "images.npy", [npy_header((300, 1000, 1000)), *[bytes(10**6)] * 300])
    assert path.stat().st_size < 2_000_000
    # It is read to its end, piece by piece: in float32 it would be 1.2 GB.
    assert "all 300 images are the same" in refused(import_one, path, seconds=3)


def claimed(path, size):
    """An `.npz` file that says that its part has `size` bytes."""
    write_zip(path, "images.npy", [npy_header((size,)), bytes(1000)])
    content = bytearray(path.read_bytes())
    place = content.index(b"PK\x01\x02") + 24
    content[place : place + 4] = struct.pack("<I", size)
    path.write_bytes(content)
    return path


def test_sizes_that_an_archive_claims(tmp_path):
    assert "would unpack to 3,500,000,000" in refused(import_one, claimed(tmp_path / "images.npz", 3_500_000_000))
    assert "its header says" in refused(import_one, claimed(tmp_path / "images.npz", 700_000_000))


def test_a_million_parts(tmp_path):
    path = tmp_path / "images.npz"
    write_zip(path, "a", [b""])
    content = path.read_bytes()
    first, last = content.index(b"PK\x01\x02"), content.index(b"PK\x05\x06")
    listed = content[first:last] * 1_000_000
    end = content[last : last + 12] + struct.pack("<II", len(listed), first) + content[last + 20 :]
    path.write_bytes(content[:first] + listed + end)
    assert "too many parts" in refused(load_arrays, path)


def test_a_small_array_of_very_many_images(tmp_path):
    hole(tmp_path / "images.npy", 128 + 10**9, npy_header((10**9, 1, 1)))
    assert "1,000,000,000 images, and at most" in refused(import_one, tmp_path / "images.npy")


def test_one_image_of_a_gigabyte(tmp_path):
    hole(tmp_path / "images.npy", 128 + 10**9, npy_header((1, 10**5, 10**4)))
    assert "at most 16,000,000 pixels" in refused(import_one, tmp_path / "images.npy")


def test_arrays_larger_than_the_memory_are_read_in_parts(tmp_path):
    hole(tmp_path / "images.npy", 128 + 10**9, npy_header((1000, 1000, 1000)))
    found = outcome(import_one, tmp_path / "images.npy")
    assert "all 1000 images are the same" in found.error
    assert found.memory < 1.3 * 10**9  # the pages of the file, and little else; it takes its time, as any gigabyte does


@pytest.fixture(scope="module")
def large_png(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "large.png"
    Image.new("1", (13_000, 13_000)).save(path)
    return path


def test_a_picture_of_13000_by_13000(large_png):
    assert "at most 16,000,000" in refused(picture, large_png)
    assert "at most 16,000,000" in refused(import_one, large_png.parent)


@pytest.mark.parametrize("mode", ["RGBA", "I;16", "P", "1"])
def test_the_largest_picture_is_read_in_little_memory(mode, tmp_path):
    Image.new(mode, (4000, 4000)).save(tmp_path / "picture.png", compress_level=1)
    found = outcome(partial(read_picture, shape=(3, 24, 24)), tmp_path / "picture.png")
    assert found.error is None
    assert found.memory < 10**9


def chunk(kind, body=b""):
    return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")


ENDLESS = {
    "picture.jpg": b"\xff\xd8" + b"\xff" * 20_000_000,
    "picture.png": b"\x89PNG\r\n\x1a\n"
    + chunk(b"IHDR", b"\0\0\0\x10\0\0\0\x10\x08\0\0\0\0")
    + chunk(b"abCd") * 1_500_000,
    "picture.gif": b"GIF89a\x10\0\x10\0\0\0\0" + b"\x21\xfe\x01a\0" * 5_000_000,
}


@pytest.mark.parametrize("name", ENDLESS)
def test_pictures_that_a_decoder_would_search_for_long(name, tmp_path):
    (tmp_path / name).write_bytes(ENDLESS[name])
    refused(picture, tmp_path / name)


def first_of_each_kind():
    found = {}
    for path in sorted(hub.ASSETS.rglob("config.json")):
        if (path.parent / "weights.safetensors").is_file():
            found.setdefault(json.loads(path.read_text())["kind"], path.parent)
    return found


KINDS = first_of_each_kind()


def spoilt(table, sizes):
    """Every table that has one whole number (or all numbers of a list) replaced, and what was replaced."""
    for key, value in table.items():
        if isinstance(value, dict):
            for name, inner in spoilt(value, sizes):
                yield f"{key}.{name}", {**table, key: inner}
        for size in sizes:
            if isinstance(value, int) and not isinstance(value, bool):
                yield f"{key}={size}", {**table, key: size}
            elif isinstance(value, list) and value and isinstance(value[0], int):
                yield f"{key}=[{size}]", {**table, key: [value[0], *[size] * (len(value) - 1)]}
    if "network" in table and isinstance(table["network"], dict):
        for name in ("patch", "cascades"):
            yield name, {**table, "network": {**table["network"], name: 4000}}


@pytest.mark.parametrize("kind", KINDS)
def test_configs_that_ask_for_too_much(kind, tmp_path):
    config = json.loads((KINDS[kind] / "config.json").read_text())
    (tmp_path / "weights.safetensors").symlink_to(KINDS[kind] / "weights.safetensors")
    tried = 0
    for name, table in spoilt(config["model"], (4000, 16_000)):
        (tmp_path / "config.json").write_text(json.dumps({**config, "model": table}))
        found = outcome(model, tmp_path / "config.json")
        assert found.error is None or found.ours, f"{name}: {found.kind} {found.error}"
        assert found.seconds < 2, f"{name}: {found.seconds:.1f} s, {found.error}"
        assert found.memory < 10**9, f"{name}: {found.memory:,} bytes, {found.error}"
        assert found.error is not None or "16" not in name
        tried += 1
    assert tried > 1


def test_every_kind_of_model_was_tried():
    assert set(KINDS) <= set(hub.KINDS)
    assert len(KINDS) >= 6
