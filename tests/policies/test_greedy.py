import pytest
import torch

import zoo
from conftest import make_absorbing, make_context, random_kspace, random_tokens, seeded
from sensewise import masks, predictions
from sensewise.errors import ConfigError
from sensewise.information import per_pixel
from sensewise.kspace import acs_rows
from sensewise.loop import acquire
from sensewise.policies.greedy import Greedy
from sensewise.policies.starts import CentralBlock
from sensewise.sensors.base import View
from sensewise.sensors.pixels import PixelSensor
from sensewise.sensors.rows import RowProfile, RowSensor

CPU = torch.device("cpu")
NOTHING = torch.zeros(2, 64, dtype=torch.bool)


@pytest.mark.parametrize("score", [predictions.entropy, predictions.variance])
@pytest.mark.parametrize("channels", [1, 3])
def test_greedy_adds_up_the_channels(score, channels):
    prior = make_absorbing(shape=(channels, 8, 8), num_states=4)
    y = torch.zeros(2, channels, 8, 8, dtype=torch.int64)
    label = torch.tensor([3, 4])
    found = Greedy(prior, score).scores(y, NOTHING, make_context(label=label))
    torch.testing.assert_close(found, per_pixel(score(prior(y, label))))
    assert not torch.allclose(found[0], found[1])


def test_entropy_and_variance_differ():
    prior, y = make_absorbing(num_states=4), torch.zeros(2, 1, 8, 8, dtype=torch.int64)
    entropy, variance = (
        Greedy(prior, score).scores(y, NOTHING, make_context()) for score in (predictions.entropy, predictions.variance)
    )
    assert not torch.equal(entropy.argsort(), variance.argsort())


def test_with_reach_a_pixel_between_two_uncertain_ones_scores_higher():
    prior, context = make_absorbing(), make_context(label=torch.tensor([1]))
    mask = masks.random(1, 64, 20, seeded())
    observation = PixelSensor(random_tokens((1, 1, 8, 8)))(mask)
    alone = Greedy(prior, predictions.variance).scores(observation, mask, context)
    found = Greedy(prior, predictions.variance, reach=0.7).scores(observation, mask, context)
    torch.testing.assert_close(found, masks.around(alone, (8, 8), 0.7))
    assert (found > alone).all()  # measured pixels are certain: they add nothing, but have neighbours


@pytest.mark.parametrize("score", ["energy", None, 3])
def test_a_score_is_a_function(score):
    with pytest.raises(ConfigError, match=r"predictions\.entropy"):
        Greedy(make_absorbing(), score)


@pytest.mark.parametrize("option", ["reach", "room"])
def test_reach_and_room_are_not_negative(option):
    with pytest.raises(ConfigError, match=option):
        Greedy(make_absorbing(), **{option: -1.0})


@pytest.mark.parametrize("room", [0.5, 1.0, 2.0])
def test_with_room_scores_grow_with_the_distance_to_what_was_measured(room):
    prior, context = make_absorbing(), make_context(label=torch.tensor([1]))
    mask = masks.random(1, 64, 5, seeded())
    observation = PixelSensor(random_tokens((1, 1, 8, 8)))(mask)
    alone = Greedy(prior, predictions.variance).scores(observation, mask, context)
    found = Greedy(prior, predictions.variance, room=room).scores(observation, mask, context)
    torch.testing.assert_close(found, alone * masks.room(mask, (8, 8)) ** room)
    both = Greedy(prior, predictions.variance, reach=0.6, room=room).scores(observation, mask, context)
    torch.testing.assert_close(both, masks.around(found, (8, 8), 0.6))


def test_repeated_readings_lie_in_one_place():
    """Each layer of a grid `(R, H, W)` has the neighbours and the room of its pixels, not of the other layers."""
    policy = Greedy(make_absorbing(), reach=0.6, room=1.0)
    alone = torch.rand(2, 3 * 20, generator=seeded())
    mask = torch.zeros(2, 60, dtype=torch.bool)
    mask[:, 27] = True  # pixel 7, read for the second time
    found = policy.in_place(alone, mask, (3, 4, 5)).view(2, 3, 20)
    pixel = torch.zeros(2, 20, dtype=torch.bool)
    pixel[:, 7] = True
    distance = masks.room(pixel, (4, 5)).clamp(min=1)
    for layer in range(3):
        expected = masks.around(alone.view(2, 3, 20)[:, layer] * distance, (4, 5), 0.6)
        torch.testing.assert_close(found[:, layer], expected)


def test_pictures_of_any_size():
    prior = make_absorbing(size=None)
    taken = acquire(Greedy(prior), PixelSensor(random_tokens((2, 1, 11, 19))), 0.1, steps=3)
    assert taken.mask.sum(1).tolist() == [21, 21]


@pytest.mark.parametrize("name", ["sequential-entropy", "sequential-energy"])
@pytest.mark.parametrize("steps", [1, 4])
def test_rows_through_their_profile(name, steps):
    k = random_kspace(5, zoo.ROWS, zoo.COLUMNS)
    policy = zoo.ROW_POLICIES[name](CPU)
    taken = acquire(policy, RowSensor(k), 0.5, steps=steps, start=CentralBlock(zoo.ACS))
    assert taken.mask.sum(1).tolist() == [8] * 5
    assert taken.mask[:, acs_rows(zoo.ROWS, zoo.ACS)].all()


def test_row_scores_are_the_entropies_of_the_profile():
    k, profile = (
        random_kspace(3, zoo.ROWS, zoo.COLUMNS),
        RowProfile.of(random_kspace(3, zoo.ROWS, zoo.COLUMNS), zoo.ACS),
    )
    prior, mask = zoo.row_prior(CPU), acs_rows(zoo.ROWS, zoo.ACS).expand(3, -1)
    context = make_context(zoo.BUDGET, (zoo.ROWS,))
    sensor = RowSensor(k)
    found = Greedy(prior, view=profile).scores(sensor(mask), mask, context)
    prediction = prior(torch.where(mask[:, None, :, None], profile.all_tokens(k), 0))
    torch.testing.assert_close(found, prediction.entropy()[:, 0, :, 0])
    assert (found[mask] == 0).all()
    energy = Greedy(prior, profile.expected_energy, view=profile).scores(sensor(mask), mask, context)
    torch.testing.assert_close(energy, profile.expected_energy(prediction)[:, 0, :, 0])


def test_a_view_of_one_s_own():
    """An action may measure several pixels: here, one column of the image."""

    class Columns(View):
        def tokens(self, observation, mask):
            return observation

        def per_action(self, sites):
            return sites.sum((1, 2))

    prior = make_absorbing()
    y = torch.zeros(2, 1, 8, 8, dtype=torch.int64)
    found = Greedy(prior, view=Columns()).scores(y, torch.zeros(2, 8, dtype=torch.bool), make_context(3, (8,)))
    torch.testing.assert_close(found, prior(y).entropy().sum((1, 2)))
