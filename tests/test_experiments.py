import json

import numpy as np
import pytest
import torch
from rich.progress import Progress

from sensewise.checkpoint import fingerprint
from sensewise.errors import CheckpointError, DataError, OutputError
from sensewise.experiments import EXPERIMENTS, evaluation, mnist_sequential
from sensewise.experiments.evaluation import Strategy, evaluate, mnist_strategies, spend
from sensewise.experiments.examples import story_arrays
from sensewise.experiments.mnist_sequential import BUDGETS, paper
from sensewise.experiments.results import KEYS, Results, commit, cpu_name, read_arrays, read_results, row
from sensewise.metrics import TOKEN_METRICS, errors
from sensewise.policies import Greedy, Random
from sensewise.reconstruct import Argmax
from sensewise.sensors import Side


@pytest.fixture
def progress():
    with Progress(disable=True) as bar:
        yield bar


def scored(prior, images, progress, metrics, seeds=(0, 1, 2)):
    strategies = [Strategy("random", Random()), Strategy("label-greedy", Greedy(prior), 4, random=False)]
    columns = {"prior": "on-policy"}
    return evaluate(prior, images, strategies, (0.05, 0.1), seeds, metrics, paper, progress, columns)


def test_rows_have_every_key_of_the_design(quick, digits, progress):
    rows = scored(quick, digits.first(8), progress, list(TOKEN_METRICS))
    assert len(rows) == 2 * 2 * len(TOKEN_METRICS)
    for line in rows:
        assert set(line) == {*KEYS, "prior"}
        assert line["density"] == round({0.05: 51, 0.1: 102}[line["budget"]] / 1024, 6)
        assert (line["images"], line["seeds"], line["prior"]) == (8, 3, "on-policy")
        assert line["paper"] == paper(line["method"], line["steps"], line["budget"], line["metric"])
        if line["method"] == "label-greedy":
            assert line["sd"] == 0
        elif line["metric"] == "errors":
            assert line["sd"] > 0


def test_means_are_over_images_and_seeds(quick, digits, progress):
    x, label = digits.first(8)[slice(None)]
    side = Side(label=label)
    expected = []
    for seed in (0, 1, 2):
        taken = spend(Strategy("random", Random()), x, side, 0.05, seed)
        expected.append(errors(Argmax(quick)(taken.observation, taken.mask, side), x).mean().item())
    found = scored(quick, digits.first(8), progress, ["errors"])[0]
    assert found["mean"] == pytest.approx(np.mean(expected), abs=1e-5)
    assert found["sd"] == pytest.approx(np.std(expected, ddof=1), abs=1e-5)


def test_the_same_seed_gives_the_same_rows(quick, digits, progress):
    first, second = (scored(quick, digits.first(4), progress, ["errors"]) for _ in range(2))
    assert first == second
    assert first != scored(quick, digits.first(4), progress, ["errors"], seeds=(5, 6, 7))


def test_strategies_of_the_table(quick):
    strategies = mnist_strategies(quick, extra_steps=(32,))
    assert [(s.method, s.steps, s.random) for s in strategies] == [
        ("random", 1, True),
        ("variable-density", 1, True),
        ("probe-greedy", 1, True),
        ("probe-greedy", 16, True),
        ("label-greedy", 4, False),
        ("label-greedy", 16, False),
        ("label-greedy", 32, False),
        ("spread-greedy", 16, False),
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (("label-greedy", 16, 0.1, "errors"), 5.63),
        (("label-greedy", 16, 0.05, "errors"), 22.9),
        (("label-greedy", 16, 0.1, "exact"), 0.26),
        (("random", 1, 0.3, "errors"), 24.0),
        (("probe-greedy", 1, 0.2, "errors"), 9.22),
        (("label-greedy", 32, 0.1, "errors"), None),
        (("variable-density", 1, 0.1, "errors"), None),
        (("random", 1, 0.4, "errors"), None),
        (("random", 1, 0.1, "accuracy"), None),
    ],
)
def test_the_papers_values(key, value):
    assert paper(*key) == value


def test_a_value_that_cannot_be_counted_is_null():
    line = row("random", 1, 0.1, 0.1, "informative", [float("nan")], 4, None)
    assert line["mean"] is None
    assert line["sd"] is None


def test_results_round_trip(tmp_path):
    results = Results("x", "cpu", "mnist", {"prior": "abc"}, [row("random", 1, 0.1, 0.1, "errors", [1.0], 4, None)])
    results.arrays = {"a": np.arange(3)}
    results.write(tmp_path / "new" / "x.json")
    found = read_results(tmp_path / "new" / "x.json")
    wanted = {"experiment", "preset", "dataset", "commit", "seconds", "machine", "weights", "notes", "rows"}
    assert set(found) == wanted
    assert found["rows"] == results.rows
    assert found["weights"] == {"prior": "abc"}
    assert set(found["machine"]) == {"cpu", "threads"}
    assert np.array_equal(read_arrays(tmp_path / "new" / "x.json")["a"], np.arange(3))


def test_results_cannot_be_written_below_a_file(tmp_path):
    (tmp_path / "file").write_text("here")
    results = Results("x", "cpu", "mnist", arrays={"a": np.arange(3)})
    with pytest.raises(OutputError, match="cannot write"):
        results.write(tmp_path / "file" / "x.json")
    assert (tmp_path / "file").read_text() == "here"


@pytest.mark.parametrize("change", [{"rows": []}, {"rows": 3}, {"rows": [{"method": "random"}]}, {"rows": [3]}])
def test_malformed_results_are_refused(tiny_results, tmp_path, change):
    content = json.loads(tiny_results.read_text()) | change
    (tmp_path / "x.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="not a results file"):
        read_results(tmp_path / "x.json")


@pytest.mark.parametrize(
    "missing", ["rows", "notes", "commit", "machine", "seconds", "weights", "preset", "experiment"]
)
def test_results_without_their_origin_are_refused(tiny_results, tmp_path, missing):
    content = json.loads(tiny_results.read_text())
    del content[missing]
    (tmp_path / "x.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="not a results file"):
        read_results(tmp_path / "x.json")


@pytest.mark.parametrize("content", ["", "[]", "null", "{"])
def test_files_that_are_no_results(tmp_path, content):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises((DataError, CheckpointError)):
        read_results(tmp_path / "x.json")


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04", b"\x93NUMPY"])
def test_arrays_that_cannot_be_read(tmp_path, content):
    if content is not None:
        (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(DataError, match="cannot be read"):
        read_arrays(tmp_path / "x.json")


def test_story_holds_every_step(quick, digits):
    x, label = digits[slice(0, 1)]
    arrays = story_arrays(quick, x, label, 20, 5)
    assert arrays["story/observation"].shape == (6, 1, 32, 32)
    assert [(y != 0).sum() for y in arrays["story/observation"]] == [0, 4, 8, 12, 16, 20]
    assert arrays["story/entropy"].shape == (6, 32, 32)
    assert (arrays["story/entropy"][-1][arrays["story/observation"][-1, 0] > 0] == 0).all()
    assert np.array_equal(arrays["story/target"], x[0].numpy())


def test_mnist_sequential(quick, digits, progress, monkeypatch):
    def no_data(split):
        raise DataError("MNIST is not here")

    monkeypatch.setattr(mnist_sequential, "load_prior", lambda name: quick)
    monkeypatch.setattr(mnist_sequential, "bundled_mnist", lambda: digits.first(2))
    monkeypatch.setattr(mnist_sequential, "load_mnist", no_data)
    monkeypatch.setattr(mnist_sequential, "mnist_strategies", lambda prior, extra_steps=(): cheap)
    cheap = mnist_strategies(quick)[:2]
    results = EXPERIMENTS["mnist-sequential"]("cpu", range(1), progress)
    assert {line["prior"] for line in results.rows} == {"random-masks", "on-policy"}
    assert {line["budget"] for line in results.rows} == set(BUDGETS)
    assert len(results.rows) == 2 * 2 * 4 * 4
    assert results.weights == dict.fromkeys(("random-masks", "on-policy"), fingerprint(quick))
    assert "10,000 test images were left out" in results.notes[0]
    monkeypatch.setattr(mnist_sequential, "load_mnist", lambda split: digits.first(3))
    results = mnist_sequential.run("cpu", range(1), progress)
    assert {line["images"] for line in results.rows} == {2, 3}
    assert results.notes == []


def test_where_results_come_from():
    assert len(commit()) >= 6
    assert "cores" in cpu_name()


def test_outside_a_checkout_the_version_stands_for_the_commit(monkeypatch):
    def no_git(*arguments, **options):
        raise FileNotFoundError("git")

    monkeypatch.setattr("subprocess.run", no_git)
    assert commit() == "v0.1.0"


def test_spending_does_not_depend_on_the_policy_object(quick, digits):
    x, label = digits.first(2)[slice(None)]
    strategy = mnist_strategies(quick)[3]
    first, second = (spend(strategy, x, Side(label=label), 0.1, seed) for seed in (3, 3))
    assert torch.equal(first.step, second.step)


def test_measuring_in_blocks_changes_nothing_but_the_draws(monkeypatch, absorbing, tiny_digits, progress):
    """Without randomness the rows of small blocks are those of the whole; budgets and counts always are."""
    images = tiny_digits.first(8)
    strategies = [Strategy("random", Random()), Strategy("label-greedy", Greedy(absorbing), 2, random=False)]

    def rows():
        return evaluate(
            absorbing, images, strategies, (0.25,), (0, 1), ("errors", "exact"), lambda *_: None, progress, {}
        )

    whole = rows()
    monkeypatch.setattr(evaluation, "BLOCK", 3)
    for one, other in zip(whole, rows(), strict=True):
        assert other["images"] == 8
        assert other["density"] == one["density"]
        if one["method"] == "label-greedy":
            assert other["mean"] == pytest.approx(one["mean"], abs=1e-6)
