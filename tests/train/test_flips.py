"""Readings for training: as often wrong as they say, and a stage that starts from a prior of tokens."""

from dataclasses import replace

import pytest
import torch

from conftest import seeded
from sensewise import hub
from sensewise.errors import ConfigError
from sensewise.tokens import unpack
from sensewise.train.curriculum import Curriculum, Rollouts, noise_levels
from sensewise.train.flips import misread
from sensewise.train.prior import PriorRecipe, PriorSettings
from tiny_trainings import FIT, UNET, images

NOISY = Curriculum(on_policy=0.5, min_steps=2, max_steps=4, max_budget=0.5, noise=0.15)


def recipe(curriculum=NOISY, encoding="noisy", init=None):
    network = replace(UNET, encoding=encoding)
    return PriorRecipe(PriorSettings(4, True, network, curriculum, FIT), images(), images(), init=init)


def test_readings_are_as_often_wrong_as_they_say():
    x = torch.randint(1, 3, (200, 1, 16, 16), generator=seeded())
    level = torch.tensor([0.0, 0.02, 0.1, 0.15]).repeat(50)
    repeated = torch.arange(200) >= 100
    chance = torch.rand(x.shape, generator=seeded(1))
    sites = torch.rand(x.shape, generator=seeded(2)) < 0.5
    values, wrong, seen = unpack(misread(x, sites, level, chance, repeated, seeded(3)))
    certain = sites & (wrong == 0)
    assert torch.equal(seen, sites)
    assert torch.equal(certain, sites & (level == 0).view(-1, 1, 1, 1))
    mistaken = (values.round() + 1 != x).float()
    assert mistaken[certain].sum() == 0
    for low, high in ((0.001, 0.005), (0.01, 0.03), (0.05, 0.12), (0.12, 0.2)):
        some = seen & (wrong > low) & (wrong < high)
        expected = wrong[some].mean()
        error = (expected * (1 - expected) / some.sum()).sqrt()
        assert (mistaken[some].mean() - expected).abs() < 4 * error
    assert len(wrong[seen & repeated.view(-1, 1, 1, 1)].unique()) > 4  # readings that were repeated are worth more
    once = seen & ~repeated.view(-1, 1, 1, 1)
    torch.testing.assert_close(wrong[once], level.view(-1, 1, 1, 1).expand(wrong.shape)[once])


def test_levels_lie_in_their_range_and_some_are_nothing():
    levels = noise_levels(10_000, 0.15, seeded())
    assert 0.15 < (levels == 0).float().mean() < 0.18
    assert levels.max() <= 0.15
    assert abs(levels[levels > 0].mean() - 0.075) < 0.002


def test_trajectories_keep_their_flips_until_they_end():
    rollouts = Rollouts(6, (8, 8), NOISY)
    rollouts.restart_finished(torch.arange(6), seeded())
    level, chance = rollouts.level.clone(), rollouts.chance.clone()
    rollouts.left[2] = -1
    rollouts.restart_finished(torch.arange(6, 12), seeded(1))
    kept = torch.arange(6) != 2
    assert torch.equal(rollouts.level[kept], level[kept])
    assert torch.equal(rollouts.chance[kept], chance[kept])
    assert not torch.equal(rollouts.chance[2], chance[2])
    again = Rollouts(6, (8, 8), NOISY)
    again.load_state(rollouts.state())
    assert torch.equal(again.level, rollouts.level)
    assert "level" not in Rollouts(6, (8, 8), replace(NOISY, noise=0.0)).state()  # older checkpoints have none


def test_a_noisy_stage_starts_from_a_prior_of_tokens(tmp_path):
    assert recipe(replace(NOISY, noise=0.0), "one-hot").train(tmp_path / "tokens")
    second = recipe(init=tmp_path / "tokens")
    begun = second.job(fresh=True).objective.model
    assert second.train(tmp_path / "noisy")
    trained, config = hub.load(tmp_path / "noisy")
    tokens, _ = hub.load(tmp_path / "tokens")
    before = tokens.network.stem.weight
    assert torch.equal(begun.network.stem.weight[:, : before.shape[1]], before)
    assert (begun.network.stem.weight[:, before.shape[1] :] == 0).all()
    assert type(trained).__name__ == "FlipPrior"
    assert {"errors_0", "expected_0", "errors_0.1", "expected_0.1"} <= set(config["trained"]["validation"])
    assert not torch.equal(trained.network.stem.weight[:, : before.shape[1]], before)


def test_noise_and_its_encoding_belong_together():
    for wrong in (recipe(replace(NOISY, noise=0.0)), recipe(encoding="one-hot")):
        with pytest.raises(ConfigError, match="belong together"):
            wrong.job(fresh=True)
    with pytest.raises(ConfigError, match=r"below 0\.5"):
        replace(NOISY, noise=0.5)
