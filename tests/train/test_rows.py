"""The coarse prior over rows, the one-shot row policy and the relaxed profile."""

from dataclasses import replace

import pytest
import torch

from conftest import seeded
from sensewise import hub
from sensewise.errors import ConfigError
from sensewise.kspace import acs_rows, keep_rows, to_image
from sensewise.networks.rows import RowPolicyNetwork
from sensewise.sensors.rows import RowProfile
from sensewise.tokens import MASK
from sensewise.train.fit import step_generator
from sensewise.train.gradient import FitSettings
from sensewise.train.processes import Execution
from sensewise.train.relaxed import RowScores
from sensewise.train.row_policy import RowPolicyObjective, RowPolicyRecipe, RowPolicySettings, onto_budget
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
    values = objective.validate(network)
    assert {"error", "entropy", "entropy_drawn", "undecided", "changed", "calm"} <= set(values)
    assert values["changed"] == 1  # there was no look before
    assert objective.validate(network)["changed"] == 0


def test_log_odds_on_budget_expect_it_and_do_not_change_with_a_shift():
    logits = torch.randn(3, ROWS, generator=seeded()).double().requires_grad_()
    free, count = ~acs_rows(ROWS, ACS), torch.tensor([1, 4, 7])
    moved = onto_budget(logits, free, count)
    torch.testing.assert_close(moved.sigmoid()[:, free].sum(1), count.double())
    torch.testing.assert_close(onto_budget(logits + 3, free, count), moved)
    energy = torch.rand(ROWS, generator=seeded()).double()
    (gradient,) = torch.autograd.grad((moved.sigmoid() * energy)[:, free].sum(), logits)
    torch.testing.assert_close(gradient[:, free].sum(1), torch.zeros(3).double(), atol=1e-6, rtol=0)


def test_row_policy_trains_on_masks_like_those_it_is_used_with():
    objective = row_policy().job(fresh=True).objective
    shown = []
    objective.left = lambda tokens, mask: shown.append(mask) or torch.zeros(mask.shape)
    objective.loss(objective.model, 0, seeded())
    (pairs,) = shown
    first, second = pairs.chunk(2)
    assert torch.equal(first.sum(1), second.sum(1))
    assert bool(pairs[:, acs_rows(ROWS, ACS)].all())
    assert bool((pairs.sum(1) > ACS).all())


def test_row_policy_finds_the_rows_that_matter():
    """Where only row 2 leaves entropy, it is the one row beside the ACS block at s = 0.25."""
    made = row_policy()
    objective = made.job(fresh=True).objective
    objective.left = lambda tokens, mask: torch.where(mask, 0.0, torch.arange(ROWS).eq(2) * 9.0)
    objective.settings = replace(objective.settings, batch_size=16, open_steps=1)
    optimizer = torch.optim.Adam(objective.model.parameters(), 0.02)
    for step in range(60):
        optimizer.zero_grad()
        objective.loss(objective.model, step, step_generator(0, step)).backward()
        optimizer.step()
    values = objective.validate(objective.model)
    assert bool(objective.last[:, 2].all())
    assert values["undecided"] < 0.1


@pytest.mark.parametrize(("decided", "ended"), [(1.0, 3), (0.0, 5)])
def test_a_row_policy_ends_when_it_has_decided(decided, ended, tmp_path, console):
    made = row_policy()
    fit = FitSettings(steps=5, validate_every=1, average=0.0)
    settings = replace(made.settings, decided=decided, calm=1.0, patience=3, fit=fit)
    assert replace(made, settings=settings).train(tmp_path, Execution(console=console))
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == ended


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
