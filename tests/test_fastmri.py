import h5py
import numpy as np
import pytest
import torch
from PIL import Image

from sensewise.data import fastmri, prepare
from sensewise.errors import DataError
from sensewise.mri.kspace import centre_crop, magnitude

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
    assert train.kspace.shape == val.kspace.shape == (1, *SIZE)
    assert train.sources == ("file1000001.h5:0",)
    assert fastmri.load_splits("fastmri", SIZE, tmp_path)[0].split == "train"


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


def pictures(folder, count: int = 3, side: int = 20):
    draw = np.random.default_rng(0)
    for split in ("train", "val"):
        (folder / split).mkdir(parents=True)
        for number in range(count):
            pixels = draw.integers(0, 255, (side, side), np.uint8)
            Image.fromarray(pixels).save(folder / split / f"{number:04d}.png")


@pytest.mark.parametrize("pack", [1, 2, 10])
def test_prepared_pictures_are_read_whole_whatever_the_packing(tmp_path, pack):
    pictures(tmp_path / "png")
    assert prepare.prepare("brain", tmp_path / "png", tmp_path, pack=pack) == {"train": 3, "val": 3}
    train, val = fastmri.load_splits("brain", (20, 20), tmp_path)
    assert len(train) == len(val) == 3
    prepare.prepare("one", tmp_path / "png", tmp_path)
    assert torch.equal(train.kspace, fastmri.load_slices("one", "train", (20, 20), tmp_path).kspace)


def test_simulated_kspace_has_the_magnitude_the_phase_and_the_noise():
    image = torch.zeros(32, 32)
    image[8:24, 8:24] = 2.0
    clean = prepare.simulate(image, float("inf"), torch.Generator().manual_seed(0))
    torch.testing.assert_close(magnitude(clean), image / 2, atol=1e-5, rtol=0)
    hermitian = (clean[1:, 1:].abs() - clean[1:, 1:].abs().flip((0, 1))).abs().max() / clean.abs().max()
    assert hermitian > 0.01  # the phase breaks the symmetry, as in a real scan
    noise = prepare.simulate(image, 10.0, torch.Generator().manual_seed(0)) - clean
    assert abs(noise.real.std() / 0.1 - 1) < 0.1
    assert abs(noise.imag.std() / 0.1 - 1) < 0.1
    again = prepare.simulate(image, 10.0, torch.Generator().manual_seed(0)) - clean
    assert torch.equal(noise, again)


def test_nifti_and_dicom_pixels(tmp_path):
    nibabel = pytest.importorskip("nibabel")
    pixels = np.random.default_rng(0).integers(1, 200, (6, 5, 3)).astype(np.int16)
    nibabel.save(nibabel.Nifti1Image(pixels, np.eye(4)), tmp_path / "scan.nii.gz")
    found = prepare.read_magnitudes(tmp_path / "scan.nii.gz")
    assert np.array_equal(found, np.moveaxis(pixels, 2, 0).astype(np.float32))
    pytest.importorskip("pydicom")
    write_dicom(tmp_path / "scan.dcm", pixels[..., 0].astype(np.uint16))
    assert np.array_equal(prepare.read_magnitudes(tmp_path / "scan.dcm")[0], pixels[..., 0].astype(np.float32))


def write_dicom(path, pixels):
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, MRImageStorage, generate_uid

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = MRImageStorage, generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    data.SOPClassUID, data.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    data.Rows, data.Columns = pixels.shape
    data.SamplesPerPixel, data.PhotometricInterpretation, data.PixelRepresentation = 1, "MONOCHROME2", 0
    data.BitsAllocated, data.BitsStored, data.HighBit = 16, 16, 15
    data.PixelData = pixels.tobytes()
    data.save_as(path)


@pytest.mark.parametrize(("name", "content"), [("a.png", b"no"), ("a.dcm", b"no"), ("a.nii", b"no")])
def test_pictures_that_cannot_be_read(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match="not a picture that can be read"):
        prepare.read_magnitudes(tmp_path / name)
    with pytest.raises(DataError, match="does not exist"):
        prepare.read_magnitudes(tmp_path / f"none-{name}")


def test_prepare_refuses_empty_folders_and_impossible_noise(tmp_path):
    (tmp_path / "train").mkdir()
    with pytest.raises(DataError, match="holds no picture"):
        prepare.prepare("brain", tmp_path, tmp_path)
    with pytest.raises(DataError, match="snr must be above 0"):
        prepare.prepare("brain", tmp_path, tmp_path, snr=0)


def test_bundled_knee():
    knee = prepare.bundled_knee((64, 64))
    assert knee.kspace.shape[1:] == (64, 64)
    assert len(knee) >= 2
    assert bool(torch.isfinite(magnitude(knee.kspace)).all())


@pytest.mark.parametrize(("count", "held"), [(2, 1), (16, 2), (600, 64)])
def test_slices_held_out_for_training_are_the_last_of_the_training_split(count, held):
    kspace = torch.arange(count).view(-1, 1, 1).to(torch.complex64)
    slices = fastmri.Slices("toy", "train", kspace, tuple(map(str, range(count))))
    train, validation = slices.hold_out()
    assert (len(train), len(validation)) == (count - held, held)
    assert train.sources + validation.sources == slices.sources
    assert torch.equal(torch.cat([train.kspace, validation.kspace]), slices.kspace)
