"""The coarse prior over rows, the one-shot row policy and the relaxed profile."""

import pytest
import torch

from conftest import seeded
from sensewise import hub
from sensewise.errors import ConfigError
from sensewise.kspace import acs_rows, keep_rows, to_image
from sensewise.networks.rows import RowPolicyNetwork
from sensewise.sensors.rows import RowProfile
from sensewise.tokens import MASK
from sensewise.train.processes import Execution
from sensewise.train.relaxed import RowScores
from sensewise.train.row_policy import RowPolicyObjective, RowPolicyRecipe, RowPolicySettings
from tiny_trainings import ACS, ROWS, relaxed, row_policy, row_prior, row_prior_model, slices


def test_a_row_prior_comes_with_its_profile(tmp_path, console):
    recipe = row_prior()
    assert recipe.train(tmp_path, Execution(console=console))
    prior, profile = hub.load_row_prior(tmp_path)
    assert profile == RowProfile.of(slices().values, ACS)
    assert prior.shape == (1, ROWS, 1)


def test_a_row_prior_always_sees_the_acs_block(monkeypatch):
    objective, shown = row_prior().job(fresh=True).objective, []
    predict = objective.model.predict
    monkeypatch.setattr(objective.model, "predict", lambda y, label, t: shown.append(y) or predict(y, label, t))
    objective.loss(objective.model, 0, seeded()).backward()
    (y,) = shown
    assert (y[:, 0, acs_rows(ROWS, ACS), 0] != MASK).all()
    assert (y == MASK).any()


def test_row_policy_loss_has_a_gradient_on_every_free_row():
    network = RowPolicyNetwork(ROWS, width=8, layers=1)
    scenes = slices()
    profile = RowProfile.of(scenes.values, ACS)
    settings = RowPolicySettings(batch_size=8)
    objective = RowPolicyObjective(network, row_prior_model(), profile, scenes, scenes, settings)
    objective.loss(network, 0, seeded()).backward()
    assert all(p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in network.parameters())
    assert set(objective.validate(network)) == {"error", "entropy", "off_budget"}


def test_a_row_policy_needs_the_prior_s_acs_block():
    made = row_policy()
    with pytest.raises(ConfigError, match="4 ACS rows, the preset has 6"):
        RowPolicyRecipe(made.settings, made.scenes, made.held_out, 6, made.prior, made.profile, True)
    with pytest.raises(ConfigError, match="min_budget"):
        RowPolicySettings(min_budget=0.5, max_budget=0.2)


def test_expected_zero_filled_error_is_the_energy_left_out():
    kspace = slices(3).values
    mask = acs_rows(ROWS, ACS).expand(3, -1)
    energy = kspace.abs().square().sum((1, 2))
    left = torch.where(mask.unsqueeze(-1), 0, kspace).abs().square().sum((1, 2)) / energy
    image = to_image(kspace)
    error = (to_image(keep_rows(kspace, mask)) - image).abs().square().sum((1, 2)) / image.abs().square().sum((1, 2))
    torch.testing.assert_close(left, error)


def test_relaxed_profile_is_on_budget_and_has_gradients_beside_acs():
    scores = RowScores(torch.rand(ROWS, generator=seeded()) + 0.1, 8, ACS, 0.25)
    weights = scores()
    assert torch.equal(weights.detach().bool(), scores.hard())
    assert scores.hard().sum() == 8
    weights.sum().backward()
    block = acs_rows(ROWS, ACS)
    assert bool((scores.scores.grad[block] == 0).all())
    assert bool((scores.scores.grad[~block] > 0).all())


def test_a_relaxed_profile_leaves_its_best_mask(tmp_path, console):
    assert not relaxed().train(tmp_path, Execution(console=console, max_minutes=0))
    assert hub.load_mask(tmp_path / "mask.npy", ROWS).sum() == 8
    assert relaxed().train(tmp_path, Execution(console=console, resume=True))
    mask = hub.load_mask(tmp_path / "mask.npy", ROWS)
    assert mask.sum() == 8
    assert mask[acs_rows(ROWS, ACS)].all()
    assert not (tmp_path / "weights.safetensors").exists()
