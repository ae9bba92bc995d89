import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import make_context, random_kspace, random_tokens, seeded
from sensewise.errors import BudgetError, ConfigError
from sensewise.kspace import acs_rows
from sensewise.loop import acquire
from sensewise.policies.simple import (
    FAMILY_NAMES,
    ROW_FAMILIES,
    Equispaced,
    Fixed,
    Random,
    VariableDensity,
    best_rows,
    draw_rows,
    row_energy,
)
from sensewise.policies.starts import CentralBlock, RandomProbe, count_rows
from sensewise.sensors.pixels import PixelSensor
from sensewise.sensors.rows import RowSensor

ROWS, ACS = 40, 6


@given(st.sampled_from(FAMILY_NAMES), st.integers(ACS, ROWS - 1), st.integers(0, 100))
def test_budgets_are_exact(family, k, seed):
    mask = draw_rows(family, 3, ROWS, k, ACS, seeded(seed))
    assert mask.shape == (3, ROWS)
    assert mask.dtype == torch.bool
    assert mask.sum(1).tolist() == [k] * 3
    if family.startswith("acs-"):
        assert mask[:, acs_rows(ROWS, ACS)].all()


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_masks_are_redrawn_for_each_slice_and_repeat_with_the_seed(family):
    mask = draw_rows(family, 8, ROWS, 14, ACS, seeded())
    assert len(mask.unique(dim=0)) > 1
    assert torch.equal(mask, draw_rows(family, 8, ROWS, 14, ACS, seeded()))


@pytest.mark.parametrize("family", ROW_FAMILIES)
def test_families_are_what_the_policies_measure(family):
    """`draw_rows` and the policy with its start: the same masks from the same seed."""
    taken = acquire(
        ROW_FAMILIES[family], RowSensor(random_kspace(3, ROWS)), 16, start=CentralBlock(ACS), generator=seeded(2)
    )
    assert torch.equal(taken.mask, draw_rows(f"acs-{family}", 3, ROWS, 16, ACS, seeded(2)))
    assert taken.mask.sum(1).tolist() == [16] * 3
    assert taken.mask[:, acs_rows(ROWS, ACS)].all()


def test_equispaced_rows_have_even_gaps():
    for one in draw_rows("equispaced", 5, ROWS, 10, ACS, seeded()):
        gaps = one.nonzero().flatten().diff()
        assert gaps.min() >= 3
        assert gaps.max() <= 5


def test_equispaced_counts_what_is_free_in_each_scene():
    """With another start in every scene, the rest is at even distance over that scene's own free actions."""
    sensor = RowSensor(random_kspace(6, ROWS))
    taken = acquire(Equispaced(), sensor, 15, start=RandomProbe(1 / 3), generator=seeded())
    assert taken.mask.sum(1).tolist() == [15] * 6
    for step in taken.step:
        free = (step != 0).nonzero().flatten()  # the actions that the start left
        gaps = (step[free] == 1).nonzero().flatten().diff()
        assert gaps.min() >= 3
        assert gaps.max() <= 4


def test_variable_density_follows_its_gaussian():
    rows, k = 300, 2
    mask = draw_rows("variable-density", 4000, rows, k, 32, seeded())
    index = mask.nonzero()[:, 1].double()
    spread = (index - (rows - 1) / 2).square().mean().sqrt()
    density = torch.exp(-((torch.arange(rows) - 149.5) ** 2) / (2 * (0.3 * 149.5) ** 2)).double()
    expected = (density * (torch.arange(rows) - 149.5) ** 2).sum().div(density.sum()).sqrt()
    assert abs(spread / expected - 1) < 0.03


def test_variable_density_prefers_the_centre():
    policy, context = VariableDensity(sigma=0.3), make_context(9, (9, 9))
    scores = policy.scores(torch.empty(500, 0), torch.zeros(500, 81, dtype=torch.bool), context).mean(0)
    assert scores.argmax() == 40
    assert scores[0] < scores[20] < scores[40]


@pytest.mark.parametrize("policy", [Random(), VariableDensity()])
def test_random_policies_draw_anew(policy):
    mask, observation, context = torch.zeros(1, 64, dtype=torch.bool), torch.zeros(1, 1, 8, 8), make_context()
    first, second = (policy.scores(observation, mask, context) for _ in range(2))
    assert not torch.equal(first, second)


def test_a_budget_below_the_acs_block_is_refused():
    with pytest.raises(BudgetError, match="less than the 32 rows of the ACS block"):
        count_rows(0.10, 300, 32)
    assert count_rows(0.25, 300, 32) == 75
    with pytest.raises(BudgetError, match="ACS block"):
        draw_rows("acs-random", 1, ROWS, ACS - 1, ACS, seeded())
    with pytest.raises(BudgetError, match="ACS block"):
        best_rows(torch.rand(ROWS, generator=seeded()), ACS - 1, ACS)
    with pytest.raises(BudgetError, match="ACS block"):
        acquire(Random(), RowSensor(random_kspace(2, ROWS)), 5, start=CentralBlock(ACS))


def test_unknown_families_are_refused():
    with pytest.raises(ConfigError, match="choose one of random"):
        draw_rows("spiral", 1, ROWS, 10, ACS, seeded())


def test_energy_oracle_takes_the_rows_of_highest_energy():
    kspace = torch.ones(2, ROWS, 8, dtype=torch.complex64)
    kspace[:, [0, 3]] = 100
    energy = row_energy(kspace)
    torch.testing.assert_close(energy.sum(), torch.tensor(1.0))
    mask = best_rows(energy, ACS + 2, ACS)
    assert mask.nonzero().flatten().tolist() == [0, 3, *acs_rows(ROWS, ACS).nonzero().flatten().tolist()]
    torch.testing.assert_close(row_energy(1e-6 * kspace), energy)


def test_fixed_masks_are_measured_as_they_are_and_must_fit():
    values = torch.rand(ROWS, generator=seeded())
    chosen = [best_rows(values, k, ACS) for k in (12, 20)]
    sensor = RowSensor(random_kspace(3, ROWS))
    for mask, k in zip(chosen, (12, 20), strict=True):
        taken = acquire(Fixed(chosen), sensor, k, start=CentralBlock(ACS))
        assert torch.equal(taken.mask, mask.expand(3, -1))
    with pytest.raises(BudgetError, match="takes 12, 20 of the actions, the budget is 16"):
        acquire(Fixed(chosen), sensor, 16)
    with pytest.raises(BudgetError, match="for 16 actions, the sensor has 40"):
        acquire(Fixed([torch.ones(16, dtype=torch.bool)]), sensor, 0.4)


def test_fixed_masks_of_pixels():
    mask = torch.arange(64) % 5 == 0
    taken = acquire(Fixed([mask]), PixelSensor(random_tokens((2, 1, 8, 8))), 13)
    assert torch.equal(taken.mask, mask.expand(2, -1))
