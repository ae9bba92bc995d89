"""A request to terminate, a full disk, a clock that is set back; `reliability/test_killed_runs.py` has the kills."""

import json
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

from tiny_runs import ENVIRONMENT, prepare_training, training


def test_a_request_to_terminate_saves_and_stops_within_ten_seconds(tmp_path):
    prepare_training(tmp_path, steps=100_000, save_minutes=0.001)
    command = training(tmp_path, "run")
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        deadline = time.monotonic() + 120
        while not (tmp_path / "run" / "checkpoint.safetensors").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        asked = time.monotonic()
        process.terminate()
        output = process.communicate(timeout=30)[0].decode()
        assert time.monotonic() - asked < 10
    assert process.returncode == 0
    assert "continue with --resume" in " ".join(output.split())
    assert json.loads((tmp_path / "run" / "config.json").read_text())["trained"]["complete"] is False
    assert (tmp_path / "run" / "weights.safetensors").exists()


@pytest.fixture
def disk(tmp_path, request):
    """A file system of its own, mounted with the given options."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", request.param, "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs Linux and root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize(
    ("disk", "reason"),
    [("size=40k", "No space left on device"), ("ro", "Read-only file system")],
    indirect=["disk"],
    ids=["full", "read-only"],
)
def test_a_disk_that_takes_no_more(disk, reason, tmp_path):
    prepare_training(tmp_path, steps=2)
    if "space" in reason:
        (disk / "mine.txt").write_text("as it was")
    command = training(tmp_path, "disk/run")
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    told = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2, told
    assert reason in told
    assert "Traceback" not in told
    left = {path.name for path in disk.rglob("*") if path.is_file()}
    assert left <= {"mine.txt", "config.json", ".lock"}
    if "mine.txt" in left:
        assert (disk / "mine.txt").read_text() == "as it was"


def test_a_clock_that_is_set_back_changes_nothing(tmp_path):
    prepare_training(tmp_path, steps=4)
    subprocess.run(training(tmp_path, "whole"), env=ENVIRONMENT, check=True, capture_output=True)
    backwards = "import itertools, time; time.time = lambda ticks=itertools.count(2e9, -3600): next(ticks); "
    for more, complete in ((["--max-minutes", "0"], False), ([], True)):
        arguments = training(tmp_path, "back", *more)[3:]
        script = backwards + f"import sys; sys.argv[1:] = {arguments!r}; from sensewise.apps.cli import main; main()"
        subprocess.run([sys.executable, "-c", script], env=ENVIRONMENT, check=True, capture_output=True)
        trained = json.loads((tmp_path / "back" / "config.json").read_text())["trained"]
        assert trained["complete"] is complete
    whole, other = (load_file(tmp_path / name / "weights.safetensors") for name in ("whole", "back"))
    assert all(np.array_equal(whole[name], other[name]) for name in whole)
