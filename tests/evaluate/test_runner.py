"""Experiments under way: stopped, killed, sharded, measured elsewhere; the end is that of an undisturbed run."""

import time

import pytest

from sensewise.data.mnist import bundled_mnist
from sensewise.errors import ConfigError, DataError, ProcessError
from sensewise.evaluate.experiment import Experiment, Experiments, Setup
from sensewise.evaluate.journal import Journal, timed
from sensewise.evaluate.method import Method
from sensewise.evaluate.results import Results, read_results
from sensewise.evaluate.runner import merge_shards, plan, run_experiment
from sensewise.evaluate.task import pixel_task
from sensewise.paper import models
from sensewise.policies.greedy import Greedy
from sensewise.policies.simple import Random


def visible(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def experiment(tiny_digits, absorbing):
    task = pixel_task(tiny_digits.first(8), absorbing, ("errors", "exact"))
    methods = [Method("random", Random()), Method("label-greedy", Greedy(absorbing), 2)]

    def run(setup):
        return Results("tiny", setup.preset, "tiny", setup.evaluate(task, methods, (0.25, 0.5)))

    return Experiment("tiny", run)


def test_merged_shards_give_the_rows_of_one_run(experiment, tmp_path):
    whole, parts = run_experiment(experiment, "cpu", range(3), tmp_path / "whole"), tmp_path / "parts"
    for i in range(3):
        assert run_experiment(experiment, "cpu", range(3), parts, shard=(i, 3)) is None
    assert not (parts / "tiny.json").exists()
    assert merge_shards(experiment, "cpu", range(3), parts).rows == whole.rows
    assert visible(parts) == ["tiny.json"]


def test_a_shard_that_was_lost_is_measured_when_merging(experiment, tmp_path):
    whole = run_experiment(experiment, "cpu", range(3), tmp_path / "whole")
    run_experiment(experiment, "cpu", range(3), tmp_path, shard=(1, 3))
    assert merge_shards(experiment, "cpu", range(3), tmp_path).rows == whole.rows


def test_a_stopped_experiment_goes_on(experiment, tmp_path, monkeypatch):
    whole, asked, recall = run_experiment(experiment, "cpu", range(3), tmp_path / "whole"), [], Journal.recall

    def stop_at_fifth(self, key, measure):
        asked.append(key)
        if len(asked) == 5:
            raise KeyboardInterrupt
        return recall(self, key, measure)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "recall", stop_at_fifth)
        with pytest.raises(KeyboardInterrupt):
            run_experiment(experiment, "cpu", range(3), tmp_path)
    assert not (tmp_path / "tiny.json").exists()
    assert len((tmp_path / "tiny.partial.jsonl").read_text().splitlines()) == 5  # the origin and four measurements
    assert run_experiment(experiment, "cpu", range(3), tmp_path).rows == whole.rows
    assert visible(tmp_path) == ["tiny.json", "whole"]


def test_another_preset_does_not_go_on_with_a_journal(experiment, tmp_path, monkeypatch):
    asked, written = [], Journal.__init__

    def watch(self, path=None, origin=None, shard=(0, 1)):
        asked.append(dict(origin))
        written(self, path, origin, shard)

    monkeypatch.setattr(Journal, "__init__", watch)
    for preset in ("cpu", "paper"):
        run_experiment(experiment, preset, range(1), tmp_path)
    assert asked[0] != asked[1]
    assert asked[0]["code"] == asked[1]["code"]


def test_merging_nothing(experiment, tmp_path):
    with pytest.raises(DataError, match="no shard of tiny"):
        merge_shards(experiment, "cpu", range(3), tmp_path)


def test_an_engine_makes_what_is_missing_and_the_rest_is_measured_here(experiment, tmp_path):
    whole = run_experiment(experiment, "cpu", range(3), tmp_path / "whole")
    measures, asked = plan(experiment, "cpu", range(3)), []

    def engine(keys):
        """Gives all but the first measurement, the last one first, and is stopped after three."""
        for key in reversed(keys[1:]):
            if len(asked) == 3:
                raise ProcessError("gone")
            asked.append(key)
            yield key, *timed(measures[key])

    with pytest.raises(ProcessError):
        run_experiment(experiment, "cpu", range(3), tmp_path, engine=engine)
    assert len((tmp_path / "tiny.partial.jsonl").read_text().splitlines()) == 4  # the origin and three measurements
    first, asked = asked, []
    again = run_experiment(experiment, "cpu", range(3), tmp_path, engine=lambda keys: engine(keys[:3]))
    assert again.rows == whole.rows
    assert len(first + asked) == len({*first, *asked}) == 5
    assert visible(tmp_path) == ["tiny.json", "whole"]


def test_the_engine_of_the_priors_is_in_the_keys_and_in_the_file(tmp_path, traced):
    """Measurements of one engine are never taken for those of another, by any preset's model."""

    def run(setup):
        prior = models.prior(setup.preset, "mnist", engine=setup.engine)
        task = pixel_task(bundled_mnist().first(2), prior, ("errors",))
        return Results("tiny", setup.preset, "mnist", setup.evaluate(task, [Method("random", Random())], (0.1,)))

    one = Experiment("tiny", run)
    plain, rounded = (set(plan(one, "cpu", range(1), computed_by=engine)) for engine in ("torch", "bfloat16"))
    assert not plain & rounded
    for engine, said in (("torch", None), ("bfloat16", "bfloat16")):
        run_experiment(one, "cpu", range(1), tmp_path / engine, computed_by=engine)
        assert read_results(tmp_path / engine / "tiny.json").machine.get("engine") == said


def test_seconds_of_earlier_sittings_count(experiment, tmp_path):
    def slow(setup):
        setup.journal.recall("slow", lambda: time.sleep(0.2) or {"x": 1.0})
        if setup.seeds == range(1):
            raise KeyboardInterrupt
        return experiment.run(setup)

    with pytest.raises(KeyboardInterrupt):
        run_experiment(Experiment("tiny", slow), "cpu", range(1), tmp_path)
    assert run_experiment(Experiment("tiny", slow), "cpu", range(2), tmp_path).seconds >= 0.2


def test_experiments_are_found_by_name(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_tables").mkdir()
    (tmp_path / "own_tables" / "my_table.py").write_text(
        "from sensewise.evaluate.experiment import Experiment\nEXPERIMENT = Experiment('my-table', print)\n"
    )
    found = Experiments({"my-table": "own_tables"})
    assert found["my-table"].name == "my-table"
    assert list(found) == ["my-table"]
    with pytest.raises(ConfigError, match="choose one of my-table"):
        found.find("yours")
    assert "yours" not in found


def test_a_setup_keeps_nothing_by_default():
    assert Setup().journal.path is None
