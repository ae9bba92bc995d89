from dataclasses import replace

import pytest
import torch

from conftest import make_absorbing, make_context, random_tokens, seeded
from sensewise import predictions
from sensewise.data.scenes import Scenes
from sensewise.errors import ConfigError
from sensewise.information import per_pixel
from sensewise.policies.choose import SPREAD_VARIANCE, Spread, TopK
from sensewise.policies.greedy import Greedy
from sensewise.tokens import BLACK, MASK, UNKNOWN, observe
from sensewise.train.curriculum import SPREADS, Curriculum, Rollouts, random_masks
from sensewise.train.prior import PriorObjective

GREEDY = Curriculum(on_policy=1.0, min_steps=2, max_steps=6, max_budget=0.5, probe=0.5)


SPREAD = Curriculum(on_policy=1.0, min_steps=2, max_steps=6, max_budget=0.5, probe=0.5, score="variance", spread=0.5)


def fresh_rollouts(batch=40, curriculum=GREEDY):
    rollouts = Rollouts(batch, (8, 8), curriculum)
    rollouts.restart_finished(torch.arange(batch), seeded())
    return rollouts


def test_every_step_measures_its_share_and_nothing_twice():
    rollouts = fresh_rollouts()
    generator = seeded(1)
    for _ in range(6):
        before, left = rollouts.mask.clone(), rollouts.left.clone()
        scores = torch.rand(40, 64, generator=generator)
        rollouts.advance(scores)
        new = rollouts.mask & ~before
        assert not (before & ~rollouts.mask).any()
        assert (new.sum(1) == torch.minimum(rollouts.per_step, (~before).sum(1))).all()
        worst_taken = scores.masked_fill(~new, 2).amin(1)
        best_left = scores.masked_fill(rollouts.mask, -2).amax(1)
        assert (worst_taken > best_left).all()
        assert torch.equal(rollouts.left, left - 1)


def test_new_trajectories():
    rollouts = fresh_rollouts(400)
    assert ((rollouts.left >= 2) & (rollouts.left <= 6)).all()
    probed = rollouts.mask.any(1).float().mean().item()
    assert 0.2 < probed <= 0.6
    total = rollouts.per_step * rollouts.left
    assert (total >= 2).all()
    assert total.max() <= 64 * 0.5 + 2 + 6
    assert 0.85 < rollouts.known.float().mean() < 0.95


def test_only_finished_trajectories_are_replaced():
    rollouts = fresh_rollouts()
    rollouts.mask[:] = True
    rollouts.left[::2], rollouts.left[1::2] = -1, 0
    rollouts.restart_finished(torch.full((40,), 99), seeded(2))
    assert (rollouts.index[::2] == 99).all()
    assert (rollouts.mask[::2].sum(1) < 16).all()
    assert (rollouts.left[::2] > 0).all()
    assert rollouts.index[1::2].tolist() == list(range(1, 40, 2))
    assert rollouts.mask[1::2].all()
    assert (rollouts.left[1::2] == 0).all()


def test_spread_trajectories_pick_as_the_policy_does():
    """Half of them take what spread variance-greedy takes, the others the highest scores."""
    rollouts, prior = fresh_rollouts(curriculum=SPREAD), make_absorbing()
    assert 0.2 < rollouts.spread.float().mean() < 0.8
    x = random_tokens((40, 1, 8, 8))
    y, context = observe(x, rollouts.mask), make_context(label=torch.full((40,), UNKNOWN))
    before, plain = rollouts.mask.clone(), Greedy(prior, predictions.variance)
    around = Greedy(prior, predictions.variance, reach=SPREADS["variance"][1])
    expected = []
    for policy, choose in ((plain, TopK()), (around, SPREAD_VARIANCE)):
        scores = policy.scores(y, before, context).masked_fill(before, -torch.inf)
        rows = [choose(scores[i : i + 1], int(n), context) for i, n in enumerate(rollouts.per_step)]
        expected.append(torch.cat(rows))
    rollouts.advance(plain.scores(y, before, context))
    new = rollouts.mask & ~before
    assert torch.equal(new, torch.where(rollouts.spread[:, None], expected[1], expected[0]))
    assert not torch.equal(expected[0], expected[1])


def test_spread_entropy_picks_as_the_policy_does():
    curriculum = replace(SPREAD, score="entropy", spread=1.0)
    rollouts, scores = fresh_rollouts(curriculum=curriculum), torch.rand(40, 64, generator=seeded(5))
    before, context = rollouts.mask.clone(), make_context()
    offered = scores.masked_fill(before, -torch.inf)
    expected = [Spread()(offered[i : i + 1], int(n), context) for i, n in enumerate(rollouts.per_step)]
    rollouts.advance(scores)
    assert torch.equal(rollouts.mask & ~before, torch.cat(expected))


def test_state_round_trip():
    one = fresh_rollouts(curriculum=SPREAD)
    two = Rollouts(40, (8, 8), SPREAD)
    two.load_state({name: tensor.clone() for name, tensor in one.state().items()})
    scores = torch.rand(40, 64, generator=seeded(3))
    for rollouts in (one, two):
        rollouts.advance(scores)
        rollouts.restart_finished(torch.arange(40), seeded(4))
    assert all(torch.equal(one.state()[name], two.state()[name]) for name in one.state())


@pytest.mark.parametrize(("power", "mean"), [(1.0, 1 / 2), (3.0, 1 / 4), (0.0, 0.63)])
def test_random_masks_have_their_mean_survival(power, mean):
    drawn, _ = random_masks(4000, 64, power, seeded())
    assert drawn.float().mean().item() == pytest.approx(mean, abs=0.02)
    assert drawn.float().mean(1).std() > 0.2


def objective(images, curriculum=GREEDY, prior=None, batch_size=8):
    prior = prior or make_absorbing()
    return PriorObjective(prior.requires_grad_(True), images, images, curriculum, batch_size)


@pytest.mark.parametrize("on_policy", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("relative", [False, True])
def test_loss_has_a_gradient(tiny_digits, on_policy, relative):
    chosen = Curriculum(on_policy=on_policy, min_steps=2, max_steps=6, relative=relative)
    one = objective(tiny_digits, chosen)
    loss = one.loss(one.model, 0, seeded())
    loss.backward()
    assert loss.isfinite()
    assert loss > 0
    assert all(p.grad is not None and p.grad.isfinite().all() for p in one.model.parameters())


def observed(images, monkeypatch, curriculum, steps=1):
    """What the prior was shown in each step: observations and labels."""
    one, shown = objective(images, curriculum), []
    predict = one.model.predict
    monkeypatch.setattr(one.model, "predict", lambda y, label, t: shown.append((y, label)) or predict(y, label, t))
    for step in range(steps):
        one.loss(one.model, step, seeded(step))
    return shown


def test_trajectories_follow_the_priors_own_entropy(tiny_digits, monkeypatch):
    chosen = Curriculum(on_policy=1.0, min_steps=6, max_steps=6, max_budget=0.5, probe=0.0)
    (first, label), (second, _) = observed(tiny_digits, monkeypatch, chosen, steps=2)
    assert (first == MASK).all()
    scores = per_pixel(make_absorbing()(first, label).entropy())  # (B, K)
    new = (second != MASK).flatten(1)
    assert (new.sum(1) >= 1).all()
    assert (scores.masked_fill(~new, 9).amin(1) >= scores.masked_fill(new, -9).amax(1)).all()


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_unknown_labels(tiny_digits, monkeypatch, share):
    chosen = Curriculum(on_policy=0.5, min_steps=2, max_steps=4, unknown_label=share)
    ((_, label),) = observed(tiny_digits, monkeypatch, chosen)
    assert (label == UNKNOWN).all() == (share == 1.0)
    assert (label == UNKNOWN).any() == (share == 1.0)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_some_images_are_shown_without_a_mask_state(tiny_digits, monkeypatch, share):
    """Their black pixels look hidden, and the network is given the same timestep as with the mask state."""
    one, shown = objective(tiny_digits, Curriculum(survival_power=1.0, shared_zero=share), batch_size=64), []
    predict = one.model.predict
    monkeypatch.setattr(one.model, "predict", lambda y, label, t: shown.append((y, t)) or predict(y, label, t))
    one.loss(one.model, 0, seeded())
    one.curriculum = Curriculum(survival_power=1.0)
    one.loss(one.model, 0, seeded())
    (y, t), (whole, _) = shown
    without = ~(y == BLACK).flatten(1).any(1)
    assert without.float().mean().item() == pytest.approx(share, abs=0.2)
    assert torch.equal(y[without], torch.where(whole == BLACK, MASK, whole)[without])
    assert torch.equal(y[~without], whole[~without])
    assert torch.equal(t, one.model.process.timestep_for((whole != MASK).flatten(1).float().mean(1)))


def test_loss_falls_on_a_tiny_problem(tiny_digits):
    one = objective(tiny_digits.first(4), Curriculum(on_policy=0.5, min_steps=2, max_steps=6), batch_size=16)
    optimizer = torch.optim.Adam(one.model.parameters(), lr=0.01)
    losses = []
    for step in range(80):
        optimizer.zero_grad()
        loss = one.loss(one.model, step, seeded(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-20:]) < 0.6 * sum(losses[:20])


def test_validation_names_its_numbers(mnist, digits):
    one = PriorObjective(mnist, digits.first(2), digits.first(2), Curriculum(), 2)
    values = one.validate(mnist)
    assert set(values) == {
        *(f"random_nats_{s}" for s in (0.05, 0.1, 0.2)),
        *(f"greedy_errors_{s}" for s in (0.05, 0.1, 0.2)),
    }
    assert values == one.validate(mnist)
    assert values["random_nats_0.05"] > values["random_nats_0.2"] > 0


@pytest.mark.parametrize(
    "wrong",
    [{"on_policy": 1.5}, {"probe": -0.1}, {"unknown_label": 2}, {"max_budget": 0}, {"min_steps": 9, "max_steps": 8}],
)
def test_impossible_settings(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Curriculum(**wrong)


@pytest.mark.parametrize("observed_weight", [0.0, 0.01])
def test_a_relative_loss_is_divided_by_what_the_prior_expects(tiny_digits, observed_weight, monkeypatch):
    """By hand: the nats of each image over those that its observation leaves to expect, with a floor of 5."""
    one_image = replace(tiny_digits, values=tiny_digits.values[:1].expand_as(tiny_digits.values))
    one, shown = objective(one_image, Curriculum(relative=True, observed_weight=observed_weight)), []
    predict = one.model.predict
    monkeypatch.setattr(one.model, "predict", lambda y, label, t: shown.append((y, label, t)) or predict(y, label, t))
    found = one.loss(one.model, 0, seeded()).detach()
    y, label, t = shown[0]
    with torch.no_grad():
        prediction = predict(y, label, t)
    log_probs = prediction.log_prob(one_image.values[: len(y)].long())
    nats = -(log_probs * torch.where(y == MASK, 1.0, observed_weight)).flatten(1).sum(1)
    expected = prediction.entropy().flatten(1).sum(1)
    torch.testing.assert_close(found, 0.1 * (nats / (expected + 5.0)).mean())


@pytest.mark.parametrize(("power", "together"), [(0.0, False), (1.0, True)])
def test_the_papers_way_corrupts_every_site_at_a_drawn_timestep(power, together):
    shape = (3, 8, 8)
    values = torch.randint(1, 3, (6, *shape), dtype=torch.uint8, generator=seeded())
    colours = Scenes("toy", "train", values, torch.arange(6), 2, 10)
    one = objective(colours, Curriculum(survival_power=power), make_absorbing(shape=shape), batch_size=32)
    x, _, sites, t = one._batch(seeded(1))
    assert sites.shape == x.shape == (32, *shape)
    assert bool((sites == sites[:, :1]).all()) is together
    assert (t is None) is together
    if t is not None:
        survival = one.model.process.survival(t)
        kept = sites.float().mean((1, 2, 3))
        assert (kept - survival).abs().mean() < 0.05
    assert one.loss(one.model, 0, seeded(1)).isfinite()
