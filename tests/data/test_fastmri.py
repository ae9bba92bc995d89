import h5py
import numpy as np
import pytest
import torch

from sensewise.data import DATASETS, fastmri
from sensewise.data.prepare import write_volume
from sensewise.errors import DataError
from sensewise.kspace import centre_crop, magnitude, to_kspace

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


def header(samples=20, lines=16, readout=10, shown=12, centre=6, last=13, trajectory="cartesian"):
    def size(name, x, y):
        return f"<{name}><matrixSize><x>{x}</x><y>{y}</y><z>1</z></matrixSize></{name}>"

    limits = f"<minimum>0</minimum><maximum>{last}</maximum><center>{centre}</center>"
    return (
        '<?xml version="1.0" encoding="utf-8"?><ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD"><encoding>'
        f"{size('encodedSpace', samples, lines)}{size('reconSpace', readout, shown)}<encodingLimits>"
        f"<kspace_encoding_step_1>{limits}</kspace_encoding_step_1></encodingLimits>"
        f"<trajectory>{trajectory}</trajectory></encoding></ismrmrdHeader>"
    )


def test_middle_slice_and_centre_crop(tmp_path):
    """Without a header: the last axis is phase-encoded, and a readout that is not much longer is not oversampled."""
    k = volume()
    write(tmp_path / "a.h5", kspace=k)
    found = fastmri.read_volume(tmp_path / "a.h5", SIZE)
    assert found.dtype == torch.complex64
    assert torch.equal(found, centre_crop(torch.from_numpy(k[2:3]).transpose(1, 2), *SIZE))
    assert fastmri.read_volume(tmp_path / "a.h5", SIZE, "all").shape == (5, *SIZE)
    turned = fastmri.read_volume(tmp_path / "a.h5", SIZE, axis="rows")
    assert torch.equal(turned, centre_crop(torch.from_numpy(k[2:3]), *SIZE))


def test_prepared_files_have_lines_as_rows(tmp_path):
    write_volume(tmp_path / "a.h5", volume(), acquisition="simulated", independent_slices=True)
    found = fastmri.read_volume(tmp_path / "a.h5", SIZE)
    assert torch.equal(found, centre_crop(torch.from_numpy(volume()), *SIZE))


def picture(lines=16, samples=20):
    """An object that fills the middle half of the readout, k-space as fastMRI stores it: samples x lines."""
    image = torch.zeros(lines, samples, dtype=torch.complex64)
    image[3:9, 6:13] = torch.arange(42).view(6, 7) + 1j
    return image, to_kspace(image).T.contiguous()


@pytest.mark.parametrize("said", ["header", "reconstruction_rss", "reconstruction_esc", "nothing"])
def test_the_axis_and_the_oversampling_of_fastmri(tmp_path, said):
    """Whatever says it, rows are lines, and the image shows the object at its full height."""
    samples = 28 if said == "nothing" else 20
    image, kspace = picture(samples=samples)
    content = {"header": {"ismrmrd_header": header(readout=10)}, "nothing": {}}.get(said, {said: np.zeros((1, 10, 12))})
    write(tmp_path / "a.h5", kspace=kspace[None].numpy(), **content)
    with fastmri.open_volume(tmp_path / "a.h5") as stored:
        found = stored.slice(0, (16, samples // 2))
    middle = centre_crop(image, 16, samples // 2).abs()
    torch.testing.assert_close(magnitude(found.kspace)[0], middle, atol=1e-5, rtol=0)
    assert found.full == found.rows == 16
    assert found.origin == (-2 if said == "header" else 0)
    assert "phase-encode along the columns" in found.done
    assert "oversampling removed" in found.done
    assert found.shown(middle).shape == (16 if said == "nothing" else 12, samples // 2)


def test_a_header_knows_when_lines_are_the_rows(tmp_path):
    image, kspace = picture()
    write(tmp_path / "a.h5", kspace=kspace.T[None].numpy(), ismrmrd_header=header())
    with fastmri.open_volume(tmp_path / "a.h5") as stored:
        assert stored.axis == "rows"
        found = stored.slice(0, (16, 10))
    torch.testing.assert_close(magnitude(found.kspace)[0], centre_crop(image, 16, 10).abs(), atol=1e-5, rtol=0)


def test_line_numbers_are_the_scanners(tmp_path):
    """Places in the file start `centre - lines / 2` before the scanner's line 0."""
    write(tmp_path / "a.h5", kspace=volume(1), ismrmrd_header=header(centre=6))
    with fastmri.open_volume(tmp_path / "a.h5") as stored:
        found = stored.slice(0, (8, 8))
    mask = torch.zeros(8, dtype=torch.bool)
    mask[[0, 4]] = True
    assert found.line_numbers(mask) == [2, 6]  # the middle of the crop is the middle of k-space, line 6
    assert found.full_mask(mask).nonzero()[:, 0].tolist() == [4, 8]


def test_several_coils(tmp_path):
    k = np.stack([volume(seed=seed) for seed in range(3)], axis=1)
    write(tmp_path / "a.h5", kspace=k)
    found = fastmri.read_volume(tmp_path / "a.h5", SIZE)
    assert found.shape == (1, 3, *SIZE)
    single = [fastmri_one(tmp_path, k[:, coil]) for coil in range(3)]
    assert torch.equal(found[0], torch.cat(single))
    write(tmp_path / "one.h5", kspace=k[:, :1])
    assert torch.equal(fastmri.read_volume(tmp_path / "one.h5", SIZE), single[0])


def fastmri_one(folder, kspace):
    write(folder / "coil.h5", kspace=kspace)
    return fastmri.read_volume(folder / "coil.h5", SIZE)


def test_all_files_have_the_same_number_of_coils(tmp_path):
    for number, coils in enumerate((2, 3)):
        write(tmp_path / "train" / f"{number}.h5", kspace=np.stack([volume()] * coils, axis=1))
    with pytest.raises(DataError, match=r"1\.h5 has 3 coils, and 2 are expected"):
        fastmri.load_slices("fastmri", "train", SIZE, tmp_path)
    with pytest.raises(DataError, match=r"0\.h5 has 2 coils, and 1 are expected"):
        fastmri.load_slices("fastmri", "train", SIZE, tmp_path, coils=1)


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
        ({"kspace": volume(columns=11)}, "11 x 10 is smaller than the crop of 12 x 10"),
        ({"kspace": volume(rows=9)}, "16 x 9 is smaller than the crop of 12 x 10"),
        ({"kspace": volume(), "ismrmrd_header": header(samples=40)}, "describes 40 samples x 16 lines, but kspace has"),
        ({"kspace": volume(), "ismrmrd_header": header(trajectory="radial")}, "radial scan has no phase-encode lines"),
        ({"kspace": volume(), "ismrmrd_header": header(centre=99)}, "line limits that do not fit"),
        ({"kspace": volume(), "ismrmrd_header": header(samples="many")}, "no whole number at encoding/encodedSpace"),
        ({"kspace": volume(), "ismrmrd_header": "<xml/>"}, "header has no encoding"),
        ({"kspace": volume(), "ismrmrd_header": "no xml"}, "not valid XML"),
        ({"kspace": volume(), "ismrmrd_header": "<!DOCTYPE a [<!ENTITY b 'c'>]><a/>"}, "defines entities"),
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


def test_huge_chunks_and_slices_are_refused_before_they_are_read(tmp_path):
    """Compressed zeros: a file of a few kilobytes that would unpack to gigabytes."""
    for name, shape, chunks in (
        ("chunk.h5", (400, 640, 640), (400, 640, 640)),
        ("slice.h5", (4, 16384, 16384), (1, 512, 512)),
    ):
        with h5py.File(tmp_path / name, "w") as file:
            file.create_dataset("kspace", shape, np.complex64, chunks=chunks, compression="gzip")
        with pytest.raises(DataError, match="would unpack to"):
            fastmri.read_volume(tmp_path / name, SIZE)
    with h5py.File(tmp_path / "large.h5", "w") as file:
        file.create_dataset("kspace", (400, 640, 640), np.complex64, chunks=(400, 640, 640))
        file["filler"] = np.zeros(8_000_000, np.uint8)
    with pytest.raises(DataError, match="in chunks of one slice"):
        fastmri.read_volume(tmp_path / "large.h5", SIZE)
