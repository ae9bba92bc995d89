"""The same as `test_fuzz.py` for files of scanners and microscopes, masks, lists of lines, checkpoints, the bridge."""

import functools
import json

import numpy as np
import pytest
import tifffile
import torch

from conftest import random_kspace
from fuzzing import Reader, fuzz, join_header, split_header
from sensewise import hub
from sensewise.data.any_picture import read_any
from sensewise.data.kspace_files import read_slice
from sensewise.data.lines import ScanLines, read_lines
from sensewise.data.mnist import bundled_mnist
from sensewise.data.prepare import read_magnitudes
from sensewise.files import read_tensors, write_tensors
from sensewise.instruments.bridge import Bridge
from sensewise.train.fit import Run
from sensewise.train.gradient import FitSettings
from sensewise.train.prior import NetworkSettings, PriorRecipe, PriorSettings
from sensewise.train.processes import Execution, Team
from test_fuzz import AMOUNTS, GENERATOR

ROWS = 12


def write_dicom(folder):
    from data.test_prepare import write_dicom

    write_dicom(folder / "scan.dcm", GENERATOR.integers(1, 200, (20, 18)).astype(np.uint16))


def read_dicom(path):
    check_magnitudes(read_magnitudes(path))
    check_grey(read_any(path))


def nifti_writer(name):
    def write(folder):
        import nibabel

        pixels = GENERATOR.integers(1, 200, (6, 5, 3)).astype(np.int16)
        nibabel.save(nibabel.Nifti1Image(pixels, np.eye(4)), folder / name)

    return write


def check_magnitudes(found):
    assert found.dtype == np.float32
    assert found.ndim == 3
    assert np.isfinite(found).all()


def check_grey(found):
    assert found.values.dtype == np.float32
    assert 0 <= found.values.min() <= found.values.max() <= 1


def write_acquisitions(folder):
    from data.test_ismrmrd import truth, write

    write(folder / "scan.mrd", truth()[1])


def read_kspace(path):
    found = read_slice(path, (8, 6))
    assert found.kspace.shape[-2:] == (8, 6)
    assert torch.view_as_real(found.kspace).isfinite().all()


def write_kspace(folder):
    np.save(folder / "kspace.npy", random_kspace(2).numpy())


def write_tiff(folder):
    tifffile.imwrite(folder / "picture.tif", GENERATOR.random((17, 18)), compression="zlib")


SPM = r"""\*File list
\*Ciao image list
\Data offset: 500
\Data length: 512
\Bytes/pixel: 2
\Samps/line: 16
\Number of lines: 16
\Line Direction: Retrace
\Scan Size: 100 100 nm
\@2:Image Data: S [Height] "Height"
\@2:Z scale: V [Sens. Zsens] (0.0067 V/LSB) 1.0 V
\@2:Z offset: V [Sens. Zsens] (0.0067 V/LSB) 0 V
\*Scanner list
\@Sens. Zsens: V 10.0 nm/V
\*File list end
"""


def write_spm(folder):
    heights = GENERATOR.integers(-99, 99, (16, 16)).astype("<i2")
    (folder / "scan.spm").write_bytes(SPM.replace("\n", "\r\n").encode().ljust(500, b"\0") + heights.tobytes())


def write_mask(folder):
    hub.save_mask(folder, torch.arange(ROWS) % 3 == 0)


def read_mask(path):
    assert hub.load_mask(path, ROWS).shape == (ROWS,)


def write_lines(folder):
    ScanLines((3, 5, 4, 9), 12, 6).write(folder / "lines.txt")


@functools.cache
def training():
    """A tiny training and its settings; its files are read into it again and again."""
    network = NetworkSettings(widths=(8,), blocks=(1,), embedding=8)
    digits = bundled_mnist(4)
    recipe = PriorRecipe(PriorSettings(batch_size=2, network=network, fit=FitSettings(steps=4)), digits, digits)
    return recipe.job(fresh=True), recipe.config()


def run_in(folder):
    job, config = training()
    return Run(job, config, folder, Execution(resume=True), Team())


def write_checkpoint(folder):
    run_in(folder).save()
    (folder / "log.jsonl").write_text('{"step": 0, "seconds": 1.0, "loss": 2.0}\n')


def read_checkpoint(path):
    run = run_in(path.parent)
    run.load()
    assert 0 <= run.step <= run.job.steps
    assert np.isfinite(run.seconds)


def write_checkpoint_header(folder):
    """Without the checksum, which would keep all that is behind it untested."""
    write_checkpoint(folder)
    path = folder / "checkpoint.safetensors"
    tensors, about = read_tensors(path)
    write_tensors(path, tensors, {name: value for name, value in about.items() if name != "crc32"})
    split_header(path)


def read_checkpoint_header(path):
    read_checkpoint(join_header(path, "checkpoint.safetensors"))


def write_request(folder):
    asked = {"do": "begin", "shape": [32, 32], "budget": 0.1, "steps": 2, "prior": "mnist", "policy": "random"}
    (folder / "request.json").write_text(json.dumps(asked))


@functools.cache
def bridge(folder):
    return Bridge(folder)


def read_request(path):
    assert isinstance(json.loads(bridge(path.parent).answer(path.read_bytes())), dict)


READERS = {
    "dicom": ("pydicom", Reader(write_dicom, "scan.dcm", read_dicom)),
    "nifti": ("nibabel", Reader(nifti_writer("a.nii"), "a.nii", lambda p: check_magnitudes(read_magnitudes(p)))),
    "nifti gz": (
        "nibabel",
        Reader(nifti_writer("a.nii.gz"), "a.nii.gz", lambda p: check_magnitudes(read_magnitudes(p))),
    ),
    "ismrmrd": ("ismrmrd", Reader(write_acquisitions, "scan.mrd", read_kspace)),
    "kspace npy": (None, Reader(write_kspace, "kspace.npy", read_kspace)),
    "deep tiff": (None, Reader(write_tiff, "picture.tif", lambda p: check_grey(read_any(p)))),
    "spm": ("AFMReader", Reader(write_spm, "scan.spm", lambda p: check_grey(read_any(p)))),
    "mask npy": (None, Reader(write_mask, "mask.npy", read_mask)),
    "mask txt": (None, Reader(write_mask, "mask.txt", read_mask)),
    "lines": (None, Reader(write_lines, "lines.txt", read_lines)),
    "checkpoint": (None, Reader(write_checkpoint, "checkpoint.safetensors", read_checkpoint)),
    "checkpoint, sealed": (None, Reader(write_checkpoint_header, "header.json", read_checkpoint_header)),
    "log": (None, Reader(write_checkpoint, "log.jsonl", read_checkpoint)),
    "bridge": (None, Reader(write_request, "request.json", read_request)),
}


@pytest.mark.filterwarnings("ignore")  # nibabel, pydicom and tifffile tell of what is odd in a file
@pytest.mark.parametrize("examples", AMOUNTS)
@pytest.mark.parametrize("name", READERS)
def test_a_reader_takes_a_file_or_says_what_is_wrong(name, examples, tmp_path):
    package, reader = READERS[name]
    if package is not None:
        pytest.importorskip(package)
    fuzz(reader, tmp_path, examples)
