import gzip

import numpy as np
import pytest
import torch
from PIL import Image

from sensewise.data import DATASETS, fastmri, load, prepare
from sensewise.errors import DataError
from sensewise.kspace import magnitude


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
    assert torch.equal(train.values, fastmri.load_slices("one", "train", (20, 20), tmp_path).values)


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
    for snr in (0, -1, float("nan"), 1e-300):
        with pytest.raises(DataError, match="snr must be above 0"):
            prepare.prepare("brain", tmp_path, tmp_path, snr=snr)


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "", "..", "a/b"])
def test_a_data_set_stays_in_the_folder_of_all_data_sets(tmp_path, name):
    pictures(tmp_path / "png")
    with pytest.raises(DataError, match="one without folders"):
        prepare.prepare(name, tmp_path / "png", tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_magnitudes_beyond_all_floats_are_refused(tmp_path):
    nibabel = pytest.importorskip("nibabel")
    nibabel.save(nibabel.Nifti1Image(np.full((4, 4, 2), 1e300), np.eye(4)), tmp_path / "scan.nii")
    with pytest.raises(DataError, match="must be finite"):
        prepare.read_magnitudes(tmp_path / "scan.nii")


def test_a_huge_picture_is_refused_before_it_is_decoded(tmp_path):
    Image.new("1", (13_000, 13_000)).save(tmp_path / "huge.png")
    with pytest.raises(DataError, match="at most 16,000,000"):
        prepare.read_magnitudes(tmp_path / "huge.png")


def test_bundled_knee():
    knee = prepare.bundled_knee((64, 64))
    assert knee.values.shape[1:] == (64, 64)
    assert len(knee) >= 2
    assert bool(torch.isfinite(magnitude(knee.values)).all())
    assert len(DATASETS["knee"].bundled(2)) == 2
    assert load("knee", "val").licence == DATASETS["knee"].licence
    with pytest.raises(DataError, match="val is all there is"):
        load("knee", "train")


def test_simulated_coils(tmp_path):
    pictures(tmp_path / "png")
    prepare.prepare("one", tmp_path / "png", tmp_path, snr=float("inf"))
    prepare.prepare("coils", tmp_path / "png", tmp_path, snr=float("inf"), coils=8, pack=2)
    one, _ = fastmri.load_splits("one", (20, 20), tmp_path, coils=1)
    many, _ = fastmri.load_splits("coils", (20, 20), tmp_path, coils=8)
    assert many.values.shape == (3, 8, 20, 20)
    torch.testing.assert_close(magnitude(many.values), magnitude(one.values), atol=1e-4, rtol=1e-4)
    with pytest.raises(DataError, match="has 8 coils, and 1 are expected"):
        fastmri.load_splits("coils", (20, 20), tmp_path, coils=1)
    with pytest.raises(DataError, match="1 to 64 coils"):
        prepare.prepare("many", tmp_path / "png", tmp_path, coils=65)


def test_nifti_files_that_unpack_to_gigabytes(tmp_path):
    """A header that asks for a great deal, and pixels that begin after gigabytes of zeros: both refused at once."""
    nibabel = pytest.importorskip("nibabel")
    image = nibabel.Nifti1Image(np.ones((4, 4, 2), np.float32), np.eye(4))
    nibabel.save(image, tmp_path / "scan.nii")
    content = bytearray((tmp_path / "scan.nii").read_bytes())
    content[42:48] = np.array([4000, 4000, 4000], "<i2").tobytes()
    (tmp_path / "large.nii.gz").write_bytes(gzip.compress(bytes(content) + bytes(10_000_000)))
    with pytest.raises(DataError, match="would unpack to"):
        prepare.read_magnitudes(tmp_path / "large.nii.gz")
    nibabel.save(image, tmp_path / "scan.nii")
    content = bytearray((tmp_path / "scan.nii").read_bytes())
    content[108:112] = np.array([2e9], "<f4").tobytes()
    (tmp_path / "far.nii.gz").write_bytes(gzip.compress(bytes(content) + bytes(10_000_000)))
    with pytest.raises(DataError, match="its pixels begin after 2,000,000,000 bytes"):
        prepare.read_magnitudes(tmp_path / "far.nii.gz")


def test_deflated_and_huge_dicom_files(tmp_path):
    pydicom = pytest.importorskip("pydicom")
    pixels = np.ones((8, 8), np.uint16)
    write_dicom(tmp_path / "scan.dcm", pixels)
    found = pydicom.dcmread(tmp_path / "scan.dcm")
    found.NumberOfFrames = 2_000_000
    found.save_as(tmp_path / "long.dcm")
    with pytest.raises(DataError, match="would unpack to 128,000,000"):
        prepare.read_magnitudes(tmp_path / "long.dcm")
    found = pydicom.dcmread(tmp_path / "scan.dcm")
    found.file_meta.TransferSyntaxUID = pydicom.uid.DeflatedExplicitVRLittleEndian
    found.save_as(tmp_path / "deflated.dcm")
    with pytest.raises(DataError, match="deflated DICOM file"):
        prepare.read_magnitudes(tmp_path / "deflated.dcm")
