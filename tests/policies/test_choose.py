import dataclasses

import pytest
import torch

from conftest import make_context, seeded
from sensewise import masks
from sensewise.errors import BudgetError, ConfigError
from sensewise.policies.choose import SPREAD_READINGS, SPREAD_VARIANCE, Spread, TopK

SCORES = torch.rand(4, 64, generator=seeded())


def test_top_k_takes_the_highest():
    assert torch.equal(TopK()(SCORES, 8, make_context()), masks.top_k(SCORES, 8))
    counts = torch.tensor([1, 5, 8, 2])
    chosen = TopK()(SCORES, counts, make_context())
    for b, n in enumerate(counts.tolist()):
        assert torch.equal(chosen[b], masks.top_k(SCORES[b : b + 1], n)[0])


def test_spreading_without_damping_is_top_k():
    assert torch.equal(Spread(damping=0.0)(SCORES, 8, make_context()), TopK()(SCORES, 8, make_context()))


def test_spreading_changes_what_is_chosen():
    found = Spread(damping=0.9, sigma=3.0)(SCORES, 8, make_context())
    assert torch.equal(found, masks.spread_top_k(SCORES, 8, (8, 8), 0.9, 3.0))
    assert not torch.equal(found, TopK()(SCORES, 8, make_context()))


def test_spreading_along_one_side():
    scores = torch.tensor([[0.9, 1.0, 0.9, 0.8, 0.72]])
    assert Spread(0.6, 1.0)(scores, 2, make_context(grid=(5,))).tolist() == [[False, True, False, True, False]]


def test_with_spacing_the_first_picks_keep_further_apart():
    """8 of 64 pixels: a mean distance of sqrt(8); with 32 measured before, sqrt(64 / 40); at most sigma."""
    choose = Spread(damping=0.9, sigma=3.0, spacing=0.5)
    later = SCORES.masked_fill(torch.arange(64) < 32, -torch.inf)
    for given, width in ((SCORES, 0.5 * 8**0.5), (later, 0.5 * 1.6**0.5)):
        found = choose(given, 8, make_context())
        assert torch.equal(found, masks.spread_top_k(given, 8, (8, 8), 0.9, width))
        assert not torch.equal(found, masks.spread_top_k(given, 8, (8, 8), 0.9, 3.0))
    narrow = dataclasses.replace(choose, sigma=0.1)
    assert torch.equal(narrow(SCORES, 8, make_context()), masks.spread_top_k(SCORES, 8, (8, 8), 0.9, 0.1))


def test_spacing_goes_by_each_scene_s_own_number():
    counts = torch.tensor([2, 4, 8, 16])
    chosen = SPREAD_VARIANCE(SCORES, counts, make_context())
    for b, n in enumerate(counts.tolist()):
        assert torch.equal(chosen[b], SPREAD_VARIANCE(SCORES[b : b + 1], n, make_context())[0])


@pytest.mark.parametrize(
    "options",
    [
        {"damping": 1.0},
        {"damping": -0.1},
        {"sigma": 0.0},
        {"spacing": -1.0},
        {"travel": -1.0},
        {"travel": float("inf")},
    ],
)
def test_spreading_needs_sensible_numbers(options):
    with pytest.raises(
        ConfigError, match=r"^0 <= damping < 1, sigma > 0, .* travel >= 0 are needed, got [-0-9., andif]+$"
    ):
        Spread(**options)


def test_a_score_that_is_not_a_number_is_refused():
    with pytest.raises(BudgetError, match=r"^a score is not a number: the policy or its prior is broken$"):
        Spread()(torch.full((1, 4), torch.nan), 2, make_context(grid=(2, 2)))


def test_of_a_pixel_that_can_be_read_again_the_next_reading_is_chosen():
    """A step never reads one pixel twice; what has been read or is not offered yet scores -inf."""
    pixels, reading = torch.rand(2, 64, generator=seeded()), torch.randint(3, (2, 1, 64), generator=seeded())
    scores = torch.full((2, 3, 64), -torch.inf).scatter_(1, reading, pixels.unsqueeze(1))
    chosen = SPREAD_READINGS(scores.flatten(1), 9, make_context(grid=(3, 8, 8))).view(2, 3, 64)
    assert torch.equal(chosen.any(1), SPREAD_READINGS(pixels, 9, make_context()))
    assert torch.equal(chosen.any(1, keepdim=True), chosen.gather(1, reading))


def test_readings_of_large_pictures_keep_far_apart():
    """The first picks of an empty picture lie in a grid some 0.8 of their mean distance wide."""
    chosen = SPREAD_READINGS(torch.ones(1, 96 * 96), 36, make_context(grid=(96, 96)))
    place = chosen.view(96, 96).nonzero().float()
    nearest = torch.cdist(place, place).fill_diagonal_(torch.inf).amin(1)
    assert nearest.min() > 8


@pytest.mark.parametrize(
    ("measured", "n", "width"), [(0, 1, 6.4), (0, 4, 3.2), (15, 1, 1.6), (12, 4, 1.6), (3, 1, 3.0)]
)
def test_the_width_follows_the_distance_between_measured_pixels(measured, n, width):
    """0.8 times the mean distance after the step, in an image of 64 pixels; at most sigma."""
    scores = torch.zeros(2, 64)
    scores[:, :measured] = -torch.inf
    found = Spread(0.5, 3.0 if width == 3.0 else 16.0, 0.8).width(scores, n)
    torch.testing.assert_close(found, torch.full((2,), width))
