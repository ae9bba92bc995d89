"""Siemens raw data, arrays, and the bundled phantom."""

import gc
import warnings

import numpy as np
import pytest
import torch

from sensewise.data import DATASETS, bundled_phantom, load
from sensewise.data.arrays import ASSETS
from sensewise.data.kspace_files import is_kspace, read_slice
from sensewise.data.phantom import phantom_slice
from sensewise.errors import DataError
from sensewise.kspace import centre_crop, magnitude


def test_the_phantom_is_what_the_scanner_measured():
    phantom = bundled_phantom((160, 160))
    assert phantom.values.shape == (1, 2, 160, 160)
    energy = phantom.values[0].abs().square().sum((0, 2))
    assert int(energy.argmax()) == 80  # zero frequency in the middle of the lines
    image = magnitude(phantom.values)[0]
    assert image[60:100, 60:100].mean() > 5 * image[:10, :10].mean()  # a disc in air
    assert load("phantom", "val").licence == DATASETS["phantom"].licence == "MIT (twixtools 0.24)"
    with pytest.raises(DataError, match="val is all there is"):
        load("phantom", "train")
    with pytest.raises(DataError, match="160 x 160, less than 300 x 300"):
        phantom_slice((300, 300))


def test_the_phantom_holds_arrays_alone_and_is_small():
    path = ASSETS / "phantom.npz"
    assert path.stat().st_size < 1_000_000
    with np.load(path, allow_pickle=False) as found:
        assert list(found) == ["kspace"]


def test_siemens_files(tmp_path, monkeypatch):
    """A file that is none is refused; the way through the mapping is tried with a scan that looks like twixtools'."""
    twixtools = pytest.importorskip("twixtools")
    (tmp_path / "scan.dat").write_bytes(b"\x00" * 5000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # twixtools leaves a damaged file open
        with pytest.raises(DataError, match="not a Siemens raw data file"):
            read_slice(tmp_path / "scan.dat", (8, 8))
        gc.collect()
    with pytest.raises(DataError, match="does not exist"):
        read_slice(tmp_path / "none.dat", (8, 8))
    kspace = np.random.default_rng(0).normal(size=(1, 1, 1, 12, 2, 10)).astype(np.complex64)

    class Mapped:
        dims, shape, flags = ("Rep", "Par", "Sli", "Lin", "Cha", "Col"), kspace.shape, {"average": {}}

        def __getitem__(self, index):
            return kspace[index]

    mapped = Mapped()
    monkeypatch.setattr(twixtools, "map_twix", lambda path, verbose: [{"image": mapped}])
    found = read_slice(tmp_path / "scan.dat", (12, 10))
    assert torch.equal(found.kspace[0], torch.from_numpy(kspace[0, 0, 0]).transpose(0, 1))
    assert mapped.flags["remove_os"]


def test_arrays(tmp_path):
    kspace = np.random.default_rng(0).normal(size=(3, 12, 10)).astype(np.complex64)
    np.save(tmp_path / "scan.npy", kspace)
    found = read_slice(tmp_path / "scan.npy", (8, 6), number=2)
    assert torch.equal(found.kspace, centre_crop(torch.from_numpy(kspace[2:3]), 8, 6))
    assert is_kspace(str(tmp_path / "scan.npy"))
    np.save(tmp_path / "real.npy", kspace.real)
    assert not is_kspace(str(tmp_path / "real.npy"))
    with pytest.raises(DataError, match="must be complex"):
        read_slice(tmp_path / "real.npy", (8, 6))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "scan.npy").read_bytes()[:500])
    with pytest.raises(DataError, match="cannot be read as an array"):
        read_slice(tmp_path / "cut.npy", (8, 6))
    kspace[1, 2, 3] = np.inf
    np.save(tmp_path / "scan.npy", kspace)
    with pytest.raises(DataError, match="not finite"):
        read_slice(tmp_path / "scan.npy", (8, 6))
