import json
import os
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

from conftest import make_absorbing
from sensewise import files, predictions
from sensewise.errors import CheckpointError, ConfigError, OutputError
from sensewise.files import (
    append_json,
    atomic,
    fingerprint,
    from_text,
    identity,
    locked,
    read_json,
    read_tensors,
    sha256_of,
    write_bytes,
    write_json,
    write_tensors,
    write_text,
)
from sensewise.policies.base import Policy
from sensewise.policies.choose import Joint, Spread
from sensewise.policies.greedy import Greedy
from sensewise.policies.known import KnownImages
from sensewise.policies.simple import Fixed, Random, VariableDensity


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

    monkeypatch.setattr(files, "save_file", no_space)
    with pytest.raises(OutputError) as caught:
        write_tensors(tmp_path / "weights.safetensors", {"a": torch.zeros(1)})
    assert str(caught.value).count("cannot write") == 1
    assert names(tmp_path) == []


@pytest.fixture
def to_disk(monkeypatch):
    """What was brought to disk, and which names were changed, in order."""
    told, fsync = [], os.fsync

    def noted(handle):
        told.append(("disk", os.path.basename(os.readlink(f"/proc/self/fd/{handle}"))))
        fsync(handle)

    def renamer(rename):
        def noting(source, target):
            told.append(("name", Path(target).name))
            return rename(source, target)

        return noting

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("needs Linux")
    monkeypatch.setattr(os, "fsync", noted)
    for rename in ("replace", "rename"):
        monkeypatch.setattr(os, rename, renamer(getattr(os, rename)))
    return told


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, to_disk):
    files.write_text(tmp_path / "a.txt", "content")
    named = to_disk.index(("name", "a.txt"))
    assert [kind for kind, _ in to_disk[:named]] == ["disk"]
    assert ("disk", tmp_path.name) in to_disk[named:]


def test_a_line_is_on_the_disk_when_it_was_added(tmp_path, to_disk):
    files.append_json(tmp_path / "log.jsonl", {"a": 1})
    assert to_disk == [("disk", "log.jsonl")]


def test_a_folder_is_on_the_disk_before_it_has_its_name(tmp_path, to_disk):
    with files.whole_folder(tmp_path / "out", ["a.txt", "b.txt"]) as new:
        for name in ("a.txt", "b.txt"):
            (new / name).write_text("content")
    named = to_disk.index(("name", "out"))
    assert sorted(to_disk[:named]) == [("disk", "a.txt"), ("disk", "b.txt"), ("disk", "out")]
    assert ("disk", tmp_path.name) in to_disk[named:]


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


def test_bytes_and_their_hash(tmp_path):
    write_bytes(tmp_path / "x", b"abc")
    assert (tmp_path / "x").read_bytes() == b"abc"
    assert sha256_of(tmp_path / "x") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_lines_are_appended(tmp_path):
    for n in range(2):
        append_json(tmp_path / "log.jsonl", {"n": n})
    assert [json.loads(line)["n"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == [0, 1]
    with pytest.raises(OutputError, match="cannot write"):
        append_json(tmp_path / "nowhere" / "log.jsonl", {})


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"nonsense", b"[" * 100_000])
def test_unreadable_json(tmp_path, content):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(CheckpointError, match="cannot be read as JSON"):
        read_json(tmp_path / "x.json")
    with pytest.raises(CheckpointError, match="does not exist"):
        read_json(tmp_path / "nothing.json")


def test_tensors_and_metadata_round_trip(tmp_path):
    tensors = {"a": torch.arange(6).view(2, 3).T, "b": torch.zeros(0, 4), "c": torch.tensor(True)}
    write_tensors(tmp_path / "x", tensors, {"note": json.dumps({"k": 1})})
    found, metadata = read_tensors(tmp_path / "x")
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    assert metadata == {"note": '{"k": 1}'}


def attempt(path):
    """Another process that tries to take a lock."""
    script = f"from pathlib import Path; from sensewise.files import locked\nwith locked(Path({str(path)!r})): pass"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def test_a_lock_keeps_another_process_out(tmp_path):
    path = tmp_path / "run" / ".lock"
    with locked(path):
        found = attempt(path)
        assert found.returncode != 0
        assert "run is in use by another process" in found.stderr
    assert attempt(path).returncode == 0


def test_a_lock_file_left_by_a_kill_does_not_matter(tmp_path):
    path = tmp_path / ".lock"
    path.write_text("4711")
    with locked(path):
        pass


def test_a_lock_in_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"), locked(tmp_path / "file" / ".lock"):
        pass


def test_fingerprints_are_of_weights_in_half_precision():
    assert fingerprint(make_absorbing()) == fingerprint(make_absorbing())
    assert fingerprint(make_absorbing()) == fingerprint(make_absorbing().half().float())
    assert fingerprint(make_absorbing(seed=1)) != fingerprint(make_absorbing())


@dataclass(frozen=True)
class Setting:
    width: float
    folder: Path = Path("here")


class Slotted:
    __slots__ = ("value",)


def different():
    """Objects that measure in different ways, each as a pair of equal ones."""
    prior, other = make_absorbing(), make_absorbing(seed=1)
    masks = torch.eye(3, dtype=torch.bool)
    for make in (
        lambda: None,
        lambda: True,
        lambda: np.float64(0.5),
        lambda: "0.5",
        lambda: {"a": (1, 2)},
        lambda: {"a", "b", "c"},
        lambda: torch.zeros(2),
        lambda: torch.zeros(2, 1),
        lambda: torch.zeros(2, dtype=torch.float64),
        lambda: np.ones(2),
        lambda: torch.device("cpu"),
        lambda: Path("somewhere"),
        lambda: Setting(1.0),
        lambda: Setting(2.0),
        lambda: Setting(1.0, Path("there")),
        lambda: Slotted(),
        lambda: Greedy(prior),
        lambda: Greedy(other),
        lambda: Greedy(prior, predictions.variance),
        lambda: Greedy(prior, reach=0.5),
        lambda: Spread(),
        lambda: Spread(0.6),
        lambda: Joint(),
        lambda: Joint(KnownImages(torch.ones(1, 1, 2, 2, dtype=torch.int64), 2)),
        lambda: Joint(KnownImages(torch.full((1, 1, 2, 2), 2), 2)),
        lambda: VariableDensity(),
        lambda: VariableDensity(0.3),
        lambda: Fixed(masks[:1]),
        lambda: Fixed(masks[1:2]),
        lambda: Setting(1.0).__eq__,
        lambda: Setting(2.0).__eq__,
    ):
        yield make(), make()


def test_identities_are_json_and_tell_objects_apart():
    found = []
    for one, same in different():
        text = json.dumps(identity(one), sort_keys=True)
        assert text == json.dumps(identity(same), sort_keys=True)
        found.append(text)
    assert len(set(found)) == len(found)


def test_numbers_of_numpy_are_numbers():
    assert identity(np.int64(3)) == identity(3)
    assert identity(np.float64(0.25)) == identity(0.25)


def test_what_an_object_only_remembers_does_not_count():
    policy = VariableDensity()
    before = identity(policy)
    policy._cache = torch.zeros(3)
    assert identity(policy) == before


def test_objects_are_found_by_module_and_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_files.py").write_text("from sensewise.policies.simple import Random\nclass Mine(Random): pass\n")
    for text in ("mine_files:Mine", "mine_files.py:Mine"):
        assert issubclass(from_text(text, Policy), Random)
    assert from_text("sensewise.policies.simple:Random") is Random


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Random", "not of the form module:Name"),
        (":Random", "not of the form module:Name"),
        ("math:", "not of the form module:Name"),
        (".simple:Random", "not of the form module:Name"),
        ("a/b.py:Random", "not of the form module:Name"),
        ("no_such_module:Random", "no_such_module"),
        ("math:Random", "Random"),
        ("math:pi", "not a Policy"),
        ("math:sqrt", "not a Policy"),
    ],
)
def test_names_that_lead_nowhere(text, message):
    with pytest.raises(ConfigError, match=message):
        from_text(text, Policy)


HALF = """
import os, sys
from pathlib import Path
from sensewise.files import atomic, whole_folder
with {opened} as temporary:
    {write}
    os.kill(os.getpid(), 9)
"""


def leave_half(opened, write):
    """A process that is killed while it writes."""
    script = HALF.format(opened=opened, write=write)
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9


def hidden(folder):
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def sweep_again():
    """As another process would, once it writes into a folder for the first time."""
    files._sweep.cache_clear()


def test_what_a_kill_left_is_swept_at_the_next_start(tmp_path):
    leave_half(f"atomic(Path({str(tmp_path / 'file.txt')!r}))", "temporary.write_text('half')")
    assert [name.partition("txt")[0] for name in hidden(tmp_path)] == [".file."]
    leave_half(f"whole_folder(Path({str(tmp_path / 'out')!r}), ['a'])", "(temporary / 'a').write_text('half')")
    assert [name[:5] for name in hidden(tmp_path)] == [".out."]  # the first one is gone
    sweep_again()
    write_text(tmp_path / "other.txt", "whole")
    assert names(tmp_path) == ["other.txt"]


def test_what_is_in_use_or_not_ours_is_not_swept(tmp_path):
    (tmp_path / ".notes.partial").mkdir()
    (tmp_path / ".file.abcdefgh.partial").write_text("not a folder")
    with atomic(tmp_path / "file.txt") as temporary:
        temporary.write_text("first")
        sweep_again()
        write_text(tmp_path / "other.txt", "second")
    assert names(tmp_path) == [".file.abcdefgh.partial", ".notes.partial", "file.txt", "other.txt"]


def test_a_kill_between_two_renames_loses_neither_folder(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_text("old")
    leave_half(
        f"whole_folder(Path({str(tmp_path / 'out')!r}), ['a'])",
        f"(temporary / 'a').write_text('new'); os.rename({str(tmp_path / 'out')!r}, temporary.parent / '.replaced')",
    )
    assert not (tmp_path / "out").exists()
    sweep_again()
    write_text(tmp_path / "other.txt", "")
    assert (tmp_path / "out" / "a").read_text() == "new"
    assert names(tmp_path) == ["other.txt", "out"]


def test_a_folder_is_swept_once_per_process(tmp_path):
    sweep_again()
    for number in range(3):
        write_text(tmp_path / f"{number}.txt", "")
    assert files._sweep.cache_info().misses == 1


def test_names_as_long_as_a_file_system_takes(tmp_path):
    write_text(tmp_path / ("n" * 250), "long")
    assert names(tmp_path) == ["n" * 250]


def test_many_processes_write_one_file(tmp_path):
    script = (
        "import sys; from pathlib import Path; from sensewise.files import write_text, _sweep\n"
        "for n in range(15): _sweep.cache_clear(); write_text(Path(sys.argv[1]), sys.argv[2] * 1000)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "file.txt")]
    writers = [subprocess.Popen([*command, letter]) for letter in "abc"]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert (tmp_path / "file.txt").read_text() in [letter * 1000 for letter in "abc"]
    assert names(tmp_path) == ["file.txt"]
