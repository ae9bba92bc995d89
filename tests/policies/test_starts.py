import pytest
import torch

from conftest import seeded
from sensewise.errors import BudgetError
from sensewise.kspace import acs_rows
from sensewise.policies.starts import CentralBlock, FixedStart, GridProbe, RandomProbe


@pytest.mark.parametrize("probe", [RandomProbe(), GridProbe()])
def test_probes_take_a_fifth_of_the_budget(probe):
    first = probe(3, (8, 8), 20, seeded())
    assert first.shape == (3, 64)
    assert (first.sum(1) == 4).all()
    assert not torch.equal(first[0], first[1])


@pytest.mark.parametrize("probe", [RandomProbe(0.5), GridProbe(0.5)])
def test_probes_of_another_size(probe):
    assert (probe(2, (8, 8), 20, seeded()).sum(1) == 10).all()


def test_a_grid_probe_covers_the_image():
    first = GridProbe()(1, (8, 8), 20, seeded()).view(8, 8)
    assert [int(part.sum()) for half in first.split(4) for part in half.split(4, 1)] == [1, 1, 1, 1]


def test_the_central_block():
    assert torch.equal(CentralBlock(6)(2, (40,), 12, seeded()), acs_rows(40, 6).expand(2, -1))
    with pytest.raises(BudgetError, match="less than the 6 rows"):
        CentralBlock(6)(2, (40,), 5, seeded())


def test_fixed_starts_go_by_the_budget():
    start = FixedStart({8: torch.arange(16) < 3, 12: torch.arange(16) < 5})
    assert start(2, (16,), 8, seeded()).sum(1).tolist() == [3, 3]
    assert start(2, (16,), 12, seeded()).sum(1).tolist() == [5, 5]
    with pytest.raises(BudgetError, match="for 8, 12 actions, not for 10"):
        start(2, (16,), 10, seeded())
