"""The prior over readings: any size, certain without noise, uncertain with it, and what it refuses."""

import pytest
import torch

from conftest import awake, fresh, seeded
from sensewise import predictions
from sensewise.channels import Gaussian
from sensewise.errors import DataError
from sensewise.loop import acquire
from sensewise.networks.any_size import AnySize
from sensewise.policies.choose import SPREAD_VARIANCE
from sensewise.policies.greedy import Greedy
from sensewise.policies.stops import ExpectedPSNR
from sensewise.priors.readings import ReadingPrior
from sensewise.reconstruct.prior import Mode, PosteriorMean
from sensewise.sensors.readings import Readings, ReadingSensor
from sensewise.tokens import pack


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
    taken = acquire(policy, ReadingSensor(IMAGE), 0.9, steps=20, stop=ExpectedPSNR(14.0))
    assert taken.stopped.all()
    expected = prior(taken.observation).variance().mean((1, 2, 3))
    assert (expected < 10**-1.4).all()


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
