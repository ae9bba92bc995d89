"""Every command of `sensewise train` on toy data: digits for pixels, prepared slices for rows."""

import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from sensewise import data, hub
from sensewise.apps.cli import app
from sensewise.data.scenes import Dataset
from sensewise.errors import CheckpointError, ConfigError, DataError
from sensewise.evaluate.results import read_results
from sensewise.files import fingerprint
from sensewise.train.prior import PriorObjective
from sensewise.train.reconstructor import ReconstructorRecipe
from sensewise.train.row_prior import RowPriorRecipe

PRESET = """
[mri.data]
dataset = "toy"
rows = 32
columns = 32
acs = 4
budgets = [0.25, 0.5]
oracle_slices = 2
{reconstructors}
[mri.search]
draws = 2
drops = 1
adds = 2
screen = 2
exact = 1
max_rounds = 1
[mri.row-prior]
width = 8
layers = 1
batch_size = 4
[mri.row-prior.fit]
{fit}
[mri.row-policy]
width = 8
batch_size = 4
[mri.row-policy.fit]
{fit}
[mri.relaxed-profile]
batch_size = 2
judge_slices = 2
[mri.relaxed-profile.fit]
{fit}
[mri.loupe]
batch_size = 2
base = 8
[mri.loupe.fit]
{fit}
[mri.row-value]
batch_size = 2
candidates = 2
width = 8
[mri.row-value.fit]
{fit}
[mri.row-plan]
epochs = 2
batch_size = 4
tries = 2
swaps = 2
[mri.nearest-mask]
clusters = 2
rounds = 1
size = 2
[mri.nearest-mask.search]
drops = 1
adds = 2
screen = 2
exact = 1
"""
FIT = "steps = 2\nvalidate_every = 2\naverage = 0.5\nclip = 1.0"
RECONSTRUCTOR = """
[mri.reconstructor-{which}]
batch_size = 2
[mri.reconstructor-{which}.network]
widths = [8, {width}]
blocks = [1, 1]
embedding = 8
[mri.reconstructor-{which}.fit]
{fit}
seed = {seed}
"""


def sensewise(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with toy slices, a preset and everything trained; the working directory of these tests."""
    place = tmp_path_factory.mktemp("mri")
    draw = np.random.default_rng(0)
    for split in ("train", "val"):
        (place / "png" / split).mkdir(parents=True)
        for number in range(5):
            pixels = np.zeros((40, 40), np.uint8)
            top, left = draw.integers(6, 12, 2)
            pixels[top : top + 20, left : left + 16] = draw.integers(90, 250)
            pixels[top + 4 : top + 9, left + 3 : left + 8] = draw.integers(20, 250)
            Image.fromarray(pixels).save(place / "png" / split / f"{number:04d}.png")
    parts = [RECONSTRUCTOR.format(which=w, width=n, seed=s, fit=FIT) for w, n, s in (("a", 8, 0), ("b", 12, 1))]
    (place / "toy.toml").write_text(PRESET.format(reconstructors="".join(parts), fit=FIT))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("SENSEWISE_DATA", str(place / "data"))
        sensewise("data", "prepare", "toy", "--images", place / "png")
        for arguments in (
            ("reconstructor", "a"),
            ("reconstructor", "b"),
            ("row-prior",),
            ("row-policy", "adaptive"),
            ("row-policy", "static"),
            ("row-value", "gain"),
            ("row-value", "gradient"),
        ):
            assert "complete" in sensewise("train", *arguments, "--preset", "toy.toml")
        for budget in (0.25, 0.5):
            for kind in ("static-search", "row-profile", "loupe-rows", "row-plan", "nearest-mask"):
                assert "complete" in sensewise("train", kind, "--budget", budget, "--preset", "toy.toml")
        assert "complete" in sensewise("train", "row-value", "rollout", "--preset", "toy.toml")
        yield place


NAMES = {
    *("unet-a", "unet-b", "row-prior", "row-policy-adaptive", "row-policy-static"),
    *("row-value-gain", "row-value-gradient", "row-value-rollout"),
    *(
        f"{kind}-{budget}"
        for kind in ("static-search", "relaxed-profile", "loupe", "row-plan", "nearest-mask")
        for budget in (0.25, 0.5)
    ),
}


def test_runs_are_filed_under_the_preset(folder):
    runs = folder / "runs" / "toy" / "mri"
    assert {path.name for path in runs.iterdir()} == NAMES
    for name in NAMES:
        config = json.loads((runs / name / "config.json").read_text())
        assert config["data"] == "toy"
        assert config["trained"]["complete"] is True
        assert (runs / name / "loss.png").stat().st_size > 1000
    for name in NAMES:
        if name.startswith(("static-search", "relaxed-profile", "loupe")):
            assert hub.load_mask(runs / name / "mask.npy", 32).sum() == 32 * float(name.rpartition("-")[2])
            assert (runs / name / "mask.png").stat().st_size > 1000


def test_the_same_commands_with_eight_coils(folder):
    """One more number in the preset: data, U-Nets, a search, a plan, nearest masks, and all masks in a results file."""
    text = (folder / "toy.toml").read_text()
    (folder / "coils.toml").write_text(text.replace('dataset = "toy"', 'dataset = "toy-coils"\ncoils = 8', 1))
    sensewise("data", "prepare", "toy-coils", "--images", folder / "png", "--coils", 8)
    for which in ("a", "b"):
        assert "complete" in sensewise("train", "reconstructor", which, "--preset", "coils.toml")
    for kind in ("static-search", "row-plan", "nearest-mask"):
        for budget in (0.25, 0.5):
            assert "complete" in sensewise("train", kind, "--budget", budget, "--preset", "coils.toml")
    sensewise("run", "mri-masks", "--preset", "coils.toml", "--results", folder / "coils", "--seeds", 1)
    rows = read_results(folder / "coils" / "mri-masks.json").rows
    assert {row.dataset for row in rows} == {"toy-coils"}
    judged = {row.reconstructor: row.mean for row in rows if (row.method, row.metric) == ("static-search", "nmse")}
    assert set(judged) == {"zero-filled", "cs-wavelet", "unet-a", "unet-b"}
    assert all(0 < value < 1 for value in judged.values())
    assert {"static-search", "nearest-mask", "sequential-value"} < {row.method for row in rows}


def test_shipped_copies_load_like_runs(folder, monkeypatch):
    for name in NAMES:
        hub.ship(hub.find(f"mri/{name}", "toy.toml"), folder / "assets" / "mri" / name)
    unet = fingerprint(hub.load("mri/unet-a", "reconstructor", "toy.toml")[0])
    monkeypatch.setattr(hub, "ASSETS", folder / "assets")
    monkeypatch.setenv("SENSEWISE_RUNS", str(folder / "none"))
    assert hub.load_row_prior()[1].acs == 4
    assert fingerprint(hub.load("mri/unet-a", "reconstructor")[0]) == unet
    assert hub.load("mri/row-plan-0.5", "row-plan")[0].static.sum() == 16
    assert hub.load_mask(hub.find("mri/static-search-0.5", file="order.npy") / "mask.npy", 32).sum() == 16


def test_what_is_missing_is_named(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in (("train", "static-search"), ("search-mask",), ("train", "row-plan"), ("train", "nearest-mask")):
        with pytest.raises(CheckpointError, match="train it first"):
            sensewise(*command, "--budget", 0.25, "--preset", folder / "toy.toml")


def test_trainers_never_get_the_split_that_scores(folder, monkeypatch):
    """Both parts that a recipe sees come from the training split, and share no slice."""
    seen = []
    for recipe in (ReconstructorRecipe, RowPriorRecipe):
        monkeypatch.setattr(recipe, "train", lambda self, *_: seen.append(self) or True)
    monkeypatch.chdir(folder)
    sensewise("train", "reconstructor", "a", "--preset", "toy.toml", "--out", "elsewhere")
    sensewise("train", "row-prior", "--preset", "toy.toml", "--out", "elsewhere")
    assert len(seen) == 2
    for recipe in seen:
        assert (recipe.scenes.split, recipe.held_out.split) == ("train", "train")
        assert not set(recipe.scenes.sources) & set(recipe.held_out.sources)


SMALL = "widths = [8, 8]\nblocks = [1, 1]\n"
TINY_FIT = "steps = 2\nvalidate_every = 2\nclip = 1.0\n"
STAGE = (
    "[prior.mnist.{0}]\nbatch_size = 4\n{1}[prior.mnist.{0}.network]\n" + SMALL + "[prior.mnist.{0}.fit]\n" + TINY_FIT
)
STAGES = ("random-masks", "on-policy")
PIXELS = (
    STAGE.format("random-masks", "")
    + STAGE.format("on-policy", 'init = "mnist-random-masks"\n')
    + f"[generator.mnist.disarm]\nbatch_size = 4\n[generator.mnist.disarm.fit]\n{TINY_FIT}"
    + f"[loupe.mnist]\nbudgets = [0.1, 0.3]\nbatch_size = 4\n{SMALL}[loupe.mnist.fit]\n{TINY_FIT}"
    + f"[mask-state.mnist]\nseeds = 1\nbatch_size = 4\n[mask-state.mnist.network]\n{SMALL}"
    + f"[mask-state.mnist.start]\n{TINY_FIT}[mask-state.mnist.fine_tune]\n{TINY_FIT}"
)


@pytest.fixture
def pixels(tmp_path, monkeypatch, tiny_digits):
    """A folder with a preset `own.toml`, in which `mnist` is some tiny digits."""
    toy = Dataset("mnist", "toy", "none", load=lambda split, root: tiny_digits)
    monkeypatch.setitem(data.DATASETS, "mnist", toy)
    monkeypatch.setattr(PriorObjective, "validate", lambda self, model: {"held_out": 1.0})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text(PIXELS)
    return tmp_path


def test_priors_stage_by_stage_then_what_needs_them(pixels):
    for stage in STAGES:
        assert "complete" in sensewise("train", "prior", "--stage", stage, "--preset", "own.toml")
    runs = pixels / "runs" / "own"
    cards = [json.loads((runs / f"mnist-{stage}" / "config.json").read_text()) for stage in STAGES]
    assert [card["init"] for card in cards] == [None, "mnist-random-masks"]
    assert not any("init" in card["training"] for card in cards)
    options = ("--preset", "own.toml", "--prior", "mnist-on-policy")
    assert "complete" in sensewise("train", "generator", *options)
    prior = hub.load_prior("mnist-on-policy", "own.toml")
    assert hub.load_designer("mnist-generator", prior, "own.toml").shape == (1, 8, 8)


def test_series_are_one_run_after_another(pixels):
    assert "complete" in sensewise("train", "loupe", "--preset", "own.toml")
    assert "complete" in sensewise("train", "mask-state", "--preset", "own.toml")
    runs = pixels / "runs" / "own"
    assert {path.name for path in runs.iterdir()} == {"tiny-loupe-0.1", "tiny-loupe-0.3", "mnist-mask-state"}
    assert {path.name for path in (runs / "mnist-mask-state").iterdir()} == {"start", "with-0", "without-0"}
    models = [hub.load(runs / "mnist-mask-state" / name)[0] for name in ("with-0", "without-0")]
    assert [model.mask_state for model in models] == [True, False]
    before = {path: path.read_bytes() for path in runs.rglob("*.*") if path.is_file()}
    assert "complete" in sensewise("train", "mask-state", "--preset", "own.toml", "--resume")
    assert {path: path.read_bytes() for path in runs.rglob("*.*") if path.is_file()} == before


def test_a_stop_and_its_resumption_are_said(pixels):
    train = ("train", "prior", "--preset", "own.toml", "--out", "run")
    assert "run: stopped early; continue with --resume" in sensewise(*train, "--max-minutes", 0)
    with pytest.raises(ConfigError, match="holds a run already"):
        sensewise(*train)
    assert "run: complete" in sensewise(*train, "--resume", "--device", "cpu")


def test_slices_are_not_images(pixels):
    (pixels / "own.toml").write_text(PIXELS.replace("mnist", "fastmri"))
    with pytest.raises(DataError, match=r"fastmri|slices"):
        sensewise("train", "prior", "--dataset", "fastmri", "--preset", "own.toml")
