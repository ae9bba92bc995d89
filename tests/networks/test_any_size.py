"""The network for pictures of any size: shapes, tiles that agree with one pass, what it starts from."""

import pytest
import torch

from conftest import awake, fresh, seeded
from sensewise.networks import any_size
from sensewise.networks.any_size import SUMMARY, AnySize, push_pull, summarise


def small(**options):
    return awake(fresh(AnySize, widths=(8, 12), blocks=(1, 1), components=3, embedding=8, **options), std=0.05).eval()


def readings(size, share=0.2, sigma=0.0, seed=0, batch=2):
    values, chance = torch.rand(2, batch, 1, *size, generator=seeded(seed))
    seen = (chance < share).float()
    return values * seen, seen, sigma * seen


@pytest.mark.parametrize("size", [(16, 16), (17, 31), (40, 24)])
@pytest.mark.parametrize("sigma", [0.0, 0.1])
def test_parts_of_a_mixture(size, sigma):
    log_weights, centres, widths = small()(*readings(size, sigma=sigma))
    for part in (log_weights, centres, widths):
        assert part.shape == (2, 3, *size)
        assert part.isfinite().all()
    torch.testing.assert_close(log_weights.exp().sum(1), torch.ones(2, *size))
    assert (widths > 0).all()


def test_tiles_agree_with_one_pass(monkeypatch):
    network, seen = small(), readings((150, 130), batch=1)
    whole = network(*seen)
    monkeypatch.setattr(any_size, "TILE", 32)
    for tiled, one in zip(network(*seen), whole, strict=True):
        torch.testing.assert_close(tiled, one, atol=1e-5, rtol=0)


def test_tiles_with_too_little_overlap_would_show_seams(monkeypatch):
    network, seen = small(), readings((150, 130), batch=1)
    whole = network(*seen)[1]
    monkeypatch.setattr(any_size, "TILE", 32)
    monkeypatch.setattr(AnySize, "radius", 0)
    assert (network(*seen)[1] - whole).abs().max() > 1e-4


def test_an_image_does_not_depend_on_its_batch():
    network, (values, seen, sigma) = small(), readings((24, 20))
    alone = network(values[1:], seen[1:], sigma[1:])
    for both, one in zip(network(values, seen, sigma), alone, strict=True):
        torch.testing.assert_close(both[1:], one, atol=1e-5, rtol=0)


def test_a_fresh_network_is_centred_on_the_interpolation():
    values, seen, sigma = readings((20, 22))
    _, centres, _ = fresh(AnySize, widths=(8, 12), blocks=(1, 1))(values, seen, sigma)
    torch.testing.assert_close(centres, push_pull(values, seen).expand_as(centres).clamp(-0.5, 1.5))


@pytest.mark.parametrize("size", [(16, 16), (13, 40), (1, 7)])
def test_push_pull_keeps_what_is_seen_and_stays_within_its_range(size):
    values, seen, _ = readings(size, share=0.3, seed=3)
    seen[:, :, 0, 0], values[:, :, 0, 0] = 1.0, 0.5
    found = push_pull(values, seen)
    assert torch.equal(found[seen > 0], values[seen > 0])
    for picture, known, mask in zip(found, values, seen, strict=True):
        assert known[mask > 0].min() - 1e-6 <= picture.min() <= picture.max() <= known[mask > 0].max() + 1e-6
    flat = push_pull(0.3 * seen, seen)
    torch.testing.assert_close(flat, torch.full_like(flat, 0.3))
    assert (push_pull(torch.zeros_like(values), torch.zeros_like(seen)) == 0).all()


def test_the_summary_knows_mean_spread_and_noise():
    values, seen, sigma = readings((64, 64), share=0.5, sigma=0.1)
    found = summarise(values, seen, sigma)
    assert found.shape == (2, SUMMARY)
    mean = values.sum((1, 2, 3)) / seen.sum((1, 2, 3))
    torch.testing.assert_close(found[:, -2], mean, atol=1e-3, rtol=0)
    noisy = (1 / 12 - 0.01) ** 0.5  # the variance of the readings, less that of their noise
    torch.testing.assert_close(found[:, -1], torch.full((2,), noisy), atol=0.01, rtol=0)
    nothing = summarise(torch.zeros(1, 1, 8, 8), torch.zeros(1, 1, 8, 8), torch.zeros(1, 1, 8, 8))
    torch.testing.assert_close(nothing[0, -2:], torch.tensor([0.5, 0.25]))


@pytest.mark.parametrize("options", [{"widths": (8,)}, {"components": 0}, {"patch": 0}])
def test_impossible_sizes(options):
    with pytest.raises(ValueError, match=r"one entry per resolution|at least 1"):
        AnySize(**({"widths": (8, 8), "blocks": (1, 1)} | options))
