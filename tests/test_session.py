import numpy as np
import pytest
import torch

from conftest import make_absorbing, make_empirical, random_tokens, seeded
from sensewise import Session
from sensewise.acquire import acquire
from sensewise.checkpoint import write_tensors
from sensewise.errors import BudgetError, CheckpointError, ConfigError, DataError, OutputError, SessionError
from sensewise.information import entropy
from sensewise.policies import Greedy, SpreadGreedy, grid_probe, random_probe
from sensewise.sensors import PixelSensor, Side
from sensewise.tokens import MASK

STARTS = {None: None, "random": random_probe(64), "grid": grid_probe((8, 8))}
X = random_tokens((1, 1, 8, 8))


@pytest.fixture(scope="module")
def prior():
    return make_absorbing()


def read(x, pixels):
    """A real sensor: the tokens of some pixels, `(n, C)`."""
    return x[0][:, pixels[:, 0], pixels[:, 1]].T.numpy()


def finish(session, x):
    while (pixels := session.ask()) is not None:
        session.tell(read(x, pixels))
    return session


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("score", ["entropy", "variance"])
@pytest.mark.parametrize("label", [None, 7])
@pytest.mark.parametrize("spread", [False, True])
def test_a_session_measures_what_acquire_measures(prior, start, score, label, spread):
    options = {"label": label, "score": score, "start": start, "spread": spread, "seed": 3}
    session = finish(Session(prior, 0.3, steps=4, **options), X)
    side = Side(label=None if label is None else torch.tensor([label]))
    policy = (SpreadGreedy if spread else Greedy)(prior, score)
    taken = acquire(policy, PixelSensor(X), 0.3, side=side, steps=4, start=STARTS[start], generator=seeded(3))
    assert torch.equal(session.mask.flatten(), taken.mask[0])
    assert torch.equal(session.observation, taken.observation[0])
    log_probs = prior(taken.observation, side.label)
    assert torch.equal(session.reconstruction, (log_probs.argmax(-1) + 1)[0])
    torch.testing.assert_close(session.entropy, entropy(log_probs)[0, 0])


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("told", [True, False])
def test_a_session_saved_at_any_step_goes_on_as_if_nothing_had_happened(prior, tmp_path, start, told):
    undisturbed = finish(Session(prior, 12, steps=3, start=start), X)
    session = Session(prior, 12, steps=3, start=start)
    while (pixels := session.ask()) is not None:
        if told:
            session.tell(read(X, pixels))
        session.save(tmp_path / "session")
        session = Session.resume(tmp_path / "session", prior)
        if not told:
            assert (session.ask() == pixels).all()
            session.tell(read(X, pixels))
    assert torch.equal(session.mask, undisturbed.mask)
    assert torch.equal(session.observation, undisturbed.observation)


def test_several_channels_are_read_at_once():
    prior = make_absorbing(shape=(3, 8, 8), num_states=4, num_labels=None)
    x = random_tokens((1, 3, 8, 8), 4)
    session = finish(Session(prior, 10, steps=5), x)
    taken = acquire(Greedy(prior), PixelSensor(x), 10, steps=5)
    assert torch.equal(session.observation, taken.observation[0])
    assert session.entropy.shape == (8, 8)
    waiting = Session(prior, 10, steps=5)
    waiting.ask()
    with pytest.raises(SessionError, match=r"shape \(2, 3\)"):
        waiting.tell([1, 2])


def test_budget_steps_and_order(prior):
    session = Session(prior, 10, steps=3)
    sizes = []
    while (pixels := session.ask()) is not None:
        assert pixels.dtype == np.int64
        flat = pixels[:, 0] * 8 + pixels[:, 1]
        assert (np.diff(flat) > 0).all()
        assert not session.mask[pixels[:, 0], pixels[:, 1]].any()
        sizes.append(len(pixels))
        session.tell(read(X, pixels))
    assert sizes == [3, 3, 4]
    assert session.mask.sum() == 10
    assert session.ask() is None


def test_asking_twice_gives_the_same(prior):
    session = Session(prior, 10, steps=5, start="random")
    assert (session.ask() == session.ask()).all()


def test_tell_before_ask(prior):
    session = Session(prior, 10, steps=5)
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
        ([1.0, 2.0], "whole tokens"),
        ([True, False], "whole tokens"),
        ([float("nan"), 1], "whole tokens"),
        ([0, 1], r"tokens 1\.\.2"),
        ([1, 3], r"tokens 1\.\.2"),
        ([-1, 1], r"tokens 1\.\.2"),
        (["black", "white"], "not an array of numbers"),
        ([None, 1], "not an array of numbers"),
        ([[1], [1, 2]], "not an array of numbers"),
    ],
)
def test_readings_that_do_not_fit_change_nothing(prior, values, message):
    session = Session(prior, 10, steps=5)
    pixels = session.ask()
    with pytest.raises(SessionError, match=message):
        session.tell(values)
    assert not session.mask.any()
    assert (session.ask() == pixels).all()
    session.tell(read(X, pixels))
    assert session.mask.sum() == 2


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64])
def test_readings_of_any_whole_kind(prior, kind):
    session = Session(prior, 10, steps=5)
    session.tell(read(X, session.ask()).astype(kind))
    assert session.mask.sum() == 2


def test_readings_as_tensor_or_list(prior):
    session = Session(prior, 10, steps=5)
    session.tell(torch.from_numpy(read(X, session.ask())))
    session.tell(read(X, session.ask())[:, 0].tolist())
    assert session.mask.sum() == 4


def test_a_probe_of_a_budget_too_small_to_probe(prior):
    session = Session(prior, 2, steps=2, start="random")
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
        ({"score": "energy"}, ConfigError),
        ({"start": "spiral"}, ConfigError),
    ],
)
def test_impossible_settings(prior, options, error):
    with pytest.raises(error):
        Session(prior, **{"budget": 10, "steps": 5, **options})


@pytest.mark.parametrize("label", [np.int64(7), torch.tensor(7)])
def test_labels_straight_from_an_array(prior, tmp_path, label):
    session = Session(prior, 10, steps=5, label=label)
    session.save(tmp_path / "session")
    assert Session.resume(tmp_path / "session", prior).settings["label"] == 7


def test_resume_needs_the_same_prior(prior, tmp_path):
    Session(prior, 10, steps=5).save(tmp_path / "session")
    for other in (make_absorbing(seed=1), make_empirical()):
        with pytest.raises(SessionError, match="another prior"):
            Session.resume(tmp_path / "session", other)


def test_resume_from_what_is_no_session(prior, tmp_path):
    path = tmp_path / "session"
    with pytest.raises(CheckpointError, match="does not exist"):
        Session.resume(path, prior)
    write_tensors(path, {"weight": torch.zeros(3)})
    with pytest.raises(SessionError, match="not a saved session"):
        Session.resume(path, prior)
    path.write_text("hello")
    with pytest.raises(CheckpointError, match="safetensors"):
        Session.resume(path, prior)


@pytest.mark.parametrize("settings", ["{", "[]", "{}", '{"prior": "0"}'])
def test_resume_from_a_session_of_another_program(prior, tmp_path, settings):
    write_tensors(tmp_path / "session", {"weight": torch.zeros(3)}, {"session": settings})
    with pytest.raises(SessionError):
        Session.resume(tmp_path / "session", prior)


@pytest.mark.parametrize("kept", [0, 4, 8, 100, -1])
def test_resume_from_a_file_cut_short(prior, tmp_path, kept):
    Session(prior, 10, steps=5).save(tmp_path / "session")
    content = (tmp_path / "session").read_bytes()
    (tmp_path / "session").write_bytes(content[:kept])
    with pytest.raises(CheckpointError, match="safetensors"):
        Session.resume(tmp_path / "session", prior)


def test_save_where_nothing_can_be_written(prior, tmp_path):
    (tmp_path / "file").write_text("here")
    with pytest.raises(OutputError, match="cannot write"):
        Session(prior, 10, steps=5).save(tmp_path / "file" / "session")
    assert (tmp_path / "file").read_text() == "here"


def test_nothing_is_known_before_the_first_reading(prior):
    session = Session(prior, 10, steps=5)
    assert (session.observation == MASK).all()
    assert (session.entropy > 0).all()
    assert session.reconstruction.shape == (1, 8, 8)
