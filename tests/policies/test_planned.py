"""The algebra of plans, and what they choose. How they are fitted is in tests/train."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import random_kspace, seeded
from sensewise import hub
from sensewise.errors import BudgetError
from sensewise.kspace import acs_rows, keep_rows
from sensewise.loop import acquire
from sensewise.policies.planned import (
    WINDOWS,
    ZONES,
    PlannedRows,
    RowPlan,
    improve,
    overlap_matrix,
    pair_terms,
    partners,
    windows,
    zones,
)
from sensewise.policies.starts import FixedStart
from sensewise.policies.value import core_size
from sensewise.sensors.rows import RowSensor

ROWS, ACS, K = 32, 4, 12


def made_up():
    """A plan that looks at the slice: rows around unusual energy are worth more."""
    plan = RowPlan(ROWS, ACS, K)
    plan.worth = torch.randn(ROWS, generator=seeded())
    plan.overlap = 0.05 * overlap_matrix(torch.randn(len(partners(ROWS)) * ZONES, generator=seeded(1)), ROWS)
    plan.slopes = -3 * torch.rand(len(WINDOWS), ROWS, generator=seeded(2))
    plan.static = torch.zeros(ROWS, dtype=torch.bool)
    plan.static[[2, 5, 8, 11, 14, 15, 16, 17, 20, 23, 26, 29]] = True
    plan.core = acs_rows(ROWS, ACS)
    plan.core[[5, 20]] = True
    return plan


@given(st.integers(0, 2**31))
def test_the_matrix_says_of_a_mask_what_its_pairs_say(seed):
    draw = seeded(seed)
    coefficients = torch.randn(len(partners(ROWS)) * ZONES, generator=draw)
    mask = torch.rand(3, ROWS, generator=draw) < 0.4
    matrix = overlap_matrix(coefficients, ROWS)
    assert torch.equal(matrix, matrix.T)
    assert not matrix.diagonal().any()
    form = torch.einsum("bj,jk,bk->b", mask.float(), matrix, mask.float())
    assert torch.allclose(form, pair_terms(mask) @ coefficients, atol=1e-3)


def test_pairs_are_neighbours_and_mirror_rows_each_once():
    other = partners(ROWS)
    assert other[0, 3] == 4
    assert other[0, ROWS - 1] == -1
    mirror = other[8 + 3]  # lag 0 from the mirror row: frequency f with -f
    assert mirror[ROWS // 2 - 5] == ROWS // 2 + 5
    assert mirror[ROWS // 2 + 5] == -1
    assert torch.allclose(zones(ROWS).sum(1), torch.ones(ROWS))


@given(st.integers(0, 2**31))
def test_swaps_end_where_no_single_swap_helps(seed):
    draw = seeded(seed)
    worth = torch.randn(2, 10, generator=draw)
    overlap = torch.randn(10, 10, generator=draw)
    overlap = (overlap + overlap.T).fill_diagonal_(0)
    start = torch.zeros(2, 10, dtype=torch.bool)
    start[:, :4] = True
    fixed = torch.zeros_like(start)
    fixed[:, 0] = True
    found = improve(worth, overlap, start, fixed)

    def cost(mask, n):
        return (worth[n] @ mask.float() + mask.float() @ overlap @ mask.float()).item()

    assert torch.equal(found.sum(1), torch.tensor([4, 4]))
    assert found[:, 0].all()
    for n in range(2):
        assert cost(found[n], n) <= cost(start[n], n) + 1e-4
        for drop, add in itertools.product(range(1, 10), range(10)):
            if found[n, drop] and not found[n, add]:
                swapped = found[n].clone()
                swapped[drop], swapped[add] = False, True
                assert cost(found[n], n) <= cost(swapped, n) + 1e-4


def test_swaps_do_not_depend_on_batch_mates():
    worth = torch.randn(4, ROWS, generator=seeded())
    plan, mask = made_up(), acs_rows(ROWS, ACS).expand(4, -1)
    together = plan.plan(worth, mask)
    assert torch.equal(together, torch.cat([plan.plan(worth[b : b + 1], mask[:1]) for b in range(4)]))


def test_without_overlap_the_plan_is_the_best_rows():
    plan = RowPlan(ROWS, ACS, K)
    worth = torch.randn(3, ROWS, generator=seeded())
    start = acs_rows(ROWS, ACS).expand(3, -1)
    chosen = plan.plan(worth, start)
    best = worth.masked_fill(start, -torch.inf).argsort(1)[:, :K]
    assert torch.equal(chosen, torch.zeros_like(start).scatter(1, best, True))


def test_what_is_hidden_cannot_change_a_plan():
    plan, data = made_up(), random_kspace(4, ROWS, 8)
    core = plan.core.expand(4, -1)
    other = torch.where(core.unsqueeze(-1), data, 100 * random_kspace(4, ROWS, 8, seed=3))
    seen = [plan.unusual(keep_rows(kspace, core), core) for kspace in (data, other)]
    assert torch.equal(*seen)
    assert torch.allclose(seen[0], plan.unusual(1e-5 * keep_rows(data, core), core), atol=1e-4)  # no unit
    assert seen[0].shape == (4, len(WINDOWS), ROWS)


def test_a_usual_slice_is_not_unusual_and_windows_look_where_they_should():
    plan = RowPlan(ROWS, ACS, K)
    y = torch.ones(1, ROWS, 8, dtype=torch.complex64)
    plan.usual = torch.full((ROWS,), -torch.log(torch.tensor(float(ACS))))
    mask = torch.ones(1, ROWS, dtype=torch.bool)
    assert plan.unusual(y, mask).abs().max() < 1e-5
    y[0, 20] *= 3
    narrow, mirrored = plan.unusual(y, mask)[0, [0, 3]]
    assert narrow.argmax() == 20
    assert mirrored.argmax() == ROWS - 20
    assert windows(ROWS).shape == (len(WINDOWS), ROWS, ROWS)


@pytest.mark.parametrize("steps", [1, 3])
def test_planned_rows_spend_the_exact_budget_core_first(steps):
    plan, sensor = made_up(), RowSensor(random_kspace(6, ROWS, 8))
    start = FixedStart({K: plan.core})
    taken = acquire(PlannedRows([plan]), sensor, K, steps=steps, start=start, keep_scores=True)
    assert torch.equal(taken.mask.sum(1), torch.full((6,), K))
    assert taken.mask_after(0).eq(plan.core).all()
    for scores in taken.scores:
        assert torch.equal((scores >= 1).sum(1), torch.full((6,), K))
        assert ((scores >= 1) | (scores <= 0.9)).all()


def test_another_slice_s_measurements_make_another_plan():
    plan, sensor = made_up(), RowSensor(random_kspace(6, ROWS, 8))
    own, other = (
        acquire(PlannedRows([plan], shift=shift), sensor, K, start=FixedStart({K: plan.core})) for shift in (0, 1)
    )
    assert not torch.equal(other.mask, own.mask)


def test_plans_are_for_their_budget_and_their_rows():
    plan = made_up()
    with pytest.raises(BudgetError, match="plans are for 12 of 32 rows, not for 20 of 32"):
        acquire(PlannedRows([plan]), RowSensor(random_kspace(2, ROWS, 8)), 20, start=FixedStart({20: plan.core}))
    with pytest.raises(BudgetError, match="not for 12 of 16"):
        acquire(PlannedRows([plan]), RowSensor(random_kspace(2, 16, 8)), 12)


def test_a_plan_for_another_number_of_rows():
    """Its static mask and its core have the right sizes and hold the ACS block; the trained plan stays as it is."""
    plan, _ = hub.load("mri/row-plan-0.25", "row-plan")
    before = plan.static.clone()
    for k in (20, 26, 40, 100):
        other = plan.with_budget(k)
        block = acs_rows(128, 14)
        assert int(other.static.sum()) == other.k == k
        assert bool((other.core & ~other.static).sum() == 0)
        assert bool(other.static[block].all() and other.core[block].all())
        assert int(other.core.sum()) == core_size(k, 14, 0.5)
    assert torch.equal(plan.static, before)
    same = plan.with_budget(plan.k)
    assert int((same.static & plan.static).sum()) > 0.9 * plan.k
