"""Two processes on gloo do what one does."""

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
from safetensors.numpy import load_file

from sensewise.errors import ConfigError
from sensewise.processes import launch
from sensewise.training import Objective
from tiny_runs import ENVIRONMENT, experiment, prepare_training, training


def finish(command, code=0):
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


def test_two_processes_at_half_the_batch_train_as_one(tmp_path):
    prepare_training(tmp_path, steps=20)
    finish(training(tmp_path, "one"))
    told = finish(training(tmp_path, "two", "--devices", "2", "--strategy", "ddp"))
    assert told.count("two: complete") == 1
    one, two = (load_file(tmp_path / name / "checkpoint.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_allclose(two[name], one[name], atol=1e-5, rtol=0, err_msg=name)
    files, others = ({path.name for path in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert files == others
    log = (tmp_path / "two" / "log.jsonl").read_text().splitlines()
    assert len(log) == 1
    assert (tmp_path / "two" / "config.json").read_text().count("steps") >= 1


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


def test_two_processes_evaluate_as_one(tmp_path):
    for devices in (1, 2):
        script = tmp_path / f"on_{devices}.py"  # a file: Fabric starts the second process from it
        script.write_text(experiment(tmp_path / str(devices), seeds=3, devices=devices))
        finish([sys.executable, str(script)])
    one, two = (json.loads((tmp_path / name / "tiny.json").read_text())["rows"] for name in ("1", "2"))
    assert one == two
    assert {path.name for path in (tmp_path / "2").iterdir()} == {"tiny.json"}


def test_what_the_first_process_refuses_is_said_once(tmp_path):
    prepare_training(tmp_path, steps=2)
    finish(training(tmp_path, "run"))
    command = [part for part in training(tmp_path, "run", "--devices", "2") if part != "--resume"]
    assert finish(command, code=2).count("holds a run already") == 1


def test_a_batch_that_cannot_be_shared(tmp_path):
    prepare_training(tmp_path, steps=2)
    assert finish(training(tmp_path, "run", "--devices", "3"), code=2).count("cannot be shared evenly by 3") == 1


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ({"devices": 0}, "at least 1"),
        ({"strategy": "fsdp"}, "needs GPUs"),
        ({"strategy": "horovod"}, "auto, ddp"),
        ({"precision": "8"}, "32-true, bf16-mixed"),
    ],
)
def test_impossible_ways_to_launch(how, what):
    with pytest.raises(ConfigError, match=what):
        launch(how)


class Halves(Objective):
    def loss(self, model, step, generator):
        raise NotImplementedError

    def validate(self, model):
        raise NotImplementedError


class TwoProcesses:
    """Fabric's answers in one of two processes; `others` is what the other one has."""

    world_size = 2

    def __init__(self, rank, others):
        self.global_rank, self.others = rank, others

    def all_reduce(self, whole, reduce_op):
        return whole + self.others


@pytest.mark.parametrize("rank", [0, 1])
def test_gather_undoes_share(rank):
    batch = torch.arange(12.0).view(6, 2)
    other = torch.zeros_like(batch)
    other[1 - rank :: 2] = batch[1 - rank :: 2]
    objective = Halves()
    objective.fabric = TwoProcesses(rank, other)
    assert torch.equal(objective.share(batch), batch[rank::2])
    assert torch.equal(objective.gather(objective.share(batch)), batch)
