"""Every example runs, as a person would run it."""

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
    "gym_agents.py": (["--images", "2", "--budget", "0.005"], "fewer wrong pixels"),
}
NEEDS_WEIGHTS = {"quickstart.py", "real_sensor.py", "gym_agents.py"}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_example(name, tmp_path, capsys, monkeypatch):
    if name in NEEDS_WEIGHTS and not (ASSETS / "mnist" / "weights.safetensors").is_file():
        pytest.skip("the bundled weights are not in this checkout")
    arguments, expected = ARGUMENTS[name]
    extra = ["--out", str(tmp_path)] if name in ("own_data.py", "kspace_mask.py") else []
    monkeypatch.setattr(sys, "argv", [str(FOLDER / name), *arguments, *extra])
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    assert expected in capsys.readouterr().out.replace("\n", " ")


def test_every_example_is_run():
    assert {path.name for path in FOLDER.glob("*.py")} == set(ARGUMENTS)


def test_quickstart_is_ten_lines():
    lines = (FOLDER / "quickstart.py").read_text().split('"""', 2)[2].strip().splitlines()
    assert len([line for line in lines if line]) <= 10
