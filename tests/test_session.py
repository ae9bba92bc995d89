import numpy as np
import pytest
import torch

from conftest import awake, fresh, make_absorbing, make_empirical, random_tokens, seeded
from sensewise import Session, predictions
from sensewise.errors import BudgetError, CheckpointError, ConfigError, DataError, OutputError, SessionError
from sensewise.files import write_tensors
from sensewise.loop import acquire
from sensewise.networks.any_size import AnySize
from sensewise.policies import travel
from sensewise.policies.choose import Joint, Spread, TopK
from sensewise.policies.greedy import Greedy
from sensewise.policies.known import KnownImages
from sensewise.policies.one_shot import OneShot
from sensewise.policies.simple import Random
from sensewise.policies.starts import GridProbe, RandomProbe
from sensewise.policies.stops import ExpectedPSNR
from sensewise.priors.readings import ReadingPrior
from sensewise.sensors.base import Side
from sensewise.sensors.pixels import PixelSensor
from sensewise.sensors.readings import Readings, ReadingSensor
from sensewise.tokens import MASK, dequantize

SHAPE = (1, 8, 8)
STARTS = {"nothing": None, "random": RandomProbe(), "grid": GridProbe()}
CHOICES = {"top-k": TopK(), "spread": Spread(), "joint": Joint(KnownImages(random_tokens((20, 1, 8, 8)), 2))}
X = random_tokens((1, 1, 8, 8))


@pytest.fixture(scope="module")
def prior():
    return make_absorbing()


def make(prior, budget=10, **options):
    return Session(Greedy(prior), SHAPE, budget, **{"steps": 5, **options})


def read(x, pixels):
    """A real sensor: the tokens of some pixels, `(n, C)`."""
    return x[0][:, pixels[:, 0], pixels[:, 1]].T.numpy()


def finish(session, x):
    while (pixels := session.ask()) is not None:
        session.tell(read(x, pixels))
    return session


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("score", [predictions.entropy, predictions.variance])
@pytest.mark.parametrize("label", [None, 7])
@pytest.mark.parametrize("choose", CHOICES)
def test_a_session_measures_what_acquire_measures(prior, start, score, label, choose):
    policy, options = Greedy(prior, score), {"steps": 4, "start": STARTS[start], "choose": CHOICES[choose]}
    session = finish(Session(policy, SHAPE, 0.3, label=label, seed=3, **options), X)
    side = Side(label=None if label is None else torch.tensor([label]))
    taken = acquire(policy, PixelSensor(X), 0.3, side=side, generator=seeded(3), **options)
    assert torch.equal(session.mask.flatten(), taken.mask[0])
    assert torch.equal(session.observation, taken.observation[0])
    prediction = prior(taken.observation, side.label)
    assert torch.equal(session.reconstruction, prediction.mode()[0])
    torch.testing.assert_close(session.mean, prediction.mean()[0])
    torch.testing.assert_close(session.entropy, prediction.entropy()[0, 0])


def test_a_session_with_any_policy(prior):
    session = finish(Session(Random(), SHAPE, 10, steps=2, prior=prior, seed=4), X)
    taken = acquire(Random(), PixelSensor(X), 10, steps=2, generator=seeded(4))
    assert torch.equal(session.mask.flatten(), taken.mask[0])
    assert torch.equal(session.reconstruction, prior(taken.observation).mode()[0])


def test_a_policy_without_a_prior_needs_one():
    with pytest.raises(ConfigError, match="prior="):
        Session(Random(), SHAPE, 10)


def test_a_session_with_a_summary(prior):
    from sensewise.networks.decoders import MaskDesigner

    policy = OneShot(MaskDesigner(SHAPE, 10).eval(), sampled=False)
    summary = PixelSensor(X).summary(2)
    session = finish(Session(policy, SHAPE, 10, steps=1, summary=summary, prior=prior), X)
    taken = acquire(policy, PixelSensor(X), 10, side=Side(summary=summary))
    assert torch.equal(session.mask.flatten(), taken.mask[0])


def test_pictures_of_any_size():
    prior, x = make_absorbing(size=None), random_tokens((1, 1, 11, 19))
    session = finish(Session(Greedy(prior), (1, 11, 19), 12, steps=3), x)
    assert session.mask.shape == (11, 19)
    assert session.mask.sum() == 12
    with pytest.raises(DataError, match="tokens of shape"):
        Session(Greedy(make_absorbing()), (1, 11, 19), 12)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("told", [True, False])
def test_a_session_saved_at_any_step_goes_on_as_if_nothing_had_happened(prior, tmp_path, start, told):
    def fresh():
        return make(prior, 12, steps=3, start=STARTS[start])

    undisturbed, session = finish(fresh(), X), fresh()
    while (pixels := session.ask()) is not None:
        if told:
            session.tell(read(X, pixels))
        session.save(tmp_path / "session")
        session = fresh().restore(tmp_path / "session")
        if not told:
            assert (session.ask() == pixels).all()
            session.tell(read(X, pixels))
    assert torch.equal(session.mask, undisturbed.mask)
    assert torch.equal(session.observation, undisturbed.observation)


def test_a_random_session_draws_the_numbers_that_it_would_have_drawn(prior, tmp_path):
    def fresh():
        return Session(Random(), SHAPE, 12, steps=4, prior=prior, seed=5)

    session = fresh()
    session.tell(read(X, session.ask()))
    session.save(tmp_path / "session")
    again = finish(fresh().restore(tmp_path / "session"), X)
    assert torch.equal(again.mask, finish(fresh(), X).mask)


def test_several_channels_are_read_at_once():
    prior = make_absorbing(shape=(3, 8, 8), num_states=4, num_labels=None)
    x = random_tokens((1, 3, 8, 8), 4)
    session = finish(Session(Greedy(prior), (3, 8, 8), 10, steps=5), x)
    taken = acquire(Greedy(prior), PixelSensor(x), 10, steps=5)
    assert torch.equal(session.observation, taken.observation[0])
    assert session.entropy.shape == (8, 8)
    assert session.mean.shape == (3, 8, 8)
    waiting = Session(Greedy(prior), (3, 8, 8), 10, steps=5)
    waiting.ask()
    with pytest.raises(SessionError, match=r"shape \(2, 3\)"):
        waiting.tell([1, 2])


def test_budget_steps_and_order(prior):
    session = make(prior, steps=3)
    sizes = []
    while (pixels := session.ask()) is not None:
        assert pixels.dtype == np.int64
        flat = pixels[:, 0] * 8 + pixels[:, 1]
        assert len(set(flat.tolist())) == len(flat)
        assert not session.mask[pixels[:, 0], pixels[:, 1]].any()
        sizes.append(len(pixels))
        session.tell(read(X, pixels))
    assert sizes == [3, 3, 4]
    assert session.mask.sum() == 10
    assert session.ask() is None


def test_asking_twice_gives_the_same(prior):
    session = make(prior, start=RandomProbe())
    assert (session.ask() == session.ask()).all()


def test_tell_before_ask(prior):
    session = make(prior)
    with pytest.raises(SessionError, match="before ask"):
        session.tell([1, 1])
    pixels = session.ask()
    session.tell(read(X, pixels))
    with pytest.raises(SessionError, match="before ask"):
        session.tell(read(X, pixels))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1], "ask named 2 pixels"),
        ([1, 2, 1], "ask named 2 pixels"),
        ([], "ask named 2 pixels"),
        ([[1, 2]], "ask named 2 pixels"),
        (1, "ask named 2 pixels"),
        ([1.0, 2.0], r"intensities must lie in \[0, 1\]"),
        ([-0.1, 0.5], r"intensities must lie in \[0, 1\]"),
        ([float("nan"), 1], r"intensities must lie in \[0, 1\]"),
        ([True, False], "tokens 1..2 or intensities"),
        ([1j, 0], "tokens 1..2 or intensities"),
        ([0, 1], r"tokens 1\.\.2"),
        ([1, 3], r"tokens 1\.\.2"),
        ([-1, 1], r"tokens 1\.\.2"),
        ([2**63 + 1, 2**63 + 1], r"tokens 1\.\.2"),
        (["black", "white"], "not an array of numbers"),
        ([None, 1], "not an array of numbers"),
        ([[1], [1, 2]], "not an array of numbers"),
    ],
)
def test_readings_that_do_not_fit_change_nothing(prior, values, message):
    session = make(prior)
    pixels = session.ask()
    with pytest.raises(SessionError, match=message):
        session.tell(values)
    assert not session.mask.any()
    assert (session.ask() == pixels).all()
    session.tell(read(X, pixels))
    assert session.mask.sum() == 2


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_tokens_of_any_whole_kind(prior, kind):
    session = make(prior)
    session.tell(read(X, session.ask()).astype(kind))
    assert session.mask.sum() == 2


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_intensities_are_quantised(kind):
    prior = make_absorbing(num_states=4)
    x = random_tokens((1, 1, 8, 8), 4)
    by_tokens, by_values = (Session(Greedy(prior), SHAPE, 10, steps=5) for _ in range(2))
    while (pixels := by_tokens.ask()) is not None:
        assert (by_values.ask() == pixels).all()
        tokens = read(x, pixels)
        by_tokens.tell(tokens)
        by_values.tell(dequantize(torch.from_numpy(tokens), 4).numpy().astype(kind))
    assert torch.equal(by_values.observation, by_tokens.observation)
    assert by_values.mask.sum() == 10


def test_readings_as_tensor_or_list(prior):
    session = make(prior)
    session.tell(torch.from_numpy(read(X, session.ask())))
    session.tell(read(X, session.ask())[:, 0].tolist())
    session.tell(dequantize(torch.from_numpy(read(X, session.ask())), 2)[:, 0].tolist())
    assert session.mask.sum() == 6


def test_a_probe_of_a_budget_too_small_to_probe(prior):
    session = make(prior, 2, steps=2, start=RandomProbe())
    assert len(session.ask()) == 1
    assert finish(session, X).mask.sum() == 2


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"budget": 0}, BudgetError),
        ({"budget": 1.5}, BudgetError),
        ({"budget": "ten"}, BudgetError),
        ({"steps": 0}, BudgetError),
        ({"steps": 11}, BudgetError),
        ({"label": 10}, DataError),
        ({"label": -1}, DataError),
        ({"label": -2}, DataError),
        ({"label": 1.5}, DataError),
        ({"label": "seven"}, DataError),
    ],
)
def test_impossible_settings(prior, options, error):
    with pytest.raises(error):
        make(prior, **options)


@pytest.mark.parametrize("label", [np.int64(7), torch.tensor(7)])
@pytest.mark.parametrize("budget", [10, np.int64(10), np.float64(10 / 64)])
def test_numbers_straight_from_an_array(prior, tmp_path, label, budget):
    session = make(prior, budget, label=label)
    session.tell(read(X, session.ask()))
    session.save(tmp_path / "session")
    assert finish(make(prior, label=7).restore(tmp_path / "session"), X).mask.sum() == 10


def test_restore_needs_a_session_made_in_the_same_way(prior, tmp_path):
    make(prior).save(tmp_path / "session")
    others = [
        make(make_absorbing(seed=1)),
        Session(Greedy(make_empirical()), (1, 4, 4), 10, steps=5),
        make(prior, 12),
        make(prior, steps=2),
        make(prior, seed=1),
        make(prior, label=1),
        make(prior, start=GridProbe()),
        make(prior, choose=Spread()),
        Session(Greedy(prior, predictions.variance), SHAPE, 10, steps=5),
        Session(Greedy(prior, reach=0.5), SHAPE, 10, steps=5),
        Session(Random(), SHAPE, 10, steps=5, prior=prior),
    ]
    for other in others:
        with pytest.raises(SessionError, match="another policy, prior or other settings"):
            other.restore(tmp_path / "session")


def test_restore_from_what_is_not_a_session(prior, tmp_path):
    path = tmp_path / "session"
    with pytest.raises(CheckpointError, match="does not exist"):
        make(prior).restore(path)
    write_tensors(path, {"weight": torch.zeros(3)})
    with pytest.raises(SessionError, match="not a saved session"):
        make(prior).restore(path)
    path.write_text("hello")
    with pytest.raises(CheckpointError, match="safetensors"):
        make(prior).restore(path)


@pytest.mark.parametrize("settings", ["{", "[]", "{}", '{"identity": "0"}', "null", "3"])
def test_restore_from_a_session_of_another_program(prior, tmp_path, settings):
    write_tensors(tmp_path / "session", {"weight": torch.zeros(3)}, {"session": settings})
    with pytest.raises(SessionError):
        make(prior).restore(tmp_path / "session")


def measured_instead(count):
    """The state of a session that has measured so many pixels in its first step, instead of two."""
    first = torch.arange(64).view(1, 64) < count
    return {
        "observation": first.long().view(1, 1, 8, 8),
        "step": torch.where(first, 1, -1).int(),
        "pending": torch.arange(64).view(1, 64) >= 62,
    }


@pytest.mark.parametrize(
    "damage",
    [
        {"observation": torch.ones(1, 1, 8, 8, dtype=torch.int64)},
        {"observation": torch.zeros(1, 1, 8, 8)},
        {"observation": torch.full((1, 1, 8, 8), 3)},
        {"step": torch.full((1, 64), 2, dtype=torch.int32)},
        {"step": torch.zeros(1, 64, dtype=torch.int64)},
        {"step": torch.zeros(1, 63, dtype=torch.int32)},
        {"pending": torch.ones(1, 64, dtype=torch.bool)},
        {"pending": torch.zeros(1, 64, dtype=torch.bool)},
        {"generator": torch.zeros(3, dtype=torch.uint8)},
        {"path": torch.zeros(4, dtype=torch.int64)},
        {"path": torch.zeros(3, dtype=torch.int64)},
        {"path": torch.zeros(4)},
        {"path": torch.zeros(2, 2, dtype=torch.int64)},
        measured_instead(1),
        measured_instead(3),
    ],
    ids=lambda damage: next(iter(damage)),
)
def test_states_that_no_session_can_be_in_are_refused_and_change_nothing(prior, tmp_path, damage):
    from sensewise.files import read_tensors

    session = make(prior)
    session.tell(read(X, session.ask()))
    session.ask()
    session.save(tmp_path / "session")
    tensors, metadata = read_tensors(tmp_path / "session")
    write_tensors(tmp_path / "damaged", tensors | damage, metadata)
    other = make(prior)
    with pytest.raises((SessionError, DataError)):
        other.restore(tmp_path / "damaged")
    assert not other.mask.any()
    assert torch.equal(finish(other, X).mask, finish(make(prior), X).mask)


@pytest.mark.parametrize("kept", [0, 4, 8, 100, -1])
def test_restore_from_a_file_cut_short(prior, tmp_path, kept):
    make(prior).save(tmp_path / "session")
    content = (tmp_path / "session").read_bytes()
    (tmp_path / "session").write_bytes(content[:kept])
    with pytest.raises(CheckpointError, match="safetensors"):
        make(prior).restore(tmp_path / "session")


def test_save_where_nothing_can_be_written(prior, tmp_path):
    (tmp_path / "file").write_text("here")
    with pytest.raises(OutputError, match="cannot write"):
        make(prior).save(tmp_path / "file" / "session")
    assert (tmp_path / "file").read_text() == "here"


def test_pixels_are_read_on_a_short_path_that_a_saved_session_keeps(prior, tmp_path):
    session, path = make(prior, 40, steps=2), []
    while (pixels := session.ask()) is not None:
        session.save(tmp_path / "asked")
        resumed = make(prior, 40, steps=2).restore(tmp_path / "asked")
        assert (resumed.ask() == pixels).all()
        path.extend(pixels.tolist())
        session.tell(read(X, pixels))
    ordered = travel.path(session._loop.step[0].numpy(), (8, 8))
    assert travel.places(ordered, (8, 8)).tolist() == path
    assert session.travel == travel.length(np.array(path)) < 60
    assert torch.equal(session.observation.flatten()[ordered], X.flatten()[ordered])


def test_nothing_is_known_before_the_first_reading(prior):
    session = make(prior)
    assert (session.observation == MASK).all()
    assert (session.entropy > 0).all()
    assert session.reconstruction.shape == SHAPE
    assert ((session.mean > 0) & (session.mean < 1)).all()


class TestReadings:
    """A session with a prior over readings: intensities of any size, noise, stops and audits."""

    IMAGE = torch.rand(1, 20, 24, generator=seeded())

    @pytest.fixture
    def policy(self):
        network = awake(fresh(AnySize, widths=(8, 12), blocks=(1, 1), components=3, embedding=8), std=0.05)
        prior = ReadingPrior(network).eval().requires_grad_(False)
        return Greedy(prior, predictions.variance, view=Readings())

    def spend(self, session, sigma=None):
        while (pixels := session.ask()) is not None:
            session.tell(self.IMAGE[0][pixels[:, 0], pixels[:, 1]].numpy(), sigma)
        return session

    def test_intensities_are_kept_as_they_were_read(self, policy):
        session = self.spend(Session(policy, (1, 20, 24), 0.2, steps=3))
        assert int(session.mask.sum()) == 96
        torch.testing.assert_close(session.mean[0][session.mask], self.IMAGE[0][session.mask])
        assert (session.variance[0][session.mask] == 0).all()
        assert session.expected_psnr > 0
        assert not session.stopped
        assert session.fit is None

    def test_noisy_readings_stay_uncertain(self, policy):
        session = self.spend(Session(policy, (1, 20, 24), 0.2, steps=3), sigma=0.1)
        assert (session.variance[0][session.mask] > 0).all()

    def test_it_gives_the_same_mask_as_acquire(self, policy):
        session = self.spend(Session(policy, (1, 20, 24), 0.2, steps=3, choose=Spread()))
        taken = acquire(policy, ReadingSensor(self.IMAGE[None]), 0.2, steps=3, choose=Spread())
        assert torch.equal(session.mask.flatten(), taken.mask[0])

    def test_a_stop_ends_it(self, policy):
        session = self.spend(Session(policy, (1, 20, 24), 0.9, steps=20, stop=ExpectedPSNR(13.0)))
        assert session.stopped
        assert session.ask() is None
        assert session.expected_psnr > 13.0
        assert int(session.mask.sum()) < 432

    def test_an_audit_notices_a_prior_that_does_not_fit(self, policy):
        session = self.spend(Session(policy, (1, 20, 24), 0.3, steps=3, audit=0.1))
        assert session.fit.pixels == 14
        assert session.fit.ratio == pytest.approx(session.fit.error / session.fit.expected)

    def test_save_and_restore(self, policy, tmp_path):
        session = Session(policy, (1, 20, 24), 0.2, steps=3, audit=0.1)
        pixels = session.ask()
        session.tell(self.IMAGE[0][pixels[:, 0], pixels[:, 1]].numpy(), sigma=0.05)
        session.save(tmp_path / "session.safetensors")
        again = Session(policy, (1, 20, 24), 0.2, steps=3, audit=0.1).restore(tmp_path / "session.safetensors")
        assert torch.equal(self.spend(session).mask, self.spend(again).mask)

    @pytest.mark.parametrize(
        ("values", "sigma", "words"),
        [
            (np.nan, None, "not a number"),
            (0.5, -0.1, "not negative"),
            (0.5, np.nan, "not negative"),
        ],
    )
    def test_impossible_readings(self, policy, values, sigma, words):
        session = Session(policy, (1, 20, 24), 0.2, steps=3)
        count = len(session.ask())
        with pytest.raises(SessionError, match=words):
            session.tell(np.full(count, values), sigma)
        session.tell(np.full(count, 0.5))  # nothing was spoilt

    def test_readings_outside_the_range_are_clipped_with_a_warning(self, policy):
        session = Session(policy, (1, 20, 24), 0.2, steps=3)
        count = len(session.ask())
        with pytest.warns(UserWarning, match=f"{count} readings outside"):
            session.tell(np.full(count, 1.5))
        assert session.mean.max() <= 1

    def test_a_prior_over_tokens_takes_no_noise(self):
        session = Session(Greedy(make_empirical(labels=None)), (1, 4, 4), 4, steps=2)
        count = len(session.ask())
        with pytest.raises(SessionError, match="without noise"):
            session.tell(np.full(count, 1), sigma=0.1)

    def test_impossible_audits_and_channels(self, policy):
        with pytest.raises(ConfigError, match="audit is a fraction"):
            Session(policy, (1, 20, 24), 0.2, audit=1.0)
        with pytest.raises(ConfigError, match="1 channels"):
            Session(policy, (3, 20, 24), 0.2)
