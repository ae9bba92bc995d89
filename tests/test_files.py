import json
import os
import stat
import subprocess
import sys

import pytest
import torch
from safetensors import SafetensorError

from conftest import make_absorbing
from sensewise import checkpoint
from sensewise.checkpoint import (
    atomic,
    build_prior,
    fingerprint,
    load_prior,
    locked,
    read_json,
    read_tensors,
    save_run,
    write_json,
    write_tensors,
    write_text,
)
from sensewise.errors import CheckpointError, OutputError

MODEL = {
    "shape": [1, 8, 8],
    "num_states": 2,
    "num_labels": 10,
    "time_input": True,
    "network": "unet",
    "widths": [8, 16],
    "blocks": [1, 1],
    "embedding": 8,
}
CONFIG = {"kind": "prior", "model": MODEL}


@pytest.fixture
def run(tmp_path):
    save_run(tmp_path / "run", CONFIG, make_absorbing())
    return tmp_path / "run"


def write_half(path, error):
    with atomic(path) as temporary:
        temporary.write_text("half")
        raise error


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_atomic_replaces_the_file_at_the_end(tmp_path):
    path = tmp_path / "new" / "file.txt"
    write_text(path, "old")
    with atomic(path) as temporary:
        temporary.write_text("new")
        assert temporary.suffix == ".txt"
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(path.parent) == ["file.txt"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_atomic_leaves_the_old_file_when_the_block_raises(tmp_path, error):
    path = tmp_path / "file.txt"
    write_text(path, "old")
    with pytest.raises(error):
        write_half(path, error)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file.txt"]


def test_a_full_disk_is_an_output_error(tmp_path):
    path = tmp_path / "file.txt"
    write_text(path, "old")
    with pytest.raises(OutputError, match="No space left on device; nothing was changed"):
        write_half(path, OSError(28, os.strerror(28)))
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file.txt"]


def test_a_full_disk_under_weights_is_said_once(tmp_path, monkeypatch):
    def no_space(*arguments):
        raise SafetensorError("No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", no_space)
    with pytest.raises(OutputError) as caught:
        write_tensors(tmp_path / "weights.safetensors", {"a": torch.zeros(1)})
    assert str(caught.value).count("cannot write") == 1
    assert names(tmp_path) == []


def test_files_get_the_usual_permissions(tmp_path):
    write_text(tmp_path / "ours", "")
    (tmp_path / "usual").touch()
    assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == stat.S_IMODE((tmp_path / "usual").stat().st_mode)


def test_a_path_below_a_file_is_an_output_error(tmp_path):
    (tmp_path / "file").write_text("here")
    for write in (write_text, write_json):
        with pytest.raises(OutputError, match="choose another folder"):
            write(tmp_path / "file" / "below", "x")
    assert (tmp_path / "file").read_text() == "here"


def test_json_has_no_nan(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", float("nan"))
    assert names(tmp_path) == []


def test_a_run_loads_as_it_was(run):
    prior = load_prior(run)
    expected = make_absorbing()
    y = torch.zeros(1, 1, 8, 8, dtype=torch.int64)
    torch.testing.assert_close(prior(y), expected(y))
    assert (prior.shape, prior.num_states, prior.num_labels, prior.time_input) == ((1, 8, 8), 2, 10, True)
    assert not prior.training
    assert not any(p.requires_grad for p in prior.parameters())
    assert load_prior(str(run)).shape == (1, 8, 8)


def test_half_precision_has_the_same_fingerprint(run, tmp_path):
    save_run(tmp_path / "half", CONFIG, make_absorbing(), half=True)
    small, large = ((folder / "weights.safetensors").stat().st_size for folder in (tmp_path / "half", run))
    assert small < 0.7 * large
    assert all(p.dtype == torch.float32 for p in load_prior(tmp_path / "half").parameters())
    assert fingerprint(load_prior(tmp_path / "half")) == fingerprint(load_prior(run)) == fingerprint(make_absorbing())
    assert fingerprint(make_absorbing(seed=1)) != fingerprint(make_absorbing())


def test_unknown_names_list_the_bundled_ones(tmp_path):
    for name in ("mnits", tmp_path, ""):
        with pytest.raises(CheckpointError, match="mnist"):
            load_prior(name)


@pytest.mark.parametrize("kept", [0, 7, 8, 200, -1])
def test_weights_cut_short(run, kept):
    path = run / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CheckpointError, match="not a complete safetensors file"):
        load_prior(run)


def test_weights_missing_or_foreign(run):
    path = run / "weights.safetensors"
    path.write_bytes(b"PK\x03\x04 a zip file, say, from torch" * 10)
    with pytest.raises(CheckpointError, match="safetensors"):
        load_prior(run)
    path.unlink()
    with pytest.raises(CheckpointError, match="does not exist"):
        load_prior(run)
    path.mkdir()
    with pytest.raises(CheckpointError, match="safetensors"):
        load_prior(run)


def test_weights_of_another_model(run):
    write_tensors(run / "weights.safetensors", {"something": torch.zeros(2)})
    with pytest.raises(CheckpointError, match=r"is missing; .* more"):
        load_prior(run)


@pytest.mark.parametrize("change", [{"widths": [8, 24]}, {"blocks": [2, 1]}, {"num_labels": None}, {"num_states": 3}])
def test_config_of_another_model(run, change):
    write_json(run / "config.json", {**CONFIG, "model": MODEL | change})
    with pytest.raises(CheckpointError, match="does not fit its config"):
        load_prior(run)


@pytest.mark.parametrize(
    "model",
    [
        {"network": "gpt"},
        {"network": None},
        {"shape": [1, 8]},
        {"shape": "1, 8, 8"},
        {"shape": [1, 10, 8]},
        {"shape": [1, 8, "8"]},
        {"shape": [1, 8, 0]},
        {"num_states": -1},
        {"num_states": "2"},
        {"widths": [8]},
        {"widths": 8},
        {"widths": ["a", "b"]},
        {"patch": 0},
        {"hidden": 5},
    ],
    ids=str,
)
def test_configs_that_describe_no_prior(run, model):
    write_json(run / "config.json", {**CONFIG, "model": MODEL | model})
    with pytest.raises(CheckpointError, match="run"):
        load_prior(run)


@pytest.mark.parametrize(
    "config", [{}, [], "prior", None, {"model": MODEL}, {"kind": "prior"}, {"kind": 1, "model": []}]
)
def test_configs_of_another_kind(run, config):
    write_json(run / "config.json", config)
    with pytest.raises(CheckpointError, match="run"):
        load_prior(run)


def test_a_generator_is_no_prior():
    with pytest.raises(CheckpointError, match="this is a generator, not a prior"):
        build_prior({"kind": "generator", "model": MODEL})


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"nonsense"])
def test_unreadable_json(run, content):
    (run / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match="cannot be read as JSON"):
        load_prior(run)
    with pytest.raises(CheckpointError, match="does not exist"):
        read_json(run / "nothing.json")


def test_tensors_and_metadata_round_trip(tmp_path):
    tensors = {"a": torch.arange(6).view(2, 3).T, "b": torch.zeros(0, 4), "c": torch.tensor(True)}
    write_tensors(tmp_path / "x", tensors, {"note": json.dumps({"k": 1})})
    found, metadata = read_tensors(tmp_path / "x")
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    assert metadata == {"note": '{"k": 1}'}


def test_a_lock_keeps_another_process_out(tmp_path):
    path = tmp_path / "run" / ".lock"
    attempt = (
        f"from pathlib import Path; from sensewise.checkpoint import locked\nwith locked(Path({str(path)!r})): pass"
    )
    with locked(path):
        found = subprocess.run([sys.executable, "-c", attempt], capture_output=True, text=True, check=False)
        assert f"run is in use by process {os.getpid()}" in found.stderr
    assert not path.exists()
    assert subprocess.run([sys.executable, "-c", attempt], check=False).returncode == 0


def test_a_lock_file_left_by_a_kill_does_not_matter(tmp_path):
    path = tmp_path / ".lock"
    path.write_text("4711")
    with locked(path):
        assert path.read_text() == str(os.getpid())
    assert not path.exists()


def test_a_lock_in_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"), locked(tmp_path / "file" / ".lock"):
        pass
