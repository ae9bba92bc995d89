"""The network for pictures of any size: shapes, tiles that agree with one pass, what it starts from."""

import pytest
import torch

from conftest import awake, fresh, seeded
from sensewise.networks import any_size
from sensewise.networks.any_size import SUMMARY, AnySize, summarise
from sensewise.networks.push_pull import OVERLAPPING, push_pull


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


def precision(monkeypatch, quick):
    monkeypatch.setattr(any_size, "has_bfloat16", lambda device: quick)


def test_tiles_agree_with_one_pass(monkeypatch):
    network, seen = small(), readings((150, 130), batch=1)
    precision(monkeypatch, False)
    whole = network(*seen)
    monkeypatch.setattr(any_size, "TILE", 32)
    for tiled, one in zip(network(*seen), whole, strict=True):
        torch.testing.assert_close(tiled, one, atol=1e-5, rtol=0)


def test_tiles_in_bfloat16_differ_no_more_than_it_does_from_float32(monkeypatch):
    network, seen = small(), readings((330, 290), batch=1)
    exact, rounded, tiled = (
        (precision(monkeypatch, quick), monkeypatch.setattr(any_size, "TILE", tile), network(*seen)[1])[-1]
        for quick, tile in ((False, 512), (True, 512), (True, 128))
    )
    assert (tiled - rounded).abs().max() < 2 * (rounded - exact).abs().max() < 0.01


def test_tiles_with_too_little_overlap_would_show_seams(monkeypatch):
    network, seen = small(), readings((150, 130), batch=1)
    precision(monkeypatch, False)
    whole = network(*seen)[1]
    monkeypatch.setattr(any_size, "TILE", 32)
    monkeypatch.setattr(AnySize, "radius", 0)
    assert (network(*seen)[1] - whole).abs().max() > 1e-4


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("size", [(24, 20), (104, 96)])
def test_an_image_does_not_depend_on_its_batch(monkeypatch, size, quick):
    precision(monkeypatch, quick)
    network, (values, seen, sigma) = small(), readings(size)
    alone = network(values[1:], seen[1:], sigma[1:])
    for both, one in zip(network(values, seen, sigma), alone, strict=True):
        torch.testing.assert_close(both[1:], one, atol=1e-5, rtol=0)


def test_a_fresh_network_is_centred_on_the_interpolation():
    values, seen, sigma = readings((20, 22))
    _, centres, _ = fresh(AnySize, widths=(8, 12), blocks=(1, 1))(values, seen, sigma)
    torch.testing.assert_close(centres, push_pull(values, seen, OVERLAPPING).expand_as(centres).clamp(-0.5, 1.5))


@pytest.mark.parametrize("size", [(16, 16), (13, 40), (1, 7)])
def test_push_pull_keeps_what_is_seen_and_stays_within_its_range(size):
    values, seen, _ = readings(size, share=0.3, seed=3)
    seen[:, :, 0, 0], values[:, :, 0, 0] = 1.0, 0.5
    found = push_pull(values, seen, OVERLAPPING)
    assert torch.equal(found[seen > 0], values[seen > 0])
    for picture, known, mask in zip(found, values, seen, strict=True):
        assert known[mask > 0].min() - 1e-6 <= picture.min() <= picture.max() <= known[mask > 0].max() + 1e-6
    flat = push_pull(0.3 * seen, seen, OVERLAPPING)
    torch.testing.assert_close(flat, torch.full_like(flat, 0.3))
    assert (push_pull(torch.zeros_like(values), torch.zeros_like(seen), OVERLAPPING) == 0).all()


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


@pytest.mark.parametrize(
    ("training", "quick", "size", "inside"),
    [
        (False, True, (98, 96), [(1, torch.bfloat16)] * 2),
        (False, True, (95, 96), [(2, torch.float32)]),
        (False, False, (98, 96), [(2, torch.float32)]),
        (True, True, (98, 96), [(2, torch.float32)]),
    ],
)
def test_large_pictures_are_convolved_in_bfloat16_where_that_is_faster(monkeypatch, training, quick, size, inside):
    precision(monkeypatch, quick)
    network, found = small().train(training), []
    network.stem.register_forward_hook(lambda module, inputs, output: found.append((len(output), output.dtype)))
    parts = network(*readings(size))
    assert found == inside
    assert all(part.dtype == torch.float32 for part in parts)


def test_bfloat16_says_nearly_the_same_and_leaves_the_interpolation_alone(monkeypatch):
    network, seen = small(), readings((120, 101))
    plain = fresh(AnySize, widths=(8, 12), blocks=(1, 1)).eval()
    found = []
    for quick in (False, True):
        precision(monkeypatch, quick)
        found.append(network(*seen))
        centres = plain(*seen)[1]  # a fresh network adds nothing to the interpolation
        assert torch.equal(centres, push_pull(*seen[:2], OVERLAPPING).expand_as(centres).clamp(-0.5, 1.5))
    for exact, rounded in zip(*found, strict=True):
        assert not torch.equal(exact, rounded)
        torch.testing.assert_close(rounded, exact, atol=0.02, rtol=0.02)


def test_bfloat16_takes_instructions_of_the_processor(monkeypatch):
    for known, quick in (({"avx512_bf16": True}, True), ({"avx512_bf16": False, "avx512_f": True}, False), ({}, False)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda known=known: known, raising=False)
        assert any_size.has_bfloat16(torch.device("cpu")) is quick
        assert not any_size.has_bfloat16(torch.device("meta"))
    monkeypatch.delattr(torch.cpu, "get_capabilities")  # older versions of torch do not tell
    assert not any_size.has_bfloat16(torch.device("cpu"))
