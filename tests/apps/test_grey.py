"""`acquire` on pictures of any size: files at that size, noise, stops, and a word where the prior does not fit."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from conftest import awake, fresh
from sensewise import hub
from sensewise.apps.acquire import acquire_source
from sensewise.apps.grey import parse_noise, parse_stop
from sensewise.apps.subject import Settings
from sensewise.channels import Gaussian, Poisson
from sensewise.errors import ConfigError
from sensewise.networks.any_size import AnySize
from sensewise.policies.stops import ExpectedPSNR, Gain
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
        truth = np.asarray(original) / 65535
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
    assert numbers["audit"]["pixels"] == 10
    assert numbers["audit"]["fits"] is ("does not fit" not in text)


def test_the_words_of_noise_and_stop():
    assert parse_noise(None) == Gaussian(0.0)
    assert parse_noise("0.05") == parse_noise("gaussian:0.05") == Gaussian(0.05)
    assert parse_noise("poisson:200") == Poisson(200.0)
    assert parse_stop(None) is None
    assert parse_stop("psnr:30") == ExpectedPSNR(30.0)
    assert parse_stop("gain:1e-4") == Gain(1e-4)


@pytest.mark.parametrize("text", ["much", "shot:3", "-1", "nan", "poisson:0", ""])
def test_impossible_noise(text):
    if text == "":
        assert parse_noise(text) == Gaussian(0.0)
        return
    with pytest.raises(ConfigError, match=r"noise|sigma|dose"):
        parse_noise(text)


@pytest.mark.parametrize("text", ["psnr", "psnr:much", "30", "psnr:0", "gain:-1", "errors:1"])
def test_impossible_stops(text):
    with pytest.raises(ConfigError, match=r"stop|above|below"):
        parse_stop(text)


def test_an_unknown_policy(picture, prior, tmp_path):
    with pytest.raises(ConfigError, match="no policy 'best'"):
        run(picture, prior, tmp_path / "out", policy="best")
    assert not (tmp_path / "out").exists()
