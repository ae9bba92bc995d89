"""Rows of an earlier file: kept where nothing has changed, measured anew where a method is named."""

from dataclasses import replace

import pytest

from sensewise.errors import ConfigError
from sensewise.evaluate.experiment import Experiment
from sensewise.evaluate.journal import Journal
from sensewise.evaluate.kept import Kept
from sensewise.evaluate.method import Method
from sensewise.evaluate.results import Results
from sensewise.evaluate.runner import merge_shards, plan, run_experiment
from sensewise.evaluate.task import pixel_task
from sensewise.policies.greedy import Greedy
from sensewise.policies.simple import Random


@pytest.fixture
def make(tiny_digits, absorbing):
    """An experiment with some methods, and weights of some fingerprint."""
    task = pixel_task(tiny_digits.first(8), absorbing, ("errors", "exact"))
    known = {"random": Method("random", Random()), "label-greedy": Method("label-greedy", Greedy(absorbing), 2)}

    def made(*names, weight="one"):
        def run(setup):
            rows = setup.evaluate(task, [known[name] for name in names], (0.25, 0.5))
            return Results("tiny", setup.preset, "tiny", rows, {"prior": weight})

        return Experiment("tiny", run)

    return made


@pytest.fixture
def asked(monkeypatch):
    """The methods that are measured, by the keys of their measurements."""
    found, recall = [], Journal.recall

    def watch(self, key, measure):
        found.append(key.split()[0])
        return recall(self, key, measure)

    monkeypatch.setattr(Journal, "recall", watch)
    return found


def plain(rows):
    return [replace(row, commit=None) for row in rows]


def test_what_the_file_lacks_is_measured_and_the_rest_says_its_commit(make, asked, tmp_path):
    whole = run_experiment(make("random", "label-greedy"), "cpu", range(3), tmp_path / "whole")
    earlier = run_experiment(make("random"), "cpu", range(3), tmp_path)
    asked.clear()
    kept = Kept(replace(earlier, commit="abc"))
    found = run_experiment(make("random", "label-greedy"), "cpu", range(3), tmp_path, kept=kept)
    assert set(asked) == {"label-greedy"}
    assert plain(found.rows) == whole.rows
    assert {row.method: row.commit for row in found.rows} == {"random": "abc", "label-greedy": None}


def test_a_method_named_again_is_measured_again(make, asked, tmp_path):
    experiment = make("random", "label-greedy")
    earlier = run_experiment(experiment, "cpu", range(3), tmp_path)
    asked.clear()
    found = run_experiment(experiment, "cpu", range(3), tmp_path, kept=Kept(earlier, ("label",)))
    assert set(asked) == {"label-greedy"}
    assert plain(found.rows) == list(earlier.rows)


def test_five_equal_runs_of_a_method_without_chance_count_as_one(make, asked, tmp_path):
    earlier = run_experiment(make("label-greedy"), "cpu", range(5), tmp_path)
    old = replace(earlier, rows=[replace(row, seeds=5) for row in earlier.rows])
    asked.clear()
    found = run_experiment(make("label-greedy"), "cpu", range(5), tmp_path, kept=Kept(old))
    assert not asked
    assert {row.seeds for row in found.rows} == {1}


@pytest.mark.parametrize("change", [{"images": 9}, {"steps": 3}, {"seeds": 2}, {"budget": 0.3}, {"prior": "other"}])
def test_a_row_of_another_name_or_of_fewer_seeds_is_not_kept(make, asked, tmp_path, change):
    earlier = run_experiment(make("random"), "cpu", range(3), tmp_path)
    other = replace(earlier, rows=[replace(row, **change) for row in earlier.rows])
    asked.clear()
    found = run_experiment(make("random"), "cpu", range(3), tmp_path, kept=Kept(other))
    assert len(asked) == 6
    assert list(found.rows) == list(earlier.rows)


def test_changed_weights_must_belong_to_a_method_that_is_measured_again(make, tmp_path):
    earlier = run_experiment(make("random"), "cpu", range(2), tmp_path)
    before = (tmp_path / "tiny.json").read_bytes()
    with pytest.raises(ConfigError, match="prior changed"):
        run_experiment(make("random", weight="two"), "cpu", range(2), tmp_path, kept=Kept(earlier, ("random",)))
    assert (tmp_path / "tiny.json").read_bytes() == before
    kept = Kept(earlier, ("prior",))
    assert run_experiment(make("random", weight="two"), "cpu", range(2), tmp_path, kept=kept) is not None


def test_shards_and_plans_leave_out_what_is_kept(make, tmp_path):
    whole = run_experiment(make("random", "label-greedy"), "cpu", range(3), tmp_path / "whole")
    kept = Kept(run_experiment(make("random"), "cpu", range(3), tmp_path))
    experiment = make("random", "label-greedy")
    assert {key.split()[0] for key in plan(experiment, "cpu", range(3), kept)} == {"label-greedy"}
    for i in range(2):
        run_experiment(experiment, "cpu", range(3), tmp_path, shard=(i, 2), kept=kept)
    assert plain(merge_shards(experiment, "cpu", range(3), tmp_path, kept=kept).rows) == whole.rows
