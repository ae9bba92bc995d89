"""Every example runs, as a person would run it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sensewise.checkpoint import ASSETS

FOLDER = Path(__file__).parents[1] / "examples"
ARGUMENTS = {
    "quickstart.py": ([], "102 of 1024 pixels read"),
    "real_sensor.py": ([], "102 pixels read"),
    "own_data.py": (["--steps", "2", "--images", "40"], "report.html"),
    "gym_agents.py": (["--images", "2", "--budget", "0.005"], "fewer wrong pixels"),
}
needs_weights = {"quickstart.py", "real_sensor.py", "gym_agents.py"}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_example(name, tmp_path):
    if name in needs_weights and not (ASSETS / "mnist" / "weights.safetensors").is_file():
        pytest.skip("the bundled weights are not in this checkout")
    arguments, expected = ARGUMENTS[name]
    arguments = [*arguments, "--out", str(tmp_path)] if name == "own_data.py" else arguments
    environment = os.environ | {"PYTHONPATH": str(FOLDER.parent / "src")}
    command = [sys.executable, "-W", "error", str(FOLDER / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


def test_quickstart_is_ten_lines():
    lines = (FOLDER / "quickstart.py").read_text().split('"""', 2)[2].strip().splitlines()
    assert len([line for line in lines if line]) <= 10
