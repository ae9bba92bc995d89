"""Results files: written whole, read back, old ones too, damaged ones refused."""

import json
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest

import sensewise
from sensewise.errors import CheckpointError, DataError, OutputError
from sensewise.evaluate import results as result_files
from sensewise.evaluate.results import Results, commit, cpu_name, read_arrays, read_results, read_speeds
from sensewise.evaluate.rows import Row, Speed, summarise

COMMITTED = sorted((Path(__file__).parents[2] / "results").glob("*.json"))
ROW = Row("mnist", "random", 1, 0.1, 0.099609, "errors", 46.7, 0.5, 4, 2, paper=46.7, prior="on-policy")


@pytest.fixture
def written(tmp_path):
    results = Results("x", "cpu", "mnist", [ROW], {"prior": "abc"}, ["A note."], {"a": np.arange(3)}, 1.26)
    results.write(tmp_path / "new" / "x.json")
    return tmp_path / "new" / "x.json"


def test_round_trip(written):
    found = read_results(written)
    assert found.rows == [ROW]
    assert (found.experiment, found.preset, found.dataset) == ("x", "cpu", "mnist")
    assert (found.weights, found.notes, found.seconds) == ({"prior": "abc"}, ["A note."], 1.3)
    assert set(found.machine) == {"cpu", "threads"}
    assert len(found.commit) >= 6
    assert np.array_equal(read_arrays(written)["a"], np.arange(3))


def test_a_row_says_its_data_set_and_leaves_out_what_says_nothing(written):
    (row,) = json.loads(written.read_text())["rows"]
    assert row["dataset"] == "mnist"
    assert "reconstructor" not in row
    assert row["paper"] == 46.7


@pytest.mark.parametrize("path", [path for path in COMMITTED if path.stem != "bench"], ids=lambda path: path.stem)
def test_committed_results_are_readable(path):
    found, raw = read_results(path), json.loads(path.read_text())
    assert len(found.rows) == len(raw["rows"]) > 0
    for row, old in zip(found.rows, raw["rows"], strict=True):
        assert row.dataset == old.get("dataset", raw["dataset"])
        assert (row.method, row.budget, row.mean, row.paper) == (
            old["method"],
            old["budget"],
            old["mean"],
            old["paper"],
        )


def test_committed_speeds_are_readable():
    (path,) = [path for path in COMMITTED if path.stem == "bench"]
    raw = json.loads(path.read_text())["rows"]
    assert [speed.as_json() for speed in read_speeds(path)] == raw


def test_results_cannot_be_written_below_a_file(tmp_path):
    (tmp_path / "file").write_text("here")
    with pytest.raises(OutputError, match="cannot write"):
        Results("x", "cpu", "mnist", arrays={"a": np.arange(3)}).write(tmp_path / "file" / "x.json")
    assert (tmp_path / "file").read_text() == "here"


@pytest.mark.parametrize(
    "change",
    [
        {"rows": []},
        {"rows": 3},
        {"rows": [{"method": "random"}]},
        {"rows": [3]},
        {"notes": "none"},
        {"machine": []},
        {"weights": 3},
        {"rows": [{**ROW.as_json(), "mean": "46.7"}]},
        {"rows": [{**ROW.as_json(), "images": True}]},
    ],
)
def test_malformed_results_are_refused(written, change):
    written.write_text(json.dumps(json.loads(written.read_text()) | change))
    with pytest.raises(DataError, match="not a results file"):
        read_results(written)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", str(10**400), '"many"'])
@pytest.mark.parametrize("place", ["mean", "sd", "budget", "seconds"])
def test_what_is_no_number_is_refused_in_one_sentence(written, place, value):
    text, changed = re.subn(rf'"{place}": [-0-9.e+]+', f'"{place}": {value}', written.read_text())
    assert changed == 1
    written.write_text(text)
    with pytest.raises(DataError, match="not a results file") as caught:
        read_results(written)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("value", ["NaN", "Infinity", str(10**400), '"many"', "null", "[]"])
@pytest.mark.parametrize("place", ["value", "at_least"])
def test_speeds_that_are_no_numbers_are_refused(written, place, value):
    row = {"row": "fast", "value": 2.0, "at_least": 1.0} | {place: "HERE"}
    text = json.dumps(json.loads(written.read_text()) | {"rows": [row]}).replace('"HERE"', value)
    written.write_text(text)
    if (place, value) == ("at_least", "null"):  # a speed that is only reported
        assert read_speeds(written)[0].at_least is None
        return
    with pytest.raises(DataError, match="a row of speeds needs") as caught:
        read_speeds(written)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    "missing", ["rows", "notes", "commit", "machine", "seconds", "weights", "preset", "experiment", "dataset"]
)
def test_results_without_their_origin_are_refused(written, missing):
    content = json.loads(written.read_text())
    del content[missing]
    written.write_text(json.dumps(content))
    with pytest.raises(DataError, match="not a results file"):
        read_results(written)


@pytest.mark.parametrize("content", ["", "[]", "null", "{"])
def test_files_that_hold_no_results(tmp_path, content):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises((DataError, CheckpointError)):
        read_results(tmp_path / "x.json")


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04", b"\x93NUMPY"])
def test_arrays_that_cannot_be_read(tmp_path, content):
    if content is not None:
        (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(DataError, match="cannot be read"):
        read_arrays(tmp_path / "x.json")


def test_what_cannot_be_counted_is_null():
    assert summarise([float("nan")]) == (None, None)
    assert summarise([1.0]) == (1.0, 0.0)
    assert summarise([1.0, 2.0]) == (1.5, 0.707107)


def test_what_a_results_file_says_besides_is_left_alone(written):
    before = read_results(written)
    table = json.loads(written.read_text())
    written.write_text(json.dumps({**table, "arrays": {"a": 1}, "comment": "mine"}))
    assert read_results(written) == before


def test_adding_leaves_the_first_results_as_they_were():
    results = Results("x", "cpu", "mnist", notes=["one"])
    more = results.adding(notes=["two"], arrays={"a": np.arange(2)})
    assert (results.notes, results.arrays) == (["one"], {})
    assert more.notes == ["one", "two"]


def test_where_results_come_from(monkeypatch):
    assert len(commit()) >= 6
    assert "cores" in cpu_name()

    def no_git(*arguments, **options):
        raise FileNotFoundError("git")

    monkeypatch.setattr("subprocess.run", no_git)
    assert commit() == f"v{sensewise.__version__}"  # outside a checkout, the version stands for the commit


def test_a_git_that_does_not_answer_is_not_waited_for(tmp_path, monkeypatch):
    git = tmp_path / "git"
    git.write_text("#!/bin/sh\nsleep 60\n")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(result_files, "GIT_SECONDS", 0.2)
    begun = time.monotonic()
    assert commit() == f"v{sensewise.__version__}"
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize(
    ("speed", "holds"),
    [
        (Speed("a", 5, at_most=6), True),
        (Speed("a", 7, at_most=6), False),
        (Speed("a", 7, at_least=6), True),
        (Speed("a", 5, at_least=6), False),
        (Speed("a", 5, details={"p99_ms": 9.0}), None),
    ],
)
def test_bounds_of_speeds(speed, holds, tmp_path):
    assert speed.holds is holds
    Results("bench", "cpu", "mnist").write_speeds(tmp_path / "bench.json", [speed])
    assert read_speeds(tmp_path / "bench.json") == [speed]
