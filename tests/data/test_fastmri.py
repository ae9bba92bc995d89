import h5py
import numpy as np
import pytest
import torch

from sensewise.data import DATASETS, fastmri
from sensewise.errors import DataError
from sensewise.kspace import centre_crop

SIZE = (12, 10)


def volume(slices: int = 5, rows: int = 20, columns: int = 16, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    shape = (slices, rows, columns)
    return (draw.normal(size=shape) + 1j * draw.normal(size=shape)).astype(np.complex64)


def write(path, **content):
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, value in content.items():
            file[name] = value


def test_middle_slice_and_centre_crop(tmp_path):
    k = volume()
    write(tmp_path / "a.h5", kspace=k, reconstruction_esc=np.zeros((5, 4, 4)), ismrmrd_header=b"<xml/>")
    found = fastmri.read_volume(tmp_path / "a.h5", SIZE)
    assert found.dtype == torch.complex64
    assert torch.equal(found, centre_crop(torch.from_numpy(k[2:3]), *SIZE))
    assert fastmri.read_volume(tmp_path / "a.h5", SIZE, "all").shape == (5, *SIZE)
    turned = fastmri.read_volume(tmp_path / "a.h5", (10, 12), axis="columns")
    assert torch.equal(turned, centre_crop(torch.from_numpy(k[2:3]).transpose(1, 2), 10, 12))


@pytest.mark.parametrize("folders", [("train", "val"), ("singlecoil_train", "singlecoil_val")])
@pytest.mark.parametrize("inside", ["", "fastmri"])
def test_folders_of_fastmri(tmp_path, folders, inside, monkeypatch):
    for number, folder in enumerate(folders):
        write(tmp_path / inside / folder / "file1000001.h5", kspace=volume(seed=number))
    monkeypatch.setenv("SENSEWISE_DATA", str(tmp_path))
    train, val = fastmri.load_splits("fastmri", SIZE)
    assert train.values.shape == val.values.shape == (1, *SIZE)
    assert train.sources == ("file1000001.h5:0",)
    assert fastmri.load_splits("fastmri", SIZE, tmp_path)[0].split == "train"
    assert val.licence == DATASETS["fastmri"].licence


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"other": np.zeros(3)}, "no data set 'kspace'"),
        ({"kspace": np.zeros((5, 20, 16), np.float32)}, "must be complex"),
        ({"kspace": volume(rows=11)}, "11 x 16 is smaller than the crop of 12 x 10"),
        ({"kspace": np.zeros((5, 2, 20, 16), np.complex64)}, "multi-coil"),
        ({"kspace": np.zeros((20, 16), np.complex64)}, "slices x rows x columns"),
        ({"kspace": np.zeros((5, 20, 16), np.complex64)}, "zero everywhere"),
        ({"kspace": np.full((5, 20, 16), np.nan, np.complex64)}, "not finite"),
    ],
)
def test_bad_files_are_named(tmp_path, content, message):
    write(tmp_path / "bad.h5", **content)
    with pytest.raises(DataError, match=message) as error:
        fastmri.read_volume(tmp_path / "bad.h5", SIZE)
    assert "bad.h5" in str(error.value)


def test_truncated_missing_and_foreign_files(tmp_path):
    write(tmp_path / "whole.h5", kspace=volume(20))
    content = (tmp_path / "whole.h5").read_bytes()
    for length in (len(content) // 2, 10, 0):
        (tmp_path / "cut.h5").write_bytes(content[:length])
        with pytest.raises(DataError, match="cut short"):
            fastmri.read_volume(tmp_path / "cut.h5", SIZE)
    (tmp_path / "text.h5").write_text("not HDF5")
    with pytest.raises(DataError, match="not an HDF5 file"):
        fastmri.read_volume(tmp_path / "text.h5", SIZE)
    with pytest.raises(DataError, match="does not exist"):
        fastmri.read_volume(tmp_path / "none.h5", SIZE)


def test_empty_and_missing_folders(tmp_path):
    with pytest.raises(DataError, match="fastmri is not here"):
        fastmri.load_slices("fastmri", "train", SIZE, tmp_path)
    (tmp_path / "train").mkdir()
    with pytest.raises(DataError, match=r"holds no \.h5 file"):
        fastmri.load_slices("fastmri", "train", SIZE, tmp_path)
    with pytest.raises(DataError, match="train or val"):
        fastmri.load_slices("fastmri", "test", SIZE, tmp_path)


def test_train_and_val_must_not_share_a_file(tmp_path):
    for split, name in (("train", "a.h5"), ("val", "renamed.h5")):
        write(tmp_path / split / name, kspace=volume())
    write(tmp_path / "train" / "b.h5", kspace=volume(seed=1))
    with pytest.raises(DataError, match=r"share a file: a\.h5:0 of train is renamed\.h5:0 of val"):
        fastmri.load_splits("fastmri", SIZE, tmp_path)


def test_links_to_other_files_are_refused(tmp_path):
    """A volume could show the bytes of any file on this machine."""
    write(tmp_path / "other.h5", kspace=volume())
    (tmp_path / "secret").write_bytes(b"x" * 8 * 5 * 20 * 16)
    with h5py.File(tmp_path / "external-link.h5", "w") as file:
        file["kspace"] = h5py.ExternalLink("other.h5", "/kspace")
    with h5py.File(tmp_path / "external-storage.h5", "w") as file:
        external = [(tmp_path / "secret", 0, h5py.h5f.UNLIMITED)]
        file.create_dataset("kspace", (5, 20, 16), np.complex64, external=external)
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        layout = h5py.VirtualLayout((5, 20, 16), np.complex64)
        layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "kspace", (5, 20, 16))
        file.create_virtual_dataset("kspace", layout)
    for name in ("external-link", "external-storage", "virtual"):
        with pytest.raises(DataError, match="only what is in the file itself is read"):
            fastmri.read_volume(tmp_path / f"{name}.h5", SIZE)
