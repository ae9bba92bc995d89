"""Stops on a handful of images, with a prior that answers at once."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from conftest import make_absorbing, random_tokens
from sensewise import hub
from sensewise.apps.cli import app
from sensewise.beyond import stopping
from sensewise.data.gallery import folder_views
from sensewise.data.scenes import Scenes
from sensewise.errors import CheckpointError, DataError
from sensewise.evaluate.experiment import Setup
from sensewise.evaluate.results import Results
from sensewise.policies.stops import Calibration
from sensewise.priors.empirical import EmpiricalPrior

TOKENS = random_tokens((60, 1, 8, 8))
RULE = replace(
    stopping.RULES["mnist"], limit=0.8, levels=(8.0, 4.0, 2.0), promises=(6.0, 3.0), fixed=(0.125, 0.25), images=40
)
SCENES = Scenes("mnist", "test", TOKENS.to(torch.uint8), None, 2, None)


@pytest.fixture
def prior():
    return EmpiricalPrior(TOKENS, 2)


def test_rows_of_every_stop_promise_and_fixed_budget(prior, monkeypatch):
    monkeypatch.setattr(stopping, "BLOCK", 15)  # three blocks, the last one smaller
    card = stopping.calibrate(RULE, prior, SCENES)
    rows = stopping.measure(Setup(), "mnist", RULE, prior, SCENES, card)
    whole = RULE.course(prior, SCENES.first(40), least=0.25)
    for level in RULE.levels:
        found = {row.metric: row for row in rows if row.stop == level and row.promise is None}
        left = whole.stopped(level)
        assert found["errors"].mean == pytest.approx(left.true.mean().item(), abs=1e-5)
        assert found["errors"].density == pytest.approx(left.density.mean().item(), abs=1e-5)
        assert found["longest"].mean == pytest.approx(left.density.max().item(), abs=1e-5)
        assert found["errors"].images == 40
    promised = [row for row in rows if row.promise == 0.9 and row.metric == "coverage"]
    assert [row.stop for row in promised] == [6.0, 3.0]
    assert all(row.mean > 0.8 for row in promised)
    fixed = {row.budget: row.mean for row in rows if row.stop is None and row.metric == "errors"}
    assert fixed[0.25] <= fixed[0.125]
    section = stopping.section(Results("stopping", "cpu", "mnist", rows))
    assert "6 errors" in section.tables[0].markdown()
    assert "at most 3 errors with 90%" in section.tables[0].markdown()


def test_without_a_card_there_are_no_promises(prior):
    rows = stopping.measure(Setup(), "mnist", RULE, prior, SCENES.first(5), None)
    assert {row.promise for row in rows} == {None}


def test_what_lies_between_two_stops_is_in_proportion(prior):
    rows = stopping.measure(Setup(), "mnist", RULE, prior, SCENES.first(5), None)
    stops = [row for row in rows if row.metric == "errors" and row.stop is not None]
    low, high = sorted(stops, key=lambda row: row.density)[:2]
    middle = (low.density + high.density) / 2
    assert stopping.at_mean(stops, middle) == pytest.approx((low.mean + high.mean) / 2)
    assert stopping.at_mean(stops, 0.0) == low.mean


def test_a_card_keeps_its_calibration(tmp_path, prior):
    with pytest.raises(CheckpointError, match="has no calibration"):
        hub.calibration("mnist-guide")
    hub.save(tmp_path, {"kind": "prior", "model": {}}, make_absorbing())
    found = Calibration("spread-greedy", 0.9, 60, {3.0: 1.5, 10.0: 1.25})
    hub.save_calibration(tmp_path, found, "digits")
    assert hub.calibration(tmp_path) == found


def test_the_command_writes_a_card(tmp_path, monkeypatch, digits):
    config = {**hub.read_json(hub.ASSETS / "mnist" / "config.json")}
    hub.save(tmp_path / "mine", {key: config[key] for key in ("kind", "data", "model")}, hub.load_prior("mnist"))
    quick = replace(stopping.RULES["mnist"], limit=0.1, pixels=34, promises=(30.0,), levels=(40.0, 30.0))
    monkeypatch.setitem(stopping.RULES, "mnist", quick)
    monkeypatch.setattr("sensewise.data.load", lambda _name, _split: digits)
    result = CliRunner().invoke(app, ["calibrate", str(tmp_path / "mine"), "--data", "mnist", "--probability", "0.5"])
    assert result.exit_code == 0, result.output
    assert hub.calibration(tmp_path / "mine").images == len(digits)


def test_pictures_are_seen_whole_and_in_quarters(tmp_path):
    values = np.random.default_rng(0).integers(0, 256, (64, 96), dtype=np.uint8)
    values[:32, 16:48] = 7  # the first quarter of the middle square
    Image.fromarray(values).save(tmp_path / "a.png")
    Image.fromarray(values[:20]).save(tmp_path / "small.png")
    flat = np.full((64, 96), 7, dtype=np.uint8)
    flat[:, 0] = 9  # beside the middle square, which is constant
    Image.fromarray(flat).save(tmp_path / "flat.png")
    found = folder_views(tmp_path, 32)
    assert found.sources == ("a.png",) * 4
    quarter = values[32:, 48:80].astype(np.float64)
    expected = (quarter - quarter.min()) / np.ptp(quarter)
    np.testing.assert_allclose(found.values[3, 0].numpy(), expected, atol=1e-6)
    assert found.values.flatten(1).amin(1).eq(0).all()
    assert found.values.flatten(1).amax(1).eq(1).all()
    with pytest.raises(DataError, match="no pictures"):
        folder_views(tmp_path, 128)
