"""The prior over readings that may be wrong: Bayes at every site, certain without noise, and what it refuses."""

from itertools import product

import pytest
import torch

from conftest import awake, fresh, make_absorbing, seeded
from sensewise.channels import BitFlip
from sensewise.errors import DataError
from sensewise.loop import acquire
from sensewise.networks.unet import UNet
from sensewise.policies.greedy import Greedy
from sensewise.predictions import Categorical, InformationGain
from sensewise.priors.flips import FlipPrior
from sensewise.sensors.readings import Readings, ReadingSensor
from sensewise.tokens import MASK, dequantize, observe, pack
from sensewise.train.prior import _widened

BITS = torch.randint(1, 3, (3, 1, 8, 8), generator=seeded())


def flip_prior(size=(8, 8)):
    network = awake(fresh(UNet, 1, 2, 10, widths=(8, 16), blocks=(1, 1), embedding=8, encoding="noisy"), std=0.1)
    return FlipPrior(network, 1, 2, 10, size=size).eval().requires_grad_(False)


def readings(p, share=0.4, bits=BITS):
    mask = torch.rand(len(bits), bits.shape[2] * bits.shape[3], generator=seeded(1)) < share
    return mask, ReadingSensor(dequantize(bits, 2), BitFlip(p), generator=seeded(2))(mask)


def test_a_prior_of_tokens_widened_says_the_same_of_noiseless_readings():
    tokens = make_absorbing()
    network = fresh(UNet, 1, 2, 10, widths=(8, 16), blocks=(1, 1), embedding=8, encoding="noisy")
    shapes = {name: weights.shape for name, weights in network.state_dict().items()}
    network.load_state_dict({name: _widened(w, shapes[name]) for name, w in tokens.network.state_dict().items()})
    ours = FlipPrior(network, 1, 2, 10, size=(8, 8)).eval()
    mask, y = readings(0.0)
    label = torch.tensor([3, -1, 7])
    expected = tokens(observe(BITS, mask), label)
    torch.testing.assert_close(ours(y, label).log_probs, expected.log_probs)


def test_readings_without_noise_are_certain_and_noisy_ones_are_not():
    prior = flip_prior()
    for p, certain in ((0.0, True), (0.1, False)):
        mask, y = readings(p)
        entropy = prior(y).entropy().flatten(1)
        assert bool((entropy[mask] == 0).all()) is certain
        assert (entropy[~mask] > 0).all()


@pytest.mark.parametrize("p", [0.0, 0.03, 0.3, 0.5])
def test_a_reading_is_weighed_by_bayes(p):
    belief = torch.randn(2, 1, 3, 3, 4, generator=seeded()).log_softmax(-1)
    values = torch.tensor([0.0, 1 / 3, 2 / 3, 1.0])[torch.randint(0, 4, (2, 1, 3, 3), generator=seeded(1))]
    values[0, 0, 0] = torch.nan
    found = Categorical(belief).given(pack(values, torch.full_like(values, p))).log_probs.exp()
    for place in product(range(2), range(3), range(3)):
        at = (place[0], 0, *place[1:])
        probs = belief[at].exp()
        if not values[at].isnan():
            read = int((values[at] * 3).round())
            probs = probs * torch.tensor([1 - p if state == read else p / 3 for state in range(4)])
            probs = probs / probs.sum()
        torch.testing.assert_close(found[at], probs)


def test_any_size_is_padded_with_nothing():
    """What lies beyond the edge is hidden: the same picture, seen in a wider frame of nothing, is predicted alike."""
    prior = flip_prior(None)
    bits = BITS[:, :, :6, :7]
    _, y = readings(0.1, bits=bits)
    wide = prior.blank((8, 8)).repeat(3, 1, 1, 1)
    wide[:, :, :6, :7] = y
    density = torch.full((3,), 500)
    narrow = prior.predict(y, torch.full((3,), -1), density).log_probs
    torch.testing.assert_close(narrow, prior.predict(wide, torch.full((3,), -1), density).log_probs[:, :, :6, :7])


def test_greedy_by_information_gain_reads_pixels_again():
    channel, prior = BitFlip(0.1), flip_prior()
    policy = Greedy(prior, InformationGain(channel), view=Readings(3))
    sensor = ReadingSensor(dequantize(BITS, 2), channel, repeats=3, generator=seeded())
    taken = acquire(policy, sensor, 100, steps=10)
    assert (taken.mask.sum(1) == 100).all()
    assert taken.mask.view(3, 3, -1).sum(1).max() > 1


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (torch.full((1, 1, 8, 8), MASK), "takes readings of shape"),
        (torch.zeros(1, 1, 8, 8), "takes readings of shape"),
        (torch.zeros(1, 2, 8, 9), "takes readings of shape"),
        (-torch.ones(1, 2, 8, 8), "from 0 to 0.5"),
        (0.6 * torch.ones(1, 2, 8, 8), "from 0 to 0.5"),
        (torch.full((1, 2, 8, 8), torch.nan), "from 0 to 0.5"),
    ],
)
def test_refused(y, words):
    with pytest.raises(DataError, match=words):
        flip_prior()(y)


def test_a_label_that_is_none_is_refused():
    with pytest.raises(DataError, match="label 10"):
        flip_prior()(readings(0.1)[1], torch.tensor([1, 2, 10]))
