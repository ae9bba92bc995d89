"""Raw ISMRMRD acquisitions, written by the ismrmrd package and read with h5py alone."""

import h5py
import numpy as np
import pytest
import torch

from sensewise.data.kspace_files import read_slice
from sensewise.errors import DataError
from sensewise.kspace import centre_crop, magnitude, to_kspace

ismrmrd = pytest.importorskip("ismrmrd")
COILS, LINES, SAMPLES = 2, 12, 16
HEADER = """<?xml version="1.0"?><ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD"><experimentalConditions>
<H1resonanceFrequency_Hz>1</H1resonanceFrequency_Hz></experimentalConditions><encoding><encodedSpace><matrixSize>
<x>{samples}</x><y>12</y><z>1</z></matrixSize><fieldOfView_mm><x>2</x><y>1</y><z>1</z></fieldOfView_mm></encodedSpace>
<reconSpace><matrixSize><x>8</x><y>10</y><z>1</z></matrixSize><fieldOfView_mm><x>1</x><y>1</y><z>1</z></fieldOfView_mm>
</reconSpace><encodingLimits><kspace_encoding_step_1><minimum>0</minimum><maximum>11</maximum><center>6</center>
</kspace_encoding_step_1></encodingLimits><trajectory>cartesian</trajectory></encoding></ismrmrdHeader>"""


def truth():
    """Images of two coils; the object fills the middle half of the readout."""
    image = torch.zeros(COILS, LINES, SAMPLES, dtype=torch.complex64)
    image[0, 2:9, 5:11] = torch.arange(42).view(7, 6) + 2j
    image[1] = 0.5j * image[0]
    return image, to_kspace(image)


def write(path, kspace, lines=range(LINES), samples=SAMPLES, coils=COILS, change=None):
    with_noise = [None, *lines]
    file = ismrmrd.Dataset(str(path), "dataset", create_if_needed=True)
    file.write_xml_header(HEADER.format(samples=samples).encode())
    for line in with_noise:
        channels = coils + 1 if change == line and change is not None else coils
        one = ismrmrd.Acquisition()
        one.resize(SAMPLES, channels)
        one.center_sample = SAMPLES // 2
        if line is None:
            one.set_flag(ismrmrd.ACQ_IS_NOISE_MEASUREMENT)
            one.data[:] = 99
        else:
            one.idx.kspace_encode_step_1 = line
            one.data[:] = np.concatenate([kspace[:, line].numpy()] * 2)[:channels]
        file.append_acquisition(one)
    file.close()


def test_numbers_that_are_too_large_to_add_up(tmp_path):
    _, kspace = truth()
    write(tmp_path / "scan.mrd", torch.full_like(kspace, 3e38))
    with pytest.raises(DataError, match="not finite, or too large"):
        read_slice(tmp_path / "scan.mrd", (LINES, SAMPLES // 2))


def test_acquisitions_become_rows_whatever_their_order(tmp_path):
    image, kspace = truth()
    write(tmp_path / "scan.mrd", kspace, lines=reversed(range(LINES)))
    found = read_slice(str(tmp_path / "scan.mrd"), (LINES, SAMPLES // 2))
    assert found.kspace.shape == (1, COILS, LINES, SAMPLES // 2)
    middle = centre_crop(image, LINES, SAMPLES // 2)
    torch.testing.assert_close(magnitude(found.kspace)[0], middle.abs().square().sum(0).sqrt(), atol=1e-5, rtol=1e-5)
    assert found.shown(middle).shape == (COILS, 10, 8)
    assert found.origin == 0
    assert "ISMRMRD" in found.done


def test_a_line_measured_twice_is_averaged(tmp_path):
    _, kspace = truth()
    write(tmp_path / "once.h5", kspace)
    write(tmp_path / "twice.h5", kspace, lines=[*range(LINES), 3, 3])
    once, twice = (read_slice(tmp_path / name, (8, 8)).kspace for name in ("once.h5", "twice.h5"))
    torch.testing.assert_close(once, twice)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lines": [0, 1, 2]}, "undersampled: 9 lines are missing"),
        ({"samples": 12}, "has 12 samples per line, but acquisition 1 has 16"),
        ({"samples": 60000}, "far more than the file holds|has 60000 samples"),
        ({"change": 4}, "2 to 3 coils, and all must have the same"),
        ({"lines": []}, "no imaging acquisition"),
    ],
)
def test_scans_that_cannot_be_used(tmp_path, options, message):
    write(tmp_path / "bad.h5", truth()[1], **options)
    if options.get("samples") == 60000:
        with h5py.File(tmp_path / "bad.h5", "a") as file:
            file["dataset/xml"][0] = HEADER.format(samples=60000).replace("<y>12<", "<y>60000<").encode()
        message = "far more than the file holds"
    with pytest.raises(DataError, match=message):
        read_slice(tmp_path / "bad.h5", (8, 8))


def test_lines_that_the_header_does_not_have(tmp_path):
    _, kspace = truth()
    write(tmp_path / "bad.h5", kspace)
    with h5py.File(tmp_path / "bad.h5", "a") as file:
        table = file["dataset/data"][:]
        table["head"]["idx"]["kspace_encode_step_1"][5] = 40
        file["dataset/data"][:] = table
    with pytest.raises(DataError, match="12 lines with line 6 in the middle, but the acquisitions are lines 0 to 40"):
        read_slice(tmp_path / "bad.h5", (8, 8))


@pytest.mark.parametrize("damaged", ["xml", "data"])
def test_damaged_lengths_do_not_fill_the_memory(tmp_path, damaged):
    """HDF5 would set aside as many bytes as a damaged length says, before it finds that they are not there."""
    path = tmp_path / "bad.h5"
    write(path, truth()[1])
    with h5py.File(path) as file:
        found = file[f"dataset/{damaged}"].id
        if damaged == "xml":
            place = found.get_offset()
        else:
            kind = found.get_type()
            place = found.get_chunk_info(3).byte_offset + kind.get_member_offset(kind.get_member_index(b"data"))
    content = bytearray(path.read_bytes())
    content[place : place + 4] = (2**31 - 1).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"2,147,483,647 (characters|numbers)"):
        read_slice(path, (8, 8))


def test_compressed_tables_are_refused(tmp_path):
    write(tmp_path / "scan.h5", truth()[1])
    with h5py.File(tmp_path / "scan.h5", "a") as file:
        table = file["dataset/data"]
        dtype, values = table.dtype, table[:]
        del file["dataset/data"]
        file["dataset"].create_dataset("data", data=values, dtype=dtype, chunks=(1,), compression="gzip")
    with pytest.raises(DataError, match="store it without filters"):
        read_slice(tmp_path / "scan.h5", (8, 8))
