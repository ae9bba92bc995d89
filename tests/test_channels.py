"""Channels against their definitions, and the information of a reading against enumeration."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import make_empirical, seeded
from sensewise import predictions
from sensewise.channels import CELLS_PER_SIGMA, REACH, BitFlip, Gaussian, Poisson
from sensewise.errors import ConfigError
from sensewise.predictions import Categorical, Mixture

CHANNELS = {"gaussian": Gaussian(0.1), "exact": Gaussian(0.0), "poisson": Poisson(20.0), "flips": BitFlip(0.1)}


@pytest.fixture(params=CHANNELS.values(), ids=CHANNELS)
def channel(request):
    return request.param


def test_outcomes_are_probabilities(channel):
    found = channel.outcomes(2)
    assert found.dtype == torch.float32
    assert (found >= 0).all()
    torch.testing.assert_close(found.sum(1), torch.ones(2))


def test_readings_have_the_mean_of_the_truth_and_the_noise_they_say(channel):
    truth = torch.tensor([0.0, 1.0]).repeat_interleave(20_000)
    read = channel.read(truth, seeded())
    assert torch.equal(read, channel.read(truth, seeded()))
    bright = read[20_000:]
    if isinstance(channel, BitFlip):
        assert (bright != 1).float().mean() == pytest.approx(channel.p, abs=0.01)
        return
    assert bright.mean() == pytest.approx(1.0, abs=0.01)
    assert bright.std() == pytest.approx(float(channel.noise(torch.ones(1))), abs=0.01)


def test_readings_fall_into_the_outcomes_as_often_as_they_should():
    channel = Poisson(5.0)
    counts = (channel.read(torch.full((50_000,), 1.0), seeded()) * 5).round().long()
    outcomes = channel.outcomes(2)[1]
    found = torch.bincount(counts, minlength=len(outcomes))[: len(outcomes)] / 50_000
    torch.testing.assert_close(found, outcomes, atol=0.01, rtol=0)


def some(states, seed=0):
    return Categorical(torch.randn(2, 1, 3, 3, states, generator=seeded(seed)).log_softmax(-1))


@given(st.integers(0, 2**31), st.floats(0, 0.49))
def test_gain_is_between_zero_and_the_entropy(seed, p):
    prediction = some(2, seed)
    for channel in (BitFlip(p), Gaussian(p), Poisson(1 + 40 * p)):
        gain = prediction.gain(channel)
        assert (gain >= 0).all()
        assert (gain <= prediction.entropy() + 1e-5).all()


def test_noiseless_readings_gain_the_entropy():
    torch.testing.assert_close(some(2).gain(BitFlip(0)), some(2).entropy())
    torch.testing.assert_close(some(8).gain(Gaussian(0)), some(8).entropy())
    torch.testing.assert_close(some(8).gain(Gaussian(1e-3)), some(8).entropy(), atol=1e-4, rtol=0)


def test_more_noise_gains_less():
    for better, worse in ((BitFlip(0.05), BitFlip(0.2)), (Gaussian(0.05), Gaussian(0.3)), (Poisson(50), Poisson(2))):
        assert (some(2).gain(better) > some(2).gain(worse)).all()


def test_gain_of_a_bit_flip_against_enumeration():
    """I(C; Y_i | y) of the whole image equals that of the site: with the exact posterior of a list of images."""
    prior = make_empirical(count=9, labels=None)
    y = torch.where(torch.rand(1, 1, 4, 4, generator=seeded(3)) < 0.3, prior.images[:1], 0)
    gain = prior(y).gain(BitFlip(0.1))
    fits = [image for image in prior.images if ((y == 0) | (y == image)).all()]
    for i in range(16):
        joint = torch.zeros(len(fits), 2, dtype=torch.float64)
        for row, image in enumerate(fits):
            state = int(image.flatten()[i]) - 1
            joint[row, state], joint[row, 1 - state] = 0.9 / len(fits), 0.1 / len(fits)
        marginal = joint.sum(0)
        exact = torch.xlogy(joint, joint / (marginal / len(fits))).sum()
        assert gain.flatten()[i] == pytest.approx(float(exact), abs=1e-6)


def test_gain_of_mixtures_by_quadrature():
    draw = seeded()
    weights = torch.randn(2, 1, 3, 3, 3, generator=draw).log_softmax(2)
    centres = 0.3 + 0.4 * torch.rand(2, 1, 3, 3, 3, generator=draw)
    prediction = Mixture(weights, centres, 0.01 + 0.03 * torch.rand(2, 1, 3, 3, 3, generator=draw), 256)
    for sigma in (0.01, 0.05, 0.2):
        gain = prediction.gain(Gaussian(sigma))
        torch.testing.assert_close(gain, prediction.categorical().gain(Gaussian(sigma)), atol=0.01, rtol=0)
    narrow = Mixture(torch.zeros(1, 1, 1, 1, 1), torch.full((1, 1, 1, 1, 1), 0.5), torch.full((1, 1, 1, 1, 1), 0.1))
    expected = 0.5 * torch.log1p(torch.tensor(0.1**2 / 0.05**2))  # one Gaussian: in closed form
    assert narrow.gain(Gaussian(0.05)).item() == pytest.approx(float(expected), abs=2e-3)


def test_scores_of_noisy_readings():
    prediction, channel = some(2), BitFlip(0.1)
    assert torch.equal(predictions.InformationGain(channel)(prediction), prediction.gain(channel))
    left = predictions.VarianceReduction(Gaussian(0.1))(prediction)
    assert ((left >= 0) & (left < prediction.variance())).all()
    torch.testing.assert_close(predictions.VarianceReduction(Gaussian(0))(prediction), prediction.variance())


def test_two_readings_are_combined_as_bayes_has_it():
    readings = torch.tensor([[0.2, 0.4, 0.9], [0.4, 0.8, 0.1]])
    taken = torch.tensor([[True, True, False], [True, False, False]])
    value, noise = Gaussian(0.1).combine(readings, taken)
    torch.testing.assert_close(value[:2], torch.tensor([0.3, 0.4]))
    torch.testing.assert_close(noise[:2], torch.tensor([0.1 / 2**0.5, 0.1]))
    assert value[2].isnan()
    value, noise = BitFlip(0.1).combine(torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]), taken)
    assert value[:2].tolist() == [1.0, 1.0]
    torch.testing.assert_close(noise, torch.tensor([0.01 / 0.82, 0.1, 0.0]))
    value, noise = Gaussian(0.0).combine(readings, taken)
    assert noise[:2].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Gaussian(-0.1),
        lambda: Gaussian(float("nan")),
        lambda: Poisson(0),
        lambda: Poisson(1e9),
        lambda: BitFlip(0.5),
        lambda: BitFlip(-0.1),
        lambda: BitFlip(0.1).outcomes(8),
    ],
)
def test_impossible_noise(make):
    with pytest.raises(ConfigError, match=r"^(sigma|dose|p) must be|two levels"):
        make()


@pytest.mark.parametrize("sigma", [0.05, 0.3])
def test_gaussian_outcomes_are_cells_of_the_bell(sigma):
    """As few as are needed for four per standard deviation, with the mean and the width of the bell."""
    found = Gaussian(sigma).outcomes(3).double()
    reach = REACH * sigma
    edges = torch.linspace(-reach, 1 + reach, found.shape[1] + 1, dtype=torch.float64)
    assert found.shape[1] == math.ceil(round((1 + 2 * reach) / sigma * CELLS_PER_SIGMA, 6))
    middle = (edges[1:] + edges[:-1]) / 2
    levels = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    torch.testing.assert_close(found.sum(1), torch.ones(3, dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(found @ middle, levels, atol=1e-4, rtol=0)
    spread = (found * (middle - levels[:, None]).square()).sum(1).sqrt()
    torch.testing.assert_close(spread, torch.full_like(spread, sigma), atol=0, rtol=0.02)


def test_gaussian_outcomes_of_little_noise_are_the_levels():
    assert torch.equal(Gaussian(0.0019).outcomes(11), torch.eye(11))
    assert Gaussian(0.0021).outcomes(11).shape[1] > 11


@pytest.mark.parametrize("dose", [0.5, 7.0, 400.0])
def test_poisson_outcomes_are_the_counts(dose):
    found = Poisson(dose).outcomes(3).double()
    count = torch.arange(found.shape[1], dtype=torch.float64)
    rate = dose * torch.tensor([[0.0], [0.5], [1.0]], dtype=torch.float64)
    exact = torch.exp(torch.xlogy(count, rate) - rate - torch.lgamma(count + 1))
    torch.testing.assert_close(found, exact, atol=1e-6, rtol=1e-5)
    assert exact[2].sum() > 1 - 1e-6  # hardly anything lies beyond
    assert found.shape[1] < dose + 20 * dose**0.5 + 20


def test_counts_of_darkness_and_of_grey():
    read = Poisson(4.0).read(torch.tensor([0.0, -0.5, 0.5]).repeat_interleave(4000), seeded()).view(3, 4000)
    assert (read[:2] == 0).all()
    assert read[2].mean() == pytest.approx(0.5, abs=0.02)
    assert set((read[2] * 4).tolist()) >= {0.0, 1.0, 2.0, 3.0}
    noise = Poisson(4.0).noise(torch.tensor([0.0, 0.25, 0.5]))  # none is taken for certain
    torch.testing.assert_close(noise, torch.tensor([0.25, 0.25, 0.5 / 2**0.5]))


def test_flips_are_combined_by_their_odds():
    readings = torch.tensor([[1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0]])
    value, noise = BitFlip(0.2).combine(readings, torch.ones(3, 4, dtype=torch.bool))
    assert value.tolist() == [1.0, 0.0, 1.0, 0.0]
    torch.testing.assert_close(noise, torch.full((4,), 0.2))  # two against one is one
    value, noise = BitFlip(0.0).combine(readings[:1].double(), torch.tensor([[True, True, True, False]]))
    assert value.dtype == torch.float64
    assert value[:3].tolist() == [1.0, 0.0, 1.0]
    assert value[3].isnan()
    assert noise.tolist() == [0.0] * 4


def test_a_reading_is_the_truth_and_the_noise_of_the_seed():
    truth = torch.rand(50, generator=seeded(1))
    torch.testing.assert_close(Gaussian(0.1).read(truth, seeded()), truth + 0.1 * torch.randn(50, generator=seeded()))


@pytest.mark.parametrize("p", [0.1, 0.4])
def test_one_reading_of_a_bit_is_what_was_read(p):
    value, noise = BitFlip(p).combine(torch.tensor([[1.0, 0.0]]), torch.ones(1, 2, dtype=torch.bool))
    assert value.tolist() == [1.0, 0.0]
    torch.testing.assert_close(noise, torch.full((2,), p))


@pytest.mark.parametrize("noisy", [Gaussian(0.05), Poisson(30.0)], ids=["gaussian", "poisson"])
def test_the_gain_of_a_site_is_its_own(noisy):
    """Whatever the sites around it and the other images are."""
    log_weights, centres, widths = torch.rand(3, 2, 1, 3, 4, 3, generator=seeded())
    parts = (log_weights.log_softmax(2), centres, 0.02 + 0.2 * widths)
    whole = Mixture(*parts).gain(noisy)
    for image, row, column in ((0, 0, 0), (0, 3, 1), (1, 2, 2)):
        alone = Mixture(*(part[image : image + 1, :, :, row : row + 1, column : column + 1] for part in parts))
        torch.testing.assert_close(whole[image, 0, row, column], alone.gain(noisy).squeeze())
