"""The journal: nothing is measured twice, nothing of other code is kept, damaged lines are noticed, shards add up."""

import json
import math
import time
from dataclasses import replace

import pytest
import torch

from sensewise.errors import ConfigError, DataError
from sensewise.evaluate.evaluate import evaluate, measure
from sensewise.evaluate.journal import Journal, Plan, code_digest, join, parse_shard
from sensewise.evaluate.judges import PriorJudge
from sensewise.evaluate.method import Method, PlainDraw
from sensewise.evaluate.task import pixel_task
from sensewise.networks.decoders import MaskDesigner
from sensewise.policies.choose import Spread
from sensewise.policies.greedy import Greedy
from sensewise.policies.simple import Fixed, Random, VariableDensity
from sensewise.policies.starts import CentralBlock, GridProbe, RandomProbe
from sensewise.predictions import variance
from sensewise.sensors.base import Side

ORIGIN = {"commit": "abc"}


class Meter:
    """Counts its readings; fails after `limit`."""

    def __init__(self, limit=1000):
        self.readings, self.limit = 0, limit

    def __call__(self, number):
        if self.readings == self.limit:
            raise KeyboardInterrupt
        self.readings += 1
        return {"errors": number / 3, "entropy": math.nan}


def measure_all(journal, meter, count=6):
    return [journal.recall(f"key {n}", lambda n=n: meter(n)) for n in range(count)]


def numbers(values):
    return [value["errors"] for value in values]


def test_without_a_file_nothing_is_kept():
    meter = Meter()
    assert numbers(measure_all(Journal(), meter)) == numbers(measure_all(Journal(), meter))
    assert meter.readings == 12


def test_after_a_stop_only_the_rest_is_measured(tmp_path):
    path, whole, meter = tmp_path / "j.jsonl", measure_all(Journal(), Meter()), Meter()
    with pytest.raises(KeyboardInterrupt):
        measure_all(Journal(path, ORIGIN), Meter(limit=4))
    assert numbers(measure_all(Journal(path, ORIGIN), meter)) == numbers(whole)  # to the last digit
    assert meter.readings == 2


def test_a_line_cut_short_is_measured_again(tmp_path):
    path, meter = tmp_path / "j.jsonl", Meter()
    measure_all(Journal(path, ORIGIN), Meter())
    path.write_text(path.read_text()[:-9])
    assert numbers(measure_all(Journal(path, ORIGIN), meter)) == numbers(measure_all(Journal(), Meter()))
    assert meter.readings == 1
    assert all(json.loads(line) for line in path.read_text().splitlines())


@pytest.mark.parametrize(
    ("old", "new"), [("1.0", "9.0"), ('"seconds"', '"minutes"'), ("key 3", "key 9"), ('{"key": "key 3"', "\x00")]
)
def test_a_damaged_line_is_measured_again_and_the_others_are_kept(tmp_path, old, new):
    path, meter = tmp_path / "j.jsonl", Meter()
    measure_all(Journal(path, ORIGIN), Meter())
    lines = path.read_text().splitlines()
    assert old in lines[4]
    path.write_text("\n".join([*lines[:4], lines[4].replace(old, new, 1), *lines[5:]]) + "\n")
    assert numbers(measure_all(Journal(path, ORIGIN), meter)) == numbers(measure_all(Journal(), Meter()))
    assert meter.readings == 1


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"null\n", b"[1]\n", b'{"origin": {"commit": "abc"}}\n', b"\xff\xfe\n"]
)
def test_a_file_that_is_not_a_journal_is_started_anew(tmp_path, content):
    (tmp_path / "j.jsonl").write_bytes(content)
    meter = Meter()
    measure_all(Journal(tmp_path / "j.jsonl", ORIGIN), meter)
    assert meter.readings == 6


def test_a_journal_of_other_code_is_not_used(tmp_path):
    path, meter = tmp_path / "j.jsonl", Meter()
    measure_all(Journal(path, ORIGIN), Meter())
    measure_all(Journal(path, {"commit": "other"}), meter)
    assert meter.readings == 6


@pytest.mark.parametrize("of", [2, 3, 7])
def test_shards_make_up_the_whole(tmp_path, of):
    paths, meter = [tmp_path / f"{i}.jsonl" for i in range(of)], Meter()
    for i, path in enumerate(paths):
        found = measure_all(Journal(path, ORIGIN, (i, of)), meter)
        assert [n for n, value in enumerate(found) if value is not None] == list(range(i, 6, of))
    assert meter.readings == 6
    assert join(paths, tmp_path / "whole.jsonl") == 6
    whole = Journal(tmp_path / "whole.jsonl", ORIGIN)
    assert numbers(measure_all(whole, Meter(limit=0))) == numbers(measure_all(Journal(), Meter()))


@pytest.mark.parametrize("of", [2, 5])
def test_shards_do_not_repeat_what_is_asked_for_twice(tmp_path, of):
    meter = Meter()
    for i in range(of):
        journal = Journal(tmp_path / f"{i}.jsonl", ORIGIN, (i, of))
        measure_all(journal, meter)
        journal.recall("new", lambda: meter(7))
        measure_all(journal, meter)
    assert meter.readings == 7


def test_a_plan_measures_nothing_and_says_how():
    found, meter = Plan(), Meter()
    assert measure_all(found, meter) + measure_all(found, meter) == [None] * 12
    assert (meter.readings, list(found.measures)) == (0, [f"key {n}" for n in range(6)])
    assert [measure()["errors"] for measure in found.measures.values()] == numbers(measure_all(Journal(), Meter()))


def test_shards_of_different_code_are_refused(tmp_path):
    for name in "ab":
        Journal(tmp_path / name, {"commit": name})
    with pytest.raises(DataError, match="other code"):
        join([tmp_path / "a", tmp_path / "b"], tmp_path / "whole")
    (tmp_path / "c").write_text("no journal")
    with pytest.raises(DataError, match="not the journal of a shard"):
        join([tmp_path / "c"], tmp_path / "whole")
    assert not (tmp_path / "whole").exists()


@pytest.mark.parametrize(("text", "shard"), [("1/1", (0, 1)), ("2/4", (1, 4)), ("4/4", (3, 4))])
def test_shard(text, shard):
    assert parse_shard(text) == shard


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/2/3", "", "-1/2"])
def test_wrong_shard(text):
    with pytest.raises(ConfigError, match="i/n"):
        parse_shard(text)


def test_the_seconds_of_all_sittings_count(tmp_path):
    path = tmp_path / "j.jsonl"
    journal = Journal(path, ORIGIN)
    for n in range(2):
        journal.recall(str(n), lambda: time.sleep(0.05) or {"errors": 1.0})
    assert 0.1 <= Journal(path, ORIGIN).seconds_before < 1


def test_the_code_of_an_experiment_outside_the_package_counts(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "outside_one.py").write_text("def run(setup):\n    return 1\n")
    (tmp_path / "outside_two.py").write_text("def run(setup):\n    return 2\n")
    import outside_one
    import outside_two

    digests = {code_digest(), code_digest(outside_one.run), code_digest(outside_two.run)}
    assert len(digests) == 3
    assert code_digest(measure) == code_digest()


def keys(task, method):
    journal = Journal()
    measure(task, method, 0.25, (0, 1), journal)
    return set(journal.found)


@pytest.fixture
def task(absorbing, tiny_digits):
    return pixel_task(tiny_digits.first(4), absorbing, ["errors"])


def test_a_key_names_the_task(task, absorbing, tiny_digits):
    method = Method("random", Random())
    known = keys(task, method)
    assert keys(pixel_task(tiny_digits.first(4), absorbing, ["errors"]), method) == known
    shown = replace(task.side, summary=task.side.summary.roll(1, 0))
    others = [
        replace(task, judges={"prior": PriorJudge(absorbing, ["errors", "exact"])}),
        replace(task, side=shown),
        replace(task, side=Side()),
        replace(task, columns={"prior": "on-policy"}),
        replace(task, start=RandomProbe()),
        pixel_task(tiny_digits.part(slice(4, 8)), absorbing, ["errors"]),
        pixel_task(replace(tiny_digits.first(4), split="test"), absorbing, ["errors"]),
    ]
    assert not any(known & keys(other, method) for other in others)


def test_a_key_names_the_weights(task, tiny_digits):
    from conftest import make_absorbing

    method = Method("random", Random())
    other = pixel_task(tiny_digits.first(4), make_absorbing(seed=1), ["errors"])
    assert not keys(task, method) & keys(other, method)


def test_a_key_names_the_method_with_its_parameters(task, absorbing):
    masks = torch.zeros(2, 64, dtype=torch.bool)
    masks[0, :16] = masks[1, 1:17] = True
    greedy = Greedy(absorbing)
    designer = MaskDesigner((1, 8, 8), 10).eval().requires_grad_(False)
    methods = [
        Method("m", Random()),
        Method("m", VariableDensity()),
        Method("m", VariableDensity(0.3)),
        Method("m", Fixed(masks[:1])),
        Method("m", Fixed(masks[1:])),
        Method("m", greedy),
        Method("m", greedy, 2),
        Method("m", greedy, choose=Spread()),
        Method("m", greedy, choose=Spread(0.8)),
        Method("m", greedy, start=RandomProbe()),
        Method("m", greedy, start=RandomProbe(0.5)),
        Method("m", greedy, start=GridProbe()),
        Method("m", Greedy(absorbing, variance)),
        Method("m", Greedy(absorbing, reach=0.6)),
        PlainDraw("m", designer),
    ]
    found = [frozenset(keys(task, method)) for method in methods]
    assert len(set(found)) == len(methods)
    assert found[3] == keys(task, Method("m", Fixed(masks[:1].clone())))
    assert CentralBlock(2) == CentralBlock(2)


def test_a_shard_has_rows_only_for_what_it_measured(task, absorbing):
    methods = [Method("random", Random()), Method("greedy", Greedy(absorbing), 2)]
    whole = evaluate(task, methods, (0.25, 0.5), (0, 1))
    parts = [evaluate(task, methods, (0.25, 0.5), (0, 1), journal=Journal(shard=(i, 3))) for i in range(3)]
    assert all(row in whole for part in parts for row in part)
    assert sum(map(len, parts)) < len(whole)  # two seeds of one row lie in different shards
