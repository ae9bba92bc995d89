import pytest
import torch

from conftest import random_tokens
from sensewise.errors import DataError
from sensewise.tokens import MASK, dequantize, observe, pack, quantize, site_mask, summary, unpack


@pytest.mark.parametrize("levels", [2, 3, 8, 256])
def test_quantize_and_dequantize_are_inverse(levels):
    tokens = torch.arange(1, levels + 1)
    intensities = dequantize(tokens, levels)
    torch.testing.assert_close(intensities, torch.linspace(0, 1, levels))
    assert torch.equal(quantize(intensities, levels), tokens)


def test_quantize_rounds_to_the_nearest_level():
    assert quantize(torch.tensor([0.0, 0.49, 0.51, 1.0]), 2).tolist() == [1, 1, 2, 2]
    assert quantize(torch.tensor([0.2, 0.3]), 3).tolist() == [1, 2]


@pytest.mark.parametrize("image", [[-0.01], [1.01], [255.0], [float("nan")]])
def test_quantize_refuses_what_is_no_intensity(image):
    with pytest.raises(DataError, match=r"\[0, 1\]"):
        quantize(torch.tensor(image), 2)


@pytest.mark.parametrize("levels", [1, 0, -3])
def test_quantize_needs_two_levels(levels):
    with pytest.raises(DataError, match="at least 2"):
        quantize(torch.zeros(1), levels)


def test_hidden_sites_have_no_intensity():
    assert dequantize(torch.tensor([MASK, 1, 2]), 2).isnan().tolist() == [True, False, False]


def test_observe_shows_measured_pixels_in_every_channel():
    x = random_tokens((2, 3, 2, 3), 4)
    mask = torch.zeros(2, 6, dtype=torch.bool)
    mask[0, 4] = mask[1, 0] = True
    y = observe(x, mask)
    assert torch.equal(y[0, :, 1, 1], x[0, :, 1, 1])
    assert torch.equal(y[1, :, 0, 0], x[1, :, 0, 0])
    assert (y != MASK).sum() == 6
    assert torch.equal(site_mask(mask, (3, 2, 3)), y != MASK)


def test_summary_is_the_pooled_channel_mean():
    x = random_tokens((2, 3, 16, 16), 4)
    values = ((x - 1) / 3).mean(1)
    found = summary(x, 4)
    assert found.shape == (2, 1, 8, 8)
    torch.testing.assert_close(found[1, 0, 3, 5], values[1, 6:8, 10:12].mean())


def test_summary_does_not_depend_on_batch_mates():
    dark, bright = torch.ones(1, 1, 16, 16, dtype=torch.int64), torch.full((1, 1, 16, 16), 2)
    assert torch.equal(summary(torch.cat([dark, bright]), 4)[:1], summary(dark, 4))
    torch.testing.assert_close(summary(bright, 4), torch.full((1, 1, 8, 8), 1 / 3))


def test_readings_are_unpacked_as_they_were_packed():
    values = torch.tensor([0.2, torch.nan, 0.9, 0.0, torch.nan, 1.0]).view(1, 3, 1, 2)
    noise = torch.linspace(0.1, 0.6, 6).view(1, 3, 1, 2)
    found, sigma, seen = unpack(pack(values, noise))
    assert torch.equal(found, values.nan_to_num(0.0))
    assert torch.equal(sigma, torch.where(seen, noise, 0.0))
    assert torch.equal(seen, ~values.isnan())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_quantize_is_exact_whatever_the_precision(dtype):
    """Every intensity of a short type; a product in that type would be rounded twice."""
    values = (torch.arange(0, 2049) / 2048).to(dtype)
    exact = [1 + round(value * 255) for value in values.tolist()]
    assert quantize(values, 256).tolist() == exact
