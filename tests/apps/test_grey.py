"""`acquire` on pictures of any size: files at that size, noise, stops, and a word where the prior does not fit."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from conftest import awake, fresh
from sensewise import hub
from sensewise.apps.acquire import acquire_source
from sensewise.apps.subject import Settings
from sensewise.apps.wishes import Wanted, parse_noise, parse_stop
from sensewise.channels import Gaussian, Poisson
from sensewise.errors import CheckpointError, ConfigError
from sensewise.networks.any_size import AnySize
from sensewise.policies.stops import ExpectedErrors, ExpectedPSNR, Gain
from sensewise.priors.readings import ReadingPrior


@pytest.fixture(scope="module")
def prior(tmp_path_factory):
    """A tiny prior of any size, as a run folder."""
    folder = tmp_path_factory.mktemp("any")
    sizes = {"widths": [8, 12], "blocks": [1, 1], "components": 3, "embedding": 8}
    network = awake(fresh(AnySize, **{name: tuple(v) if isinstance(v, list) else v for name, v in sizes.items()}), 0.05)
    config = {"kind": "prior", "data": "none", "model": {"network": "any-size", "num_states": 256, **sizes}}
    hub.save(folder, config, ReadingPrior(network))
    return str(folder)


@pytest.fixture
def picture(tmp_path):
    place = np.linspace(0, 6, 40)
    values = 0.5 + 0.4 * np.sin(place)[:, None] * np.cos(place[:30])
    Image.fromarray((65535 * values).astype(np.uint16)).save(tmp_path / "waves.tif")
    return tmp_path / "waves.tif"


def run(picture, prior, folder, **options):
    text = acquire_source(str(picture), folder, Settings(prior=prior, **{"steps": 4, **options}))
    return text, json.loads((folder / "acquisition.json").read_text())


def test_every_file_has_the_size_of_the_picture(picture, prior, tmp_path):
    text, numbers = run(picture, prior, tmp_path / "out")
    assert "40 x 30, 16 bits -> 40 x 30, 256 levels" in text
    names = {path.name for path in (tmp_path / "out").iterdir()}
    arrays = {"mask.npy", "reconstruction.npy", "uncertainty.npy"}
    assert names == {
        *arrays,
        "mask.png",
        "reconstruction.png",
        "uncertainty.png",
        "acquisition.png",
        "acquisition.json",
    }
    for name in arrays:
        assert np.load(tmp_path / "out" / name).shape == (40, 30)
    for name in ("mask.png", "reconstruction.png", "uncertainty.png"):
        with Image.open(tmp_path / "out" / name) as shown:
            assert shown.size == (30, 40)
    mask, mean = (np.load(tmp_path / "out" / name) for name in ("mask.npy", "reconstruction.npy"))
    with Image.open(picture) as original:
        truth = (np.asarray(original) - numbers["low"]) / (numbers["high"] - numbers["low"])
    assert mask.sum() == numbers["measured"] == 120
    np.testing.assert_allclose(mean[mask], truth[mask], atol=1e-4)
    assert numbers["psnr"] == pytest.approx(-10 * np.log10(((mean - truth) ** 2).mean()), abs=0.01)


def test_noise_leaves_measured_pixels_uncertain(picture, prior, tmp_path):
    run(picture, prior, tmp_path / "out", noise="0.1")
    mask, left = (np.load(tmp_path / "out" / name) for name in ("mask.npy", "uncertainty.npy"))
    assert (left[mask] > 0).all()


def test_a_stop_saves_measurements_and_says_if_it_was_not_reached(picture, prior, tmp_path):
    _, numbers = run(picture, prior, tmp_path / "one", budget=0.9, steps=20, stop="psnr:12")
    assert numbers["stopped"]
    assert numbers["measured"] < 0.9 * 1200
    text, numbers = run(picture, prior, tmp_path / "two", budget=0.1, stop="psnr:90")
    assert not numbers["stopped"]
    assert "was not reached" in text


@pytest.mark.parametrize("policy", ["random", "variable-density", "variance-greedy", "spread-variance-greedy"])
def test_policies(picture, prior, tmp_path, policy):
    assert run(picture, prior, tmp_path / "out", policy=policy)[1]["measured"] == 120


def test_a_picture_that_the_prior_does_not_know(prior, tmp_path):
    noise = np.random.default_rng(0).integers(0, 2, (40, 40)).astype(np.uint8) * 255
    Image.fromarray(noise).save(tmp_path / "noise.png")
    torch.manual_seed(0)
    folder = tmp_path / "out"
    text, numbers = run(tmp_path / "noise.png", prior, folder, budget=0.3)
    assert numbers["audit"]["pixels"] == 12
    assert numbers["audit"]["fits"] is ("does not fit" not in text)


def test_the_words_of_noise_and_stop():
    assert parse_noise(None) == Gaussian(0.0)
    assert parse_noise("0.05") == parse_noise("gaussian:0.05") == Gaussian(0.05)
    assert parse_noise("poisson:200") == Poisson(200.0)
    assert parse_stop(None, "any-grey", 256) is None
    assert parse_stop("psnr:30", "any-grey", 256) == ExpectedPSNR(30.0)
    assert parse_stop("gain:1e-4", "any-grey", 256) == Gain(1e-4)
    assert parse_stop("errors:3", "mnist", 2) == ExpectedErrors(3.0)


def test_a_promise_takes_its_factor_from_the_card():
    card = hub.calibration("mnist")
    assert parse_stop("errors:3 with 90%", "mnist", 2) == ExpectedErrors(3.0, card.factors[3.0])
    grey = hub.calibration("any-grey")
    stop = parse_stop("psnr:24 with 90%", "any-grey", 256)
    assert stop == ExpectedPSNR(24.0, grey.factor(24.0))
    assert stop.factor > 1
    with pytest.raises(ConfigError, match=r"can promise with 90%, as its card says: ask for that"):
        parse_stop("errors:3 with 95%", "mnist", 2)
    with pytest.raises(CheckpointError, match=r"has no calibration: make one with `sensewise calibrate mnist-noise`"):
        parse_stop("errors:3 with 90%", "mnist-noise", 2)
    with pytest.raises(ConfigError, match="a level above 0"):
        parse_stop("errors:-3 with 90%", "mnist", 2)


@pytest.mark.parametrize("text", ["much", "shot:3", "-1", "nan", "poisson:0", ""])
def test_impossible_noise(text):
    if text == "":
        assert parse_noise(text) == Gaussian(0.0)
        return
    with pytest.raises(ConfigError, match=r"noise|sigma|dose"):
        parse_noise(text)


@pytest.mark.parametrize(
    "text", ["psnr", "psnr:much", "30", "psnr:0", "gain:-1", "errors:1", "gain:1 with 90%", "psnr:30 with"]
)
def test_impossible_stops(text):
    with pytest.raises(ConfigError, match=r"stop|above|below"):
        parse_stop(text, "any-grey", 256)


def test_two_levels_stop_at_errors():
    with pytest.raises(ConfigError, match=r"give errors:3 .*, 'errors:3 with 90%' \(a promise\) or gain:0.0001"):
        parse_stop("psnr:30", "mnist", 2)


@pytest.mark.parametrize("name", ["mean", "mode", "sample", "linear", "inverse-distance"])
def test_reconstructions(picture, prior, tmp_path, name):
    _, numbers = run(picture, prior, tmp_path / "out", reconstructor=name)
    _, mean = run(picture, prior, tmp_path / "mean")
    found = np.load(tmp_path / "out" / "reconstruction.npy")
    mask, truth = np.load(tmp_path / "out" / "mask.npy"), np.asarray(Image.open(picture)) / 65535
    low, high = numbers["low"], numbers["high"]
    truth = (65535 * truth - low) / (high - low) if high > 1 else (truth - low) / (high - low)
    assert numbers["reconstructor"] == name
    assert np.abs(found - truth)[mask].max() < 1 / 255  # what was read stays, to half a level
    assert numbers["psnr"] == pytest.approx(-10 * np.log10(np.mean((found - truth) ** 2)), abs=0.05)
    assert numbers["expected_psnr"] <= mean["expected_psnr"] + 1e-3  # nothing is expected to be better than the mean


def test_reconstructions_that_are_not_known(picture, prior, tmp_path):
    with pytest.raises(ConfigError, match=r"no reconstruction 'unet-a' of these pictures: choose one of mean, mode"):
        run(picture, prior, tmp_path / "out", reconstructor="unet-a")
    with pytest.raises(ConfigError, match=r"choose one of mean, mode, sample$"):
        Wanted("linear", hub.load_prior("mnist"))


def test_an_unknown_policy(picture, prior, tmp_path):
    with pytest.raises(ConfigError, match="no policy 'best'"):
        run(picture, prior, tmp_path / "out", policy="best")
    assert not (tmp_path / "out").exists()


def test_a_picture_file_is_acquired_at_its_own_size_by_default(sensewise, picture, tmp_path):
    """A 16-bit picture with the bundled prior: nothing is cut, scaled down or thresholded, and it beats chance."""
    found = {}
    for policy in ("spread-variance-greedy", "random"):
        code, out, _ = sensewise("acquire", picture, "--policy", policy, "--out", policy, "--steps", 8)
        assert code == 0
        assert out.startswith("40 x 30, 16 bits -> 40 x 30, 256 levels, prior any-grey: 120 pixels (10.0%) measured")
        found[policy] = json.loads((tmp_path / policy / "acquisition.json").read_text())
    assert found["spread-variance-greedy"]["psnr"] > max(30, found["random"]["psnr"])


def test_labels_are_refused(picture, prior, tmp_path):
    with pytest.raises(ConfigError, match="takes no labels"):
        run(picture, prior, tmp_path / "out", label=3)


def test_possible_pictures(picture, prior, tmp_path):
    run(picture, prior, tmp_path / "out", samples=3)
    with Image.open(tmp_path / "out" / "samples.png") as shown:
        assert shown.size == (90, 40)


BAD = {
    "nan.npy": (np.where(np.eye(20) > 0, np.nan, 0.5), [], "numbers that are not finite"),
    "constant.npy": (np.full((20, 20), 3.0), [], "is the same everywhere (3)"),
    "black.png": (np.zeros((20, 20), np.uint8), [], "is the same everywhere (0)"),
    "empty.npy": (np.zeros((0, 20)), [], "has 0 x 20 pixels"),
    "small.npy": (np.eye(15), [], "sides of at least 16"),
    "negative.npy": (np.eye(20), ["--noise", "-0.1"], "sigma must be at least 0"),
    "stop.npy": (np.eye(20), ["--stop", "psnr:-3"], "above must be 0 to 100 dB"),
    "none.png": (None, [], "is not a picture that can be read; read are PNG"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence(sensewise, tmp_path, name):
    values, options, words = BAD[name]
    path = tmp_path / name
    if values is None:
        path.write_bytes(b"")
    elif name.endswith(".npy"):
        np.save(path, values)
    else:
        Image.fromarray(values).save(path)
    code, _, err = sensewise("acquire", path, *options)
    assert code == 2
    assert words in " ".join(err.split())
    assert not (tmp_path / "runs/acquire").exists()


def test_a_stop_that_cannot_be_reached_ends_at_the_budget(sensewise, picture):
    code, out, _ = sensewise("acquire", picture, "--stop", "psnr:99", "--steps", 2, "--budget", 0.02)
    assert code == 0
    assert "the stop was not reached before the budget was spent" in out.splitlines()[1]
