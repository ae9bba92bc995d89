"""Recordings: every frame, one pass each, stored and read back, old files as well."""

from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import make_absorbing, random_tokens
from sensewise.errors import BudgetError, DataError
from sensewise.evaluate.method import PIXEL_METHODS, Method, pixel_methods
from sensewise.evaluate.record import record
from sensewise.evaluate.recording import Recording, read_recording
from sensewise.evaluate.results import read_arrays
from sensewise.metrics import psnr
from sensewise.policies.simple import Random
from sensewise.tokens import dequantize, observe

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture
def counted(monkeypatch):
    """A prior of rectangular images with four levels, and how many images it was asked about."""
    prior, asked = make_absorbing(shape=(1, 16, 24), num_states=4), []
    predict = prior.predict
    monkeypatch.setattr(prior, "predict", lambda *given: asked.append(len(given[0])) or predict(*given))
    return prior, asked


X = random_tokens((1, 1, 16, 24), 4)
LABEL = torch.tensor([3])


@pytest.mark.parametrize("name", PIXEL_METHODS)
def test_every_method_records_every_frame_with_one_pass_each(name, counted):
    prior, asked = counted
    found = record(prior, pixel_methods(prior, 4)[name], X, LABEL, 40)
    assert sum(asked) == 5
    assert found.steps == 4
    assert (found.mode.shape, found.mean.shape, found.entropy.shape) == ((5, 1, 16, 24),) * 2 + ((5, 16, 24),)
    assert found.mask(4).sum() == 40
    probe = "probe" in name or name == "grid-greedy"
    assert found.mask(0).sum() == (8 if probe else 0)
    assert (found.entropy[-1][found.mask(4)] == 0).all()
    assert (found.mode[-1][:, found.mask(4)] == found.target[:, found.mask(4)]).all()
    assert found.probs is None


def test_frames_are_what_the_prior_says(counted):
    prior, _ = counted
    found = record(prior, pixel_methods(prior, 3)["greedy"], X, LABEL, 30, probs=True)
    mask = torch.from_numpy(found.mask(2)).flatten()[None]
    prediction = prior(observe(X, mask), LABEL)
    assert np.array_equal(found.observation(2), observe(X, mask)[0].numpy())
    assert np.array_equal(found.mode[2], prediction.mode()[0].numpy())
    np.testing.assert_allclose(found.mean[2], prediction.mean()[0].numpy(), atol=1e-6)
    np.testing.assert_allclose(found.entropy[2], prediction.entropy()[0, 0].numpy(), atol=1e-5)
    np.testing.assert_allclose(found.probs[2], prediction.log_probs.exp()[0].numpy(), atol=1e-6)
    assert found.expected_errors[2] == pytest.approx(prediction.expected_errors().sum().item(), rel=1e-5)
    assert found.errors[2] == (prediction.mode() != X).sum()
    values = psnr(prediction.mean(), dequantize(X, 4))
    assert found.psnr[2] == pytest.approx(values.item(), abs=1e-3)


def test_the_seed_decides(counted):
    prior, _ = counted
    method = Method("random", Random(), 2)
    one, same, other = (record(prior, method, X, None, 20, seed=seed).step for seed in (0, 0, 1))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_more_steps_than_pixels_are_refused(counted):
    with pytest.raises(BudgetError, match="16 steps need"):
        record(counted[0], pixel_methods(counted[0], 16)["greedy"], X, LABEL, 10)


def test_round_trip_through_arrays(counted):
    prior, _ = counted
    recording = record(prior, pixel_methods(prior, 2)["greedy"], X, LABEL, 20, probs=True)
    arrays = recording.store()
    assert not any("probs" in name for name in arrays)
    found = read_recording(arrays)
    assert found.levels == 4
    for name in ("target", "step", "mode", "errors", "expected_errors"):
        assert np.array_equal(getattr(found, name), getattr(recording, name))
    np.testing.assert_allclose(found.mean, recording.mean, atol=1e-3)
    np.testing.assert_allclose(found.entropy, recording.entropy, atol=1e-2)


def test_an_exact_reconstruction_has_the_highest_psnr():
    target = np.ones((1, 2, 2), np.uint8)
    found = Recording(target, np.zeros((2, 2)), 2, target[None], np.zeros((1, 1, 2, 2)), np.zeros((1, 2, 2)))
    assert found.psnr.tolist() == [100.0]
    assert found.errors.tolist() == [0]


@pytest.mark.parametrize("name", ["mnist-sequential", "mnist-one-shot"])
def test_committed_stories_are_recordings(name):
    arrays = read_arrays(RESULTS / f"{name}.json")
    found = read_recording(arrays)
    for frame in range(found.steps + 1):
        if "story/observation" in arrays:
            assert np.array_equal(found.observation(frame), arrays["story/observation"][frame])
    assert found.steps == 16
    assert found.mask(16).sum() == 102
    assert found.errors[-1] < found.errors[0]


def test_films_of_version_0_1_are_recordings(counted):
    prior, _ = counted
    new = record(prior, pixel_methods(prior, 2)["greedy"], X, LABEL, 20, probs=True)
    film = {"film/target": new.target, "film/step": new.step, "film/entropy": new.entropy.astype(np.float16)}
    found = read_recording({**film, "film/probs": new.probs.astype(np.float16)})
    assert np.array_equal(found.errors, new.errors)
    np.testing.assert_allclose(found.mean, new.mean, atol=1e-3)
    np.testing.assert_allclose(found.expected_errors, new.expected_errors, rtol=1e-2)


def test_arrays_without_a_recording_are_refused():
    with pytest.raises(DataError, match="no recording"):
        read_recording({"example/target": np.zeros(3)})
    story = Recording(np.ones((1, 2, 2)), np.zeros((2, 2)), 2, np.ones((1, 1, 2, 2)), None, np.zeros((1, 2, 2)))
    with pytest.raises(DataError, match="did not keep"):
        _ = story.psnr
