"""Training of a prior over readings: what is drawn, what is minimised, and a run that is resumed."""

import json
import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from conftest import awake, fresh, seeded
from sensewise import hub
from sensewise.apps.cli import app
from sensewise.data.any_grey import BANK, NAME
from sensewise.data.crops import Pictures
from sensewise.errors import CheckpointError, ConfigError, DataError
from sensewise.networks.any_size import AnySize
from sensewise.predictions import Mixture
from sensewise.priors.readings import ReadingPrior
from sensewise.train.gradient import FitSettings
from sensewise.train.processes import Execution
from sensewise.train.reading_prior import (
    FLOOR,
    AnySizeSettings,
    Pool,
    ReadingPriorRecipe,
    ReadingPriorSettings,
    picture_loss,
)

NETWORK = AnySizeSettings(widths=(8, 12), blocks=(1, 1), components=2, embedding=8)
FIT = FitSettings(steps=6, learning_rate=2e-3, warmup=1, clip=2.0, average=0.5, validate_every=3)
SETTINGS = ReadingPriorSettings(
    heights=(16, 18),
    widths=(16, 24),
    batches=(6, 4),
    shares=(0.5, 0.5),
    validation_pictures=2,
    network=NETWORK,
    fit=FIT,
)


def pictures(split="train"):
    place = np.linspace(0, 9, 128)
    tiles = [128 + 100 * np.sin(place * (i + 1))[:, None] * np.cos(place) for i in range(3)]
    return Pictures("waves", split, "mine", {}, {"drawn": np.stack(tiles).astype(np.uint8)})


def recipe(**changes):
    return ReadingPriorRecipe(SETTINGS, pictures(), pictures("validation"), **changes)


def prior():
    network = awake(fresh(AnySize, widths=(8, 12), blocks=(1, 1), components=2, embedding=8), std=0.05)
    return ReadingPrior(network)


def test_the_loss_is_nats_and_the_two_scores_of_the_error():
    """One Gaussian per pixel, far from the ends: all three parts by hand."""
    centres, widths = torch.full((2, 1, 1, 4, 4), 0.5), torch.full((2, 1, 1, 4, 4), 0.02)
    prediction = Mixture(torch.zeros_like(centres), centres, widths, 256)
    picture = (torch.randint(110, 145, (2, 1, 4, 4), generator=seeded()) / 255).float()
    wanted = torch.rand(picture.shape, generator=seeded()) < 0.6
    found = picture_loss(prediction, picture, wanted, 256, 0.5, 0.2)
    for b in range(2):
        x = picture[b][wanted[b]]
        half = 0.5 / 255
        normal = torch.distributions.Normal(0.5, 0.02)
        nats = -(normal.cdf(x + half) - normal.cdf(x - half)).log().mean()
        error, expected = (x - 0.5).square().mean() + FLOOR, 0.02**2 + FLOOR
        by_hand = nats + 0.5 * error.log() + 0.2 * (math.log(expected) + error / expected)
        assert found[b].item() == pytest.approx(by_hand.item(), rel=1e-3)


def test_the_calibration_score_moves_widths_alone():
    centres = torch.full((1, 1, 1, 4, 4), 0.4, requires_grad=True)
    widths = torch.full((1, 1, 1, 4, 4), 0.05, requires_grad=True)
    picture = torch.rand(1, 1, 4, 4, generator=seeded())
    wanted = torch.ones_like(picture, dtype=torch.bool)
    gradients = {}
    for c in (0.0, 1.0):
        loss = picture_loss(Mixture(torch.zeros(1, 1, 1, 4, 4), centres, widths, 256), picture, wanted, 256, 0.0, c)
        gradients[c] = torch.autograd.grad(loss.sum(), (centres, widths))
    moved = [float((gradients[1.0][i] - gradients[0.0][i]).abs().max()) for i in range(2)]
    assert moved[0] < 1e-3 * moved[1]


def test_one_hopeless_pixel_does_not_rule_a_step():
    widths = torch.full((1, 1, 1, 1, 1), 1e-4, requires_grad=True)
    prediction = Mixture(torch.zeros(1, 1, 1, 1, 1), torch.zeros(1, 1, 1, 1, 1), widths, 256)
    far = torch.ones(1, 1, 1, 1)
    loss = picture_loss(prediction, far, far > 0, 256, 0.0, 0.0)
    assert loss.item() == pytest.approx(-math.log(1e-4 / 256), rel=1e-3)
    assert torch.isfinite(torch.autograd.grad(loss.sum(), widths)[0]).all()


def test_trajectories_begin_with_nothing_and_follow_the_picks():
    pool, model = Pool((16, 24), 10, SETTINGS), prior()
    assert pool.rolled == 6
    pool.refill(pictures(), seeded())
    assert not pool.seen[:6].any()
    assert pool.seen[6:].any()
    assert (pool.sigma > 0).any()
    assert (pool.sigma == 0).any()
    before, left = pool.picture.clone(), pool.left.clone()
    variance = torch.rand(6, 16 * 24, generator=seeded())
    pool.advance(model, variance)
    assert torch.equal(pool.seen[:6].sum(1), pool.per_step)
    assert torch.equal(pool.left, left - 1)
    pool.refill(pictures(), seeded(1))
    assert torch.equal(pool.picture[:6], before[:6])  # under way
    assert not torch.equal(pool.picture[6:], before[6:])
    for step in range(40):
        pool.advance(model, variance)
        pool.refill(pictures(), seeded(step))
    assert (pool.left >= 0).all()
    assert (pool.seen[:6].sum(1) <= 0.5 * 16 * 24 + 4 + 32).all()


def test_readings_without_noise_are_the_picture():
    pool = Pool((16, 16), 8, SETTINGS)
    pool.refill(pictures(), seeded())
    y, quiet = pool.readings(), pool.sigma[:, 0, 0, 0] == 0
    seen = pool.seen.view(8, 1, 16, 16)
    assert torch.equal(~y[:, :1].isnan(), seen)
    assert torch.equal(y[quiet][:, :1][seen[quiet]], pool.picture[quiet][seen[quiet]])


def test_a_run_that_is_resumed_takes_the_steps_of_an_undisturbed_one(tmp_path):
    assert recipe().train(tmp_path / "whole")
    assert not recipe().train(tmp_path / "parts", Execution(max_minutes=0.0))
    assert json.loads((tmp_path / "parts" / "config.json").read_text())["trained"]["steps"] < 6
    hub.load_prior(tmp_path / "parts")  # usable after every stop
    assert recipe().train(tmp_path / "parts", Execution(resume=True))
    whole, parts = (hub.load_prior(tmp_path / name).state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    config = json.loads((tmp_path / "whole" / "config.json").read_text())
    assert config["data"] == "waves"
    assert config["licence"] == "mine"
    assert config["model"]["network"] == "any-size"
    assert set(config["trained"]["validation"]) == {
        f"{way}_{what}_{budget}"
        for way in ("random", "spread")
        for what in ("psnr", "gap", "rms")
        for budget in (0.02, 0.1)
    }


def test_it_learns(tmp_path):
    """A hundred steps on three pictures: better than the interpolation that it begins with, and calibrated."""
    fit = FitSettings(steps=100, learning_rate=5e-3, warmup=5, clip=2.0, average=0.9, validate_every=100)
    settings = ReadingPriorSettings(
        heights=(32,), widths=(32,), batches=(12,), shares=(1.0,), validation_pictures=2, network=NETWORK, fit=fit
    )
    assert ReadingPriorRecipe(settings, pictures(), pictures("validation")).train(tmp_path / "run")
    before = ReadingPriorRecipe(SETTINGS, pictures(), pictures("validation")).objective(
        ReadingPrior(fresh(AnySize, widths=(8, 12), blocks=(1, 1), components=2, embedding=8))
    )
    first = before.validate(before.model)
    after = json.loads((tmp_path / "run" / "config.json").read_text())["trained"]["validation"]
    assert abs(after["spread_gap_0.1"]) < abs(first["spread_gap_0.1"])
    assert after["spread_psnr_0.1"] > first["spread_psnr_0.1"] - 0.3


def test_it_starts_from_other_weights(tmp_path):
    recipe().train(tmp_path / "first")
    model = hub.build(recipe().config())
    recipe(init=tmp_path / "first").initialise(model)
    loaded = hub.load_prior(tmp_path / "first").state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in model.state_dict().items())
    with pytest.raises(CheckpointError, match="another size"):
        recipe(init="any-grey").initialise(model)


@pytest.mark.parametrize(
    "changes",
    [
        {"heights": (16,)},
        {"heights": (), "widths": (), "batches": (), "shares": ()},
        {"heights": (8, 16)},
        {"noisy": 1.5},
        {"max_budget": 1.0},
        {"min_steps": 40},
        {"shares": (1.0, 0.0)},
    ],
)
def test_impossible_settings(changes):
    with pytest.raises(ConfigError):
        ReadingPriorSettings(
            **{"heights": (16, 16), "widths": (16, 16), "batches": (1, 1), "shares": (1.0, 1.0), **changes}
        )


TOY = """
[prior.any-grey.mixed]
heights = [16]
widths = [16]
batches = [4]
shares = [1.0]
validation_pictures = 2
[prior.any-grey.mixed.network]
widths = [8, 8]
blocks = [1, 1]
components = 2
embedding = 8
[prior.any-grey.mixed.fit]
steps = 2
validate_every = 2
"""


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.toml").write_text(TOY)
    tiles = pictures().tiles["drawn"]
    (tmp_path / "data" / NAME).mkdir(parents=True)
    np.savez(tmp_path / "data" / NAME / BANK, **{"train/drawn": tiles, "validation/drawn": tiles})
    command = ["train", "prior", "--dataset", "any-grey", "--preset", "toy.toml", "--device", "cpu", "--data"]
    done = CliRunner().invoke(app, [*command, "data"])
    assert done.exit_code == 0, done.output
    assert "complete" in done.output
    assert isinstance(hub.load_prior(tmp_path / "runs/toy/any-grey-mixed"), ReadingPrior)
    refused = CliRunner().invoke(app, [*command, "nowhere"])
    assert isinstance(refused.exception, DataError)
    assert "sensewise data fetch any-grey" in str(refused.exception)
