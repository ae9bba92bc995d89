"""`sensewise acquire`: pictures, bundled images and k-space; bad input; one folder whole or not at all."""

import json
import os
from contextlib import suppress

import numpy as np
import pytest
from PIL import Image

from conftest import random_tokens
from sensewise.apps import slices
from sensewise.apps.acquire import FILES, Settings, acquire_source, read_subject
from sensewise.data import bundled_cifar10, bundled_mnist
from sensewise.errors import ConfigError, DataError, OutputError
from sensewise.files import whole_folder

BOTH = {"acquisition.json", "mask.npy", "mask.png", "reconstruction.npy", "reconstruction.png"}
PICTURE_FILES = FILES - slices.FILES | BOTH


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_acquire_a_bundled_digit(sensewise, tmp_path):
    code, out, _ = sensewise("acquire", "digit:3", "--label", 0, "--out", "out", "--samples", 2)
    assert code == 0
    assert out.startswith("102 of 1024 pixels measured in 16 steps")
    assert {path.name for path in (tmp_path / "out").iterdir()} == PICTURE_FILES
    outcome = json.loads((tmp_path / "out" / "acquisition.json").read_text())
    assert outcome["measured"] == np.load(tmp_path / "out" / "mask.npy").sum() == 102
    assert outcome["errors"] < 40
    digit = bundled_mnist(4).values[3, 0].numpy() - 1
    with Image.open(tmp_path / "out" / "reconstruction.png") as picture:
        assert (np.asarray(picture.convert("L")) // 255 != digit).sum() == outcome["errors"]
    with Image.open(tmp_path / "out" / "samples.png") as picture:
        assert picture.size == (2 * 4 * 34, 4 * 34)


def test_acquire_a_picture(sensewise, tmp_path, quick_run):
    tokens = random_tokens((64, 64))
    Image.fromarray(((tokens - 1) * 255).numpy().astype(np.uint8)).save(tmp_path / "picture.png")
    code, out, _ = sensewise(
        "acquire", "picture.png", "--budget", 20, "--steps", 2, "--prior", quick_run, "--samples", 0
    )
    assert code == 0
    story = "64 x 64, 8 bits -> averaged to 32 x 32, 2 levels (cut at half of the range: "
    assert out.startswith(story)
    assert "% of the pixels were grey), prior " in out
    assert "20 of 1024 pixels measured in 2 steps" in out
    assert not (tmp_path / "runs/acquire/samples.png").exists()
    assert json.loads((tmp_path / "runs/acquire/acquisition.json").read_text())["input"].startswith(story)
    array = np.load(tmp_path / "runs/acquire/reconstruction.npy")
    assert (array.shape, set(np.unique(array))) == ((1, 32, 32), {0.0, 1.0})


@pytest.mark.parametrize(
    ("values", "story"),
    [
        (np.eye(32, dtype=bool), "32 x 32, 1 bit -> 32 x 32, 2 levels, prior "),
        (np.eye(32, dtype=np.uint8) * 255, "32 x 32, 8 bits -> 32 x 32, 2 levels, prior "),
        (np.eye(16, dtype=np.uint16) * 65535, "16 x 16, 16 bits -> enlarged to 32 x 32, 2 levels, prior "),
        (np.tri(96, 64, -16, dtype=np.uint8) * 255, "96 x 64, 8 bits -> its middle 64 x 64, averaged to 32 x 32, 2 "),
        (np.eye(32, dtype=np.uint8)[..., None].repeat(3, 2) * 255, "32 x 32, colour made grey, 8 bits -> 32 x 32, 2 "),
    ],
    ids=["bits", "bytes", "small", "tall", "colour"],
)
def test_what_was_done_to_the_picture_is_said(tmp_path, quick_run, values, story):
    Image.fromarray(values).save(tmp_path / "picture.png")
    found = read_subject(str(tmp_path / "picture.png"), Settings(prior=str(quick_run)))
    assert found.story.startswith(story)


def test_a_grey_picture_is_never_made_black_in_silence(sensewise, tmp_path, quick_run):
    """A camera of 12 bits writes 16: all of that lies below the middle of the range."""
    dim = (random_tokens((40, 40)) * 400).numpy().astype(np.uint16)
    Image.fromarray(dim).save(tmp_path / "dim.png")
    code, _, err = sensewise("acquire", "dim.png", "--prior", quick_run, "--out", "out")
    assert code == 2
    assert "dim.png (40 x 40, 16 bits -> averaged to 32 x 32) is the same everywhere once it has 2 levels" in err
    assert not (tmp_path / "out").exists()
    code, out, _ = sensewise("acquire", "dim.png", "--out", "out", "--steps", 2)
    assert code == 0
    assert out.startswith("40 x 40, 16 bits -> 40 x 40, 256 levels, prior any-grey: ")


ACQUIRE = [
    (["--budget", "0"], "budget 0 is not possible"),
    (["--budget", "1"], "budget 1 is not possible"),
    (["--budget", "1.0"], "budget 1.0 is not possible"),
    (["--budget", "1.5"], "budget 1.5 is not possible"),
    (["--budget", "-1"], "budget -1 is not possible"),
    (["--budget", "1024"], "budget 1024 is not possible"),
    (["--budget", "9" * 400], "is not possible"),
    (["--budget", "ten"], "budget 'ten' is not a number"),
    (["--budget", "nan"], "is not a number"),
    (["--budget", ""], "is not a number"),
    (["--steps", "0"], "steps must be a whole number of at least 1"),
    (["--steps", "103"], "103 steps need at least 103 measurements"),
    (["--steps", "ten"], "Invalid value for"),
    (["--label", "10"], "label 10 is not possible: allowed are 0..9"),
    (["--label", "-1"], "label -1 is not possible: allowed are 0..9"),
    (["--label", "seven"], "Invalid value for"),
    (["--samples", "65"], "Invalid value for"),
    (["--seed", "-1"], "Invalid value for"),
    (["--seed", str(2**64)], "Invalid value for"),
    (["--prior", "mnits"], "no model called 'mnits'"),
    (["--policy", "no_such_module:Policy"], "No module named 'no_such_module'"),
    (["--method", "greedi"], "no policy 'greedi': choose one of greedy, spread-greedy"),
    (["--out", "file/below"], "cannot write"),
]


@pytest.mark.parametrize(("options", "message"), ACQUIRE, ids=lambda value: str(value)[:40])
def test_acquire_with_bad_options(sensewise, tmp_path, options, message):
    (tmp_path / "file").write_text("here")
    (tmp_path / "runs/acquire").mkdir(parents=True)
    (tmp_path / "runs/acquire/mask.png").write_text("an older result")
    before = files(tmp_path)
    code, _, err = sensewise("acquire", "digit:3", *options)
    assert code == 2
    assert message in " ".join(err.split())
    assert files(tmp_path) == before


def test_acquire_a_bundled_photograph(sensewise, tmp_path):
    """The posterior mean of the bundled prior, judged in dB; random pixels are worse than spread ones."""
    found = {}
    for method in ("spread-variance-greedy", "random"):
        options = [] if method == "spread-variance-greedy" else ["--method", method]
        code, out, _ = sensewise("acquire", "photo:1", "--prior", "cifar10", "--budget", 0.3, "--samples", 0, *options)
        assert code == 0
        outcome = json.loads((tmp_path / "runs/acquire/acquisition.json").read_text())
        assert outcome["measured"] == 307
        assert f"{outcome['psnr']:.1f} dB in the reconstruction" in out
        with Image.open(tmp_path / "runs/acquire/reconstruction.png") as picture:
            drawn = np.moveaxis(np.asarray(picture), 2, 0) / 255
        error = drawn - (bundled_cifar10(2).values[1].numpy() - 1.0) / 7
        assert abs(-10 * np.log10((error**2).mean()) - outcome["psnr"]) < 0.1
        found[method] = outcome["psnr"]
    assert found["spread-variance-greedy"] > found["random"]


@pytest.mark.parametrize("name", ["photo:512", "photo:x"])
def test_no_such_photograph(sensewise, name):
    code, _, err = sensewise("acquire", name, "--prior", "cifar10")
    assert code == 2
    assert "give photo:0 to photo:511" in " ".join(err.split())


def test_a_digit_does_not_fit_the_prior_of_photographs(sensewise):
    code, _, err = sensewise("acquire", "digit:3", "--prior", "cifar10")
    assert code == 2
    assert "takes tokens of shape (B, 3, 32, 32), got (1, 1, 32, 32)" in " ".join(err.split())


@pytest.mark.parametrize("name", ["digit:2560", "digit:-1", "digit:", "digit:x", "digit:²", "digit:" + "9" * 5000])
def test_no_such_digit(sensewise, name):
    code, _, err = sensewise("acquire", name)
    assert code == 2
    assert "2560" in err or "2559" in err


@pytest.mark.parametrize("name", ["nothing.png", "text.png", "folder", "[/bold].png", "empty.png", "[prior.x].png"])
def test_no_such_picture(sensewise, tmp_path, name):
    (tmp_path / "text.png").write_text("not a picture")
    (tmp_path / "empty.png").touch()
    (tmp_path / "folder").mkdir()
    code, _, err = sensewise("acquire", name)
    assert code == 2
    assert err.startswith((f"error: {name} ", f"error: no picture that can be read in {name}"))


def write_pictures(folder, count):
    folder.mkdir(parents=True)
    for number in range(count):
        pixels = np.zeros((24, 24), np.uint8)
        pixels[3 * number : 3 * number + 6, 4:12] = 255
        Image.fromarray(pixels).save(folder / f"{number:03d}.png")
    return folder


def test_acquire_a_folder(tmp_path, quick_run):
    folder = write_pictures(tmp_path / "pictures", 2)
    (folder / "text.png").write_text("no picture")
    os.mkfifo(folder / "pipe.png")  # reading it would wait for ever
    settings = Settings(steps=2, prior=str(quick_run), samples=0)
    said = acquire_source(str(folder), tmp_path / "many", settings)
    assert said.count("102 of 1024 pixels") == 2
    assert said.count("left out") == 1
    for name in ("000.png", "001.png"):
        assert {path.name for path in (tmp_path / "many" / name).iterdir()} == PICTURE_FILES - {"samples.png"}
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no picture that can be read"):
        acquire_source(str(tmp_path / "empty"), tmp_path / "none", settings)
    assert not (tmp_path / "none").exists()


OWN = """
import torch
from sensewise.policies.base import Policy

class TopRows(Policy):
    def scores(self, observation, mask, context):
        return -torch.arange(mask.shape[1]).float().expand(mask.shape)
"""


def test_a_policy_of_your_own(sensewise, tmp_path, quick_run):
    (tmp_path / "mine.py").write_text(OWN)
    options = ("--budget", 64, "--steps", 2, "--policy", "mine:TopRows", "--samples", 0)
    code, out, _ = sensewise("acquire", "digit:3", *options, "--prior", quick_run, "--out", "pixels")
    assert code == 0
    assert out.startswith("64 of 1024 pixels measured in 2 steps")
    assert np.load(tmp_path / "pixels/mask.npy")[:2].all()
    code, out, _ = sensewise("acquire", "knee:0", "--budget", 64, "--policy", "mine:TopRows", "--out", "rows")
    assert code == 0
    rows = np.load(tmp_path / "rows/mask.npy")
    assert rows.sum() == 64
    assert rows[:50].all()


def test_a_folder_is_replaced_whole(tmp_path):
    out = tmp_path / "out"
    with whole_folder(out, FILES) as temporary:
        (temporary / "mask.png").write_text("first")
        (temporary / "samples.png").write_text("first")
    with whole_folder(out, FILES) as temporary:
        (temporary / "mask.png").write_text("second")
        assert files(out) == {out / "mask.png": b"first", out / "samples.png": b"first"}
    assert files(tmp_path) == {out / "mask.png": b"second"}
    with suppress(ValueError), whole_folder(out, FILES) as temporary:
        (temporary / "mask.png").write_text("third")
        raise ValueError("broken")
    assert files(tmp_path) == {out / "mask.png": b"second"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_with_other_files_is_left_alone(tmp_path, monkeypatch):
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/mask.png").write_text("an acquisition")
    for folder in (tmp_path, tmp_path / "thesis.tex"):
        with pytest.raises(OutputError, match="choose another folder with --out"), whole_folder(folder, FILES):
            pass
    monkeypatch.chdir(tmp_path / "sub")
    with pytest.raises(OutputError, match="choose another folder"), whole_folder(tmp_path / "sub", FILES):
        pass
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_digit_ends_when_few_enough_errors_are_expected_or_promised(tmp_path):
    found = {}
    for stop in ("errors:5", "errors:5 with 90%"):
        acquire_source("digit:3", tmp_path / stop, Settings(budget=0.3, steps=60, stop=stop, samples=0))
        found[stop] = json.loads((tmp_path / stop / "acquisition.json").read_text())
        assert found[stop]["stopped"]
        assert found[stop]["expected_errors"] < 5
    assert found["errors:5"]["measured"] < found["errors:5 with 90%"]["measured"] < 0.3 * 1024
    said = acquire_source("digit:3", tmp_path / "never", Settings(budget=0.02, steps=4, stop="errors:0.01", samples=0))
    assert "the stop was not reached" in said.splitlines()[1]


@pytest.mark.parametrize(("source", "name"), [("digit:3", "mean"), ("digit:3", "sample"), ("photo:1", "mode")])
def test_reconstructions_by_name(tmp_path, source, name):
    acquire_source(source, tmp_path / "out", Settings(steps=2, reconstructor=name, samples=0))
    numbers = json.loads((tmp_path / "out" / "acquisition.json").read_text())
    found = np.load(tmp_path / "out" / "reconstruction.npy")
    assert numbers["reconstructor"] == name
    levels = 2 if source.startswith("digit") else 8
    whole = np.abs(found * (levels - 1) - (found * (levels - 1)).round()).max() < 1e-5
    assert whole is np.bool_(name != "mean")


def test_tokens_take_no_noise(tmp_path):
    with pytest.raises(ConfigError, match="takes readings without noise"):
        acquire_source("digit:3", tmp_path / "out", Settings(noise="0.1"))
