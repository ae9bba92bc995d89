import pytest
import torch

from conftest import random_tokens, seeded
from sensewise import masks, metrics

X = torch.tensor([[[[1, 2], [2, 1]]], [[[1, 1], [1, 1]]]])
X_HAT = torch.tensor([[[[1, 2], [1, 1]]], [[[1, 1], [1, 1]]]])
MASK = torch.tensor([[True, True, False, False], [True, False, False, False]])
EXPECTED = {
    "errors": [1, 0],
    "exact": [0, 1],
    "accuracy": [0.75, 1],
    "foreground-recovery": [0.5, torch.nan],
    "informative": [0.5, 0],
    "hidden-accuracy": [0.5, 1],
    "hidden-foreground-accuracy": [0, torch.nan],
    "nonblack-recovery": [0.5, torch.nan],
}


@pytest.mark.parametrize("name", metrics.TOKEN_METRICS)
def test_hand_computed_values(name):
    found = metrics.TOKEN_METRICS[name](X_HAT, X, MASK)
    torch.testing.assert_close(found, torch.tensor(EXPECTED[name], dtype=torch.float32), equal_nan=True)


@pytest.mark.parametrize("name", metrics.TOKEN_METRICS)
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("channels", [1, 3])
def test_one_value_per_image_whatever_its_batch_mates(name, batch, channels):
    metric = metrics.TOKEN_METRICS[name]
    x, x_hat = (random_tokens((batch, channels, 4, 6), 3, seed) for seed in (1, 2))
    mask = masks.random(batch, 24, 6, seeded())
    found = metric(x_hat, x, mask)
    assert found.shape == (batch,)
    assert found.dtype == torch.float32
    assert found.isfinite().all()
    assert torch.equal(found[-1:], metric(x_hat[-1:], x[-1:], mask[-1:]))


@pytest.mark.parametrize("name", ["informative", "hidden-accuracy", "hidden-foreground-accuracy"])
def test_nothing_to_count_is_nan(name):
    mask = torch.full((1, 4), name != "informative")
    assert metrics.TOKEN_METRICS[name](X[:1], X[:1], mask).isnan().all()


def test_informative_counts_a_pixel_that_is_bright_in_any_channel():
    x = torch.ones(1, 3, 1, 2, dtype=torch.int64)
    x[0, 2, 0, 0] = 4
    assert metrics.informative(torch.ones(1, 2, dtype=torch.bool), x).item() == 0.5


def test_psnr():
    target = torch.zeros(2, 1, 2, 2)
    values = target.clone()
    values[0, 0, 0, 0] = 0.2
    torch.testing.assert_close(metrics.psnr(values, target), torch.tensor([20.0, metrics.PSNR_CEILING]))
