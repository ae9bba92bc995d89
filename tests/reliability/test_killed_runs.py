"""`train`, `run` and a session are killed at random moments: nothing is torn, the end is that of an undisturbed one.

`test_kills.py` does the same to `acquire` and `data import`.
"""

import json
import random
import shutil
import time

import pytest
import torch

import kills
from sensewise.files import read_json, read_tensors
from tiny_runs import prepare_training

KILLS = [2, pytest.param(100, marks=pytest.mark.slow)]


def undisturbed(work, folder):
    """The seconds that the whole work takes."""
    begun = time.monotonic()
    assert kills.run(work, folder)
    return time.monotonic() - begun


def disturbed(work, folder, number, seconds, same, check):
    """Kill the work again and again, each time at another moment; when it comes to its end, it begins anew.

    Args:
        seconds: that the whole work takes; each kill comes somewhere within them.
        same: asserts that finished work in a folder is that of the undisturbed one.
        check: asserts that nothing in a folder is torn, after each kill.
    """
    draw, killed = random.Random(number), 0
    while killed < number:
        ended = kills.run(work, folder, draw.uniform(0, seconds))
        killed += not ended
        if ended:
            same(folder)
            shutil.rmtree(folder)
        elif folder.exists():
            check(folder)
    assert kills.run(work, folder)
    same(folder)
    assert not list(folder.glob(".*.partial"))


@pytest.mark.parametrize("number", KILLS)
def test_a_training_that_is_killed_ends_as_one_that_was_not(number, tmp_path):
    prepare_training(tmp_path, steps=40)
    seconds = undisturbed(kills.train, tmp_path / "whole")
    whole, _ = read_tensors(tmp_path / "whole/weights.safetensors")
    steps = [json.loads(line)["step"] for line in (tmp_path / "whole/log.jsonl").read_text().splitlines()]

    def check(folder):
        for path in folder.glob("[!.]*.safetensors"):
            assert all(tensor.isfinite().all() for tensor in read_tensors(path)[0].values())
        if (folder / "config.json").exists():
            assert read_json(folder / "config.json")

    def same(folder):
        found, _ = read_tensors(folder / "weights.safetensors")
        assert found.keys() == whole.keys()
        assert all(torch.equal(found[name], whole[name]) for name in whole)
        assert [json.loads(line)["step"] for line in (folder / "log.jsonl").read_text().splitlines()] == steps
        assert read_json(folder / "config.json")["trained"]["complete"]

    disturbed(kills.train, tmp_path / "killed", number, seconds, same, check)


@pytest.mark.parametrize("number", KILLS)
def test_an_experiment_that_is_killed_ends_as_one_that_was_not(number, tmp_path):
    seconds = undisturbed(kills.measure, tmp_path / "whole")
    whole = read_json(tmp_path / "whole/tiny.json")["rows"]

    def check(folder):
        if (folder / "tiny.json").exists():
            assert read_json(folder / "tiny.json")["rows"] == whole
        journal = folder / "tiny.partial.jsonl"
        if journal.exists():
            *lines, _ = journal.read_text().split("\n")  # a kill may cut the last one short
            assert all(json.loads(line)["crc32"] for line in lines)

    def same(folder):
        assert read_json(folder / "tiny.json")["rows"] == whole
        assert [path.name for path in folder.iterdir() if path.suffix != ".lock"] == ["tiny.json"]

    disturbed(kills.measure, tmp_path / "killed", number, seconds, same, check)


@pytest.mark.parametrize("number", KILLS)
def test_a_session_that_is_killed_ends_as_one_that_was_not(number, tmp_path):
    name = "session.safetensors"
    seconds = undisturbed(kills.sense, tmp_path / "whole")
    whole, _ = read_tensors(tmp_path / "whole" / name)
    assert int((whole["step"] >= 0).sum()) == round(0.3 * 32 * 32)

    def check(folder):
        if (folder / name).exists():
            kills.new_session().restore(folder / name)

    def same(folder):
        found, _ = read_tensors(folder / name)
        assert found.keys() == whole.keys()
        assert all(torch.equal(found[part], whole[part]) for part in whole)

    disturbed(kills.sense, tmp_path / "killed", number, seconds, same, check)
