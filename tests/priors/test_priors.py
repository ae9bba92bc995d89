"""Contracts of every prior, and what each of them is by itself."""

import pytest
import torch

from conftest import awake, fresh, make_absorbing, make_empirical, random_tokens, seeded
from sensewise import predictions
from sensewise.errors import ConfigError, DataError
from sensewise.loop import acquire
from sensewise.networks import PRIOR_NETWORKS
from sensewise.policies.greedy import Greedy
from sensewise.predictions import Categorical, Mixture
from sensewise.priors.absorbing import AbsorbingPrior
from sensewise.priors.base import Prior
from sensewise.priors.empirical import EmpiricalPrior
from sensewise.priors.mean import MeanPrior
from sensewise.priors.mirrored import MirroredPrior
from sensewise.sensors.base import Side
from sensewise.sensors.pixels import PixelSensor
from sensewise.tokens import MASK, UNKNOWN

SMALL = {
    "unet": {"widths": (8, 16, 16), "blocks": (1, 1, 1), "embedding": 8},
    "dit": {"dim": 32, "layers": 1, "heads": 4},
    "rows": {"width": 8, "layers": 1},
}


class MixturePrior(Prior):
    """A prior of many ordered levels, as simple as can be: its components are where the neighbours are."""

    def __init__(self):
        super().__init__()
        self.channels, self.num_states, self.num_labels, self.size = 1, 32, None, None

    def predict(self, y, label, t):
        values = (y.float() / self.num_states).unsqueeze(2).repeat(1, 1, 3, 1, 1)
        values = torch.stack([values[:, :, i].roll(i, -1) for i in range(3)], dim=2)
        return Mixture(values.log_softmax(2), values, (values - 3).exp(), self.num_states)


def with_network(name, size=None, channels=1, **options):
    """An absorbing prior of any size over one of the networks."""
    network = awake(fresh(PRIOR_NETWORKS[name], channels, 4, 10, **SMALL.get(name, {}), **options), std=0.1)
    return AbsorbingPrior(network, channels, 4, 10, size=size).eval().requires_grad_(False)


PRIORS = {
    "empirical": make_empirical,
    "empirical-colour": lambda: make_empirical(shape=(3, 2, 4), num_states=4, labels=None),
    "absorbing": make_absorbing,
    "absorbing-colour": lambda: make_absorbing(shape=(3, 8, 4), num_states=4, num_labels=None),
    "absorbing-timeless": lambda: make_absorbing(time_input=False),
    "absorbing-any-size": lambda: make_absorbing(size=None),
    "mirrored": lambda: MirroredPrior(make_absorbing()),
    "mean": lambda: MeanPrior([make_absorbing(), make_absorbing(seed=1)]),
    "mixture": MixturePrior,
}


@pytest.fixture(params=PRIORS)
def prior(request):
    return PRIORS[request.param]()


def shape_of(prior):
    return (prior.channels, 9, 11) if prior.size is None else prior.shape


def observations(prior, batch, share=0.3):
    """Observations of images that the prior knows, where it knows any."""
    if isinstance(prior, EmpiricalPrior):
        x = prior.images[:batch]
    else:
        x = random_tokens((batch, *shape_of(prior)), prior.num_states)
    return torch.where(torch.rand(x.shape, generator=seeded(2)) < share, x, MASK)


def probabilities(prediction):
    """Of every state, `(B, C, H, W, N)`."""
    return (
        prediction.log_probs.exp() if isinstance(prediction, Categorical) else prediction.categorical().log_probs.exp()
    )


@pytest.mark.parametrize("batch", [1, 4])
def test_predictions(prior, batch):
    y = observations(prior, batch)
    prediction = prior(y)
    assert prediction.num_states == prior.num_states
    for found in (prediction.entropy(), prediction.variance(), prediction.mean(), prediction.expected_errors()):
        assert found.shape == y.shape
        assert found.dtype == torch.float32
        assert found.isfinite().all()
    assert (prediction.log_prob(y.clamp(min=1)) <= 1e-6).all()  # minus infinity where the prior knows better
    assert prediction.mode().shape == y.shape
    assert prediction.mode().dtype == torch.int64
    torch.testing.assert_close(probabilities(prediction).sum(-1), torch.ones(y.shape))


def test_observed_sites_are_certain(prior):
    y = observations(prior, 4)
    prediction, seen = prior(y), y != MASK
    assert (prediction.entropy()[seen] == 0).all()
    assert torch.equal(prediction.mode()[seen], y[seen])
    assert prior(torch.zeros_like(y)).entropy().max() > 0


def test_a_raw_prediction_says_something_of_observed_sites_too(prior):
    y = observations(prior, 2)
    if not isinstance(prior, EmpiricalPrior):
        assert (prior.predict(y, prior.check(y, None), None).entropy()[y != MASK] > 0).any()


def test_a_prediction_does_not_depend_on_batch_mates(prior):
    y = observations(prior, 4)
    together = probabilities(prior(y))
    for b in range(4):
        torch.testing.assert_close(probabilities(prior(y[b : b + 1])), together[b : b + 1], atol=1e-5, rtol=0)


def test_no_label_means_unknown(prior):
    y = observations(prior, 3)
    assert torch.equal(probabilities(prior(y)), probabilities(prior(y, torch.full((3,), UNKNOWN))))


@pytest.mark.parametrize("make", [make_empirical, make_absorbing])
def test_the_label_matters(make):
    prior = make()
    y = observations(prior, 2, share=0.0)
    none, first, second = (prior(y, label).mean() for label in (None, torch.tensor([0, 0]), torch.tensor([1, 1])))
    assert not torch.allclose(first, second)
    assert not torch.allclose(first, none)


@pytest.mark.parametrize("label", [[99, 0], [0, -2], [0], [[0, 0]], [0.0, 1.5], [True, False]])
def test_labels_that_do_not_fit(prior, label):
    with pytest.raises(DataError, match="label"):
        prior(observations(prior, 2), torch.tensor(label))


def test_a_prior_without_labels_takes_none():
    prior = make_empirical(labels=None)
    with pytest.raises(DataError, match="takes no labels"):
        prior(observations(prior, 1), torch.tensor([0]))


def test_shapes_and_tokens_that_do_not_fit(prior):
    y = observations(prior, 2)
    wrong = [y[0], y.transpose(1, 2), y[:, :0]]
    for shape in [*wrong, y[:, :, :1]] if prior.size else wrong:
        with pytest.raises(DataError, match="tokens of shape"):
            prior(shape)
    for token in (-1, prior.num_states + 1):
        with pytest.raises(DataError, match="tokens must be 0"):
            prior(torch.full_like(y, token))
    with pytest.raises(DataError, match="whole numbers"):
        prior(y.float())


def test_the_shape_of_a_prior(prior):
    if prior.size is None:
        with pytest.raises(DataError, match="any size"):
            prior.shape  # noqa: B018
    else:
        assert prior.shape == (prior.channels, *prior.size)


@pytest.mark.parametrize("chunk", [1, 3, 5, 100])
def test_in_chunks_equals_one_pass(prior, chunk):
    y = observations(prior, 5)
    labels = None if prior.num_labels is None else torch.tensor([0, 1, 2, UNKNOWN, 0])
    found = prior.in_chunks(probabilities, y, labels, chunk=chunk)
    torch.testing.assert_close(found, probabilities(prior(y, labels)), atol=1e-5, rtol=0)


def test_large_pictures_go_through_one_at_a_time():
    prior, seen = make_absorbing(size=None), []

    def count(prediction):
        seen.append(len(prediction.mean()))
        return prediction.mean()

    prior.in_chunks(count, torch.zeros(5, 1, 64, 64, dtype=torch.int64), None, chunk=8)
    assert seen == [2, 2, 1]


@pytest.mark.parametrize("name", PRIOR_NETWORKS)
@pytest.mark.parametrize("size", [(37, 51), (16, 48), (1, 3)])
def test_any_size_and_rectangles(name, size):
    """Images whose sides no stride divides are padded with hidden pixels for the network alone."""
    if name == "rows":
        size = (size[0] + 1, 1)
    prior = with_network(name)
    y = observations_of((2, 1, *size))
    prediction = prior(y, torch.tensor([3, UNKNOWN]))
    assert prediction.entropy().shape == (2, 1, *size)
    assert prediction.entropy().isfinite().all()
    assert torch.equal(prediction.mode()[y != MASK], y[y != MASK])
    alone = prior(y[1:], torch.tensor([UNKNOWN]))
    torch.testing.assert_close(prediction.mean()[1:], alone.mean(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["unet", "dit"])
def test_ordinal_networks_of_any_size(name):
    prior = with_network(name, encoding="ordinal")
    assert prior(observations_of((2, 1, 37, 51))).mean().shape == (2, 1, 37, 51)


def observations_of(shape):
    return torch.where(torch.rand(shape, generator=seeded(2)) < 0.3, random_tokens(shape, 4), MASK)


@pytest.mark.parametrize("name", ["unet", "paper-conv", "dit"])
def test_padding_is_what_hidden_pixels_would_be(name):
    """The prediction of a cropped image is that of the image with its border hidden, at the same timestep."""
    prior = with_network(name)
    side = 2 * int(prior.network.multiple)
    whole = observations_of((1, 1, side, 2 * side))
    whole[:, :, -1:] = MASK
    whole[:, :, :, -1:] = MASK
    t = torch.tensor([700])
    cropped = prior(whole[:, :, :-1, :-1], None, t).mean()
    torch.testing.assert_close(cropped, prior(whole, None, t).mean()[:, :, :-1, :-1])


def test_a_prior_without_a_mask_state_takes_black_for_hidden():
    with_state = make_absorbing()
    without = AbsorbingPrior(with_state.network, 1, 2, 10, size=(8, 8), mask_state=False)
    y = observations(with_state, 2)
    black_hidden = torch.where(y == 1, MASK, y)
    t, label = torch.tensor([700, 700]), torch.tensor([UNKNOWN, UNKNOWN])
    assert torch.equal(without.predict(y, label, t).log_probs, with_state.predict(black_hidden, label, t).log_probs)
    assert not torch.equal(with_state.predict(y, label, t).log_probs, without.predict(y, label, t).log_probs)


def test_empirical_prior_counts():
    prior = make_empirical(count=12, shape=(1, 2, 3), num_states=3, labels=2)
    for b in range(12):
        x, label = prior.images[b], prior.labels[b]
        y = x.clone()
        y[0, 1] = MASK
        for known in (True, False):
            agree = (prior.images[:, 0, 0] == x[0, 0]).all(1) & ((prior.labels == label) | (not known))
            expected = torch.stack([(prior.images[agree] == s).float().mean(0) for s in (1, 2, 3)], dim=-1)
            found = prior(y[None], label[None] if known else None).log_probs[0].exp()
            torch.testing.assert_close(found, expected)


def test_empirical_prior_knows_nothing_of_an_image_it_never_saw():
    prior = EmpiricalPrior(torch.ones(3, 1, 2, 2, dtype=torch.int64), 2)
    y = torch.tensor([2, 0, 0, 0]).view(1, 1, 2, 2)
    assert prior(y).log_probs.exp()[0, 0, 1].tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_the_timestep_matches_the_density_unless_given(absorbing):
    y = torch.full((1, 1, 8, 8), MASK)
    y[..., :4] = 1
    matching = absorbing.process.timestep_for(torch.tensor([0.5]))
    assert torch.equal(absorbing(y).log_probs, absorbing(y, t=matching).log_probs)
    assert not torch.allclose(absorbing(y).mean(), absorbing(y, t=torch.tensor([990])).mean())


def test_a_prior_without_time_input_ignores_the_timestep():
    prior = make_absorbing(time_input=False)
    y = observations(prior, 2)
    early, late = (prior(y, t=torch.tensor(t)).log_probs for t in ([5, 5], [900, 10]))
    assert torch.equal(early, late)


def test_the_bundled_prior_beats_chance(mnist, digits):
    x, label = digits[slice(None)]
    y = torch.where(torch.rand(x.shape, generator=seeded()) < 0.3, x, MASK)
    assert (mnist(y, label).mode() != x).float().mean() < 0.05


@pytest.mark.filterwarnings("ignore:TF32 acceleration")  # said by the switch itself
def test_speed_changes_no_answer(mnist, digits):
    """oneDNN, channels-last and batches against plain kernels, digit by digit: the same beliefs, the same masks."""
    x, label = digits[slice(0, 6)]
    taken = acquire(Greedy(mnist), PixelSensor(x), 0.1, side=Side(label=label), steps=4)
    fast = mnist.in_chunks(probabilities, taken.observation, label)
    with torch.backends.mkldnn.flags(enabled=False):
        alone = [probabilities(mnist(taken.observation[i : i + 1], label[i : i + 1])) for i in range(6)]
        one_by_one = [
            acquire(Greedy(mnist), PixelSensor(x[i : i + 1]), 0.1, side=Side(label=label[i : i + 1]), steps=4)
            for i in range(6)
        ]
    torch.testing.assert_close(fast, torch.cat(alone).detach(), atol=1e-5, rtol=0)
    assert torch.equal(torch.cat([one.mask for one in one_by_one]), taken.mask)


def test_a_mirrored_prior_is_the_mean_of_two_answers():
    single = make_absorbing(shape=(3, 8, 4), num_states=4)
    double, y = MirroredPrior(single), observations(single, 3)
    probs, mirrored = probabilities(single(y)), probabilities(single(y.flip(-1))).flip(-2)
    torch.testing.assert_close(probabilities(double(y)), (probs + mirrored) / 2)
    assert not torch.allclose(probs, mirrored, atol=1e-3)
    torch.testing.assert_close(double(y.flip(-1)).log_probs, double(y).log_probs.flip(-2))


def test_a_mean_of_priors_is_the_mean_of_their_answers():
    one, other = make_absorbing(), make_absorbing(seed=1)
    both, y = MeanPrior([one, other]), observations(one, 3)
    torch.testing.assert_close(probabilities(both(y)), (probabilities(one(y)) + probabilities(other(y))) / 2)
    assert not torch.allclose(probabilities(one(y)), probabilities(other(y)), atol=1e-2)


@pytest.mark.parametrize("priors", [[], [make_absorbing(), make_absorbing(num_labels=None)]])
def test_a_mean_of_nothing_or_of_what_does_not_belong_together_is_refused(priors):
    with pytest.raises(ConfigError, match="at least one prior, and all of them"):
        MeanPrior(priors)


def test_only_categorical_predictions_can_be_mirrored():
    with pytest.raises(DataError, match="only categorical"):
        MirroredPrior(MixturePrior())(torch.zeros(1, 1, 4, 4, dtype=torch.int64))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32])
def test_tokens_may_be_any_whole_numbers(absorbing, dtype):
    y = random_tokens((2, *absorbing.shape))
    y[:, :, ::2] = 0
    assert torch.equal(absorbing(y.to(dtype)).entropy(), absorbing(y).entropy())
    drawn = absorbing.sample(y.to(dtype), None, torch.Generator().manual_seed(0), steps=2)
    assert torch.equal(drawn, absorbing.sample(y, None, torch.Generator().manual_seed(0), steps=2))


def test_an_empty_batch_is_refused(absorbing):
    nothing = torch.zeros(0, *absorbing.shape, dtype=torch.int64)
    with pytest.raises(DataError, match="is empty"):
        absorbing(nothing)
    with pytest.raises(DataError, match="is empty"):
        absorbing.in_chunks(predictions.entropy, nothing, None)
    with pytest.raises(DataError, match="is empty"):
        absorbing.sample(nothing, None, torch.Generator())
