import pytest
import torch

from conftest import make_absorbing, make_empirical, random_tokens, seeded
from sensewise.acquire import acquire
from sensewise.errors import DataError
from sensewise.information import entropy
from sensewise.policies import Greedy
from sensewise.priors import UNKNOWN, EmpiricalPrior, MirroredPrior
from sensewise.sensors import PixelSensor, Side
from sensewise.tokens import MASK

PRIORS = {
    "empirical": make_empirical,
    "empirical-colour": lambda: make_empirical(shape=(3, 2, 4), num_states=4, labels=None),
    "absorbing": make_absorbing,
    "absorbing-colour": lambda: make_absorbing(shape=(3, 8, 4), num_states=4, num_labels=None),
    "absorbing-timeless": lambda: make_absorbing(time_input=False),
    "mirrored": lambda: MirroredPrior(make_absorbing()),
}


@pytest.fixture(params=PRIORS)
def prior(request):
    return PRIORS[request.param]()


def observations(prior, batch, share=0.3):
    """Observations of images that the prior knows, where it knows any."""
    if isinstance(prior, EmpiricalPrior):
        x = prior.images[:batch]
    else:
        x = random_tokens((batch, *prior.shape), prior.num_states)
    return torch.where(torch.rand(x.shape, generator=seeded(2)) < share, x, MASK)


@pytest.mark.parametrize("batch", [1, 4])
def test_log_probabilities(prior, batch):
    y = observations(prior, batch)
    log_probs = prior(y)
    assert log_probs.shape == (batch, *prior.shape, prior.num_states)
    assert log_probs.dtype == torch.float32
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(y.shape))


def test_observed_sites_are_certain(prior):
    y = observations(prior, 4)
    log_probs, seen = prior(y), y != MASK
    assert (entropy(log_probs)[seen] == 0).all()
    assert torch.equal((log_probs.argmax(-1) + 1)[seen], y[seen])
    assert entropy(prior(torch.zeros_like(y))).max() > 0


def test_a_prediction_does_not_depend_on_batch_mates(prior):
    y = observations(prior, 4)
    together = prior(y).exp()
    for b in range(4):
        torch.testing.assert_close(prior(y[b : b + 1]).exp(), together[b : b + 1], atol=1e-5, rtol=0)


def test_no_label_means_unknown(prior):
    y = observations(prior, 3)
    assert torch.equal(prior(y), prior(y, torch.full((3,), UNKNOWN)))


@pytest.mark.parametrize("make", [make_empirical, make_absorbing])
def test_the_label_matters(make):
    prior = make()
    y = observations(prior, 2, share=0.0)
    assert not torch.allclose(prior(y, torch.tensor([0, 0])).exp(), prior(y, torch.tensor([1, 1])).exp())
    assert not torch.allclose(prior(y, torch.tensor([0, 0])).exp(), prior(y).exp())


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
    for wrong in (y[0], y[:, :, :1], y.transpose(1, 2), y[:, :0]):
        with pytest.raises(DataError, match="tokens of shape"):
            prior(wrong)
    for token in (-1, prior.num_states + 1):
        with pytest.raises(DataError, match="tokens must be 0"):
            prior(torch.full_like(y, token))


@pytest.mark.parametrize("chunk", [1, 3, 5, 100])
def test_read_equals_one_pass(prior, chunk):
    y = observations(prior, 5)
    labels = None if prior.num_labels is None else torch.tensor([0, 1, 2, UNKNOWN, 0])
    found = prior.read(lambda log_probs: log_probs.exp(), y, labels, chunk=chunk)
    torch.testing.assert_close(found, prior(y, labels).exp(), atol=1e-5, rtol=0)


def test_empirical_prior_counts():
    prior = make_empirical(count=12, shape=(1, 2, 3), num_states=3, labels=2)
    for b in range(12):
        x, label = prior.images[b], prior.labels[b]
        y = x.clone()
        y[0, 1] = MASK
        for known in (True, False):
            agree = (prior.images[:, 0, 0] == x[0, 0]).all(1) & ((prior.labels == label) | (not known))
            expected = torch.stack([(prior.images[agree] == s).float().mean(0) for s in (1, 2, 3)], dim=-1)
            found = prior(y[None], label[None] if known else None)[0].exp()
            torch.testing.assert_close(found, expected)


def test_empirical_prior_knows_nothing_of_an_image_it_never_saw():
    prior = EmpiricalPrior(torch.ones(3, 1, 2, 2, dtype=torch.int64), 2)
    y = torch.tensor([2, 0, 0, 0]).view(1, 1, 2, 2)
    assert prior(y).exp()[0, 0, 1].tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_the_timestep_matches_the_density_unless_given(absorbing):
    y = torch.full((1, 1, 8, 8), MASK)
    y[..., :4] = 1
    matching = absorbing.process.timestep_for(torch.tensor([0.5]))
    assert torch.equal(absorbing(y), absorbing(y, t=matching))
    assert not torch.allclose(absorbing(y).exp(), absorbing(y, t=torch.tensor([990])).exp())


def test_a_prior_without_time_input_ignores_the_timestep():
    prior = make_absorbing(time_input=False)
    y = observations(prior, 2)
    assert torch.equal(prior(y, t=torch.tensor([5, 5])), prior(y, t=torch.tensor([900, 10])))


def test_the_bundled_prior_beats_chance(mnist, digits):
    x, label = digits[slice(None)]
    y = torch.where(torch.rand(x.shape, generator=seeded()) < 0.3, x, MASK)
    wrong = (mnist(y, label).argmax(-1) + 1 != x).float().mean()
    assert wrong < 0.05


@pytest.mark.filterwarnings("ignore:TF32 acceleration")  # said by the switch itself
def test_speed_changes_no_answer(mnist, digits):
    """oneDNN, channels-last and batches against plain kernels, digit by digit: the same beliefs, the same masks."""
    x, label = digits[slice(0, 6)]
    taken = acquire(Greedy(mnist), PixelSensor(x), 0.1, side=Side(label=label), steps=4)
    fast = mnist.read(torch.exp, taken.observation, label)
    with torch.backends.mkldnn.flags(enabled=False):
        plain = torch.cat([mnist(taken.observation[i : i + 1], label[i : i + 1]).exp() for i in range(6)]).detach()
        one_by_one = [
            acquire(Greedy(mnist), PixelSensor(x[i : i + 1]), 0.1, side=Side(label=label[i : i + 1]), steps=4)
            for i in range(6)
        ]
    torch.testing.assert_close(fast, plain, atol=1e-5, rtol=0)
    assert torch.equal(torch.cat([one.mask for one in one_by_one]), taken.mask)


def test_a_mirrored_prior_is_the_mean_of_two_answers():
    single = make_absorbing(shape=(3, 8, 4), num_states=4)
    double, y = MirroredPrior(single), observations(single, 3)
    probs, mirrored = single(y).exp(), single(y.flip(-1)).exp().flip(-2)
    torch.testing.assert_close(double(y).exp(), (probs + mirrored) / 2)
    assert not torch.allclose(probs, mirrored, atol=1e-3)
    torch.testing.assert_close(double(y.flip(-1)), double(y).flip(-2))
