import pytest
import torch

from conftest import make_absorbing, make_empirical, seeded
from sensewise import masks
from sensewise.reconstruct import Argmax, PosteriorMean
from sensewise.sensors import PixelSensor, Side
from sensewise.tokens import dequantize


def case(batch, channels=1, states=3):
    prior = make_empirical(shape=(channels, 4, 4), num_states=states)
    mask = masks.random(batch, 16, 5, seeded())
    side = Side(label=prior.labels[:batch])
    x = prior.images[:batch]
    return prior, PixelSensor(x)(mask), mask, side


@pytest.mark.parametrize("reconstructor", [Argmax, PosteriorMean])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("channels", [1, 3])
def test_contract(reconstructor, batch, channels):
    prior, y, mask, side = case(batch, channels)
    x_hat = reconstructor(prior)(y, mask, side)
    assert x_hat.shape == (batch, channels, 4, 4)
    assert x_hat.isfinite().all()
    values = dequantize(x_hat, 3) if reconstructor is Argmax else x_hat
    assert ((values >= 0) & (values <= 1)).all()
    assert torch.equal(values[y != 0], dequantize(y, 3)[y != 0])
    alone = reconstructor(prior)(y[-1:], mask[-1:], Side(label=side.label[-1:]))
    assert torch.equal(alone, x_hat[-1:])


def test_argmax_and_mean_of_the_prediction():
    prior, y, mask, side = case(4)
    log_probs = prior(y, side.label)
    assert torch.equal(Argmax(prior)(y, mask, side), log_probs.argmax(-1) + 1)
    expected = (log_probs.exp() * torch.tensor([0, 0.5, 1])).sum(-1)
    torch.testing.assert_close(PosteriorMean(prior)(y, mask, side), expected)


def test_the_label_is_used():
    prior = make_absorbing()
    y, mask = torch.zeros(1, 1, 8, 8, dtype=torch.int64), torch.zeros(1, 64, dtype=torch.bool)
    mean = PosteriorMean(prior)
    assert not torch.allclose(mean(y, mask, Side(label=torch.tensor([1]))), mean(y, mask, Side()))
