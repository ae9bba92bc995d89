"""LOUPE's mask layers against NumPy, and its networks."""

import numpy as np
import pytest
import torch

from conftest import fresh, random_tokens, seeded
from sensewise.errors import ConfigError
from sensewise.kspace import acs_rows
from sensewise.networks.loupe import Loupe, LoupeRows, ProbabilityMap, relaxed_mask, rescale
from sensewise.tokens import dequantize

SHAPE = (1, 8, 8)


def numpy_probabilities(weight, slope):
    return 1 / (1 + np.exp(-slope * weight))


def numpy_rescaled(probs, sparsity):
    """As in the original: a factor if the mean is too large, the same for the complement if it is too small."""
    mean = probs.mean()
    r, beta = sparsity / mean, (1 - sparsity) / (1 - mean)
    le = float(r <= 1)
    return le * probs * r + (1 - le) * (1 - (1 - probs) * beta)


def numpy_threshold(probs, u, slope):
    return 1 / (1 + np.exp(-slope * (probs - u)))


@pytest.mark.parametrize("shape", [(8, 8), (30,), (3, 4, 5)])
@pytest.mark.parametrize("budget", [0.05, 0.3, 0.5, 0.9])
def test_layers_match_numpy(shape, budget):
    layer = fresh(ProbabilityMap, shape, budget)
    u = torch.rand(4, *shape, generator=seeded())
    weight = layer.weight.detach().double().numpy()
    expected = numpy_rescaled(numpy_probabilities(weight, 5), budget)
    np.testing.assert_allclose(layer().detach().numpy(), expected, atol=3e-7, rtol=0)
    soft = numpy_threshold(expected, u.double().numpy(), 12)
    # float32 through a slope of 12: compare the layer on the same probabilities
    ours = relaxed_mask(torch.from_numpy(expected), u.double())
    np.testing.assert_allclose(ours.numpy(), soft, atol=3e-7, rtol=0)
    np.testing.assert_allclose(relaxed_mask(layer(), u).detach().numpy(), soft, atol=3e-6, rtol=0)


def test_hard_masks_are_drawn_with_their_probabilities_and_have_the_soft_gradient():
    probs, u = torch.rand(50, generator=seeded()).requires_grad_(), torch.rand(50, generator=seeded(1))
    weight = torch.randn(50, generator=seeded(2))
    hard, soft = relaxed_mask(probs, u, hard=True), relaxed_mask(probs, u)
    assert hard.detach().eq((probs > u).float()).all()
    found, wanted = (torch.autograd.grad((mask * weight).sum(), probs)[0] for mask in (hard, soft))
    torch.testing.assert_close(found, wanted)


def test_a_hidden_pixel_is_nothing_to_a_hard_mask():
    """A soft one shows a thousandth of it, and the network answers."""
    for hard in (False, True):
        loupe = fresh(Loupe, SHAPE, 2, 0.25, widths=(8, 8), blocks=(1, 1), hard=hard).eval()
        x = torch.ones(1, *SHAPE, dtype=torch.int64)
        other, u = x.clone(), torch.ones(1, *SHAPE[1:])  # nothing is above its threshold
        other[0, 0, 3, 3] = 2
        assert torch.equal(loupe(x, u), loupe(other, u)) is hard


@pytest.mark.parametrize("budget", [0.05, 0.5, 0.95])
def test_rescaling_meets_the_budget_and_stays_in_range(budget):
    moved = rescale(torch.rand(1000, generator=seeded()), budget)
    assert moved.mean().item() == pytest.approx(budget, abs=1e-6)
    assert moved.min() >= 0
    assert moved.max() <= 1


def test_fresh_probabilities_are_uniform():
    p = torch.sigmoid(5 * fresh(ProbabilityMap, (2000,), 0.5).weight.detach())
    assert p.min() >= 0.0099
    assert p.max() <= 0.9901
    assert p.mean().item() == pytest.approx(0.5, abs=0.03)


def test_budgets_that_are_no_fraction_are_refused():
    with pytest.raises(ConfigError, match="between 0 and 1"):
        ProbabilityMap((4,), 1.5)


def small_loupe():
    return fresh(Loupe, SHAPE, 2, 0.25, widths=(8, 8), blocks=(1, 1))


@pytest.mark.parametrize("batch", [1, 3])
def test_forward_gives_intensities_and_gradients(batch):
    loupe, x = small_loupe(), random_tokens((batch, *SHAPE))
    u = torch.rand(batch, 8, 8, generator=seeded())
    assert loupe(x, u).shape == (batch, *SHAPE)
    torch.nn.init.constant_(loupe.network.head.weight, 0.1)
    loupe.network.head.weight.data[0] *= -1
    loupe(x, u).sum().backward()
    assert loupe.map.weight.grad is not None
    assert loupe.map.weight.grad.abs().sum() > 0


def test_a_confident_mistake_still_has_a_gradient():
    """Under a mean absolute error a saturated softmax would stay all black for ever."""
    loupe, x = small_loupe(), random_tokens((3, *SHAPE))
    bias = loupe.network.head.bias
    torch.nn.init.constant_(bias[len(bias) // 2 :], -50.0)  # white is out of the question
    (loupe(x, torch.rand(3, 8, 8, generator=seeded())) - dequantize(x, 2)).abs().mean().backward()
    assert loupe.network.head.weight.grad.abs().max() > 1e-3


def test_every_image_has_the_same_log_odds():
    loupe = small_loupe()
    logits = loupe.keep_logits(None, None, torch.full((3,), 0.25))
    assert logits.shape == (3, 64)
    torch.testing.assert_close(logits.sigmoid()[1], loupe.map().flatten(), atol=1e-6, rtol=1e-5)
    assert (logits == logits[:1]).all()


def test_rows_are_drawn_and_reconstructed():
    model = fresh(LoupeRows, 16, 0.5, 8)
    image, noise = torch.rand(2, 5, 16, 12, generator=seeded())
    found = model(image, noise[:, :, 0])
    assert found.shape == (5, 16, 12)
    found.mean().backward()
    assert model.map.weight.grad.abs().sum() > 0


def test_the_acs_block_is_always_measured(monkeypatch):
    model = fresh(LoupeRows, 16, 0.5, 8, 4)
    block = acs_rows(16, 4)
    probs = model.probs()
    assert bool((probs[block] == 1).all())
    torch.testing.assert_close(probs.mean(), torch.tensor(0.5))
    shown = []
    monkeypatch.setattr(model.network, "forward", lambda y, weights: shown.append(weights) or y.abs())
    model(torch.rand(2, 16, 12, generator=seeded()), torch.ones(2, 16))
    assert bool((shown[0][:, block] == 1).all())
    assert bool((shown[0][:, ~block] < 0.5).all())
