import pytest
import torch

import zoo
from conftest import random_kspace
from sensewise.errors import BudgetError
from sensewise.kspace import acs_rows, keep_rows, magnitude
from sensewise.loop import acquire
from sensewise.metrics import nmse
from sensewise.policies.starts import CentralBlock
from sensewise.policies.value import (
    OneStepOracle,
    ValuePolicy,
    complete,
    core_size,
    mask_gradients,
    ranks,
    rows_by_worth,
    slice_errors,
    static_cores,
)
from sensewise.sensors.rows import RowSensor

ROWS, ACS = 16, 4
NETWORK = zoo.ZeroFilling()


def slices(count=5):
    falling = torch.exp(-((torch.arange(ROWS) - ROWS // 2).abs() / 3.0)).view(1, -1, 1)
    k = falling * random_kspace(count, ROWS, 12)
    k[:, ROWS // 2, 6] = 20
    return k


def test_completion_fills_up_with_the_static_mask():
    order = torch.tensor([7, 8, 2, 3, 4])
    rank = ranks(order, ROWS).expand(2, -1)
    mask = torch.zeros(2, ROWS, dtype=torch.bool)
    mask[0, [7, 8]] = True
    mask[1, [7, 8, 12]] = True
    done = complete(mask, rank, torch.tensor([5, 5]))
    assert done[0].nonzero()[:, 0].tolist() == [2, 3, 4, 7, 8]
    assert done[1].nonzero()[:, 0].tolist() == [2, 3, 7, 8, 12]


def test_oracle_takes_the_row_that_helps_most():
    k = slices()
    sensor, start = RowSensor(k), CentralBlock(ACS)
    taken = acquire(OneStepOracle(NETWORK, k, shortlist=None), sensor, ACS + 1, start=start)
    best = slice_errors(NETWORK, k, taken.mask)
    for row in (~acs_rows(ROWS, ACS)).nonzero()[:, 0].tolist():
        other = acs_rows(ROWS, ACS).expand(5, -1).clone()
        other[:, row] = True
        assert bool((best <= slice_errors(NETWORK, k, other) + 1e-7).all())
    short = acquire(OneStepOracle(NETWORK, k, shortlist=4), sensor, ACS + 2, start=start, steps=2)
    assert short.mask.sum(1).tolist() == [ACS + 2] * 5


def test_mask_gradients_belong_to_their_own_slice():
    k = slices()
    mask = acs_rows(ROWS, ACS).expand(5, -1)
    error, gradient = mask_gradients(NETWORK, k, mask)
    torch.testing.assert_close(error, nmse(magnitude(keep_rows(k, mask)), magnitude(k)))
    torch.testing.assert_close(gradient[2:3], mask_gradients(NETWORK, k[2:3], mask[2:3])[1])


def test_value_policy_with_the_static_mask_keeps_it_where_nothing_helps():
    class Nothing(torch.nn.Module):
        def forward(self, drawn, mask, budget):
            return torch.full(mask.shape, -1.0)

    order = zoo.ORDER
    policy = ValuePolicy(Nothing(), NETWORK, [order])
    start = static_cores([order], ROWS, ACS, 0.5)
    taken = acquire(policy, RowSensor(slices()), 8, steps=2, start=start)
    assert torch.equal(taken.mask, ranks(order, ROWS).lt(ROWS).expand(5, -1))
    first = taken.step[0]
    assert first[[1, 15]].tolist() == [0, 0]
    assert first[[3, 12]].tolist() == [1, 2]


def test_static_masks_are_for_their_budgets():
    policy = zoo.ROW_POLICIES["value-rollout"](torch.device("cpu"))
    with pytest.raises(BudgetError, match="for 8 rows, not for 10"):
        acquire(policy, RowSensor(slices()), 10, start=CentralBlock(ACS))


def test_values_see_the_budget_as_a_fraction():
    seen = []

    class Spy(torch.nn.Module):
        def forward(self, drawn, mask, budget):
            seen.append(budget)
            return mask.float()

    acquire(ValuePolicy(Spy(), NETWORK), RowSensor(slices()), 8, start=CentralBlock(ACS))
    assert torch.equal(seen[0], torch.full((5,), 0.5))


def test_cores_leave_at_least_one_row():
    assert core_size(8, 4, 0.5) == 6
    assert core_size(8, 4, 0.0) == 7
    assert core_size(8, 4, 1.0) == 4


def test_rows_by_worth_cut_and_extended():
    orders = {3: torch.tensor([4, 3, 5]), 5: torch.tensor([4, 3, 0, 1, 5])}
    assert rows_by_worth(orders, 2, 8).nonzero()[:, 0].tolist() == [3, 4]
    assert rows_by_worth(orders, 4, 8).nonzero()[:, 0].tolist() == [0, 3, 4, 5]  # the next nearest fills up
    more = rows_by_worth(orders, 6, 8)
    assert int(more.sum()) == 6
    assert bool(more[[0, 1, 3, 4, 5]].all())
