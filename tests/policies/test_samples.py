"""Images that a slice may be, and rows by what they are worth to them."""

import torch

import zoo
from conftest import random_kspace
from sensewise.kspace import acs_rows, keep_rows
from sensewise.policies.base import Context
from sensewise.policies.samples import SampledGain
from sensewise.policies.value import OneStepOracle, one_step_gains, slice_errors, with_rows
from sensewise.sensors.base import Side

ROWS, ACS, COLUMNS = zoo.ROWS, zoo.ACS, zoo.COLUMNS
CONTEXT = Context(side=Side(), budget=8, generator=torch.Generator(), step=1, grid=(ROWS,))


def masks(count):
    mask = acs_rows(ROWS, ACS).repeat(count, 1)
    mask[:, 1] = True
    return mask


def test_who_knows_the_slice_itself_is_the_oracle():
    """Its own nearest neighbour: what A missed there is what A misses here, so the image is the truth."""
    network, x, mask = zoo.complex_unet("cpu"), random_kspace(3, ROWS, COLUMNS), masks(3)
    policy = SampledGain(network, x, ACS, samples=1)
    y = keep_rows(x, mask)
    torch.testing.assert_close(policy.images(y, mask), x)
    ours = policy.scores(y, mask, CONTEXT)
    oracle = OneStepOracle(network, x, shortlist=8).scores(y, mask, CONTEXT)
    torch.testing.assert_close(ours, oracle, atol=1e-5, rtol=1e-3)


def test_images_have_the_measured_rows_and_differ_elsewhere():
    network, mask = zoo.complex_unet("cpu"), masks(2)
    policy = SampledGain(network, random_kspace(4, ROWS, COLUMNS, 1), ACS, samples=3)
    y = keep_rows(random_kspace(2, ROWS, COLUMNS), mask)
    drawn = policy.images(y, mask).view(2, 3, ROWS, COLUMNS)
    torch.testing.assert_close(drawn[:, :, mask[0]], y[:, None, mask[0]].expand(-1, 3, -1, -1))
    assert bool((drawn[:, 0] - drawn[:, 1]).abs()[:, ~mask[0]].amax() > 0.1)
    louder = SampledGain(network, 10 * random_kspace(4, ROWS, COLUMNS, 1), ACS, samples=3)
    torch.testing.assert_close(louder.images(y, mask).view(drawn.shape), drawn, atol=1e-3, rtol=1e-3)  # units drop out


def test_gains_are_means_over_what_a_slice_may_be():
    network, mask = zoo.complex_unet("cpu"), masks(2)
    drawn = random_kspace(6, ROWS, COLUMNS)  # three of each of two slices
    found = one_step_gains(network, drawn, mask, None, samples=3)
    row = 12
    for number in range(2):
        mine = drawn[3 * number : 3 * number + 3]
        before = slice_errors(network, mine, mask[:1].expand(3, -1)).mean()
        more = with_rows(mask[:1], torch.tensor([[row]]))[0].expand(3, -1)
        torch.testing.assert_close(found[number, row], before - slice_errors(network, mine, more).mean())


def test_several_coils():
    network, mask = zoo.complex_unet("cpu"), masks(2)
    known, x = (random_kspace(8, ROWS, COLUMNS, seed).view(4, 2, ROWS, COLUMNS) for seed in (1, 2))
    policy = SampledGain(network, known, ACS, samples=2)
    y = keep_rows(x[:2], mask)
    assert policy.images(y, mask).shape == (4, 2, ROWS, COLUMNS)
    assert policy.scores(y, mask, CONTEXT).shape == mask.shape
