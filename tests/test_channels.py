"""Channels against their definitions, and the information of a reading against enumeration."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import make_empirical, seeded
from sensewise import predictions
from sensewise.channels import CELLS_PER_SIGMA, REACH, BitFlip, Channel, Gaussian, Poisson
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
        lambda: Poisson(1e6),
        lambda: Poisson(1e6 + 0.5),
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


@pytest.mark.parametrize("sigma", [0.04, 0.3])
def test_gaussian_outcomes_have_every_digit(sigma):
    """Each cell by the complement of the error function, on the side of the bell that keeps its digits."""
    found = Gaussian(sigma).outcomes(4).double()
    torch.testing.assert_close(found.sum(1), torch.ones(4, dtype=torch.float64), atol=1e-7, rtol=0)
    edges = [-REACH * sigma + (1 + 2 * REACH * sigma) * i / found.shape[1] for i in range(found.shape[1] + 1)]
    for level, row in enumerate(found):
        z = [(edge - level / 3) / sigma / 2**0.5 for edge in edges]
        near = [(a, b) if b <= 0 else (-b, -a) for a, b in itertools.pairwise(z)]
        exact = torch.tensor([0.5 * (math.erfc(-b) - math.erfc(-a)) for a, b in near], dtype=torch.float64)
        likely = exact > 1e-8
        torch.testing.assert_close(row[likely], (exact / exact.sum())[likely], atol=0, rtol=5e-7)


def test_poisson_outcomes_have_every_digit():
    found = Poisson(700.0).outcomes(4)[1:].double()
    for level, row in enumerate(found, start=1):
        rate = 700 * level / 3
        exact = [math.exp(n * math.log(rate) - rate - math.lgamma(n + 1)) for n in range(len(row))]
        torch.testing.assert_close(row, torch.tensor(exact, dtype=torch.float64), atol=1e-9, rtol=1e-6)


def test_what_is_never_wrong_is_never_flipped():
    """Draw 827 of this seed is 0 itself."""
    assert torch.rand(1000, generator=seeded(11993))[827] == 0
    truth = torch.ones(1000)
    assert torch.equal(BitFlip(0.0).read(truth, seeded(11993)), truth)


def test_flips_say_how_often_they_happen():
    assert torch.equal(BitFlip(0.2).noise(torch.ones(2, 3)), torch.full((2, 3), 0.2))


def test_each_site_has_a_noise_of_its_own():
    """A channel of somebody else's: darkness is read without noise, brightness with it."""

    class Shot(Gaussian):
        def noise(self, readings):
            return self.sigma * readings

    channel: Channel = Shot(0.1)
    value, noise = channel.combine(torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.ones(2, 2, dtype=torch.bool))
    assert value.tolist() == [0.0, 1.0]
    torch.testing.assert_close(noise, torch.tensor([0.0, 0.1 / 2**0.5]))
    assert noise[0] == 0  # no noise is none, not little


class TestCounts:
    """Counts of several readings, and what a prior is told of them."""

    LEVELS = torch.linspace(0, 1, 2001, dtype=torch.float64)

    def posterior(self, counts, dose):
        """Mean and standard deviation of an intensity after counts, by enumeration of equally likely levels."""
        log_p = torch.xlogy(torch.tensor(float(sum(counts))), self.LEVELS) - len(counts) * dose * self.LEVELS
        p = log_p.softmax(0)
        mean = float((p * self.LEVELS).sum())
        return mean, float((p * (self.LEVELS - mean).square()).sum().sqrt())

    @pytest.mark.parametrize("counts", [(9, 12), (3, 7), (10, 11), (2, 9)])
    def test_repeats_say_what_enumeration_says(self, counts):
        readings = torch.tensor(counts).view(2, 1, 1, 1, 1) / 20
        value, noise = Poisson(20.0).combine(readings, torch.ones_like(readings).bool())
        mean, deviation = self.posterior(counts, 20.0)
        assert float(value) + 1 / 40 == pytest.approx(mean, abs=1e-3)  # all levels equally likely: half a count more
        assert float(noise) == pytest.approx(deviation, rel=0.02)

    def test_a_weighted_mean_of_a_flat_picture_is_not_too_dark(self):
        channel, truth = Poisson(20.0), torch.full((1, 1, 100, 100), 0.4)
        readings = channel.read(truth, seeded())[None]
        value, noise = channel.combine(readings, torch.ones_like(readings).bool())
        weights = noise.square().reciprocal()
        assert float((weights * value).sum() / weights.sum()) == pytest.approx(0.4, abs=0.005)
        torch.testing.assert_close(noise, torch.full_like(noise, math.sqrt(0.4 / 20)), rtol=0.02, atol=0)
        alone = channel.noise(readings[0]).square().reciprocal()  # each by its own count
        assert float((alone * readings[0]).sum() / alone.sum()) < 0.37

    def test_every_picture_has_noise_of_its_own_and_a_black_one_has_some(self):
        truth = torch.stack([torch.zeros(1, 20, 20), torch.ones(1, 20, 20)])
        readings = Poisson(50.0).read(truth, seeded())[None]
        taken = torch.rand(readings.shape, generator=seeded()) < 0.3
        value, noise = Poisson(50.0).combine(readings, taken)
        assert torch.equal(value.isnan(), ~taken[0])
        assert 0 < noise[0].max() < 0.01
        assert noise[1].mean() == pytest.approx(math.sqrt(1 / 50), rel=0.02)
        nothing, _ = Poisson(50.0).combine(readings, torch.zeros_like(taken))
        assert nothing.isnan().all()


def test_counts_are_combined_picture_by_picture():
    """Every site by hand: its own mean, and the noise of the mean over all readings of its picture."""
    dose, draw = 8.0, seeded()
    readings = Poisson(dose).read(torch.rand(3, 2, 2, 2, 3, generator=draw), draw)
    taken = torch.rand(readings.shape, generator=draw) < 0.6
    taken[:, 1, 0, 0, 0] = False
    value, noise = Poisson(dose).combine(readings, taken)
    for site in itertools.product(range(2), range(2), range(2), range(3)):
        picture = site[0]
        whole = readings[:, picture][taken[:, picture]]
        mean = (whole.sum().item() + 1 / dose) / len(whole)
        own = readings[:, *site][taken[:, *site]].tolist()
        assert noise[site].item() == pytest.approx(math.sqrt(mean / (dose * max(1, len(own)))))
        assert value[site].isnan() if not own else value[site].item() == pytest.approx(sum(own) / len(own))
    nothing = Poisson(dose).combine(readings, torch.zeros_like(taken))
    assert nothing[0].isnan().all()
    torch.testing.assert_close(nothing[1], torch.full((2, 2, 2, 3), 1 / dose))
