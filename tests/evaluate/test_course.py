"""Courses say what every stop would have done, and the factor that keeps a promise."""

import math

import pytest
import torch

from conftest import make_absorbing, make_empirical, random_tokens, seeded
from sensewise.errors import ConfigError
from sensewise.evaluate.course import ERRORS, PSNR, Course, course
from sensewise.evaluate.method import Method
from sensewise.metrics import errors, psnr
from sensewise.policies.choose import Spread
from sensewise.policies.greedy import Greedy
from sensewise.policies.stops import Calibration, ExpectedErrors, ExpectedPSNR
from sensewise.reconstruct.prior import Mode, PosteriorMean
from sensewise.sensors.base import Side
from sensewise.sensors.pixels import PixelSensor
from sensewise.tokens import dequantize

STEPS, BUDGET = 20, 40
X = random_tokens((6, 1, 8, 8))
SIDE = Side(label=torch.tensor([0, 1, 2, 0, 1, -1]))


def method(prior, stop=None):
    return Method("greedy", Greedy(prior), STEPS, choose=Spread(), stop=stop)


def taken(prior, quantity, lowest, least=0):
    truth = X if quantity is ERRORS else dequantize(X, 2)
    return course(prior, method, PixelSensor(X), truth, SIDE, quantity, BUDGET, lowest, least)


@pytest.mark.parametrize("level", [20.0, 10.0, 6.0, 1e-3])
@pytest.mark.parametrize("prior", [make_absorbing(), make_empirical(shape=(1, 8, 8))], ids=["network", "exact"])
def test_a_course_replays_what_a_stop_does(prior, level):
    found = taken(prior, ERRORS, 1e-4).stopped(level)
    real = method(prior, ExpectedErrors(level)).spend(PixelSensor(X), BUDGET, side=SIDE, start=None, generator=seeded())
    torch.testing.assert_close(found.density, real.density)
    spent = real.mask.sum(1) == BUDGET  # a level may be reached with the last reading
    assert torch.equal(found.reached & ~spent, real.stopped)
    x_hat = Mode(prior)(real.observation, real.mask, SIDE)
    torch.testing.assert_close(found.true, errors(x_hat, X))


def test_the_same_for_psnr():
    prior = make_absorbing()
    found = taken(prior, PSNR, 40.0).stopped(PSNR.level(10.0))
    stop = ExpectedPSNR(10.0)
    real = method(prior, stop).spend(PixelSensor(X), BUDGET, side=SIDE, start=None, generator=seeded())
    torch.testing.assert_close(found.density, real.density)
    mean = PosteriorMean(prior)(real.observation, real.mask, SIDE)
    torch.testing.assert_close(PSNR.shown(found.true), psnr(mean, dequantize(X, 2)))


def test_a_fixed_budget_is_that_of_an_acquisition_without_a_stop():
    prior = make_absorbing()
    whole = taken(prior, ERRORS, 1e9, least=20)
    half = Method("greedy", Greedy(prior), 10, choose=Spread())
    real = half.spend(PixelSensor(X), 20, side=SIDE, start=None, generator=seeded())
    torch.testing.assert_close(whole.fixed(20), errors(Mode(prior)(real.observation, real.mask, SIDE), X))
    assert whole.fixed(30).isnan().all()  # all had ended


def made(scenes=399, scale=1.0):
    """Courses whose errors are Poisson with the expected mean."""
    expected = torch.linspace(20, 0.05, 60).view(-1, 1).expand(60, scenes)
    true = torch.poisson(scale * expected, generator=seeded())
    return Course(expected, true, torch.arange(60.0).view(-1, 1).expand(60, scenes), 60)


@pytest.mark.parametrize("level", [1.0, 3.0, 10.0])
def test_a_factor_keeps_its_promise_and_is_not_larger_than_needed(level):
    whole = made()
    factor = whole.factor(level, 0.9)
    kept = (whole.stopped(level, factor).true <= level).float().mean()
    assert kept >= 0.9
    fewer = whole.stopped(level, factor / 1.25)
    assert (fewer.true <= level).float().mean() < 0.93
    assert made(scale=2.0).factor(level, 0.9) > 1.5 * factor  # a prior that is too sure


def test_promises_hold_on_other_scenes():
    whole = made(2000)
    half = Course(*(rows[:, :1000] for rows in (whole.expected, whole.true, whole.measured)), 60)
    other = Course(*(rows[:, 1000:] for rows in (whole.expected, whole.true, whole.measured)), 60)
    found = other.stopped(3.0, half.factor(3.0, 0.9))
    assert abs((found.true <= 3).float().mean() - 0.9) < 0.05


@pytest.mark.parametrize(("scenes", "probability", "words"), [(5, 0.9, "too few"), (99, 1.0, "0.5 to 1")])
def test_promises_that_cannot_be_made(scenes, probability, words):
    with pytest.raises(ConfigError, match=words):
        made(scenes).factor(1.0, probability)


def test_a_prior_that_does_not_fit_has_no_factor():
    with pytest.raises(ConfigError, match="does not fit"):
        made(scale=100.0).factor(1.0, 0.9)


def test_factors_between_levels_are_in_proportion():
    card = Calibration("greedy", 0.9, 100, {1.0: 2.0, 4.0: 8.0})
    assert card.factor(1.0) == 2.0
    assert card.factor(0.1) == 2.0
    assert card.factor(9.0) == 8.0
    assert math.isclose(card.factor(2.0), 4.0)
    with pytest.raises(ConfigError, match="above 0"):
        Calibration("greedy", 0.9, 100, {})
