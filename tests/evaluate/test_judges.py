"""Judges: all metrics from one pass, and what another reconstructor cannot know."""

import pytest
import torch

from conftest import random_kspace, random_tokens, seeded
from sensewise.errors import ConfigError
from sensewise.evaluate.judges import (
    SLICE_METRICS,
    TOKEN_METRICS,
    IntensityJudge,
    MagnitudeJudge,
    PriorJudge,
    RowsJudge,
)
from sensewise.kspace import acs_rows, keep_rows
from sensewise.predictions import mean, mode
from sensewise.reconstruct.base import NOTHING, Reconstructor
from sensewise.reconstruct.zero_filled import ZeroFilled
from sensewise.sensors.base import Side
from sensewise.tokens import observe


class White(Reconstructor):
    """Measured pixels as they are, all others half lit."""

    def __call__(self, observation, mask, side=NOTHING):
        return torch.where(observation > 0, observation - 1.0, 0.6)


@pytest.fixture
def scene(quick):
    x, label = random_tokens((3, 1, 32, 32)), torch.tensor([1, 2, 3])
    mask = torch.rand(3, 1024, generator=seeded()) < 0.999
    return x, mask, observe(x, mask), Side(label=label)


def test_every_metric_from_one_pass(quick, scene, monkeypatch):
    x, mask, y, side = scene
    passes, predict = [], quick.predict
    monkeypatch.setattr(quick, "predict", lambda *given: passes.append(len(given[0])) or predict(*given))
    values = PriorJudge(quick, list(TOKEN_METRICS))(y, mask, side, x)
    assert passes == [3]
    assert set(values) == set(TOKEN_METRICS)
    assert all(value.shape == (3,) for value in values.values())
    assert (values["errors"] <= 5).all()
    assert (values["entropy"] < 0.01).all()
    assert (values["psnr"] > 20).all()


def test_what_a_prior_judge_rebuilds(quick, scene):
    _, mask, y, side = scene
    found = PriorJudge(quick, ["errors"]).rebuild(y, mask, side)
    prediction = quick(y, side.label)
    assert torch.equal(found.tokens, mode(prediction))
    assert torch.equal(found.mean, mean(prediction))
    assert torch.equal(found.entropy, prediction.entropy())
    assert torch.equal(found.seen, mask)


def test_raw_entropy_counts_observed_sites_as_the_network_predicts_them(quick, scene):
    x, mask, y, side = scene
    values = PriorJudge(quick, ["entropy", "entropy-raw"])(y, mask, side, x)
    raw = quick.predict(y, side.label, None).entropy()
    assert torch.equal(values["entropy-raw"], raw.mean((1, 2, 3)))
    assert torch.allclose(values["entropy"], torch.where(y == 0, raw, 0.0).mean((1, 2, 3)))
    assert (values["entropy-raw"] > 10 * values["entropy"]).all()


def test_intensities_are_judged_at_their_nearest_levels_and_have_no_entropy(scene):
    x, mask, y, side = scene
    values = IntensityJudge(White(), 2, ("errors", "psnr", "entropy"))(y, mask, side, x)
    assert torch.equal(values["errors"], ((x == 1) & (y == 0)).flatten(1).sum(1).float())
    assert values["entropy"].isnan().all()
    assert values["psnr"].isfinite().all()


def test_magnitudes_against_the_fully_sampled_slice():
    kspace, mask = random_kspace(2, 12, 10), acs_rows(12, 6).expand(2, -1)
    judge = MagnitudeJudge(ZeroFilled())
    assert judge.metrics == tuple(SLICE_METRICS)
    partly = judge(keep_rows(kspace, mask), mask, NOTHING, kspace)
    whole = judge(kspace, torch.ones_like(mask), NOTHING, kspace)
    assert (whole["nmse"] == 0).all()
    assert (partly["nmse"] > 0).all()
    with pytest.raises(ConfigError, match="no metric 'errors'"):
        MagnitudeJudge(ZeroFilled(), ["errors"])


def test_rows_are_judged_beside_the_acs_block():
    kspace, masks = random_kspace(3, 12, 10), acs_rows(12, 4).repeat(3, 1)
    masks[:2, [1, 11]] = True  # f = -5 and 5
    masks[2, [1, 2]] = True
    values = RowsJudge(4)(keep_rows(kspace, masks), masks, NOTHING, kspace)
    assert values["mirrored-pairs"].tolist() == [1, 1, 0]
    assert values["different-masks"].tolist() == [2, 2, 2]
