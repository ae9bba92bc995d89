"""Audits: how far off readings can be by chance, exactly, and priors that fit or do not."""

from itertools import product

import pytest
import torch

from conftest import awake, fresh, seeded
from sensewise.networks import any_size
from sensewise.networks.any_size import AnySize
from sensewise.predictions import Categorical, Mixture
from sensewise.priors.audit import DRAWS, RARE, Fit, audit_fit, audit_share, chance
from sensewise.priors.empirical import EmpiricalPrior
from sensewise.priors.readings import ReadingPrior
from sensewise.tokens import pack

TABLE = torch.tensor([[0.7, 0.2, 0.1], [0.05, 0.9, 0.05], [0.3, 0.3, 0.4]])


def by_enumeration(table, costs, found):
    """The probability that readings drawn from a table cost as much as those found."""
    cost = sum(costs[i, token - 1] for i, token in enumerate(found))
    total = 0.0
    for drawn in product(range(3), repeat=3):
        if sum(costs[i, level] for i, level in enumerate(drawn)) >= cost - 1e-6:
            total += float(torch.stack([table[i, level] for i, level in enumerate(drawn)]).prod())
    return total


@pytest.mark.parametrize("found", [(1, 2, 3), (3, 2, 1), (2, 1, 2), (3, 1, 1)])
def test_chance_is_what_enumeration_says(found):
    costs = -TABLE.log()
    expected = Categorical(TABLE.log()[None, None, None])
    p = chance(expected, torch.tensor(found), costs, seeded())
    exact = min(by_enumeration(TABLE, costs, found), 1.0)
    assert abs(p - exact) < 4 * (exact * (1 - exact) / DRAWS) ** 0.5 + 2 / DRAWS


def test_readings_that_come_true_are_refused_as_rarely_as_promised():
    expected = Categorical(TABLE.repeat(8, 1).log()[None, None, None])
    costs, refused, generator = -expected.log_probs[0, 0, 0], 0, seeded()
    drawn = expected.sample(400, generator)[:, 0, 0, 0]
    refused = sum(chance(expected, found, costs, generator) <= 0.1 for found in drawn)
    assert 15 <= refused <= 62  # 40 are expected, a little fewer as levels are few


def test_the_table_of_noisy_readings_is_the_sum_over_states():
    probs = torch.softmax(torch.randn(1, 1, 2, 3, 3, generator=seeded()), -1)
    sites = torch.tensor([[[[True, False, True], [False, True, False]]]])
    wrong = torch.full((1, 1, 2, 3), 0.2)
    channel = torch.full((3, 3), 0.1) + 0.7 * torch.eye(3)
    found = Categorical(probs.log()).reading(sites, wrong)
    torch.testing.assert_close(found.log_probs[0, 0, 0].exp(), probs[sites] @ channel)


def test_the_table_of_a_mixture_is_its_mass_widened_by_the_noise():
    generator = seeded()
    weights = torch.randn(1, 1, 2, 3, 4, generator=generator).log_softmax(2)
    centres = torch.rand(1, 1, 2, 3, 4, generator=generator)
    widths = 0.05 + 0.1 * torch.rand(1, 1, 2, 3, 4, generator=generator)
    sites, sigma = torch.rand(1, 1, 3, 4, generator=generator) < 0.5, torch.full((1, 1, 3, 4), 0.07)
    mixture = Mixture(weights, centres, widths, 16)
    same = mixture.reading(sites, torch.zeros_like(sigma))
    torch.testing.assert_close(same.log_probs[0, 0, 0], mixture.categorical().log_probs[sites])
    noisy = mixture.reading(sites, sigma)
    truth = mixture.centres.movedim(2, -1)[sites], mixture.widths.movedim(2, -1)[sites]  # (K, M) each
    component = torch.distributions.Categorical(logits=weights.movedim(2, -1)[sites]).sample((200_000,))  # (n, K)
    drawn = torch.stack([part.expand(len(component), -1, -1).gather(2, component[..., None])[..., 0] for part in truth])
    noise = torch.randn(2, *component.shape, generator=generator)
    read = (drawn[0] + drawn[1] * noise[0] + 0.07 * noise[1]).clamp(0, 1)
    torch.testing.assert_close(noisy.mean().flatten(), read.mean(0), atol=3e-3, rtol=0)
    torch.testing.assert_close(noisy.variance().flatten(), read.var(0), atol=1e-3, rtol=0)


def test_a_prior_that_knows_a_picture_fits_and_one_that_knows_its_inverse_does_not():
    images = 1 + (torch.rand(40, 1, 8, 8, generator=seeded()) < torch.linspace(0.02, 0.6, 8)).long()
    prior = EmpiricalPrior(images, 2)
    audit = torch.zeros(1, 64, dtype=torch.bool)
    audit[0, ::5] = True
    shown = torch.where(torch.rand(1, 1, 8, 8, generator=seeded(1)) < 0.05, 1, 0)
    y = torch.where(audit.view(1, 1, 8, 8) | (shown == 1), images[:1], 0)
    fit = audit_fit(prior, y, audit, None)
    assert (fit.pixels, fit.fits) == (13, True)
    wrong = torch.where(y > 0, 3 - y, 0)
    wrong = torch.where(audit.view(1, 1, 8, 8), wrong, y)
    misfit = audit_fit(prior, wrong, audit, None)
    assert misfit.p < RARE
    assert not misfit.fits
    assert misfit.ratio > fit.ratio
    assert audit_fit(prior, y, torch.zeros_like(audit), None) is None


def test_noise_excuses_what_it_explains():
    """A reading far from a sure prediction is a misfit without noise, and none with it."""

    class Sure(EmpiricalPrior):
        def blank(self, size):
            return pack(torch.full((1, 1, *size), torch.nan), torch.zeros(1, 1, *size))

        def check(self, y, label):
            return torch.zeros(len(y), dtype=torch.int64)

        def predict(self, y, label, t):
            shape = (1, 1, 2, *y.shape[2:])
            return Mixture(torch.full(shape, 0.5).log(), torch.full(shape, 0.5), torch.full(shape, 0.01))

    prior = Sure(torch.ones(1, 1, 16, 16, dtype=torch.int64), 256)
    audit = torch.zeros(1, 256, dtype=torch.bool)
    audit[0, :20] = True
    for sigma, fits in ((0.0, False), (0.1, True)):
        values = torch.full((1, 1, 16, 16), torch.nan).flatten()
        values[:20] = 0.5 + 0.1 * torch.randn(20, generator=seeded())
        y = pack(values.view(1, 1, 16, 16), torch.full((1, 1, 16, 16), sigma))
        found = audit_fit(prior, y, audit, None)
        assert found.fits is fits
        assert found.expected == pytest.approx(0.01**2 + sigma**2, rel=0.05)


def test_what_fits():
    assert Fit(20, error=0.01, expected=0.009, p=0.4).fits
    assert not Fit(20, error=0.1, expected=0.01, p=RARE / 2).fits
    assert Fit(20, error=1e-5, expected=1e-8, p=1e-4).fits  # too little to matter
    assert Fit(20, error=0.1, expected=0.01, p=0.1).ratio == pytest.approx(10)


def test_the_share_of_an_audit():
    assert audit_share(1638) == 0.02
    assert round(audit_share(410) * 410) == 12
    assert audit_share(20) == 0.25


def test_an_audit_of_a_large_picture_goes_tile_by_tile(monkeypatch):
    network = awake(fresh(AnySize, widths=(8, 12), blocks=(1, 1), components=3, embedding=8), std=0.05)
    prior = ReadingPrior(network).eval().requires_grad_(False)
    values, seen = torch.rand(2, 1, 1, 160, 96, generator=seeded())
    observation = pack(torch.where(seen < 0.2, values, torch.nan), torch.full_like(values, 0.05))
    monkeypatch.setattr(any_size, "has_bfloat16", lambda device: False)
    audit = (seen < 0.05).view(1, -1)
    monkeypatch.setattr(any_size, "TILE", 64)
    tiles = audit_fit(prior, observation, audit, None)
    monkeypatch.setattr(any_size, "TILE", 512)
    whole = audit_fit(prior, observation, audit, None)
    assert tiles.pixels == whole.pixels
    assert tiles.error == pytest.approx(whole.error, rel=1e-3)
    assert tiles.expected == pytest.approx(whole.expected, rel=1e-3)
