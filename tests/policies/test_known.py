import pytest
import torch

from conftest import make_empirical, random_tokens
from sensewise.errors import ConfigError
from sensewise.policies.known import KnownImages
from sensewise.tokens import UNKNOWN, dequantize, observe

SHARP = 1e5  # one wrong level leaves nothing of a weight


def scenes(prior, count=4):
    mask = torch.zeros(count, 16, dtype=torch.bool)
    mask[:, [2, 9]] = True
    return observe(prior.images[:count], mask)


@pytest.mark.parametrize("labels", [None, 3])
@pytest.mark.parametrize("states", [2, 5])
def test_sharp_weights_are_the_exact_posterior(states, labels):
    """The weighted images have the mean and the variance that the empirical prior counts."""
    prior = make_empirical(count=30, shape=(2, 4, 4), num_states=states, labels=labels)
    known = KnownImages(prior.images, states, None if labels is None else prior.labels, near=30, sharpness=SHARP)
    y, label = scenes(prior), None if labels is None else torch.tensor([0, 1, 2, UNKNOWN])
    which, weights = known.nearest(y, label)
    torch.testing.assert_close(weights.sum(1), torch.ones(4))
    values = dequantize(prior.images, states)[which]  # (B, near, C, H, W)
    mean = (weights[:, :, None, None, None] * values).sum(1)
    square = (weights[:, :, None, None, None] * values.square()).sum(1)
    prediction = prior(y, label)
    torch.testing.assert_close(mean, prediction.mean())
    torch.testing.assert_close(square - mean.square(), prediction.variance(), atol=1e-5, rtol=0)


def test_weights_fall_with_the_squared_distance():
    images = torch.ones(3, 1, 2, 2, dtype=torch.int64)
    images[1, 0, 0, 0] = images[2, 0, 0] = 5  # one and two pixels white, of five levels
    y = torch.tensor([[[[1, 3], [0, 0]]]])
    which, weights = KnownImages(images, 5, near=3, sharpness=2.0).nearest(y, None)
    apart = torch.tensor([0.25, 1.25, 1.25])[which[0]]
    torch.testing.assert_close(weights[0], torch.softmax(-2.0 * apart, 0))
    assert which[0, 0] == 0


def test_only_the_nearest_count():
    known = KnownImages(random_tokens((20, 1, 4, 4)), 2, near=5)
    y = known.images[:3]
    which, weights = known.nearest(y, None)
    assert which.shape == weights.shape == (3, 5)
    assert which[:, 0].tolist() == [0, 1, 2]
    assert KnownImages(known.images, 2, near=50).near == 20


def test_images_of_another_label_are_left_out():
    prior = make_empirical()
    known = KnownImages(prior.images, 2, prior.labels, near=12)
    nothing = torch.zeros(3, 1, 4, 4, dtype=torch.int64)
    which, weights = known.nearest(nothing, torch.tensor([1, UNKNOWN, 7]))
    assert set(prior.labels[which[0, weights[0] > 0]].tolist()) == {1}
    for anything in (1, 2):  # not known, or of a class that no image has
        torch.testing.assert_close(weights[anything], torch.full((12,), 1 / 12))


def test_values_are_intensities_of_images_at_pixels():
    known = KnownImages(random_tokens((6, 3, 4, 5), 8), 8)
    which, place = torch.tensor([[4, 0], [1, 1]]), torch.tensor([[7, 19, 0], [2, 3, 4]])
    found = known.values(which, place)
    assert found.shape == (2, 2, 3, 3)
    for b, a, s in ((0, 0, 1), (1, 1, 2), (0, 1, 0)):
        expected = (known.images[which[b, a]].flatten(1)[:, place[b, s]] - 1) / 7
        torch.testing.assert_close(found[b, a, s], expected)


IMAGES = random_tokens((4, 1, 4, 4))


@pytest.mark.parametrize(
    ("images", "options", "words"),
    [
        (IMAGES[0], {}, r"^known images are tokens of shape .* got \(1, 4, 4\)$"),
        (IMAGES[:0], {}, r"at least one, .* got \(0, 1, 4, 4\)$"),
        (IMAGES, {"labels": torch.zeros(3)}, r"got \(4, 1, 4, 4\) and labels \(3,\)$"),
        (IMAGES, {"near": 0}, r"^near >= 1 and sharpness >= 0 are needed, got 0 and 0.25$"),
        (IMAGES, {"sharpness": -1.0}, r"got 64 and -1.0$"),
    ],
)
def test_what_known_images_need(images, options, words):
    with pytest.raises(ConfigError, match=words):
        KnownImages(images, 2, **options)


@pytest.mark.parametrize(
    ("y", "grid", "words"),
    [
        (None, (4, 4), r"got nothing on a grid \(4, 4\)$"),
        (torch.zeros(2, 1, 4, 4), (4, 4), r"got torch.float32 of shape \(2, 1, 4, 4\)"),
        (torch.zeros(2, 1, 5, 4).long(), (4, 4), r"got torch.int64 of shape \(2, 1, 5, 4\)"),
        (torch.zeros(2, 1, 4, 4).long(), (2, 4, 4), r"on a grid \(2, 4, 4\)$"),
    ],
)
def test_only_tokens_of_their_shape_are_compared(y, grid, words):
    with pytest.raises(ConfigError, match=r"^known images of shape \(1, 4, 4\) .*" + words):
        KnownImages(IMAGES, 2).check(y, grid)
