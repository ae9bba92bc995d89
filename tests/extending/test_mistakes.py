"""Mistakes in a prior, a policy or a sensor of one's own: one sentence that names the class and says what to do."""

import pytest
import torch

from conftest import make_empirical
from sensewise.errors import ConfigError, SensewiseError
from sensewise.loop import acquire
from sensewise.policies.base import Policy
from sensewise.policies.greedy import Greedy
from sensewise.policies.stops import ExpectedPSNR
from sensewise.predictions import Categorical
from sensewise.priors.base import NEEDED, Prior
from sensewise.sensors.base import Sensor
from sensewise.sensors.pixels import PixelSensor
from sensewise.session import Session
from sensewise.tokens import MASK

IMAGE = torch.ones(1, 1, 4, 4, dtype=torch.long)


class Even(Prior):
    """Every state is as probable as every other; `leave_out` is what the author forgot."""

    def __init__(self, leave_out=None):
        super().__init__()
        facts = {"channels": 1, "num_states": 2, "num_labels": None, "size": (4, 4)}
        for name in facts.keys() - {leave_out}:
            setattr(self, name, facts[name])

    def predict(self, y, label, t):
        return Categorical(torch.zeros(*y.shape, 2).log_softmax(-1))


class Unready(Even):
    def __init__(self):
        self.channels, self.num_states, self.num_labels, self.size = 1, 2, None, (4, 4)


class PlainTensor(Even):
    def predict(self, y, label, t):
        return torch.zeros(*y.shape, 2)


class StatesFirst(Even):
    def predict(self, y, label, t):
        return Categorical(torch.zeros(len(y), 2, 4, 4))


class Gives(Policy):
    """Gives what it is made with."""

    def __init__(self, scores):
        self.given = scores

    def scores(self, observation, mask, context):
        return self.given


class Camera(Sensor):
    """Says what it is given."""

    def __init__(self, **facts):
        vars(self).update(facts)

    def reveal(self, mask):
        return IMAGE.repeat(3, 1, 1, 1)


class Lines(Camera):
    def reveal(self, mask):
        return torch.where(mask[:, None, :, None], IMAGE, MASK)


def test_a_prior_without_mistakes_works():
    assert acquire(Greedy(Even()), PixelSensor(IMAGE), 4).mask.sum() == 4


@pytest.mark.parametrize("name", sorted(NEEDED.keys() - {"num_labels"}))
def test_a_prior_that_leaves_something_out(name):
    for use in (
        lambda: acquire(Greedy(Even(name)), PixelSensor(IMAGE), 4),
        lambda: Session(Greedy(Even(name)), (1, 4, 4), 4, steps=1).ask(),
    ):
        with pytest.raises(ConfigError, match=rf"Even does not say its {name}: set self\.{name} in its __init__"):
            use()


def test_the_shape_of_a_prior_without_a_size():
    with pytest.raises(ConfigError, match="Even does not say its size"):
        _ = Even("size").shape
    with pytest.raises(ConfigError, match="Even does not say its num_labels"):
        Even("num_labels").known_label(3)
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = Even().colour


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (Unready, r"Unready is not ready: call super\(\).__init__\(\) first"),
        (PlainTensor, "PlainTensor.predict returned a Tensor: return a Prediction"),
        (StatesFirst, r"StatesFirst.predict returned sites of shape \(1, 2, 4\) with 4 states: \(1, 1, 4, 4\) with 2"),
    ],
)
def test_a_prior_whose_predictions_do_not_fit(prior, message):
    with pytest.raises(ConfigError, match=message):
        acquire(Greedy(prior()), PixelSensor(IMAGE), 4)


def test_greedy_with_what_is_no_prior():
    with pytest.raises(ConfigError, match="a Linear is not a prior"):
        Greedy(torch.nn.Linear(2, 2))


@pytest.mark.parametrize("stop", [None, ExpectedPSNR(99.0)], ids=["budget", "stop"])
def test_greedy_on_the_sensor_of_other_actions(stop):
    """Lines were scored with the first pixels once, and nobody was told."""
    with pytest.raises(ConfigError, match=r"Pixels gives 16 actions a score, and the sensor has 4: .*view="):
        acquire(Greedy(Even()), Lines(batch=1, grid=(4,)), 2, stop=stop)


def test_greedy_on_images_of_another_size():
    with pytest.raises(SensewiseError, match=r"takes tokens of shape \(B, 1, 2, 3\), got \(1, 1, 4, 4\)"):
        acquire(Greedy(make_empirical(shape=(1, 2, 3))), PixelSensor(IMAGE), 4)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (torch.zeros(1, 5), r"Gives gave scores torch.float32 of shape \(1, 5\): .* \(1, 16\) are needed"),
        (torch.zeros(1, 16, dtype=torch.long), "Gives gave scores torch.int64"),
        (torch.full((1, 16), torch.nan), "Gives gave a score that is not a number"),
    ],
)
def test_scores_that_do_not_rank_every_action(scores, message):
    with pytest.raises(ConfigError, match=message):
        acquire(Gives(scores), PixelSensor(IMAGE), 4)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"batch": 1}, "Camera does not say its grid: set self.grid"),
        ({"grid": (4, 4)}, "Camera does not say its batch: set self.batch"),
        ({"batch": 1, "grid": (4, 4)}, r"Camera.reveal returned shape \(3, 1, 4, 4\): one observation for each of the"),
    ],
)
def test_a_sensor_that_does_not_fit(facts, message):
    with pytest.raises(ConfigError, match=message):
        acquire(Greedy(Even()), Camera(**facts), 4)
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = Camera(**facts).colour
