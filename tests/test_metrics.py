import pytest
import torch

from conftest import random_tokens, seeded
from sensewise import masks, metrics

X = torch.tensor([[[[1, 2], [2, 1]]], [[[1, 1], [1, 1]]]])
X_HAT = torch.tensor([[[[1, 2], [1, 1]]], [[[1, 1], [1, 1]]]])
MASK = torch.tensor([[True, True, False, False], [True, False, False, False]])
EXPECTED = {
    metrics.errors: [1, 0],
    metrics.exact: [0, 1],
    metrics.accuracy: [0.75, 1],
    metrics.foreground_recovery: [0.5, torch.nan],
    metrics.informative: [0.5, 0],
    metrics.hidden_accuracy: [0.5, 1],
    metrics.hidden_foreground_accuracy: [0, torch.nan],
}
WITH_MASK = (metrics.hidden_accuracy, metrics.hidden_foreground_accuracy)
SLICES = (metrics.nmse, metrics.peak_psnr, metrics.ssim)


def call(metric, x_hat, x, mask):
    if metric is metrics.informative:
        return metric(mask, x)
    return metric(x_hat, x, mask) if metric in WITH_MASK else metric(x_hat, x)


token_metrics = pytest.mark.parametrize("metric", EXPECTED, ids=lambda metric: metric.__name__)


@token_metrics
def test_hand_computed_values(metric):
    found = call(metric, X_HAT, X, MASK)
    torch.testing.assert_close(found, torch.tensor(EXPECTED[metric], dtype=torch.float32), equal_nan=True)


@token_metrics
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("channels", [1, 3])
def test_one_value_per_image_whatever_its_batch_mates(metric, batch, channels):
    x, x_hat = (random_tokens((batch, channels, 4, 6), 3, seed) for seed in (1, 2))
    mask = masks.random(batch, 24, 6, seeded())
    found = call(metric, x_hat, x, mask)
    assert found.shape == (batch,)
    assert found.dtype == torch.float32
    assert found.isfinite().all()
    assert torch.equal(found[-1:], call(metric, x_hat[-1:], x[-1:], mask[-1:]))


@pytest.mark.parametrize("metric", [metrics.informative, *WITH_MASK], ids=lambda metric: metric.__name__)
def test_nothing_to_count_is_nan(metric):
    mask = torch.full((1, 4), metric is not metrics.informative)
    assert call(metric, X[:1], X[:1], mask).isnan().all()


def test_informative_counts_a_pixel_that_is_bright_in_any_channel():
    x = torch.ones(1, 3, 1, 2, dtype=torch.int64)
    x[0, 2, 0, 0] = 4
    assert metrics.informative(torch.ones(1, 2, dtype=torch.bool), x).item() == 0.5


def test_psnr():
    target = torch.zeros(2, 1, 2, 2)
    values = target.clone()
    values[0, 0, 0, 0] = 0.2
    torch.testing.assert_close(metrics.psnr(values, target), torch.tensor([20.0, metrics.PSNR_CEILING]))


def test_peak_psnr_is_relative_to_the_largest_value_of_the_target():
    x = torch.full((1, 2, 2), 5.0)
    torch.testing.assert_close(metrics.peak_psnr(1.1 * x, x), torch.tensor([20.0]), atol=1e-4, rtol=0)


def test_nmse_does_not_depend_on_the_units():
    x, x_hat = torch.rand(2, 4, 16, 16, generator=seeded())
    plain, tiny = metrics.nmse(x_hat, x), metrics.nmse(1e-6 * x_hat, 1e-6 * x)
    torch.testing.assert_close(tiny, plain, atol=0, rtol=1e-5)
    assert plain.shape == (4,)
    torch.testing.assert_close(metrics.nmse(x, x), torch.zeros(4))
    torch.testing.assert_close(metrics.nmse(0 * x, x), torch.ones(4))


@pytest.mark.parametrize("metric", SLICES, ids=lambda metric: metric.__name__)
def test_slice_metrics_are_per_slice_and_scale_free(metric):
    x, noise = torch.rand(2, 3, 32, 32, generator=seeded())
    x_hat = x + 0.05 * noise
    value = metric(x_hat, x)
    assert value.shape == (3,)
    assert value.dtype == torch.float32
    torch.testing.assert_close(metric(1e-6 * x_hat, 1e-6 * x), value, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(metric(x_hat[:1], x[:1]), value[:1])


def test_ssim_of_the_truth_is_one():
    x = torch.rand(3, 32, 32, generator=seeded())
    torch.testing.assert_close(metrics.ssim(x, x), torch.ones(3))
