import math

import pytest
import torch

from conftest import make_empirical, seeded
from sensewise.information import entropy, joint_entropy, observed_pixels, per_pixel, variance, whole_image
from sensewise.tokens import MASK, observe


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_entropy_of_what_is_nearly_certain(dtype):
    """Against the sum in Python, for probabilities down to those that round to 0; the gradient is finite."""
    for exponent in (1, 10, 80, 100, 110, 700, 800):
        log_probs = torch.tensor([0.0, -exponent], dtype=dtype).log_softmax(-1).requires_grad_()
        found = entropy(log_probs)
        p = math.exp(-exponent) / (1 + math.exp(-exponent))
        exact = -math.log1p(-p) * (1 - p) + (p * (exponent + math.log1p(math.exp(-exponent))))
        assert found.item() == pytest.approx(exact, rel=1e-5, abs=1e-7 if dtype == torch.float32 else 1e-15)
        found.backward()
        assert bool(log_probs.grad.isfinite().all())


@pytest.mark.parametrize("states", [2, 3, 8])
def test_entropy_bounds(states):
    uniform = torch.full((states,), 1 / states).log()
    assert entropy(uniform).item() == pytest.approx(math.log(states))
    certain = torch.full((states,), -torch.inf)
    certain[1] = 0.0
    assert math.copysign(1, entropy(certain).item()) == 1
    assert entropy(certain).item() == 0
    anything = entropy(torch.randn(500, states, generator=seeded()).log_softmax(-1))
    assert ((anything > 0) & (anything <= math.log(states) + 1e-6)).all()


def test_variance_by_hand():
    probs = torch.tensor([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0], [0.2, 0.3, 0.5]])
    torch.testing.assert_close(
        variance(probs.log()), torch.tensor([0.25, 0.0, 0.2 * 0.65**2 + 0.3 * 0.15**2 + 0.5 * 0.35**2])
    )


def image_entropy(consistent):
    """H(C) of the uniform distribution over a list of images that may hold the same one twice."""
    _, counts = torch.unique(consistent.flatten(1), dim=0, return_counts=True)
    probs = counts.double() / counts.sum()
    return -(probs * probs.log()).sum().item()


def test_joint_entropy_against_counting():
    images = make_empirical(count=30, shape=(1, 2, 2), num_states=3, labels=None).images.flatten(1)  # (M, 4)
    weights = torch.full((2, 30), 1 / 30)
    weights[1] = torch.rand(30, generator=seeded()).softmax(0)
    alike = (images.unsqueeze(1) == images).all(2)  # (M, M)
    found = joint_entropy(alike, weights)
    assert found[0].item() == pytest.approx(image_entropy(images), abs=1e-5)
    _, number = torch.unique(images, dim=0, return_inverse=True)
    assert found[1].item() == pytest.approx(entropy(torch.bincount(number, weights[1]).log()).item(), abs=1e-5)


def test_a_sample_without_weight_does_not_count():
    assert joint_entropy(torch.eye(3, dtype=torch.bool), torch.tensor([0.5, 0.5, 0.0])).item() == pytest.approx(
        math.log(2)
    )


@pytest.mark.parametrize("channels", [1, 2])
def test_information_gain_is_the_entropy_of_the_pixel(channels):
    """I(C; Y_i | y) = H(C | y) - E[H(C | y, Y_i)], by brute force over the images of the prior."""
    prior = make_empirical(count=14, shape=(channels, 3, 3), num_states=3, labels=None)
    x = prior.images[:1]
    mask = torch.zeros(1, 9, dtype=torch.bool)
    mask[0, 4] = True
    y = observe(x, mask)
    consistent = prior.images[(prior.images[:, :, 1, 1] == x[:, :, 1, 1]).all(1)]
    assert len(consistent) > 1
    sites = prior(y).entropy()
    for i in range(9):
        for channel in range(channels):
            values = consistent[:, channel].flatten(1)[:, i]
            remaining = sum(
                (values == v).double().mean().item() * image_entropy(consistent[values == v]) for v in values.unique()
            )
            gain = image_entropy(consistent) - remaining
            assert sites[0, channel].flatten()[i].item() == pytest.approx(gain, abs=1e-5)


def test_per_pixel_adds_channels_in_raster_order():
    sites = torch.arange(12.0).view(1, 2, 2, 3)
    assert per_pixel(sites).tolist() == [[6, 8, 10, 12, 14, 16]]


def test_surrogates(absorbing):
    y = torch.full((2, 1, 8, 8), MASK)
    sites = absorbing.predict(y, absorbing.check(y, None), None).entropy()
    torch.testing.assert_close(whole_image(sites), sites.mean((1, 2, 3)))
    mask = torch.zeros(2, 64, dtype=torch.bool)
    mask[0, [3, 17]] = True
    found = observed_pixels(sites, mask)
    torch.testing.assert_close(found[0], (sites[0, 0, 0, 3] + sites[0, 0, 2, 1]) / 2)
    assert found[1] == 0


def test_observed_pixels_is_a_mean_over_channels_too():
    sites = entropy(torch.full((1, 3, 1, 2, 2), 0.5).log())
    found = observed_pixels(sites, torch.tensor([[True, False]]))
    assert found.item() == pytest.approx(math.log(2))


def test_the_mean_over_observed_pixels_is_that_of_each_image():
    sites = torch.arange(1.0, 9.0).view(2, 1, 2, 2)
    mask = torch.tensor([[True, False, False, True], [False, True, False, False]])
    assert observed_pixels(sites, mask).tolist() == [2.5, 6.0]
    assert observed_pixels(sites, torch.zeros_like(mask)).tolist() == [0.0, 0.0]
