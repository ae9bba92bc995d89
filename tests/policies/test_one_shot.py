import pytest
import torch

import zoo
from conftest import fresh, make_context, random_kspace, random_tokens, seeded
from sensewise.errors import DataError
from sensewise.loop import acquire
from sensewise.networks.decoders import MaskDesigner
from sensewise.networks.rows import RowPolicyNetwork
from sensewise.policies.one_shot import OneShot
from sensewise.policies.starts import CentralBlock
from sensewise.sensors.base import Side
from sensewise.sensors.pixels import PixelSensor
from sensewise.sensors.rows import RowSensor

CPU = torch.device("cpu")


def designer():
    return fresh(MaskDesigner, (1, 8, 8), 3).eval()


@pytest.mark.parametrize("sampled", [True, False])
def test_the_exact_budget_from_side_information(sampled):
    sensor = PixelSensor(random_tokens((6, 1, 8, 8)))
    side = Side(label=torch.arange(6) % 3, summary=sensor.summary(2))
    taken = acquire(OneShot(designer(), sampled=sampled), sensor, 0.25, side=side, generator=seeded())
    assert taken.mask.sum(1).tolist() == [16] * 6


def test_a_summary_is_needed():
    sensor = PixelSensor(random_tokens((2, 1, 8, 8)))
    policy = OneShot(designer())
    with pytest.raises(DataError, match="needs a summary"):
        acquire(policy, sensor, 0.25, side=Side(label=torch.tensor([0, 1])))
    with pytest.raises(DataError, match="one summary per image"):
        acquire(policy, sensor, 0.25, side=Side(summary=torch.zeros(3, 1, 8, 8)))


def test_the_budget_is_the_whole_one_whatever_has_been_measured():
    """Scores are the network's log-odds at the budget of the acquisition, before and after measuring."""
    network, summary = designer(), torch.rand(2, 1, 8, 8, generator=seeded())
    mask = torch.zeros(2, 64, dtype=torch.bool)
    found = OneShot(network, sampled=False).scores(torch.empty(2, 0), mask, make_context(24, summary=summary))
    torch.testing.assert_close(found, network(summary, None, torch.full((2,), 0.375)))


@pytest.mark.parametrize("sampled", [True, False])
def test_loupe_s_masks(sampled):
    sensor = PixelSensor(random_tokens((5, 1, 8, 8)))
    taken = acquire(OneShot(zoo.loupe(CPU), sampled=sampled), sensor, 0.25, generator=seeded())
    assert taken.mask.sum(1).tolist() == [16] * 5
    assert bool((taken.mask == taken.mask[0]).all()) is not sampled


@pytest.mark.parametrize("adaptive", [True, False])
def test_rows_look_at_the_scout_only_if_adaptive(adaptive):
    sensor = RowSensor(random_kspace(5, zoo.ROWS, zoo.COLUMNS))
    side = Side(summary=sensor.summary(zoo.ACS))
    policy = OneShot(fresh(RowPolicyNetwork, zoo.ROWS, adaptive, width=8, layers=1), sampled=False)
    taken = acquire(policy, sensor, 0.5, side=side, start=CentralBlock(zoo.ACS))
    assert taken.mask.sum(1).tolist() == [8] * 5
    context = make_context(8, (zoo.ROWS,), summary=side.summary)
    assert bool(policy.scores(taken.observation, taken.mask, context).std(0).max() > 1e-6) is adaptive
    with pytest.raises(DataError, match="needs a scout"):
        acquire(policy, sensor, 0.5)
