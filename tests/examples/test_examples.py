"""Every example runs, as a person would run it."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from sensewise.hub import ASSETS

FOLDER = Path(__file__).parents[2] / "examples"
ARGUMENTS = {
    "quickstart.py": ([], "102 of 1024 pixels read"),
    "real_sensor.py": ([], "102 pixels read"),
    "own_data.py": (["--steps", "2", "--images", "40"], "report.html"),
    "kspace_mask.py": (["--draws", "4"], "32 of 128 rows"),
    "fastmri_file.py": ([], "oversampling removed: 320 samples"),
    "gym_agents.py": (["--images", "2", "--budget", "0.005"], "fewer wrong pixels"),
    "micromanager_scan.py": ([], "230 of 2304 fields of view"),
    "bluesky_scan.py": (["20"], "60 of 400 points"),
}
EXTRAS = {"bluesky_scan.py": "bluesky_adaptive", "micromanager_scan.py": "pymmcore_plus"}
SLOW = {"scan_loop.py": (["--steps", "1"], "32 of 128 lines in 2 sequences: NMSE 0.00")}
NEEDS_WEIGHTS = {"quickstart.py", "real_sensor.py", "gym_agents.py"}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_example(name, tmp_path, capsys, monkeypatch):
    if name in NEEDS_WEIGHTS and not (ASSETS / "mnist" / "weights.safetensors").is_file():
        pytest.skip("the bundled weights are not in this checkout")
    if name in EXTRAS:
        pytest.importorskip(EXTRAS[name])
    arguments, expected = ARGUMENTS[name]
    extra = ["--out", str(tmp_path)] if name in ("own_data.py", "kspace_mask.py", "fastmri_file.py") else []
    monkeypatch.setattr(sys, "argv", [str(FOLDER / name), *arguments, *extra])
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    assert expected in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.slow
def test_the_adaptive_scan_stops_when_the_picture_is_good_enough(capsys, monkeypatch):
    """64 x 64 positions of ophyd-async's own simulator: fewer than 15% are read, and 30 dB are kept."""
    pytest.importorskip("bluesky_adaptive")
    monkeypatch.setattr(sys, "argv", ["bluesky_scan.py"])
    runpy.run_path(str(FOLDER / "bluesky_scan.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "good enough" in printed
    read, reached = int(re.search(r"(\d+) of 4096", printed)[1]), float(re.search(r"([\d.]+) dB, ", printed)[1])
    assert read < 0.15 * 64 * 64
    assert reached > 30


@pytest.mark.slow
def test_the_scan_loop(tmp_path, capsys, monkeypatch):
    """Sequences out, k-space of a simulator of the Bloch equations back in."""
    pytest.importorskip("MRzeroCore")
    arguments, expected = SLOW["scan_loop.py"]
    monkeypatch.setattr(sys, "argv", ["scan_loop.py", *arguments, "--out", str(tmp_path)])
    runpy.run_path(str(FOLDER / "scan_loop.py"), run_name="__main__")
    assert expected in capsys.readouterr().out
    assert {"step-0.seq", "step-0.h5", "step-1.seq", "full.seq"} <= {path.name for path in tmp_path.iterdir()}


def test_every_example_is_run():
    assert {path.name for path in FOLDER.glob("*.py")} == set(ARGUMENTS) | set(SLOW)


def test_quickstart_is_ten_lines():
    lines = (FOLDER / "quickstart.py").read_text().split('"""', 2)[2].strip().splitlines()
    assert len([line for line in lines if line]) <= 10
