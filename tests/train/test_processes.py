"""Two processes on gloo do what one does: for everything that is trained, fitted or searched."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.numpy import load_file

from sensewise.errors import ConfigError
from sensewise.train.processes import Execution, Team, launch
from tiny_runs import ENVIRONMENT, prepare_training, training
from tiny_trainings import RECIPES

TESTS = Path(__file__).parent.parent
EVERYTHING = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(TESTS)!r})
import torch
from rich.console import Console
from sensewise.train.processes import Execution
from tiny_trainings import RECIPES

torch.set_num_threads(1)
for name, recipe in RECIPES.items():
    assert recipe().train(Path(sys.argv[1]) / name, Execution(devices=2, device="cpu", console=Console(quiet=True)))
"""


def finish(command, code=0):
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Folders with a run of every recipe: by one process, and by two."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    for name, recipe in RECIPES.items():
        assert recipe().train(one / name, Execution(console=Console(quiet=True)))
    script = two / "everything.py"  # a file: Fabric starts the second process from it
    script.write_text(EVERYTHING)
    finish([sys.executable, str(script), str(two)])
    return one, two


def numbers(folder):
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in ("seconds", "loss")} for line in lines]


@pytest.mark.parametrize("name", RECIPES)
def test_two_processes_do_what_one_does(pairs, name):
    one, two = (folder / name for folder in pairs)
    assert {path.name for path in one.iterdir()} == {path.name for path in two.iterdir()}
    alone, shared = (load_file(folder / "checkpoint.safetensors") for folder in (one, two))
    assert alone.keys() == shared.keys()
    for key in alone.keys() - {"losses"}:  # the first process's share of the batch
        np.testing.assert_allclose(shared[key], alone[key], atol=2e-5, rtol=1e-4, err_msg=key)
    for file in ("mask.npy", "order.npy"):
        if (one / file).exists():
            assert (one / file).read_bytes() == (two / file).read_bytes()
    for before, after in zip(numbers(one), numbers(two), strict=True):
        assert after == pytest.approx(before, rel=1e-3, abs=1e-4)


def child_of(pid):
    """The process that the first one has started."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                return int(entry.name)
    return None


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the other process in /proc")
def test_a_killed_process_ends_the_run_and_it_goes_on(tmp_path):
    prepare_training(tmp_path, steps=100_000)
    command = training(tmp_path, "run", "--devices", "2")
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        deadline = time.monotonic() + 120
        while not (tmp_path / "run" / "checkpoint.safetensors").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(child_of(process.pid), signal.SIGKILL)
        output = " ".join(process.communicate(timeout=60)[0].decode().split())
    assert process.returncode != 0
    assert "another process of this run is gone" in output or "terminated with code -9" in output
    assert "Traceback" not in output
    step = load_file(tmp_path / "run" / "checkpoint.safetensors")["optimizer.0.step"]
    more = training(tmp_path, "run", "--devices", "2", "--max-minutes", "0")
    assert "--resume" in more
    assert "stopped early" in finish(more)
    assert load_file(tmp_path / "run" / "checkpoint.safetensors")["optimizer.0.step"] == step + 1


def test_what_the_first_process_refuses_is_said_once(tmp_path):
    prepare_training(tmp_path, steps=2)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    command = [part for part in training(tmp_path, "run", "--devices", "2") if part != "--resume"]
    assert finish(command, code=2).count("holds a run already") == 1


def test_a_batch_that_cannot_be_shared(tmp_path):
    prepare_training(tmp_path, steps=2)
    assert finish(training(tmp_path, "run", "--devices", "3"), code=2).count("cannot be shared evenly by 3") == 1


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ({"devices": 0}, "at least 1"),
        ({"strategy": "fsdp"}, "fits into one process"),
        ({"strategy": "horovod"}, "auto, ddp"),
        ({"precision": "8"}, "32-true, bf16-mixed"),
        ({"device": "tpu"}, "auto, cpu, cuda, mps"),
        ({"device": "cuda", "devices": 64}, "64 CUDA devices are needed"),
        ({"device": "mps", "devices": 2}, "a single process"),
    ],
)
def test_impossible_ways_to_launch(how, what):
    with pytest.raises(ConfigError, match=what):
        launch(**how)


class TwoProcesses:
    """Fabric's answers in one of two processes; `others` is what the other one has."""

    world_size = 2

    def __init__(self, rank, others):
        self.global_rank, self.others = rank, others

    def all_reduce(self, whole, reduce_op):
        return whole + self.others


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("length", [6, 7])
def test_gather_undoes_part(rank, length):
    batch = torch.arange(2.0 * length).view(length, 2)
    other = torch.zeros_like(batch)
    other[1 - rank :: 2] = batch[1 - rank :: 2]
    team = Team(TwoProcesses(rank, other))
    assert torch.equal(team.part(batch), batch[rank::2])
    assert torch.equal(team.gather(team.part(batch), length), batch)
    if length % 2:
        with pytest.raises(ConfigError, match="cannot be shared evenly"):
            team.share(batch)


def test_a_team_of_one_needs_no_fabric():
    team, batch = Team(), torch.arange(5)
    assert (team.size, team.rank, team.first, team.device) == (1, 0, True, torch.device("cpu"))
    assert team.share(batch) is batch
    assert team.gather(batch, 5) is batch
    assert team.any(True)
    assert not team.any(False)
    assert team.broadcast("as it was") == "as it was"


@pytest.mark.parametrize("name", RECIPES)
def test_mixed_precision(name, tmp_path):
    assert RECIPES[name]().train(tmp_path, Execution(precision="bf16-mixed", console=Console(quiet=True)))
