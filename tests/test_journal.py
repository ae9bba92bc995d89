"""The journal: nothing is measured twice, nothing of other code is kept, shards make up the whole."""

import json
import time

import pytest
import torch
from rich.progress import Progress

from sensewise.errors import ConfigError, DataError
from sensewise.experiments import EXPERIMENTS, journal
from sensewise.experiments.evaluation import Strategy, evaluate
from sensewise.experiments.journal import Journal, join, keeping, parse_shard, recall, weights_of
from sensewise.experiments.results import Results
from sensewise.experiments.runner import merge_shards, run_experiment
from sensewise.mri.row_masks import FixedRows
from sensewise.policies import Greedy, Random

ORIGIN = {"commit": "abc"}


class Meter:
    """Counts its readings; fails after `limit`."""

    def __init__(self, limit=1000):
        self.readings, self.limit = 0, limit

    def __call__(self, number):
        if self.readings == self.limit:
            raise KeyboardInterrupt
        self.readings += 1
        return {"errors": number / 3}


def measure_all(meter, count=6):
    return [recall([n], ["errors"], lambda n=n: meter(n)) for n in range(count)]


def test_without_a_journal_everything_is_measured():
    meter = Meter()
    assert measure_all(meter) == measure_all(meter)
    assert meter.readings == 12


def test_after_a_stop_only_the_rest_is_measured(tmp_path):
    path, whole = tmp_path / "j.jsonl", measure_all(Meter())
    with pytest.raises(KeyboardInterrupt), keeping(Journal(path, ORIGIN)):
        measure_all(Meter(limit=4))
    meter = Meter()
    with keeping(Journal(path, ORIGIN)):
        assert measure_all(meter) == whole  # to the last digit
    assert meter.readings == 2


def test_a_line_cut_short_is_measured_again(tmp_path):
    path = tmp_path / "j.jsonl"
    with keeping(Journal(path, ORIGIN)):
        measure_all(Meter())
    path.write_text(path.read_text()[:-9])
    meter = Meter()
    with keeping(Journal(path, ORIGIN)):
        assert measure_all(meter) == measure_all(Meter())
    assert meter.readings == 1
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_journal_of_other_code_is_not_used(tmp_path):
    path, meter = tmp_path / "j.jsonl", Meter()
    with keeping(Journal(path, ORIGIN)):
        measure_all(Meter())
    with keeping(Journal(path, {"commit": "other"})):
        measure_all(meter)
    assert meter.readings == 6


@pytest.mark.parametrize("of", [2, 3, 7])
def test_shards_make_up_the_whole(tmp_path, of):
    paths, meter = [tmp_path / f"{i}.jsonl" for i in range(of)], Meter()
    for i, path in enumerate(paths):
        with keeping(Journal(path, ORIGIN, (i, of))):
            measure_all(meter)
    assert meter.readings == 6
    assert join(paths, tmp_path / "whole.jsonl") == 6
    with keeping(Journal(tmp_path / "whole.jsonl", ORIGIN)):
        assert measure_all(Meter(limit=0)) == measure_all(Meter())


@pytest.mark.parametrize("of", [2, 5])
def test_shards_do_not_repeat_what_is_asked_for_twice(tmp_path, of):
    meter = Meter()
    for i in range(of):
        with keeping(Journal(tmp_path / f"{i}.jsonl", ORIGIN, (i, of))):
            measure_all(meter)
            recall(["new"], ["errors"], lambda: meter(7))
            measure_all(meter)
    assert meter.readings == 7


def test_shards_of_different_code_are_refused(tmp_path):
    for name in "ab":
        Journal(tmp_path / name, {"commit": name})
    with pytest.raises(DataError, match="other code"):
        join([tmp_path / "a", tmp_path / "b"], tmp_path / "whole")
    assert not (tmp_path / "whole").exists()


@pytest.mark.parametrize(("text", "shard"), [("1/1", (0, 1)), ("2/4", (1, 4)), ("4/4", (3, 4))])
def test_shard(text, shard):
    assert parse_shard(text) == shard


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/2/3", "", "-1/2"])
def test_wrong_shard(text):
    with pytest.raises(ConfigError, match="i/n"):
        parse_shard(text)


@pytest.fixture
def progress():
    with Progress(disable=True) as bar:
        yield bar


@pytest.fixture
def experiment(monkeypatch, progress, tiny_digits, absorbing):
    """An experiment on a tiny prior and tiny digits, registered as "tiny"."""
    prior, images = absorbing, tiny_digits.first(8)
    strategies = [Strategy("random", Random()), Strategy("label-greedy", Greedy(prior), 2, random=False)]

    def run(preset, seeds, progress):
        results = Results("tiny", preset, "tiny")
        budgets, metrics = (0.25, 0.5), ("errors", "exact")
        results.rows = evaluate(prior, images, strategies, budgets, seeds, metrics, lambda *_: None, progress, {})
        return results

    monkeypatch.setitem(EXPERIMENTS, "tiny", run)
    return lambda folder, **options: run_experiment("tiny", "cpu", range(3), folder, progress, **options)


def test_merged_shards_give_the_rows_of_one_run(experiment, progress, tmp_path):
    whole = experiment(tmp_path / "whole")
    for i in range(3):
        assert experiment(tmp_path / "parts", shard=(i, 3)) is None
    assert not (tmp_path / "parts" / "tiny.json").exists()
    merged = merge_shards("tiny", "cpu", range(3), tmp_path / "parts", progress)
    assert merged.rows == whole.rows
    assert [path.name for path in (tmp_path / "parts").iterdir()] == ["tiny.json"]


def test_a_stopped_experiment_goes_on(experiment, tmp_path, monkeypatch):
    whole, asked = experiment(tmp_path / "whole"), []
    measured = Journal.recall

    def stop_at_fifth(self, key, names, measure):
        asked.append(key)
        if len(asked) == 5:
            raise KeyboardInterrupt
        return measured(self, key, names, measure)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "recall", stop_at_fifth)
        with pytest.raises(KeyboardInterrupt):
            experiment(tmp_path)
    assert not (tmp_path / "tiny.json").exists()
    assert len((tmp_path / "tiny.partial.jsonl").read_text().splitlines()) == 5  # the origin and four measurements
    assert experiment(tmp_path).rows == whole.rows
    assert not (tmp_path / "tiny.partial.jsonl").exists()


def test_the_seconds_of_all_sittings_count(tmp_path):
    path = tmp_path / "j.jsonl"
    with keeping(Journal(path, ORIGIN)):
        recall([0], ["errors"], lambda: time.sleep(0.05) or {"errors": 1.0})
        recall([1], ["errors"], lambda: time.sleep(0.05) or {"errors": 1.0})
    assert 0.1 <= Journal(path, ORIGIN).seconds_before < 1


def test_merging_nothing(progress, tmp_path):
    with pytest.raises(DataError, match="no shard of tiny"):
        merge_shards("tiny", "cpu", range(3), tmp_path, progress)


def test_no_journal_is_left_active(tmp_path):
    with keeping(Journal(tmp_path / "j", ORIGIN)):
        pass
    assert journal._ACTIVE.get() is None


def test_another_mask_is_another_measurement():
    masks = torch.zeros(2, 8, dtype=torch.bool)
    masks[0, :3] = masks[1, 1:4] = True
    first, second = (weights_of(FixedRows(mask)) for mask in masks)
    assert first != second
    assert first == weights_of(FixedRows(masks[0].clone()))
