"""Pictures at their own size: every kind keeps its values, and what cannot be read is refused in one sentence."""

import numpy as np
import pytest
import tifffile
from PIL import Image

from sensewise.data.any_picture import read_any, scaled_to_grey
from sensewise.errors import DataError

RAMP = np.linspace(0, 1, 20 * 33).reshape(20, 33)


@pytest.mark.parametrize(
    ("suffix", "values", "step", "kind"),
    [
        (".png", (255 * RAMP).round().astype(np.uint8), 1 / 255, "8 bits"),
        (".png", (65535 * RAMP).round().astype(np.uint16), 1 / 65535, "16 bits"),
        (".tif", (65535 * RAMP).round().astype(np.uint16), 1 / 65535, "16 bits"),
        (".tif", (3 * RAMP - 7).astype(np.float32), 1e-6, "float32 values"),
        (".tif", 3 * RAMP - 7, 1e-6, "float64 values"),
        (".tif", (3000 * RAMP).round().astype(np.uint16) + 400, 1 / 3000, "16 bits"),
        (".bmp", (255 * RAMP).round().astype(np.uint8), 1 / 255, "8 bits"),
        (".npy", 5 * RAMP - 2, 1e-6, "float64 values"),
        (".npy", (1000 * RAMP).round().astype(np.int32) - 500, 1e-3, "int32 values"),
    ],
)
def test_values_are_kept(tmp_path, suffix, values, step, kind):
    path = tmp_path / f"picture{suffix}"
    if suffix == ".npy":
        np.save(path, values)
    elif values.dtype == np.float64:
        tifffile.imwrite(path, values)
    else:
        Image.fromarray(values).save(path)
    found = read_any(path)
    assert found.values.dtype == np.float32
    assert found.kind == kind
    np.testing.assert_allclose(found.values, RAMP, atol=step)
    back = found.low + found.values * (found.high - found.low)
    np.testing.assert_allclose(back, values, atol=max(1e-4, step * (found.high - found.low)))


def test_colour_is_made_grey(tmp_path):
    colour = np.stack([(255 * RAMP).astype(np.uint8)] * 3, axis=2)
    Image.fromarray(colour).save(tmp_path / "colour.png")
    found = read_any(tmp_path / "colour.png")
    assert found.kind == "colour made grey, 8 bits"
    np.testing.assert_allclose(found.values, RAMP, atol=1 / 255)


def test_a_picture_of_one_bit(tmp_path):
    Image.fromarray(RAMP > 0.5).save(tmp_path / "bits.png")
    found = read_any(tmp_path / "bits.png")
    assert set(np.unique(found.values)) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.ones((20, 20)), "the same everywhere"),
        (np.zeros((20, 20), np.uint8), "the same everywhere"),
        (np.where(RAMP > 0.9, np.nan, RAMP), "not finite"),
        (RAMP[:10], "at least 16"),
        (RAMP[None, None], "has shape"),
        (RAMP * 1j, "real numbers"),
        (np.zeros(0), "has shape"),
        (np.lib.stride_tricks.as_strided(RAMP, (5000, 4000), (0, 0)), "at most 16,000,000"),
    ],
)
def test_refused(values, words):
    with pytest.raises(DataError, match=words):
        scaled_to_grey(values, "picture")


def test_files_that_are_no_picture(tmp_path):
    for name in ("nothing.png", "nothing.npy", "scan.dcm", "scan.tif"):
        with pytest.raises(DataError, match=name):
            read_any(tmp_path / name)
        (tmp_path / name).write_bytes(b"no picture")
        with pytest.raises(DataError, match=name):
            read_any(tmp_path / name)
