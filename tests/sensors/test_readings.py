"""Noisy readings: nothing hidden leaks, repeats add up, and a pixel is never read twice in one step."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import seeded
from sensewise.channels import BitFlip, Gaussian, Poisson
from sensewise.errors import ConfigError, DataError
from sensewise.loop import acquire
from sensewise.policies.simple import Random
from sensewise.sensors.readings import Readings, ReadingSensor
from sensewise.tokens import unpack

IMAGE = torch.rand(2, 1, 5, 6, generator=seeded())


def some_mask(sensor, seed=0, share=0.4):
    return torch.rand(sensor.batch, sensor.num_actions, generator=seeded(seed)) < share


@pytest.mark.parametrize("channel", [Gaussian(0), Gaussian(0.1), Poisson(30)], ids=str)
@pytest.mark.parametrize("repeats", [1, 3])
def test_what_is_read_and_nothing_more(channel, repeats):
    sensor = ReadingSensor(IMAGE, channel, repeats=repeats)
    mask = some_mask(sensor)
    values, noise, seen = unpack(sensor(mask))
    assert torch.equal(seen, mask.view(2, repeats, 5, 6).any(1, keepdim=True))
    assert torch.equal(sensor(mask).nan_to_num(-1), sensor(mask).nan_to_num(-1))  # the same again
    changed = torch.where(seen, IMAGE, 1 - IMAGE)  # what is hidden cannot change what is seen
    again = ReadingSensor(changed, channel, repeats=repeats)(mask)
    if not isinstance(channel, Poisson):  # its draws depend on the rates drawn before
        assert torch.equal(again.nan_to_num(-1), sensor(mask).nan_to_num(-1))
    assert (noise[~seen] == 0).all()
    if channel == Gaussian(0):
        torch.testing.assert_close(values[seen], IMAGE[seen])


def test_more_readings_are_less_noisy():
    sensor = ReadingSensor(IMAGE, Gaussian(0.2), repeats=4)
    once, often = torch.zeros(2, 120, dtype=torch.bool), torch.ones(2, 120, dtype=torch.bool)
    once[:, :30] = True
    torch.testing.assert_close(unpack(sensor(once))[1], torch.full((2, 1, 5, 6), 0.2))
    torch.testing.assert_close(unpack(sensor(often))[1], torch.full((2, 1, 5, 6), 0.1))
    assert (unpack(sensor(often))[0] - IMAGE).square().mean() < (unpack(sensor(once))[0] - IMAGE).square().mean()


@given(st.integers(1, 4), st.integers(0, 2**31))
def test_the_next_reading_of_each_pixel_is_offered(repeats, seed):
    mask = torch.zeros(3, repeats, 8, dtype=torch.bool)
    count = torch.randint(0, repeats + 1, (3, 8), generator=seeded(seed))
    for r in range(repeats):
        mask[:, r] = count > r
    offered = Readings(repeats).offered(mask.flatten(1))
    if repeats == 1:
        assert offered is None
        return
    assert not (offered & mask.flatten(1)).any()
    assert torch.equal(offered.view(3, repeats, 8).sum(1), (count < repeats).long())


def test_bits_are_flipped_as_often_as_they_should():
    bits = (torch.rand(8, 1, 32, 32, generator=seeded()) < 0.3).float()
    sensor = ReadingSensor(bits, BitFlip(0.1))
    values, noise, seen = unpack(sensor(torch.ones(8, 1024, dtype=torch.bool)))
    assert seen.all()
    assert (values != bits).float().mean() == pytest.approx(0.1, abs=0.01)
    torch.testing.assert_close(noise, torch.full_like(noise, 0.1))


def test_acquire_takes_readings():
    taken = acquire(Random(), ReadingSensor(IMAGE, Gaussian(0.1), repeats=2), 20, steps=4, generator=seeded())
    assert (taken.mask.sum(1) == 20).all()
    assert taken.observation.shape == (2, 2, 5, 6)


@pytest.mark.parametrize("image", [torch.ones(2, 5, 6), torch.ones(1, 1, 5, 6).long(), 2 * IMAGE, IMAGE / 0])
def test_impossible_images(image):
    with pytest.raises(DataError, match="intensities"):
        ReadingSensor(image)


def test_a_pixel_is_read_at_least_once():
    with pytest.raises(ConfigError, match="repeats must be 1 or more"):
        ReadingSensor(IMAGE, repeats=0)
