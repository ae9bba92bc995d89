"""Stops: a scene ends when it is good enough, the others go on, and the budget is the upper limit."""

import pytest
import torch

from conftest import make_empirical, random_tokens, seeded
from sensewise import masks, predictions
from sensewise.errors import ConfigError
from sensewise.loop import acquire
from sensewise.policies.choose import Joint, Spread, TopK
from sensewise.policies.greedy import Greedy
from sensewise.policies.known import KnownImages
from sensewise.policies.simple import Random
from sensewise.policies.stops import ExpectedErrors, ExpectedPSNR, Gain, Watched
from sensewise.sensors.pixels import PixelSensor


@pytest.fixture
def scenes():
    """A prior and eight of the images that it counts."""
    prior = make_empirical(count=12, labels=None)
    return prior, prior.images[:8]


def expected(prior, taken, function):
    return prior.in_chunks(function, taken.observation, None).flatten(1).sum(1)


STOPS = {"errors": ExpectedErrors(0.5), "psnr": ExpectedPSNR(20.0), "gain": Gain(0.3)}


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
@pytest.mark.parametrize("choose", [TopK(), Spread(), Joint(KnownImages(random_tokens((12, 1, 4, 4)), 2))])
def test_scenes_end_when_they_are_good_enough_and_not_before(scenes, stop, choose):
    prior, x = scenes
    taken = acquire(Greedy(prior), PixelSensor(x), 12, steps=12, choose=choose, stop=stop)
    assert taken.stopped.all()
    assert taken.mask.sum(1).max() < 12
    assert torch.equal(taken.observation != 0, taken.mask.view(x.shape))
    for scene in range(len(x)):  # one reading fewer was not good enough
        last = int(taken.step[scene].max())
        alone = acquire(Greedy(prior), PixelSensor(x[scene : scene + 1]), 12, steps=12, choose=choose, stop=stop)
        assert int(alone.step.max()) == last
        before = acquire(
            Greedy(prior), PixelSensor(x[scene : scene + 1]), 12, steps=12, choose=choose, keep_scores=True
        )
        assert torch.equal(before.mask_after(last), taken.mask[scene : scene + 1])


def test_what_is_expected_is_below_the_bound(scenes):
    prior, x = scenes
    taken = acquire(Greedy(prior), PixelSensor(x), 12, steps=12, stop=ExpectedErrors(0.5))
    assert (expected(prior, taken, predictions.expected_errors) < 0.5).all()
    taken = acquire(Greedy(prior), PixelSensor(x), 12, steps=12, stop=ExpectedPSNR(20.0))
    assert (expected(prior, taken, predictions.variance) / x[0].numel() < 0.01).all()


@pytest.mark.parametrize(
    ("stop", "function"), [(STOPS["errors"], predictions.expected_errors), (STOPS["psnr"], predictions.variance)]
)
def test_random_readings_stop_when_a_prior_that_watches_says_so(scenes, stop, function):
    prior, x = scenes
    x = x[:1]
    taken = acquire(Watched(Random(), prior), PixelSensor(x), 15, steps=15, stop=stop, generator=seeded())
    bound = 0.5 if stop is STOPS["errors"] else 0.01 * x[0].numel()
    assert taken.stopped.all()
    assert (expected(prior, taken, function) < bound).all()
    alone = acquire(Random(), PixelSensor(x), 15, steps=15, generator=seeded())
    last = int(taken.step.max())
    assert torch.equal(alone.mask_after(last), taken.mask)
    before = PixelSensor(x)(alone.mask_after(last - 1))
    assert not bool(prior.in_chunks(function, before, None).sum() < bound)


def test_scenes_end_at_different_times(scenes):
    prior, x = scenes
    taken = acquire(Greedy(prior), PixelSensor(x), 12, steps=12, stop=ExpectedErrors(0.9))
    assert len(set(taken.mask.sum(1).tolist())) > 1


def test_a_stop_that_is_never_met_ends_at_the_budget(scenes):
    prior, x = scenes
    taken = acquire(
        Greedy(prior), PixelSensor(x), 3, steps=3, stop=ExpectedErrors(1e-9)
    )  # 12 images: 3 bits are too few
    assert not taken.stopped.any()
    assert (taken.mask.sum(1) == 3).all()


def test_a_stop_that_is_met_at_once_measures_nothing(scenes):
    prior, x = scenes
    taken = acquire(Greedy(prior), PixelSensor(x), 6, steps=6, stop=ExpectedErrors(1e9))
    assert taken.stopped.all()
    assert not taken.mask.any()


def test_a_cautious_factor_measures_more(scenes):
    prior, x = scenes
    counts = [
        acquire(Greedy(prior), PixelSensor(x), 12, steps=12, stop=ExpectedErrors(4.0, factor=factor)).mask.sum()
        for factor in (1.0, 30.0)
    ]
    assert counts[0] < counts[1]


def test_without_a_stop_there_is_no_word_of_it(scenes):
    prior, x = scenes
    assert acquire(Greedy(prior), PixelSensor(x), 6, steps=6).stopped is None


def test_one_pass_of_the_prior_per_step(scenes, monkeypatch):
    prior, x = scenes
    asked = []
    original = type(prior).predict
    monkeypatch.setattr(type(prior), "predict", lambda self, y, *rest: asked.append(len(y)) or original(self, y, *rest))
    taken = acquire(Greedy(prior), PixelSensor(x), 12, steps=12, stop=ExpectedErrors(0.5))
    assert len(asked) == int(taken.step.max()) + 1  # the last one found that all are good enough
    assert asked == sorted(asked, reverse=True)  # scenes that have ended are not looked at again


def test_a_policy_without_a_prior_cannot_expect_anything(scenes):
    _, x = scenes
    with pytest.raises(ConfigError, match="Random has no prior"):
        acquire(Random(), PixelSensor(x), 6, steps=6, stop=ExpectedErrors(1), generator=seeded())
    taken = acquire(Random(), PixelSensor(x), 6, steps=6, stop=Gain(1e-9), generator=seeded())
    assert not taken.stopped.any()


@pytest.mark.parametrize(
    "make",
    [
        lambda: ExpectedErrors(0),
        lambda: ExpectedErrors(float("nan")),
        lambda: ExpectedErrors(1, factor=0),
        lambda: ExpectedPSNR(0),
        lambda: ExpectedPSNR(101),
        lambda: ExpectedPSNR(30, factor=-1),
        lambda: Gain(-1),
    ],
)
def test_impossible_bounds(make):
    with pytest.raises(ConfigError, match="must be"):
        make()


class Curious(Greedy):
    """Greedy, which notes what it is told about the state of affairs."""

    def __init__(self, prior):
        super().__init__(prior)
        self.contexts = []

    def look(self, observation, mask, context):
        self.contexts.append(context)
        return super().look(observation, mask, context)


def test_policies_and_stops_are_told_the_step_and_the_budget(scenes):
    prior, x = scenes
    policy, asked = Curious(prior), []

    class Never(ExpectedErrors):
        def __call__(self, outlook, mask, context):
            asked.append(context)
            return torch.zeros(len(mask), dtype=torch.bool)

    taken = acquire(policy, PixelSensor(x), 7, steps=3, stop=Never(1.0))
    assert [(context.step, context.budget) for context in policy.contexts] == [(1, 7), (2, 7), (3, 7)]
    assert asked == policy.contexts
    assert [int((taken.step[0] == step).sum()) for step in (1, 2, 3)] == masks.step_sizes(7, 3)
