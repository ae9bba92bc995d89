"""Categorical against its formulas, Mixture against the same distribution with one number per state."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from conftest import random_tokens, seeded
from sensewise import predictions
from sensewise.channels import Gaussian
from sensewise.predictions import Categorical, Mixture, log_normal_mass, reading_log_likelihood
from sensewise.tokens import MASK, pack, quantize

SHAPE = (3, 2, 4, 5)


def categorical(shape=SHAPE, states=6, seed=0):
    return Categorical(torch.randn(*shape, states, generator=seeded(seed)).log_softmax(-1))


def mixture(shape=SHAPE, states=16, components=3, seed=0, scales=(-4.0, -1.5), centres=(-0.1, 1.1)):
    batch, channels, height, width = shape
    logits, where, wide = torch.rand(3, batch, channels, components, height, width, generator=seeded(seed))
    centre = centres[0] + (centres[1] - centres[0]) * where
    widths = torch.exp(scales[0] + (scales[1] - scales[0]) * wide)
    return Mixture((3 * logits).log_softmax(2), centre, widths, states)


PREDICTIONS = {"categorical": categorical, "mixture": mixture}


@pytest.fixture(params=PREDICTIONS)
def make(request):
    return PREDICTIONS[request.param]


def some_seen(states, shape=SHAPE, share=0.4):
    return torch.where(torch.rand(shape, generator=seeded(5)) < share, random_tokens(shape, states, 6), MASK)


ANSWERS = {
    "entropy": lambda p: p.entropy(),
    "variance": lambda p: p.variance(),
    "mean": lambda p: p.mean(),
    "mode": lambda p: p.mode(),
    "expected_errors": lambda p: p.expected_errors(),
}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("seen", [False, True])
def test_contract(make, answer, batch, seen):
    prediction = make((batch, *SHAPE[1:]))
    if seen:
        prediction = prediction.given(some_seen(prediction.num_states)[:batch])
    found = ANSWERS[answer](prediction)
    assert found.shape == (batch, *SHAPE[1:])
    assert found.dtype == (torch.int64 if answer == "mode" else torch.float32)
    assert found.isfinite().all()
    low, high = (1, prediction.num_states) if answer == "mode" else (0, 3.0 if answer == "entropy" else 1)
    assert ((found >= low) & (found <= high)).all()


def test_observed_sites_are_certain(make):
    prediction = make()
    y = some_seen(prediction.num_states)
    seen, certain = y != MASK, prediction.given(y)
    for name in ("entropy", "variance", "expected_errors"):
        assert (ANSWERS[name](certain)[seen] == 0).all(), name
        torch.testing.assert_close(ANSWERS[name](certain)[~seen], ANSWERS[name](prediction)[~seen])
    assert torch.equal(certain.mode()[seen], y[seen])
    torch.testing.assert_close(certain.mean()[seen], (y[seen] - 1) / (prediction.num_states - 1))
    x = torch.where(seen, y, 1)
    assert (certain.log_prob(x)[seen] == 0).all()
    other = torch.where(x == 1, 2, 1)
    assert certain.log_prob(other)[seen].isneginf().all()
    drawn = certain.sample(4, seeded())
    assert (drawn[:, seen] == y[seen]).all()


def test_a_prediction_given_nothing_is_the_same(make):
    prediction = make()
    certain = prediction.given(torch.full(SHAPE, MASK))
    for name, answer in ANSWERS.items():
        torch.testing.assert_close(answer(certain), answer(prediction), msg=name)


def test_probabilities_add_up_to_one(make):
    prediction = make()
    total = sum(prediction.log_prob(torch.full(SHAPE, k)).double().exp() for k in range(1, prediction.num_states + 1))
    torch.testing.assert_close(total, torch.ones(SHAPE, dtype=torch.float64), atol=1e-5, rtol=0)


def test_cross_entropy_adds_up_some_sites(make):
    prediction = make()
    x = random_tokens(SHAPE, prediction.num_states)
    sites = torch.rand(SHAPE, generator=seeded()) < 0.5
    found = prediction.cross_entropy(x, sites)
    assert found.shape == (3,)
    for b in range(3):
        torch.testing.assert_close(found[b], -prediction.log_prob(x)[b][sites[b]].sum())


def test_cross_entropy_is_finite_where_certain_sites_do_not_count(make):
    prediction = make()
    y = some_seen(prediction.num_states)
    other = torch.where(y == 1, 2, 1)  # impossible where observed
    assert prediction.given(y).cross_entropy(other, y == MASK).isfinite().all()


@pytest.mark.parametrize("n", [1, 7])
def test_samples_are_tokens_and_repeat_with_the_seed(make, n):
    prediction = make()
    drawn = prediction.sample(n, seeded())
    assert drawn.shape == (n, *SHAPE)
    assert drawn.dtype == torch.int64
    assert ((drawn >= 1) & (drawn <= prediction.num_states)).all()
    assert torch.equal(drawn, prediction.sample(n, seeded()))
    assert not torch.equal(drawn, prediction.sample(n, seeded(1)))


def test_samples_follow_the_distribution(make):
    prediction = make((1, 1, 2, 3))
    n, states = 20_000, prediction.num_states
    drawn = prediction.sample(n, seeded())
    for k in range(1, states + 1):
        expected = prediction.log_prob(torch.full((1, 1, 2, 3), k)).exp()
        standard_error = (expected * (1 - expected) / n).sqrt()
        assert ((drawn == k).float().mean(0) - expected).abs().lt(5 * standard_error + 1e-4).all()


def test_a_prediction_does_not_depend_on_batch_mates(make):
    """Statistics of one image of a batch are those of the image alone: nothing is summed over the batch."""
    whole, alone = make(), make()
    part = slice(1, 2)
    if isinstance(whole, Categorical):
        alone = Categorical(whole.log_probs[part])
    else:
        alone = Mixture(whole.log_weights[part], whole.centres[part], whole.widths[part], whole.num_states)
    for name, answer in ANSWERS.items():
        torch.testing.assert_close(answer(whole)[part], answer(alone), msg=name)


@pytest.mark.parametrize("name", ["entropy", "variance", "mean", "mode", "expected_errors"])
def test_functions_ask_the_prediction(make, name):
    prediction = make()
    assert torch.equal(getattr(predictions, name)(prediction), ANSWERS[name](prediction))


def test_categorical_by_its_formulas():
    prediction = categorical()
    probs = prediction.log_probs.double().exp()
    levels = torch.linspace(0, 1, 6, dtype=torch.float64)
    mean = (probs * levels).sum(-1)
    expected = {
        "entropy": -(probs * probs.log()).sum(-1),
        "mean": mean,
        "variance": (probs * (levels - mean.unsqueeze(-1)) ** 2).sum(-1),
        "expected_errors": 1 - probs.max(-1).values,
    }
    for name, value in expected.items():
        torch.testing.assert_close(ANSWERS[name](prediction).double(), value, atol=1e-6, rtol=1e-5, msg=name)
    assert torch.equal(prediction.mode(), probs.argmax(-1) + 1)


def test_divergence_is_torchs():
    one, two = (torch.randn(3, 1, 4, 5, 3, generator=seeded(i)).log_softmax(-1) for i in (0, 1))
    sites = torch.rand(3, 1, 4, 5, generator=seeded(2)) < 0.5
    expected = F.kl_div(two, one, log_target=True, reduction="none").sum(-1) * sites  # (3, 1, 4, 5)
    found = Categorical(one).divergence(Categorical(two), sites)
    assert torch.allclose(found, expected.sum(dim=(1, 2, 3)), atol=1e-5)
    assert (found > 0).all()
    assert not Categorical(one).divergence(Categorical(one), sites).any()


def test_categorical_cross_entropy_is_torchs():
    prediction, x = categorical(), random_tokens(SHAPE, 6)
    sites = torch.rand(SHAPE, generator=seeded()) < 0.5
    found = prediction.cross_entropy(x, sites)
    for b in range(3):
        expected = F.cross_entropy(prediction.log_probs[b][sites[b]], x[b][sites[b]] - 1, reduction="sum")
        torch.testing.assert_close(found[b], expected)


@given(st.integers(2, 40), st.integers(1, 4), st.integers(0, 2**31))
def test_a_mixture_is_its_own_categorical(states, components, seed):
    shape = (2, 1, 2, 3)
    prediction = mixture(shape, states, components, seed, scales=(-5.0, 0.5))
    oracle = prediction.categorical()
    x = random_tokens(shape, states, seed)
    likely = oracle.log_prob(x) > -12  # below that, the oracle's differences of probabilities have no digits left
    torch.testing.assert_close(prediction.log_prob(x)[likely], oracle.log_prob(x)[likely], atol=2e-2, rtol=0)
    torch.testing.assert_close(prediction.log_prob(x).exp(), oracle.log_prob(x).exp(), atol=2e-6, rtol=1e-4)
    torch.testing.assert_close(prediction.entropy(), oracle.entropy(), atol=2e-4, rtol=1e-4)
    torch.testing.assert_close(prediction.expected_errors(), oracle.expected_errors(), atol=2e-4, rtol=0)
    best = oracle.log_prob(prediction.mode())  # two levels may be equally likely to the last digit
    torch.testing.assert_close(best, oracle.log_prob(oracle.mode()), atol=2e-4, rtol=0)
    y = some_seen(states, shape)
    seen = prediction.given(y)
    torch.testing.assert_close(seen.entropy(), seen.categorical().entropy(), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize(("scales", "centres"), [((-4.0, -3.5), (0.3, 0.7)), ((-3.0, 0.0), (-0.3, 1.3))])
def test_mean_and_variance_with_and_without_a_cut_off(scales, centres):
    """The closed forms are those of the mixture cut off at 0 and 1; 2,000 levels come close to it."""
    prediction = mixture(states=2000, scales=scales, centres=centres)
    oracle = prediction.categorical()
    torch.testing.assert_close(prediction.mean(), oracle.mean(), atol=2e-4, rtol=0)
    torch.testing.assert_close(prediction.variance(), oracle.variance(), atol=2e-4, rtol=1e-3)


def test_masses_far_out_in_the_tails_are_finite_and_exact():
    one = torch.ones(1, 1, 1, 1, 1)
    prediction = Mixture(0 * one, 0.5 * one, 1e-3 * one, 64)  # the second level is 480 widths below the centre
    found = prediction.log_prob(torch.full((1, 1, 1, 1), 2)).double().squeeze()
    nearer = (torch.tensor(1.5, dtype=torch.float64) / 63 - 0.5) / 1e-3
    torch.testing.assert_close(found, torch.special.log_ndtr(nearer), rtol=1e-5, atol=0)
    assert prediction.entropy().isfinite().all()


def test_noisy_readings_are_the_exact_posterior():
    """Against Bayes' rule on a fine grid of intensities, far from the cut-off."""
    grid = torch.linspace(-1, 2, 60_001, dtype=torch.float64)
    prediction = mixture((1, 1, 1, 4), 256, 3, scales=(-3.5, -2.5), centres=(0.4, 0.6))
    values = torch.tensor([0.45, 0.5, 0.55, torch.nan]).view(1, 1, 1, 4)
    noise = torch.tensor([0.02, 0.05, 0.1, 0.0]).view(1, 1, 1, 4)
    found = prediction.given(pack(values, noise))
    for i in range(3):
        weights, centres, widths = (
            part[0, 0, :, 0, i].double()
            for part in (prediction.log_weights.exp(), prediction.centres, prediction.widths)
        )
        before = (weights * torch.exp(-0.5 * ((grid[:, None] - centres) / widths) ** 2) / widths).sum(1)
        after = before * torch.exp(-0.5 * ((grid - values[0, 0, 0, i]) / noise[0, 0, 0, i]) ** 2)
        mean = (grid * after).sum() / after.sum()
        variance = ((grid - mean) ** 2 * after).sum() / after.sum()
        torch.testing.assert_close(found.mean()[0, 0, 0, i].double(), mean, atol=1e-5, rtol=0)
        torch.testing.assert_close(found.variance()[0, 0, 0, i].double(), variance, atol=1e-7, rtol=1e-3)
    torch.testing.assert_close(found.variance()[..., 3], prediction.variance()[..., 3])


def test_a_reading_without_noise_is_certain_whatever_was_read_before():
    prediction = mixture((1, 1, 2, 2), 256)
    noisy = prediction.given(pack(torch.full((1, 1, 2, 2), 0.3), torch.full((1, 1, 2, 2), 0.05)))
    exact = noisy.given(pack(torch.full((1, 1, 2, 2), 0.321), torch.zeros(1, 1, 2, 2)))
    assert (exact.variance() == 0).all()
    assert (exact.entropy() == 0).all()
    torch.testing.assert_close(exact.mean(), torch.full((1, 1, 2, 2), 0.321))


def test_a_mixture_has_gradients_everywhere():
    parts = [part.requires_grad_() for part in torch.randn(3, 2, 1, 3, 4, 4, generator=seeded())]
    prediction = Mixture(parts[0].log_softmax(2), parts[1].sigmoid(), (0.3 * parts[2] - 1).exp(), 32)
    prediction.cross_entropy(random_tokens((2, 1, 4, 4), 32), torch.ones(2, 1, 4, 4, dtype=torch.bool)).sum().backward()
    for part in parts:
        assert part.grad.isfinite().all()
        assert part.grad.abs().min() > 0


@pytest.mark.parametrize("components", [1, 3])
def test_what_was_read_without_noise_is_in_every_answer(components):
    """Between two levels, and beyond the range: the nearest level, whatever the mixture thinks."""
    prediction = mixture((1, 1, 1, 4), 5, components, scales=(-2.0, -1.5))
    read = torch.tensor([0.30, 1.07, -0.07, torch.nan]).view(1, 1, 1, 4)
    found = prediction.given(pack(read, torch.zeros_like(read)))
    assert found.mode().flatten().tolist()[:3] == [2, 5, 1]
    assert found.categorical().mode().flatten().tolist()[:3] == [2, 5, 1]
    assert (found.sample(20, seeded()).flatten(1)[:, :3] == torch.tensor([2, 5, 1])).all()
    tokens = torch.tensor([2, 5, 2, 2]).view(1, 1, 1, 4)
    assert found.log_prob(tokens).flatten()[:3].tolist() == [0.0, 0.0, -torch.inf]
    torch.testing.assert_close(found.mean().flatten()[:3], read.flatten()[:3])
    for answer in (found.entropy(), found.variance(), found.expected_errors(), found.gain(Gaussian(0.1))):
        assert answer.flatten()[:3].tolist() == [0.0] * 3
        assert answer.flatten()[3] > 0
    assert found.mode()[..., 3] == prediction.mode()[..., 3]


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (-0.3, 0.9),
        (0.0, 1.0),
        (0.2, 3.0),
        (-4.5, -4.0),
        (-7.1, -7.0),
        (-8.2, -8.1),
        (-9.4, -8.1),
        (-20.01, -20.0),
    ],
)
@pytest.mark.parametrize("mirrored", [False, True])
def test_masses_of_a_normal_by_quadrature(low, high, mirrored):
    """In logarithms, so that nothing is lost."""
    place = torch.linspace(low, high, 20_001, dtype=torch.float64)
    log_density = -0.5 * place.square() - 0.5 * math.log(2 * math.pi)
    exact = torch.logsumexp((log_density[1:] + log_density[:-1]) / 2, 0) + math.log((high - low) / 20_000)
    ends = torch.tensor([low, high])
    found = log_normal_mass(*(-ends.flip(0) if mirrored else ends)).double()
    torch.testing.assert_close(found, exact, rtol=0, atol=0.02 if high <= -4 else 1e-5)  # the tail is an expansion


@pytest.mark.parametrize("end", [-8.5, -12.0, -40.0])
def test_masses_of_a_tail_to_infinity(end):
    exact = torch.special.log_ndtr(torch.tensor(end, dtype=torch.float64))
    for a, b in ((-torch.inf, end), (-end, torch.inf)):
        found = log_normal_mass(torch.tensor(a), torch.tensor(b)).double()
        torch.testing.assert_close(found, exact, rtol=0, atol=0.02)


def test_gain_of_a_single_bell_is_its_closed_form():
    """Half the log of one plus signal over noise, for sites that have nothing to do with each other."""
    centres, widths = (
        torch.tensor([0.2, 0.5, 0.7]).view(1, 1, 1, 1, 3),
        torch.tensor([0.01, 0.05, 0.2]).view(1, 1, 1, 1, 3),
    )
    found = Mixture(torch.zeros_like(centres), centres, widths).gain(Gaussian(0.05)).flatten()
    torch.testing.assert_close(found, 0.5 * torch.log1p((widths.flatten() / 0.05) ** 2), atol=2e-3, rtol=0)


def test_samples_of_a_mixture_repeat_digit_for_digit():
    one = torch.ones(1, 1, 1, 1, 6)
    found = Mixture(0 * one, 0.5 * one, 0.2 * one, 256).sample(1, seeded()).flatten()
    generator = seeded()
    torch.empty(6).exponential_(generator=generator)  # of the components
    exact = (0.5 + 0.2 * torch.randn(6, generator=generator)).clamp(0, 1)
    assert found.tolist() == ((exact * 255).round().long() + 1).tolist()


def test_gradients_are_finite_where_a_reading_was_exact():
    centres, widths = (torch.full((1, 1, 2, 3, 3), value, requires_grad=True) for value in (0.4, 0.1))
    values = torch.rand(1, 1, 3, 3, generator=seeded())
    y = pack(torch.where(values < 0.5, values, torch.nan), torch.zeros_like(values))
    prediction = Mixture(torch.zeros(1, 1, 2, 3, 3).log_softmax(2), centres, widths, 256).given(y)
    loss = prediction.variance().sum() + prediction.mean().sum() + prediction.log_prob(quantize(values, 256)).sum()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(loss, (centres, widths)))


@pytest.mark.parametrize("end", [-8.5, -12.0, -40.0])
def test_tails_to_infinity_have_the_gradient_of_the_tail(end):
    """The density over the mass, which is the distance plus its inverse, but for the cube of that."""
    for a, b, where in ((-torch.inf, end, 1), (-end, torch.inf, 0)):
        ends = [torch.tensor(a, requires_grad=True), torch.tensor(b, requires_grad=True)]
        (slope,) = torch.autograd.grad(log_normal_mass(*ends), ends[where])
        assert slope.item() == pytest.approx((1 if where else -1) * (-end - 1 / end), rel=1e-4 + 3 / end**4)


def test_of_two_levels_that_are_as_probable_the_lower_is_the_mode():
    one = torch.ones(1, 1, 1, 1, 1)
    assert Mixture(0 * one, 0.5 * one, 0.1 * one, 2).mode().item() == 1
    assert Mixture(0 * one, 0.5 * one, 1e-3 * one, 4).mode().item() == 2


def test_a_reading_says_something_of_states_that_nobody_read():
    found = reading_log_likelihood(torch.zeros(1, 1, 1, 2), torch.tensor([0.2, 0.0]).view(1, 1, 1, 2), 3).exp()
    torch.testing.assert_close(found.view(2, 3), torch.tensor([[0.8, 0.1, 0.1], [1.0, 0.0, 0.0]]))


def test_a_sharp_reading_leaves_little_doubt():
    """A noise of a thousandth leaves a thousandth, not the width of a level."""
    one = torch.ones(1, 1, 1, 1, 1)
    found = Mixture(0 * one, 0.4 * one, 0.1 * one).given(pack(0.5 * one[0], 1e-3 * one[0]))
    assert found.num_states == 256
    assert found.variance().sqrt().item() == pytest.approx(1e-3, rel=1e-3)
    assert found.mean().item() == pytest.approx(0.5 - 0.1 / (1 + 1e4), abs=1e-6)


def test_a_reading_in_the_middle_between_two_levels_has_one_token():
    one = torch.ones(1, 1, 1, 1, 1)
    found = Mixture(0 * one, 0.2 * one, 0.1 * one, 5).given(pack(0.375 * one[0], 0 * one[0]))
    token = quantize(0.375 * one[0], 5)
    assert torch.equal(found.mode(), token)
    assert torch.equal(found.categorical().mode(), token)
    assert found.categorical().entropy().item() == 0
    assert (found.sample(50, seeded()) == token).all()


def test_double_precision_is_kept():
    one = torch.ones(1, 1, 1, 1, 1, dtype=torch.float64)
    found = Mixture(0 * one, 0.3 * one, 0.1 * one, 4).log_prob(torch.full((1, 1, 1, 1), 2)).item()
    ends = [(edge - 0.3) / 0.1 / 2**0.5 for edge in (1 / 6, 1 / 2)]
    exact = 0.5 * (math.erf(ends[1]) - math.erf(ends[0]))
    assert found == pytest.approx(math.log(exact), rel=1e-12)


def test_a_mass_too_narrow_for_its_digits_is_finite():
    """Both ends are one number in single precision: no loss may become infinite of it."""
    for end in (-9.0, 9.0, -1.0, 0.0):
        assert log_normal_mass(torch.tensor(end), torch.tensor(end)).isfinite()
