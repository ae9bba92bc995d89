from itertools import product

import pytest
import torch
import torch.nn.functional as F

from conftest import make_empirical, random_tokens, seeded
from sensewise.diffusion import AbsorbingProcess, cross_entropy, sample, variational_bound
from sensewise.priors import EmpiricalPrior
from sensewise.tokens import MASK

PROCESS = AbsorbingProcess()


def test_survival_is_the_closed_form():
    t = torch.arange(PROCESS.timesteps, dtype=torch.float64)  # at T itself beta is capped
    alpha_bar = torch.cos((t / 1000 + 0.008) / 1.008 * torch.pi / 2)
    torch.testing.assert_close(PROCESS.survival_curve[:-1], alpha_bar / alpha_bar[0])
    assert PROCESS.survival_curve[-1] == pytest.approx(PROCESS.survival_curve[-2].item() * 0.001)
    assert (PROCESS.survival_curve.diff() < 0).all()


@pytest.mark.parametrize(
    ("s", "t"), [(1.0, 0), (0.75, 456), (0.5, 664), (0.3, 804), (0.2, 871), (0.1, 936), (0.05, 968), (0.0, 1000)]
)
def test_timestep_for(s, t):
    assert PROCESS.timestep_for(s).item() == t


def test_timestep_for_is_the_nearest_step():
    s = torch.rand(5, 4, generator=seeded(), dtype=torch.float64)
    nearest = (PROCESS.survival_curve - s[..., None]).abs().argmin(-1)
    assert torch.equal(PROCESS.timestep_for(s), nearest)
    everything = torch.arange(PROCESS.timesteps + 1)
    assert torch.equal(PROCESS.timestep_for(PROCESS.survival_curve), everything)


def test_monte_carlo_agrees_with_the_closed_form():
    batches = [random_tokens((16, 1, 16, 16), 2, seed) for seed in range(20)]
    estimate = PROCESS.survival_monte_carlo(batches, seeded())
    assert estimate.shape == (1001,)
    assert (estimate - PROCESS.survival_curve).abs().max() < 0.01
    assert abs((estimate - 0.1).abs().argmin().item() - 936) <= 2


def test_corrupt_keeps_each_site_with_its_survival():
    x = random_tokens((4, 3, 50, 50), 5)
    t = torch.tensor([0, 300, 936, 1000])
    y = PROCESS.corrupt(x, t, seeded())
    assert ((y == x) | (y == MASK)).all()
    kept = (y != MASK).flatten(1).float().mean(1)
    assert kept[0] == 1
    assert (kept - PROCESS.survival(t)).abs().max() < 0.02


def test_cross_entropy_is_torchs():
    log_probs = torch.randn(3, 2, 4, 4, 5, generator=seeded()).log_softmax(-1)
    x = random_tokens((3, 2, 4, 4), 5)
    hidden = torch.rand(3, 2, 4, 4, generator=seeded()) < 0.5
    found = cross_entropy(log_probs, x, hidden)
    for b in range(3):
        expected = F.cross_entropy(log_probs[b][hidden[b]], x[b][hidden[b]] - 1, reduction="sum")
        torch.testing.assert_close(found[b], expected)


def test_cross_entropy_is_finite_where_certain_sites_do_not_count():
    log_probs = torch.tensor([0.0, -torch.inf]).expand(1, 1, 1, 2, 2)
    x = torch.tensor([[[[1, 2]]]])
    assert cross_entropy(log_probs, x, torch.tensor([[[[True, False]]]])).item() == 0


def expected_bound(process, prior, x):
    """The mean of the bound over every timestep and every corruption of one image, by enumeration."""
    sites = x[0].numel()
    total = 0.0
    for kept in product([False, True], repeat=sites):
        y = torch.where(torch.tensor(kept).view(x.shape), x, MASK)
        t = torch.arange(1, process.timesteps + 1)
        survival = process.survival_curve[t]
        chance = survival ** sum(kept) * (1 - survival) ** (sites - sum(kept))
        terms = variational_bound(process, prior(y).expand(len(t), -1, -1, -1, -1), x, y, t)
        total += (chance * terms).sum().item() / process.timesteps
    return total


def test_bound_is_exact_for_a_single_site():
    prior = EmpiricalPrior(torch.tensor([1, 2, 2, 2]).view(4, 1, 1, 1), 2)
    for token, probability in ((1, 0.25), (2, 0.75)):
        bound = expected_bound(AbsorbingProcess(50), prior, torch.full((1, 1, 1, 1), token))
        assert bound == pytest.approx(-torch.tensor(probability).log().item(), rel=1e-4)


def test_bound_is_above_the_true_negative_log_likelihood():
    images = torch.tensor([[1, 1, 2], [1, 2, 2], [2, 2, 2], [2, 1, 1]]).view(4, 1, 1, 3)
    prior = EmpiricalPrior(images, 2)
    truth = torch.tensor(4.0).log().item()
    for x in images.split(1):
        coarse, fine = (expected_bound(AbsorbingProcess(steps), prior, x) for steps in (5, 400))
        assert coarse > truth
        assert coarse > fine > truth - 1e-4
        assert fine == pytest.approx(truth, rel=0.02)


def test_samples_keep_what_was_observed_and_hide_nothing(absorbing):
    y = torch.where(torch.rand(3, 1, 8, 8, generator=seeded()) < 0.3, random_tokens((3, 1, 8, 8)), MASK)
    drawn = sample(absorbing, y, torch.tensor([1, 2, 3]), seeded(), steps=8, samples=5)
    assert drawn.shape == (5, 3, 1, 8, 8)
    assert ((drawn >= 1) & (drawn <= 2)).all()
    assert torch.equal(torch.where(y == MASK, MASK, drawn[2]), y)
    assert not torch.equal(drawn[0], drawn[1])


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_any_number_of_steps_reveals_everything(empirical, steps):
    y = torch.zeros(2, 1, 4, 4, dtype=torch.int64)
    assert (sample(empirical, y, None, seeded(), steps=steps) != MASK).all()


def test_samples_follow_the_exact_joint_posterior():
    images = torch.tensor([[1, 1, 1, 1], [1, 1, 2, 2], [1, 2, 1, 2], [1, 2, 1, 2], [2, 2, 2, 2]]).view(5, 1, 2, 2)
    prior = EmpiricalPrior(images, 2)
    y = torch.tensor([1, 0, 0, 0]).view(1, 1, 2, 2)
    drawn = sample(prior, y, None, seeded(), steps=400, samples=2000).view(2000, 4)
    found = {}
    for row in drawn.tolist():
        found[tuple(row)] = found.get(tuple(row), 0) + 1
    expected = {(1, 1, 1, 1): 500, (1, 1, 2, 2): 500, (1, 2, 1, 2): 1000}
    impossible = sum(count for image, count in found.items() if image not in expected)
    assert impossible <= 40  # two sites of one image revealed in the same round
    chi_square = sum((found.get(image, 0) - count) ** 2 / count for image, count in expected.items())
    assert chi_square < 13.8  # 0.1% of chi-square with two degrees of freedom


def test_samples_use_the_label():
    prior = make_empirical(labels=3)
    y = torch.zeros(3, 1, 4, 4, dtype=torch.int64)
    drawn = sample(prior, y, torch.arange(3), seeded(), steps=600)[0]
    for label in range(3):
        assert (drawn[label] == prior.images[prior.labels == label]).flatten(1).all(1).any()
