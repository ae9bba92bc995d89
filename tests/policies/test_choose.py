import dataclasses

import pytest
import torch

from conftest import make_context, seeded
from sensewise import masks
from sensewise.errors import BudgetError, ConfigError
from sensewise.policies.choose import SPREAD_VARIANCE, Spread, TopK

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


@pytest.mark.parametrize("options", [{"damping": 1.0}, {"damping": -0.1}, {"sigma": 0.0}, {"spacing": -1.0}])
def test_spreading_needs_sensible_numbers(options):
    with pytest.raises(ConfigError, match="damping"):
        Spread(**options)


def test_a_score_that_is_not_a_number_is_refused():
    with pytest.raises(BudgetError, match="not a number"):
        Spread()(torch.full((1, 4), torch.nan), 2, make_context(grid=(2, 2)))
