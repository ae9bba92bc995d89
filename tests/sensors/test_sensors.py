"""Contracts of every sensor and every view."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import random_kspace, random_tokens, seeded
from sensewise.errors import BudgetError, DataError
from sensewise.kspace import acs_rows, keep_rows, scout
from sensewise.predictions import Categorical, Mixture
from sensewise.sensors.base import Side
from sensewise.sensors.pixels import Pixels, PixelSensor
from sensewise.sensors.rows import BINS, RowProfile, RowSensor, row_levels
from sensewise.tokens import MASK, summary

ROWS, ACS = 16, 4
SENSORS = {
    "pixels": lambda seed: PixelSensor(random_tokens((3, 2, 4, 5), 3, seed)),
    "rows": lambda seed: RowSensor(random_kspace(seed=seed)),
}
GRIDS = {"pixels": (4, 5), "rows": (12,)}


@pytest.mark.parametrize("name", SENSORS)
def test_contract(name):
    sensor = SENSORS[name](0)
    assert (sensor.batch, sensor.grid) == (3, GRIDS[name])
    assert sensor.num_actions == torch.Size(GRIDS[name]).numel()
    assert sensor.device == torch.device("cpu")
    nothing = torch.zeros(3, sensor.num_actions, dtype=torch.bool)
    assert not sensor(nothing).any()
    assert len(sensor(~nothing)) == 3


@pytest.mark.parametrize("name", SENSORS)
@given(st.integers(0, 2**32))
def test_what_is_hidden_cannot_change_an_observation(name, seed):
    one, other = SENSORS[name](seed), SENSORS[name](seed + 1)
    mask = torch.rand(3, one.num_actions, generator=seeded(seed)) < 0.4
    everything = torch.ones_like(mask)
    if name == "pixels":
        measured = mask.view(3, 1, 4, 5)
        mixed = PixelSensor(torch.where(measured, one(everything), other(everything)))
        hidden = torch.full((3, 2, 4, 5), MASK)
    else:
        measured = mask.unsqueeze(-1)
        mixed = RowSensor(torch.where(measured, one(everything), other(everything)))
        hidden = torch.zeros(3, 12, 10, dtype=torch.complex64)
    assert torch.equal(one(mask), mixed(mask))
    assert torch.equal(one(mask), torch.where(measured, one(everything), hidden))


@pytest.mark.parametrize("name", SENSORS)
def test_masks_that_do_not_fit(name):
    sensor = SENSORS[name](0)
    k = sensor.num_actions
    for mask in (torch.ones(3, k - 1), torch.ones(1, k), torch.ones(3, k + 1)):
        with pytest.raises(BudgetError, match=rf"bool with shape \(3, {k}\)"):
            sensor(mask.bool())
    with pytest.raises(BudgetError, match=rf"bool with shape \(3, {k}\)"):
        sensor(torch.ones(3, k))


def test_summary_of_pixels():
    x = random_tokens((2, 3, 16, 16), 4)
    assert torch.equal(PixelSensor(x).summary(4), summary(x, 4))


def test_scout_of_rows():
    k = random_kspace(2, 16, 16)
    assert torch.equal(RowSensor(k).summary(6), scout(k, 6))


def test_rows_are_measured_rows_and_nothing_else():
    k = random_kspace()
    mask = torch.zeros(3, 12, dtype=torch.bool)
    mask[:, [1, 5]] = True
    y = RowSensor(k)(mask)
    assert torch.equal(y[:, [1, 5]], k[:, [1, 5]])
    hidden = torch.view_as_real(y[~mask])
    assert torch.equal(hidden, torch.zeros_like(hidden))
    assert not torch.signbit(hidden).any()  # a product would leak the signs of what is hidden


@pytest.mark.parametrize("kspace", [torch.rand(3, 12, 10), torch.rand(12, 10).to(torch.complex64)])
def test_rows_need_complex_slices(kspace):
    with pytest.raises(DataError, match="complex with shape"):
        RowSensor(kspace)


@pytest.mark.parametrize("part", [slice(1, 3), torch.tensor([2, 0])])
def test_side_information_of_some_scenes(part):
    side = Side(torch.arange(4), torch.rand(4, 1, 8, 8, generator=seeded()))
    found = side[part]
    assert torch.equal(found.label, side.label[part])
    assert torch.equal(found.summary, side.summary[part])
    assert Side()[part] == Side()


def test_pixels_are_tokens_as_they_are():
    y, mask = random_tokens((2, 3, 4, 5)), torch.ones(2, 20, dtype=torch.bool)
    assert torch.equal(Pixels().tokens(y, mask), y)
    assert torch.equal(Pixels().per_action(y), y.sum(1).flatten(1))


def slices(count=5, seed=0):
    falling = torch.exp(-((torch.arange(ROWS) - ROWS // 2).abs() / 3.0)).view(1, -1, 1)
    k = falling * random_kspace(count, ROWS, 12, seed)
    k[:, ROWS // 2, 6] = 20
    return k


def test_profile_is_normalised_by_the_acs_block_alone():
    k = slices()
    levels = row_levels(k, ACS)
    torch.testing.assert_close(levels[:, acs_rows(ROWS, ACS)].exp().mean(1), torch.ones(5))
    torch.testing.assert_close(row_levels(1e-6 * k, ACS), levels, atol=1e-4, rtol=1e-4)
    mask = acs_rows(ROWS, ACS).expand(5, -1).clone()
    mask[:, 1] = True
    profile = RowProfile.of(k, ACS)
    seen, whole = profile.tokens(keep_rows(k, mask), mask), profile.all_tokens(k)
    assert whole.shape == (5, 1, ROWS, 1)
    assert torch.equal(seen, torch.where(mask[:, None, :, None], whole, MASK))
    assert int(whole.min()) >= 1
    assert int(whole.max()) <= BINS


def test_expected_energy_grows_with_the_bin_and_is_the_mean_over_bins():
    profile = RowProfile(ACS, -4.0, 1.0)
    certain = Categorical(torch.eye(BINS).log().view(1, 1, BINS, 1, BINS))
    energy = profile.expected_energy(certain).flatten()
    centres = -4.0 + (torch.arange(BINS) + 0.5) * 5.0 / BINS
    torch.testing.assert_close(energy, (2 * centres).exp())
    assert energy.diff().gt(0).all()
    even = Categorical(torch.full((1, 1, 3, 1, BINS), 1 / BINS).log())
    torch.testing.assert_close(profile.expected_energy(even).flatten(), energy.mean().expand(3))
    one = torch.zeros(1, 1, 1, 1, 1)
    with pytest.raises(DataError, match="categorical"):
        profile.expected_energy(Mixture(one, one, one, BINS))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32])
def test_tokens_may_be_any_whole_numbers(dtype):
    x = random_tokens((2, 1, 4, 4), 3)
    everything = torch.ones(2, 16, dtype=torch.bool)
    assert torch.equal(PixelSensor(x.to(dtype))(everything), x)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.ones(2, 1, 4, 4), "whole numbers"),
        (torch.ones(2, 1, 4, 4, dtype=torch.bool), "whole numbers"),
        (torch.zeros(2, 1, 4, 4, dtype=torch.int64), "0 means hidden"),
        (-torch.ones(2, 1, 4, 4, dtype=torch.int64), "1 or more"),
        (torch.ones(0, 1, 4, 4, dtype=torch.int64), "at least one"),
        (torch.ones(1, 1, 0, 4, dtype=torch.int64), "at least one"),
        (torch.ones(4, 4, dtype=torch.int64), "shape"),
        ([[1]], "list"),
    ],
)
def test_truths_that_cannot_be_measured(x, message):
    with pytest.raises(DataError, match=message):
        PixelSensor(x)
