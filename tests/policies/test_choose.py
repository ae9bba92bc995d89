import dataclasses

import pytest
import torch

from conftest import make_context, random_tokens, seeded
from sensewise import information, masks
from sensewise.errors import BudgetError, ConfigError
from sensewise.policies.choose import SPREAD_READINGS, SPREAD_VARIANCE, TOGETHER, Counted, Joint, Spread, TopK
from sensewise.policies.known import KnownImages
from sensewise.priors.empirical import EmpiricalPrior
from sensewise.tokens import observe

SCORES = torch.rand(4, 64, generator=seeded())


def test_top_k_takes_the_highest():
    assert torch.equal(TopK()(SCORES, 8, make_context()), masks.top_k(SCORES, 8))
    counts = torch.tensor([1, 5, 8, 2])
    chosen = TopK()(SCORES, counts, make_context())
    for b, n in enumerate(counts.tolist()):
        assert torch.equal(chosen[b], masks.top_k(SCORES[b : b + 1], n)[0])


def test_spreading_without_damping_is_top_k():
    assert torch.equal(Spread(damping=0.0)(SCORES, 8, make_context()), TopK()(SCORES, 8, make_context()))


def test_spreading_changes_what_is_chosen():
    found = Spread(damping=0.9, sigma=3.0)(SCORES, 8, make_context())
    assert torch.equal(found, masks.spread_top_k(SCORES, 8, (8, 8), 0.9, 3.0))
    assert not torch.equal(found, TopK()(SCORES, 8, make_context()))


def test_spreading_along_one_side():
    scores = torch.tensor([[0.9, 1.0, 0.9, 0.8, 0.72]])
    assert Spread(0.6, 1.0)(scores, 2, make_context(grid=(5,))).tolist() == [[False, True, False, True, False]]


def test_with_spacing_the_first_picks_keep_further_apart():
    """8 of 64 pixels: a mean distance of sqrt(8); with 32 measured before, sqrt(64 / 40); at most sigma."""
    choose = Spread(damping=0.9, sigma=3.0, spacing=0.5)
    later = SCORES.masked_fill(torch.arange(64) < 32, -torch.inf)
    for given, width in ((SCORES, 0.5 * 8**0.5), (later, 0.5 * 1.6**0.5)):
        found = choose(given, 8, make_context())
        assert torch.equal(found, masks.spread_top_k(given, 8, (8, 8), 0.9, width))
        assert not torch.equal(found, masks.spread_top_k(given, 8, (8, 8), 0.9, 3.0))
    narrow = dataclasses.replace(choose, sigma=0.1)
    assert torch.equal(narrow(SCORES, 8, make_context()), masks.spread_top_k(SCORES, 8, (8, 8), 0.9, 0.1))


def test_spacing_goes_by_each_scene_s_own_number():
    counts = torch.tensor([2, 4, 8, 16])
    chosen = SPREAD_VARIANCE(SCORES, counts, make_context())
    for b, n in enumerate(counts.tolist()):
        assert torch.equal(chosen[b], SPREAD_VARIANCE(SCORES[b : b + 1], n, make_context())[0])


@pytest.mark.parametrize(
    "options",
    [
        {"damping": 1.0},
        {"damping": -0.1},
        {"sigma": 0.0},
        {"spacing": -1.0},
        {"travel": -1.0},
        {"travel": float("inf")},
    ],
)
def test_spreading_needs_sensible_numbers(options):
    with pytest.raises(
        ConfigError, match=r"^0 <= damping < 1, sigma > 0, .* travel >= 0 are needed, got [-0-9., andif]+$"
    ):
        Spread(**options)


@pytest.mark.parametrize("choose", [Spread(), Joint()])
def test_a_score_that_is_not_a_number_is_refused(choose):
    with pytest.raises(BudgetError, match=r"^a score is not a number: the policy or its prior is broken$"):
        choose(torch.full((1, 4), torch.nan), 2, make_context(grid=(2, 2)))


@pytest.mark.parametrize("choose", [SPREAD_READINGS, Joint()])
def test_of_a_pixel_that_can_be_read_again_the_next_reading_is_chosen(choose):
    """A step never reads one pixel twice; what has been read or is not offered yet scores -inf."""
    pixels, reading = torch.rand(2, 64, generator=seeded()), torch.randint(3, (2, 1, 64), generator=seeded())
    scores = torch.full((2, 3, 64), -torch.inf).scatter_(1, reading, pixels.unsqueeze(1))
    chosen = choose(scores.flatten(1), 9, make_context(grid=(3, 8, 8))).view(2, 3, 64)
    assert torch.equal(chosen.any(1), choose(pixels, 9, make_context()))
    assert torch.equal(chosen.any(1, keepdim=True), chosen.gather(1, reading))


def test_readings_of_large_pictures_keep_far_apart():
    """The first picks of an empty picture lie in a grid some 0.8 of their mean distance wide."""
    chosen = SPREAD_READINGS(torch.ones(1, 96 * 96), 36, make_context(grid=(96, 96)))
    place = chosen.view(96, 96).nonzero().float()
    nearest = torch.cdist(place, place).fill_diagonal_(torch.inf).amin(1)
    assert nearest.min() > 8


@pytest.mark.parametrize(
    ("measured", "n", "width"), [(0, 1, 6.4), (0, 4, 3.2), (15, 1, 1.6), (12, 4, 1.6), (3, 1, 3.0)]
)
def test_the_width_follows_the_distance_between_measured_pixels(measured, n, width):
    """0.8 times the mean distance after the step, in an image of 64 pixels; at most sigma."""
    scores = torch.zeros(2, 64)
    scores[:, :measured] = -torch.inf
    found = Spread(0.5, 3.0 if width == 3.0 else 16.0, 0.8).width(scores, n)
    torch.testing.assert_close(found, torch.full((2,), width))


def joint_entropy(images, mask):
    """H of the pixels of a mask together, by enumeration of the images `(M, C, H, W)`."""
    _, counts = torch.unique(images.flatten(2)[:, :, mask].flatten(1), dim=0, return_counts=True)
    probs = counts.double() / counts.sum()
    return -(probs * probs.log()).sum().item()


def one_by_one(images, offered, n):
    """The pixel of highest entropy given those before it, by enumeration."""
    chosen = torch.zeros_like(offered)
    for _ in range(n):
        left = (offered & ~chosen).nonzero()[:, 0].tolist()
        best = max(left, key=lambda i: joint_entropy(images, chosen | (torch.arange(len(chosen)) == i)))
        chosen[best] = True
    return chosen


def worlds(count=60):
    """Lists of images that repeat three patterns with more or fewer changes; one of them, and some of its pixels."""
    for seed in range(count):
        draw = seeded(seed)
        channels, states, size = 1 + seed % 2, 2 + seed % 3, 6 + seed % 29
        patterns = torch.randint(1, states + 1, (3, channels, 4, 4), generator=draw)
        images = patterns[torch.randint(3, (size,), generator=draw)]
        changed = torch.rand(images.shape, generator=draw) < (0.1, 0.3, 1.0)[seed // 6 % 3]
        images = torch.where(changed, torch.randint(1, states + 1, images.shape, generator=draw), images)
        seen = torch.rand(1, 16, generator=draw) < (0.0, 0.1)[seed // 2 % 2]
        y = observe(images[:1], seen)
        scores = information.per_pixel(EmpiricalPrior(images, states)(y).entropy()).masked_fill(seen, -torch.inf)
        agreeing = images[((y == 0) | (images == y)).flatten(1).all(1)]
        yield images, states, y, scores, agreeing, 2 + seed % 5


def told(choose):
    """What a choice, given the images of a world, tells in each: `(W,)`, beside the highest scores and one by one."""
    found = []
    for images, states, y, scores, agreeing, n in worlds():
        context = make_context(grid=(4, 4), observation=y)
        chosen = choose(KnownImages(images, states, sharpness=1e5))(scores, n, context)
        masks_of = (chosen[0], TopK()(scores, n, context)[0], one_by_one(agreeing, ~scores[0].isneginf(), n))
        assert [int(mask.sum()) for mask in masks_of] == [n] * 3
        found.append([joint_entropy(agreeing, mask) for mask in masks_of])
    return torch.tensor(found).unbind(1)


def test_joint_entropies_are_those_of_picks_one_by_one():
    """Never below what the highest scores tell together, and on average within 2% of picks by enumeration."""
    counted, highest, greedy = told(Counted)
    assert (counted >= highest - 1e-6).all()
    assert counted.mean() >= 0.98 * greedy.mean()
    assert highest.mean() < 0.95 * greedy.mean()


def test_correlations_alone_tell_more_than_the_highest_scores():
    """Only on average, and not within 2% of picks one by one: 94% of their entropy here, the highest scores 92%."""
    paired, highest, greedy = told(lambda known: Joint(known, trust=0.999, noise=0.0))
    assert highest.mean() < paired.mean() < 0.98 * greedy.mean()
    assert (paired < highest - 1e-6).any()


def test_the_highest_scores_are_taken_where_they_tell_more():
    """Given the first pixel, the last tells most, 2.8 bits; but 2 + 2 bits of the others are more than 2.8 + 0.7."""
    w, x, y, z, a, b, c, d = torch.cartesian_prod(*[torch.arange(2)] * 8).T
    nothing = torch.zeros_like(w)
    pixels = ((w, x, y, z), (w, a, b, nothing), (x, c, d, nothing), (a, c, b * d, nothing))
    images = 1 + torch.stack([torch.stack(pixel, 1) for pixel in pixels], 2).unsqueeze(2)  # (256, 4, 1, 4)
    entropies = [joint_entropy(images, torch.arange(4) == i) for i in range(4)]
    assert one_by_one(images, torch.ones(4, dtype=torch.bool), 3)[3]
    context = make_context(grid=(1, 4), observation=torch.zeros(1, 4, 1, 4, dtype=torch.int64))
    chosen = Counted(KnownImages(images, 2, near=256))(torch.tensor([entropies]), 3, context)
    assert chosen.tolist() == [[True, True, True, False]]


def test_without_known_images_close_pixels_count_less():
    scores = torch.tensor([[0.9, 1.0, 0.9, 0.8, 0.72]])
    assert Joint(reach=1.0)(scores, 2, make_context(grid=(5,))).tolist() == [[False, True, False, True, False]]
    assert torch.equal(Joint(reach=1e-3)(SCORES, 8, make_context()), TopK()(SCORES, 8, make_context()))
    found = Joint(reach=2.0)(SCORES, 8, make_context())
    place = torch.cartesian_prod(torch.arange(8.0), torch.arange(8.0))
    correlation = torch.exp(-torch.cdist(place, place) / 2.0).expand(4, 64, 64)
    assert torch.equal(found, masks.joint_top_k(SCORES, 8, correlation))


def test_pixels_that_repeat_each_other_in_the_known_images_are_not_taken_together():
    """The first and the last pixel are always the same, the others are drawn by themselves."""
    images = random_tokens((200, 1, 1, 6))
    images[..., -1] = images[..., 0]
    scores = torch.tensor([[1.0, 0.5, 0.5, 0.5, 0.6, 0.9]])
    context = make_context(grid=(1, 6), observation=torch.zeros(1, 1, 1, 6, dtype=torch.int64))
    assert TopK()(scores, 2, context).nonzero()[:, 1].tolist() == [0, 5]
    known = KnownImages(images, 2, near=200)
    assert Joint(known, trust=0.9, reach=0.1)(scores, 2, context).nonzero()[:, 1].tolist() == [0, 4]
    assert Counted(known)(scores, 5, context)[0, [0, 5]].sum() == 1


def test_what_has_been_measured_changes_which_images_count():
    """Where the first pixel is black the two on the right are the same, where it is white they are independent."""
    images = random_tokens((400, 1, 1, 4))
    images[..., 3] = torch.where(images[..., 0] == 1, images[..., 2], images[..., 3])
    y = torch.tensor([[[[1, 0, 0, 0]]], [[[2, 0, 0, 0]]]])
    scores = torch.tensor([[-torch.inf, 0.5, 1.0, 0.9]]).expand(2, 4)
    choose = Joint(KnownImages(images, 2, near=400, sharpness=1e3), trust=0.9, reach=0.1)
    chosen = choose(scores, 2, make_context(grid=(1, 4), observation=y))
    assert [row.nonzero()[:, 0].tolist() for row in chosen] == [[1, 2], [2, 3]]


def test_the_correlation_of_weighted_images():
    values, weights = torch.rand(2, 9, 5, 3, generator=seeded()), torch.rand(2, 9, generator=seeded()).softmax(1)
    found = Joint(noise=0.01).likeness(values, weights)
    for b in range(2):
        covariance = sum(torch.cov(values[b, :, :, c].T, correction=0, aweights=weights[b]) for c in range(3))
        scale = (covariance.diagonal() + 0.01).sqrt()
        torch.testing.assert_close(found[b], (covariance / scale / scale[:, None]).fill_diagonal_(1.0))


def test_joint_takes_many_scenes_in_parts():
    known = KnownImages(random_tokens((40, 1, 8, 8)), 2)
    scores, y = torch.rand(300, 64, generator=seeded()), random_tokens((300, 1, 8, 8), seed=1)
    choose = Joint(known, trust=0.9)
    assert TOGETHER // choose._numbers(64) == 256
    chosen = choose(scores, 14, make_context(observation=y))
    for scene in (0, 255, 256, 299):
        alone = choose(scores[scene : scene + 1], 14, make_context(observation=y[scene : scene + 1]))
        assert torch.equal(chosen[scene : scene + 1], alone)


@pytest.mark.parametrize("options", [{"trust": -0.1}, {"trust": 1.1}, {"reach": 0.0}, {"noise": -1.0}])
def test_joint_needs_sensible_numbers(options):
    with pytest.raises(ConfigError, match=r"^0 <= trust <= 1, reach > 0 and noise >= 0 are needed, got [-0-9., and]+$"):
        Joint(**options)
