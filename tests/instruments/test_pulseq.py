"""Sequences that play the chosen lines; measured lines back through ISMRMRD."""

import numpy as np
import pytest
import torch

from sensewise.data.ismrmrd import read_measured
from sensewise.data.lines import ScanLines, read_lines
from sensewise.errors import BudgetError, ConfigError, DataError, OutputError

pytest.importorskip("pypulseq")
from sensewise.instruments.ismrmrd import write_scan
from sensewise.instruments.pulseq import GradientEcho, Trajectory, check, read_trajectory, write_sequence

ECHO = GradientEcho(samples=32)


@pytest.mark.parametrize("oversampling", [1, 2])
def test_a_sequence_plays_exactly_the_lines_in_their_order(tmp_path, oversampling):
    echo = GradientEcho(samples=32, oversampling=oversampling)
    lines = ScanLines((20, 21, 19, 36, 5), full=32, middle=21)  # the scanner counts from 5
    found = write_sequence(lines, tmp_path / "scan.seq", echo)
    assert np.round(found.ky.mean(1)).tolist() == [-1, 0, -2, 15, -16]
    assert found.kx.shape == (5, 32 * oversampling)
    np.testing.assert_allclose(
        found.kx[0], (np.arange(32 * oversampling) - 16 * oversampling) / oversampling, atol=1e-3
    )
    assert abs(found.seconds - 5 * echo.tr) < 1e-6
    again = read_trajectory(tmp_path / "scan.seq", echo)
    assert np.array_equal(again.ky, found.ky)
    assert "LIN" in (tmp_path / "scan.seq").read_text()


def test_a_sequence_that_plays_other_lines_is_refused(tmp_path):
    lines = ScanLines((3, 4), full=8, middle=4)
    found = write_sequence(lines, tmp_path / "scan.seq", ECHO)
    with pytest.raises(OutputError, match="does not play the lines"):
        check(found, ScanLines((4, 3), full=8, middle=4))
    with pytest.raises(OutputError, match="does not play the lines"):
        check(Trajectory(found.kx[:1], found.ky[:1], 1.0), lines)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 8}, "16 to 1024 samples"),
        ({"oversampling": 3}, "once or twice"),
        ({"te": 0.02, "tr": 0.01}, "0 < te < tr"),
        ({"fov": 20.0}, "fov is 0.01 to 1 m"),
        ({"te": 0.001}, "too short for 128 samples"),
    ],
)
def test_echoes_that_no_scanner_can_play(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        write_sequence(ScanLines((3, 4), full=8, middle=4), tmp_path / "scan.seq", GradientEcho(**options))
    assert not list(tmp_path.iterdir())


def test_lists_of_lines(tmp_path):
    lines = ScanLines((7, 3, 5), full=8, middle=4)
    lines.write(tmp_path / "mask.txt")
    assert read_lines(tmp_path / "mask.txt") == lines
    (tmp_path / "plain.txt").write_text("3\n4\n")
    assert read_lines(tmp_path / "plain.txt") is None
    for numbers in ((), (3, 3), (8,), (-1,)):
        with pytest.raises(BudgetError):
            ScanLines(numbers, full=8, middle=4)
    (tmp_path / "bad.txt").write_text("# scanner lines, 8 in all, line 4 in the middle\nthree\n")
    with pytest.raises(DataError, match="not a list of line numbers"):
        read_lines(tmp_path / "bad.txt")


def test_measured_lines_come_back(tmp_path):
    pytest.importorskip("ismrmrd")
    draw = torch.Generator().manual_seed(0)
    samples = torch.randn(3, 2, 32, dtype=torch.complex64, generator=draw).numpy()
    write_scan(tmp_path / "scan.h5", [7, 3, 5], samples, full=16, middle=8)
    kspace, seen = read_measured(tmp_path / "scan.h5")
    assert kspace.shape == (1, 2, 16, 32)
    assert np.flatnonzero(seen[0]).tolist() == [3, 5, 7]
    assert np.array_equal(kspace[0][:, [7, 3, 5]].transpose(1, 0, 2), samples)
    assert not kspace[0][:, ~seen[0]].any()
    with pytest.raises(DataError, match="3 lines were measured, but 2"):
        write_scan(tmp_path / "bad.h5", [7, 3], samples, full=16, middle=8)
    (tmp_path / "no.h5").write_text("no")
    with pytest.raises(DataError, match="not an ISMRMRD file"):
        read_measured(tmp_path / "no.h5")
