import pytest
import torch

from conftest import make_absorbing, make_empirical, random_tokens, seeded
from sensewise import masks
from sensewise.errors import ConfigError
from sensewise.information import entropy, per_pixel, variance
from sensewise.policies import (
    Greedy,
    PosteriorSampling,
    Random,
    SpreadGreedy,
    VariableDensity,
    grid_probe,
    random_probe,
    spread_variance,
)
from sensewise.sensors import PixelSensor, Side

POLICIES = {
    "random": Random,
    "variable-density": lambda: VariableDensity((8, 8)),
    "entropy": lambda: Greedy(make_absorbing()),
    "variance": lambda: Greedy(make_absorbing(), "variance"),
    "spread": lambda: SpreadGreedy(make_absorbing()),
    "spread-variance": lambda: spread_variance(make_absorbing()),
    "posterior-sampling": lambda: PosteriorSampling(make_absorbing(), samples=4, rounds=2),
}


@pytest.fixture(params=POLICIES)
def policy(request):
    return POLICIES[request.param]()


@pytest.mark.parametrize("batch", [1, 3])
def test_scores(policy, batch):
    mask = masks.random(batch, 64, 20, seeded())
    observation = PixelSensor(random_tokens((batch, 1, 8, 8)))(mask)
    side = Side(label=torch.arange(batch))
    scores = policy.scores(observation, mask, side, seeded())
    assert scores.shape == (batch, 64)
    assert scores.isfinite().all()
    assert torch.equal(scores, policy.scores(observation, mask, side, seeded()))


def test_no_generator_means_seed_zero(policy):
    mask = torch.zeros(1, 64, dtype=torch.bool)
    observation = torch.zeros(1, 1, 8, 8, dtype=torch.int64)
    without = policy.scores(observation, mask, Side())
    assert torch.equal(without, policy.scores(observation, mask, Side(), seeded(0)))


def test_random_policies_draw_anew():
    mask, observation = torch.zeros(1, 64, dtype=torch.bool), torch.zeros(1, 1, 8, 8)
    for policy in (Random(), VariableDensity((8, 8))):
        generator = seeded()
        first, second = (policy.scores(observation, mask, Side(), generator) for _ in range(2))
        assert not torch.equal(first, second)


@pytest.mark.parametrize(("score", "measure"), [("entropy", entropy), ("variance", variance)])
@pytest.mark.parametrize("channels", [1, 3])
def test_greedy_adds_up_the_channels(score, measure, channels):
    prior = make_absorbing(shape=(channels, 8, 8), num_states=4)
    y = torch.zeros(2, channels, 8, 8, dtype=torch.int64)
    label = torch.tensor([3, 4])
    found = Greedy(prior, score).scores(y, torch.zeros(2, 64, dtype=torch.bool), Side(label=label))
    torch.testing.assert_close(found, per_pixel(measure(prior(y, label))))
    assert not torch.allclose(found[0], found[1])


def test_entropy_and_variance_differ():
    prior = make_absorbing(num_states=4)
    y, mask = torch.zeros(1, 1, 8, 8, dtype=torch.int64), torch.zeros(1, 64, dtype=torch.bool)
    by_entropy, by_variance = (Greedy(prior, score).scores(y, mask, Side()) for score in ("entropy", "variance"))
    assert not torch.equal(by_entropy.argsort(), by_variance.argsort())


def test_unknown_score():
    with pytest.raises(ConfigError, match="entropy, variance"):
        Greedy(make_absorbing(), "energy")


@pytest.mark.parametrize("probe", [random_probe(64), grid_probe((8, 8))])
def test_probes_take_a_fifth_of_the_budget(probe):
    first = probe(3, 20, seeded())
    assert first.shape == (3, 64)
    assert (first.sum(1) == 4).all()
    assert not torch.equal(first[0], first[1])


def test_variable_density_prefers_the_centre():
    policy = VariableDensity((9, 9), sigma=0.3)
    scores = policy.scores(torch.empty(0), torch.zeros(500, 81, dtype=torch.bool), Side(), seeded()).mean(0)
    assert scores.argmax() == 40
    assert scores[0] < scores[20] < scores[40]


def test_sampled_entropies_approach_the_exact_ones():
    """One pixel a round, from an exact prior: samples are exact, so their shares are the marginals."""
    prior, mask = make_empirical(labels=None), torch.zeros(1, 16, dtype=torch.bool)
    nothing = torch.zeros(1, 1, 4, 4, dtype=torch.int64)
    sampled = PosteriorSampling(prior, samples=2000, rounds=256).scores(nothing, mask, Side(), seeded())
    assert torch.allclose(sampled, Greedy(prior).scores(nothing, mask, Side()), atol=0.04)


@pytest.mark.parametrize("options", [{"samples": 0}, {"rounds": 0}])
def test_sampling_needs_samples(options):
    with pytest.raises(ConfigError, match="at least 1"):
        PosteriorSampling(make_absorbing(), **options)


def test_spreading_changes_what_is_chosen_not_the_scores():
    prior, side = make_absorbing(), Side(label=torch.tensor([1]))
    nothing, mask = torch.zeros(1, 1, 8, 8, dtype=torch.int64), torch.zeros(1, 64, dtype=torch.bool)
    plain, spread = Greedy(prior), SpreadGreedy(prior, damping=0.9, sigma=3.0)
    scores = plain.scores(nothing, mask, side)
    assert torch.equal(spread.scores(nothing, mask, side), scores)
    assert not torch.equal(spread.choose(scores, 8), plain.choose(scores, 8))


def test_with_spacing_the_first_picks_keep_further_apart():
    """8 of 64 pixels: a mean distance of sqrt(8); with 32 measured before, sqrt(64 / 40); at most sigma."""
    policy = SpreadGreedy(make_absorbing(), damping=0.9, sigma=3.0, spacing=0.5)
    scores = torch.rand(4, 64, generator=seeded())
    later = scores.masked_fill(torch.arange(64) < 32, -torch.inf)
    for given, width in ((scores, 0.5 * 8**0.5), (later, 0.5 * 1.6**0.5)):
        found = policy.choose(given, 8)
        assert torch.equal(found, masks.spread_top_k(given, 8, (8, 8), 0.9, width))
        assert not torch.equal(found, masks.spread_top_k(given, 8, (8, 8), 0.9, 3.0))
    policy.sigma = 0.1
    assert torch.equal(policy.choose(scores, 8), masks.spread_top_k(scores, 8, (8, 8), 0.9, 0.1))


def test_with_reach_a_pixel_between_two_uncertain_ones_scores_higher():
    prior, side = make_absorbing(), Side(label=torch.tensor([1]))
    mask = masks.random(1, 64, 20, seeded())
    observation = PixelSensor(random_tokens((1, 1, 8, 8)))(mask)
    alone = Greedy(prior, "variance").scores(observation, mask, side)
    found = SpreadGreedy(prior, "variance", reach=0.7).scores(observation, mask, side)
    torch.testing.assert_close(found, masks.around(alone, (8, 8), 0.7))
    assert (found > alone).all()  # measured pixels are certain: they add nothing, but have neighbours


@pytest.mark.parametrize(
    "options", [{"damping": 1.0}, {"damping": -0.1}, {"sigma": 0.0}, {"reach": -1.0}, {"spacing": -1.0}]
)
def test_spreading_needs_sensible_numbers(options):
    with pytest.raises(ConfigError, match="damping"):
        SpreadGreedy(make_absorbing(), **options)
