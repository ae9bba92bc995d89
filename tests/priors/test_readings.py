"""The prior over readings: any size, certain without noise, uncertain with it, and what it refuses."""

import subprocess
import sys

import pytest
import torch

from conftest import awake, fresh, seeded
from sensewise import predictions
from sensewise.channels import Gaussian
from sensewise.errors import BudgetError, DataError
from sensewise.evaluate.method import reading_methods
from sensewise.loop import acquire
from sensewise.networks import any_size
from sensewise.networks.any_size import AnySize
from sensewise.policies.choose import SPREAD_VARIANCE
from sensewise.policies.greedy import Greedy
from sensewise.policies.stops import ExpectedPSNR
from sensewise.priors.readings import ReadingPrior
from sensewise.reconstruct.prior import Mode, PosteriorMean
from sensewise.sensors.base import Side
from sensewise.sensors.readings import Readings, ReadingSensor
from sensewise.tokens import pack, quantize


@pytest.fixture
def prior():
    network = awake(fresh(AnySize, widths=(8, 12), blocks=(1, 1), components=3, embedding=8), std=0.05)
    return ReadingPrior(network).eval().requires_grad_(False)


IMAGE = torch.rand(2, 1, 18, 25, generator=seeded())


def some_readings(sigma, share=0.3):
    seen = torch.rand(IMAGE.shape, generator=seeded(1)) < share
    return seen, pack(torch.where(seen, IMAGE, torch.nan), torch.full_like(IMAGE, sigma))


def test_noiseless_readings_are_certain_and_kept(prior):
    seen, y = some_readings(0.0)
    prediction = prior(y)
    assert (prediction.variance()[seen] == 0).all()
    assert (prediction.entropy()[seen] == 0).all()
    assert (prediction.variance()[~seen] > 0).all()
    torch.testing.assert_close(prediction.mean()[seen], IMAGE[seen])
    torch.testing.assert_close(PosteriorMean(prior)(y, seen.flatten(1))[seen], IMAGE[seen])
    assert Mode(prior)(y, seen.flatten(1)).shape == IMAGE.shape


def test_noisy_readings_stay_uncertain(prior):
    seen, y = some_readings(0.1)
    variance = prior(y).variance()
    assert (variance[seen] > 0).all()
    assert variance[seen].mean() < variance[~seen].mean()


@pytest.mark.parametrize("name", ["spread-variance-greedy", "variance-greedy", "random", "variable-density"])
@pytest.mark.parametrize(("sigma", "repeats"), [(0.0, 1), (0.1, 1), (0.1, 3)])
def test_every_method_for_readings(prior, name, sigma, repeats):
    channel = Gaussian(sigma)
    method = reading_methods(prior, 4, channel, repeats)[name]
    sensor = ReadingSensor(IMAGE, channel, repeats=repeats)
    taken = method.spend(sensor, 90, side=Side(), start=None, generator=seeded())
    assert (taken.mask.sum(1) == 90).all()


@pytest.mark.parametrize("sigma", [0.0, 0.1])
def test_greedy_acquisition_of_a_rectangle(prior, sigma):
    policy = Greedy(prior, predictions.variance, view=Readings(), reach=0.6)
    taken = acquire(policy, ReadingSensor(IMAGE, Gaussian(sigma)), 0.2, steps=4, choose=SPREAD_VARIANCE)
    assert (taken.mask.sum(1) == 90).all()


def test_repeats_prefer_what_is_uncertain(prior):
    channel = Gaussian(0.2)
    policy = Greedy(prior, predictions.VarianceReduction(channel), view=Readings(repeats=3))
    taken = acquire(policy, ReadingSensor(IMAGE, channel, repeats=3), 600, steps=6)
    per_pixel = taken.mask.view(2, 3, -1).sum(1)
    assert (taken.mask.sum(1) == 600).all()
    assert per_pixel.max() > 1  # 450 pixels: some are read again


def test_a_stop_by_expected_psnr(prior):
    policy = Greedy(prior, predictions.variance, view=Readings())
    taken = acquire(policy, ReadingSensor(IMAGE), 0.9, steps=20, stop=ExpectedPSNR(25.0))
    assert taken.stopped.all()
    expected = prior(taken.observation).variance().mean((1, 2, 3))
    assert (expected < 10**-2.5).all()
    for image, last in enumerate(taken.step.amax(1)):  # one step before, it was not good enough
        before = ReadingSensor(IMAGE)(taken.mask_after(int(last) - 1))[image : image + 1]
        assert prior(before).variance().mean() >= 10**-2.5


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (torch.zeros(1, 1, 20, 20, dtype=torch.int64), "readings of shape"),
        (torch.zeros(1, 1, 20, 20), "readings of shape"),
        (torch.zeros(1, 2, 20, 15), "too small"),
        (-torch.ones(1, 2, 20, 20), "not negative"),
        (torch.full((1, 2, 20, 20), torch.nan), "not negative"),
    ],
)
def test_refused(prior, y, words):
    with pytest.raises(DataError, match=words):
        prior(y)


def test_labels_are_refused(prior):
    with pytest.raises(DataError, match="no labels"):
        prior(prior.blank((20, 20)), torch.tensor([3]))


@pytest.mark.parametrize("sigma", [0.0, 0.1])
def test_joint_samples(prior, sigma):
    """Noiseless readings are kept; noisy ones are drawn anew, near what was read; everything else varies."""
    seen, y = some_readings(sigma)
    drawn, again, other = (prior.sample(y, None, seeded(seed), steps=4, samples=3) for seed in (0, 0, 1))
    assert drawn.shape == (3, *IMAGE.shape)
    assert drawn.dtype == torch.int64
    assert 1 <= drawn.min() <= drawn.max() <= 256
    assert torch.equal(drawn, again)
    assert not torch.equal(drawn, other)
    read = quantize(IMAGE, 256)[seen]
    if sigma == 0:
        assert all(torch.equal(one[seen], read) for one in drawn)
    else:
        apart = (drawn[0][seen] - read).float() / 255
        assert 0 < apart.abs().mean() < 4 * sigma
    assert (drawn[0] != drawn[1])[~seen].float().mean() > 0.5


def test_more_repeats_than_readings(prior):
    policy, sensor = Greedy(prior, predictions.variance, view=Readings(repeats=9)), ReadingSensor(IMAGE, repeats=9)
    with pytest.raises(BudgetError, match="read 9 times, but the budget leaves 5 readings"):
        acquire(policy, sensor, 5)


@pytest.mark.parametrize("function", [predictions.variance, predictions.mean, predictions.entropy, predictions.mode])
@pytest.mark.parametrize("sigma", [0.0, 0.1])
def test_maps_of_a_large_picture_are_made_tile_by_tile(prior, monkeypatch, function, sigma):
    picture = torch.rand(1, 1, 150, 130, generator=seeded())
    seen = torch.rand(picture.shape, generator=seeded(1)) < 0.3
    y = pack(torch.where(seen, picture, torch.nan), torch.full_like(picture, sigma))
    monkeypatch.setattr(any_size, "has_bfloat16", lambda device: False)
    whole, sizes = function(prior(y)), []
    monkeypatch.setattr(any_size, "TILE", 64)

    def listening(prediction):
        sizes.append(prediction.shape[2:])
        return function(prediction)

    torch.testing.assert_close(prior.maps(listening, y, None), whole, atol=1e-5, rtol=1e-3)
    assert sizes == [(h, w) for h in (64, 64, 22) for w in (64, 64, 2)]


PEAK = """
import resource, torch
from sensewise import hub
from sensewise.loop import acquire
from sensewise.policies.choose import SPREAD_READINGS
from sensewise.policies.greedy import greedy_readings
from sensewise.sensors.readings import ReadingSensor
torch.set_num_threads(1)
picture = torch.rand(1, 1, {side}, {side}, generator=torch.Generator().manual_seed(0))
acquire(greedy_readings(hub.load_prior("any-grey")), ReadingSensor(picture), 0.01, steps=2, choose=SPREAD_READINGS)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in other units, or not at all")
def test_memory_grows_with_the_maps_of_a_picture_and_not_with_the_network():
    """In MB. In one pass the network alone would take four times as much: 0.4 GB more for 1024 x 1024."""
    small, large = (
        float(subprocess.run([sys.executable, "-c", PEAK.format(side=side)], check=True, capture_output=True).stdout)
        for side in (512, 1024)
    )
    assert small < 700
    assert large < small + 250
