import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import random_tokens, seeded
from sensewise.errors import BudgetError
from sensewise.sensors import PixelSensor
from sensewise.tokens import MASK, summary


@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 2**32))
def test_what_is_hidden_cannot_change_an_observation(batch, channels, seed):
    x, other = (random_tokens((batch, channels, 4, 5), 3, seed + i) for i in range(2))
    mask = torch.rand(batch, 20, generator=seeded(seed)) < 0.4
    measured = mask.view(batch, 1, 4, 5)
    observation = PixelSensor(x)(mask)
    assert torch.equal(observation, PixelSensor(torch.where(measured, x, other))(mask))
    assert torch.equal(observation, torch.where(measured, x, MASK))


def test_actions_are_pixels():
    sensor = PixelSensor(random_tokens((2, 3, 4, 5)))
    assert (sensor.batch, sensor.num_actions) == (2, 20)


@pytest.mark.parametrize(
    "mask", [torch.ones(2, 19, dtype=torch.bool), torch.ones(1, 20, dtype=torch.bool), torch.ones(2, 20)]
)
def test_masks_that_do_not_fit(mask):
    with pytest.raises(BudgetError, match=r"bool with shape \(2, 20\)"):
        PixelSensor(random_tokens((2, 3, 4, 5)))(mask)


def test_summary():
    x = random_tokens((2, 3, 16, 16), 4)
    assert torch.equal(PixelSensor(x).summary(4), summary(x, 4))
