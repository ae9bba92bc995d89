import pytest
import torch

from conftest import awake, fresh, random_kspace, seeded
from sensewise.errors import DataError
from sensewise.kspace import to_image
from sensewise.networks.rows import RowConv, RowPolicyNetwork, RowValueNetwork, row_position

ROWS = 16


def test_positions_are_signed_and_absolute_distances_from_the_middle():
    place = row_position(8, 2, torch.device("cpu"))
    assert place.shape == (2, 2, 8)
    assert place[0, 0].tolist() == [-1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75]
    assert torch.equal(place[0, 1], place[0, 0].abs())


def test_the_coarse_prior_has_the_papers_size():
    assert abs(sum(p.numel() for p in RowConv(1, 8, None).parameters()) - 86_000) < 3_000


@pytest.mark.parametrize("rows", [16, 37])
@pytest.mark.parametrize("batch", [1, 3])
def test_profiles_of_any_length(rows, batch):
    network = fresh(RowConv, 1, 8, None, width=8, layers=1)
    y = torch.randint(0, 9, (batch, 1, rows, 1), generator=seeded())
    survival = torch.linspace(0.2, 0.8, batch)
    logits = network(y, torch.zeros(batch, dtype=torch.int64), survival)
    assert logits.shape == (batch, 1, rows, 1, 8)
    assert logits.isfinite().all()
    alone = network(y[-1:], torch.zeros(1, dtype=torch.int64), survival[-1:])
    torch.testing.assert_close(alone, logits[-1:], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("adaptive", [True, False])
def test_the_row_policy_looks_at_the_scout_only_if_adaptive(adaptive):
    network = fresh(RowPolicyNetwork, ROWS, adaptive, width=8, layers=1)
    scout, budget = torch.randn(4, 6, 6, generator=seeded()), torch.full((4,), 0.5)
    logits = network.keep_logits(scout, None, budget)
    assert logits.shape == (4, ROWS)
    assert bool(logits.std(0).max() > 1e-6) is adaptive
    torch.testing.assert_close(network(scout[:1], budget[:1]), logits[:1], atol=1e-5, rtol=1e-4)
    with pytest.raises(DataError, match="needs a scout"):
        network.keep_logits(None, None, budget)


def test_a_larger_budget_means_larger_odds():
    network = fresh(RowPolicyNetwork, ROWS, width=8, layers=1)
    scout = torch.randn(1, 6, 6, generator=seeded())
    low, high = (network(scout, torch.tensor([s])).mean() for s in (0.1, 0.7))
    assert low < high


@pytest.mark.parametrize("width", [12, 17])
def test_values_are_per_row_and_scale_free(width):
    network = awake(fresh(RowValueNetwork, width=8, layers=2, columns=(2, 2)))
    drawn = to_image(random_kspace(3, ROWS, width))
    mask, budget = torch.rand(3, ROWS, generator=seeded()) < 0.5, torch.full((3,), 0.5)
    values = network(drawn, mask, budget)
    assert values.shape == (3, ROWS)
    assert values.isfinite().all()
    torch.testing.assert_close(network(1e-6 * drawn, mask, budget), values, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(network(drawn[1:2], mask[1:2], budget[1:2]), values[1:2], atol=1e-5, rtol=1e-4)
