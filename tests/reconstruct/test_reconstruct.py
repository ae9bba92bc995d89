"""Contracts of every reconstructor."""

import pytest
import torch

from conftest import fresh, make_absorbing, make_empirical, random_kspace, random_tokens, seeded
from sensewise import masks
from sensewise.kspace import keep_rows, magnitude
from sensewise.networks.loupe import Loupe
from sensewise.networks.recon import ComplexUNet, PaperUNet
from sensewise.reconstruct.prior import Mode, PosteriorMean
from sensewise.reconstruct.unet import LoupeReconstructor, UNetReconstructor
from sensewise.reconstruct.zero_filled import ZeroFilled
from sensewise.sensors.base import Side
from sensewise.sensors.pixels import PixelSensor
from sensewise.sensors.rows import RowSensor
from sensewise.tokens import dequantize


def case(batch, channels=1, states=3):
    prior = make_empirical(shape=(channels, 4, 4), num_states=states)
    mask = masks.random(batch, 16, 5, seeded())
    return prior, PixelSensor(prior.images[:batch])(mask), mask, Side(label=prior.labels[:batch])


@pytest.mark.parametrize("reconstructor", [Mode, PosteriorMean])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("channels", [1, 3])
def test_priors(reconstructor, batch, channels):
    prior, y, mask, side = case(batch, channels)
    x_hat = reconstructor(prior)(y, mask, side)
    assert x_hat.shape == (batch, channels, 4, 4)
    assert x_hat.dtype == (torch.int64 if reconstructor is Mode else torch.float32)
    assert x_hat.isfinite().all()
    values = dequantize(x_hat, 3) if reconstructor is Mode else x_hat
    assert ((values >= 0) & (values <= 1)).all()
    assert torch.equal(values[y != 0], dequantize(y, 3)[y != 0])
    assert torch.equal(reconstructor(prior)(y[-1:], mask[-1:], side[-1:]), x_hat[-1:])


def test_mode_and_mean_of_the_prediction():
    prior, y, mask, side = case(4)
    prediction = prior(y, side.label)
    assert torch.equal(Mode(prior)(y, mask, side), prediction.log_probs.argmax(-1) + 1)
    expected = (prediction.log_probs.exp() * torch.tensor([0, 0.5, 1])).sum(-1)
    torch.testing.assert_close(PosteriorMean(prior)(y, mask, side), expected)


def test_the_label_is_used():
    prior = make_absorbing()
    y, mask = torch.zeros(1, 1, 8, 8, dtype=torch.int64), torch.zeros(1, 64, dtype=torch.bool)
    mean = PosteriorMean(prior)
    assert not torch.allclose(mean(y, mask, Side(label=torch.tensor([1]))), mean(y, mask))


@pytest.mark.parametrize("reconstructor", [Mode, PosteriorMean])
def test_pictures_of_any_size(reconstructor):
    prior = make_absorbing(size=None)
    mask = masks.random(2, 37 * 51, 200, seeded())
    y = PixelSensor(random_tokens((2, 1, 37, 51)))(mask)
    assert reconstructor(prior)(y, mask).shape == (2, 1, 37, 51)


SLICES = {
    "zero-filled": ZeroFilled,
    "paper-unet": lambda: UNetReconstructor(fresh(PaperUNet, base=8, levels=2), chunk=2),
    "complex-unet": lambda: UNetReconstructor(fresh(ComplexUNet, 12, (8, 8), (1, 1), embedding=8), chunk=2),
}


@pytest.mark.parametrize("name", SLICES)
@pytest.mark.parametrize("batch", [1, 5])
def test_slices(name, batch):
    reconstructor, mask = SLICES[name](), masks.random(batch, 12, 5, seeded())
    mask[:, 6] = True
    y = RowSensor(random_kspace(batch))(mask)
    x_hat = reconstructor(y, mask)
    assert x_hat.shape == (batch, 12, 10)
    assert x_hat.dtype == torch.float32
    assert x_hat.isfinite().all()
    assert (x_hat >= 0).all()
    assert not x_hat.requires_grad
    torch.testing.assert_close(reconstructor(y[-1:], mask[-1:]), x_hat[-1:], atol=1e-5, rtol=1e-4)


def test_zero_filled_is_exact_with_every_row():
    k = random_kspace()
    everything = torch.ones(3, 12, dtype=torch.bool)
    torch.testing.assert_close(ZeroFilled()(RowSensor(k)(everything), everything), magnitude(k))


def test_networks_go_through_chunks():
    sizes = []

    class Network(torch.nn.Module):
        def forward(self, y, mask):
            sizes.append(len(y))
            return magnitude(y)

    mask = torch.rand(5, 12, generator=seeded()) < 0.5
    y = keep_rows(random_kspace(5), mask)
    torch.testing.assert_close(UNetReconstructor(Network(), chunk=2)(y, mask), magnitude(y))
    assert sizes == [2, 2, 1]


def test_loupe_keeps_what_was_measured_and_stays_in_range():
    loupe = fresh(Loupe, (1, 8, 8), 2, 0.25, widths=(8, 8), blocks=(1, 1)).eval()
    mask = torch.zeros(5, 64, dtype=torch.bool)
    mask[:, ::3] = True
    y = PixelSensor(random_tokens((5, 1, 8, 8)))(mask)
    x_hat = LoupeReconstructor(loupe, chunk=2)(y, mask)
    assert x_hat.shape == (5, 1, 8, 8)
    assert torch.equal(x_hat[y > 0], dequantize(y, 2)[y > 0])
    assert 0 <= x_hat.min() <= x_hat.max() <= 1
    torch.testing.assert_close(LoupeReconstructor(loupe)(y[-1:], mask[-1:]), x_hat[-1:])
