import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sensewise.acquire import acquire
from sensewise.errors import BudgetError, ConfigError
from sensewise.mri import row_masks
from sensewise.mri.kspace import acs_rows
from sensewise.sensors import KSpaceRowSensor

ROWS, ACS = 40, 6


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(st.sampled_from(row_masks.FAMILIES), st.integers(ACS, ROWS - 1), st.integers(0, 100))
def test_budgets_are_exact(family, k, seed):
    mask = row_masks.draw(family, 3, ROWS, k, ACS, generator(seed))
    assert mask.shape == (3, ROWS)
    assert mask.dtype == torch.bool
    assert mask.sum(1).tolist() == [k] * 3
    if family.startswith("acs-"):
        assert mask[:, acs_rows(ROWS, ACS)].all()


@pytest.mark.parametrize("family", row_masks.FAMILIES)
def test_masks_are_redrawn_for_each_slice_and_repeat_with_the_seed(family):
    mask = row_masks.draw(family, 8, ROWS, 14, ACS, generator())
    assert len(mask.unique(dim=0)) > 1
    assert torch.equal(mask, row_masks.draw(family, 8, ROWS, 14, ACS, generator()))


def test_equispaced_rows_have_even_gaps():
    mask = row_masks.draw("equispaced", 5, ROWS, 10, ACS, generator())
    for one in mask:
        gaps = one.nonzero().flatten().diff()
        assert gaps.min() >= 3
        assert gaps.max() <= 5


def test_variable_density_follows_its_gaussian():
    rows, k = 300, 2
    mask = row_masks.draw("variable-density", 4000, rows, k, 32, generator())
    index = mask.nonzero()[:, 1].double()
    spread = (index - (rows - 1) / 2).square().mean().sqrt()
    density = torch.exp(-((torch.arange(rows) - 149.5) ** 2) / (2 * (0.3 * 149.5) ** 2)).double()
    expected = (density * (torch.arange(rows) - 149.5) ** 2).sum().div(density.sum()).sqrt()
    assert abs(spread / expected - 1) < 0.03


def test_a_budget_below_the_acs_block_is_refused():
    with pytest.raises(BudgetError, match="fewer than the 32 rows of the ACS block"):
        row_masks.count_rows(0.10, 300, 32)
    with pytest.raises(BudgetError, match="ACS block"):
        row_masks.draw("acs-random", 1, ROWS, ACS - 1, ACS, generator())
    with pytest.raises(BudgetError, match="ACS block"):
        row_masks.best_rows(torch.rand(ROWS), ACS - 1, ACS)
    kspace = torch.randn(2, ROWS, 8, dtype=torch.complex64)
    with pytest.raises(BudgetError, match="ACS block"):
        acquire(row_masks.Family("random"), KSpaceRowSensor(kspace), 5, start=row_masks.acs_start(ROWS, ACS))


def test_unknown_families_are_refused():
    with pytest.raises(ConfigError, match="choose one of random"):
        row_masks.draw("spiral", 1, ROWS, 10, ACS, generator())
    with pytest.raises(ConfigError, match="choose one of random"):
        row_masks.Family("spiral")


@pytest.mark.parametrize("family", ["random", "equispaced", "variable-density"])
def test_families_as_policies_spend_the_exact_budget(family):
    kspace = torch.randn(3, ROWS, 8, dtype=torch.complex64)
    start = row_masks.acs_start(ROWS, ACS)
    taken = acquire(row_masks.Family(family), KSpaceRowSensor(kspace), 0.4, start=start, generator=generator())
    assert taken.mask.sum(1).tolist() == [16] * 3
    assert taken.mask[:, acs_rows(ROWS, ACS)].all()


def test_energy_oracle_takes_the_rows_of_highest_energy():
    kspace = torch.ones(2, ROWS, 8, dtype=torch.complex64)
    kspace[:, [0, 3]] = 100
    energy = row_masks.row_energy(kspace)
    torch.testing.assert_close(energy.sum(), torch.tensor(1.0))
    mask = row_masks.best_rows(energy, ACS + 2, ACS)
    assert mask.nonzero().flatten().tolist() == [0, 3, *acs_rows(ROWS, ACS).nonzero().flatten().tolist()]
    torch.testing.assert_close(row_masks.row_energy(1e-6 * kspace), energy)


def test_a_fixed_mask_is_measured_as_it_is_and_must_have_the_right_length():
    mask = row_masks.best_rows(torch.rand(ROWS), 12, ACS)
    kspace = torch.randn(3, ROWS, 8, dtype=torch.complex64)
    taken = acquire(row_masks.FixedRows(mask), KSpaceRowSensor(kspace), 12, start=row_masks.acs_start(ROWS, ACS))
    assert torch.equal(taken.mask, mask.expand(3, -1))
    with pytest.raises(BudgetError, match="this mask has 12 rows"):
        acquire(row_masks.FixedRows(torch.ones(12, dtype=torch.bool)), KSpaceRowSensor(kspace), 0.4)
