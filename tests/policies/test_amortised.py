"""A small prior decides: its picks, the full prior's picture."""

import pytest
import torch

from conftest import make_absorbing, make_context, random_tokens
from sensewise import Greedy, Mode, PixelSensor, Session, Side, Spread, acquire, predictions
from sensewise.errors import CheckpointError, ConfigError
from sensewise.evaluate.method import method_from_text
from sensewise.policies.amortised import Amortised
from sensewise.policies.stops import ExpectedErrors

FULL, GUIDE = make_absorbing(), make_absorbing(seed=1)
LABEL = torch.tensor([3, 4])


@pytest.fixture
def asked(monkeypatch):
    """The batch sizes with which the full prior is asked."""
    counts, predict = [], FULL.predict

    def counted(y, label, t):
        counts.append(len(y))
        return predict(y, label, t)

    monkeypatch.setattr(FULL, "predict", counted)
    return counts


@pytest.mark.parametrize(("score", "reach"), [(predictions.entropy, 0.0), (predictions.variance, 0.6)])
def test_the_guide_picks(score, reach):
    y, mask = torch.zeros(2, 1, 8, 8).long(), torch.zeros(2, 64, dtype=torch.bool)
    context = make_context(label=LABEL)
    found = Amortised(FULL, GUIDE, score, reach=reach).scores(y, mask, context)
    assert torch.equal(found, Greedy(GUIDE, score, reach=reach).scores(y, mask, context))
    assert not torch.equal(found, Greedy(FULL, score, reach=reach).scores(y, mask, context))


def test_the_full_prior_is_asked_once(asked):
    x, side = random_tokens((2, 1, 8, 8)), Side(label=LABEL)
    taken = acquire(Amortised(FULL, GUIDE), PixelSensor(x), 0.5, side=side, steps=4, choose=Spread())
    assert asked == []
    Mode(FULL)(taken.observation, taken.mask, side)
    assert asked == [2]


def test_a_session_reconstructs_with_the_full_prior(asked):
    session = Session(Amortised(FULL, GUIDE), (1, 8, 8), 0.5, steps=2, label=3)
    while (pixels := session.ask()) is not None:
        session.tell([1] * len(pixels))
    assert asked == []
    assert torch.equal(session.reconstruction, FULL(session.observation[None], torch.tensor([3])).mode()[0])


def test_a_stop_asks_the_full_prior(asked):
    x = random_tokens((1, 1, 8, 8))
    acquire(Amortised(FULL, GUIDE), PixelSensor(x), 0.5, steps=4, stop=ExpectedErrors(1e-9))
    assert asked == [1] * 4


def test_a_guide_for_other_images_is_refused():
    with pytest.raises(ConfigError, match="same tokens and labels"):
        Amortised(FULL, make_absorbing(num_labels=None))


def test_guides_by_name(quick, monkeypatch, tmp_path):
    with pytest.raises(CheckpointError, match="--stage guide"):
        method_from_text("amortised", FULL, 4)  # no guide is for 8 x 8 pixels
    with pytest.raises(ConfigError, match="amortised, or give module:Class"):
        method_from_text("amortized", quick, 4)
