"""The whole chain of accelerated MRI on toy slices: prepare, train, search, run, report, acquire."""

import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from sensewise.checkpoint import fingerprint
from sensewise.cli import app
from sensewise.errors import BudgetError, CheckpointError, ConfigError, DataError
from sensewise.mri import models
from sensewise.mri.profile import load_row_prior

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
    """A folder with toy data, a preset and everything trained; the working directory of these tests."""
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
            assert "complete" in sensewise("search-mask", "--budget", budget, "--preset", "toy.toml")
            for kind in ("row-profile", "loupe-rows", "row-plan"):
                assert "complete" in sensewise("train", kind, "--budget", budget, "--preset", "toy.toml")
        assert "complete" in sensewise("train", "row-value", "rollout", "--preset", "toy.toml")
        yield place


@pytest.fixture(scope="module")
def results(folder):
    for experiment in ("mri-masks", "mri-sequential"):
        sensewise("run", experiment, "--preset", "toy.toml", "--seeds", 2)
    return {e: json.loads((folder / "results" / f"{e}.json").read_text()) for e in ("mri-masks", "mri-sequential")}


def test_every_mask_is_scored_on_budget_by_every_reconstructor(results):
    rows, notes = results["mri-masks"]["rows"], results["mri-masks"]["notes"]
    assert notes == []
    assert {row["reconstructor"] for row in rows} == {"zero-filled", "unet-a", "unet-b"}
    assert {row["metric"] for row in rows} == {"nmse", "psnr", "ssim"}
    assert {row["method"] for row in rows} == {
        *("acs-random", "acs-equispaced", "acs-variable-density", "energy-oracle", "static-search", "relaxed-profile"),
        *("loupe", "learned-adaptive", "learned-static", "sequential-entropy", "sequential-energy", "sequential-value"),
    }
    assert all(row["density"] == row["budget"] for row in rows)
    assert all(row["seeds"] == 2 and row["images"] == 5 for row in rows)
    control = [row for row in rows if row.get("scout") == "another slice's"]
    assert {row["method"] for row in control} == {"learned-adaptive"}
    assert any("margin_sd" in row for row in rows)
    assert any(row["paper"] == 0.02389 for row in rows)


def test_sequential_results_hold_every_variant_and_the_oracle(results):
    rows = results["mri-sequential"]["rows"]
    found = {(row["method"], row["steps"], row.get("form"), row["slices"]) for row in rows}
    for score in ("entropy", "energy"):
        assert {("sequential-" + score, r, None, "all") for r in (1, 4, 16)} <= found
    assert {("sequential-value", 16, form, "all") for form in ("gain", "gradient", "rollout", "plan")} <= found
    assert {("sequential-value", 1, form, "all") for form in ("plan", "plan-other", "plan-blind")} <= found
    assert ("oracle-one-step", 16, None, "oracle") in found
    assert all(row["density"] == row["budget"] for row in rows)
    assert set(results["mri-sequential"]["weights"]) >= {
        "unet-a",
        "unet-b",
        "row-prior",
        "row-value-gain",
        "row-plan-0.5",
    }


def test_report_draws_every_figure(folder, results):
    sensewise("report")
    figures = {path.name for path in (folder / "docs" / "figures").iterdir()}
    assert figures >= {
        *("mri-rows.png", "mri-examples.png", "mri-sequential.png", "mri-zf.png"),
        *("mri-judge.png", "mri-rows-all.png", "mri-examples-p75.png"),
    }
    text = (folder / "docs" / "results.md").read_text()
    assert "Gain from zero filling to U-Net B" in text
    assert "Data: toy" in text


@pytest.mark.parametrize("method", ["acs-variable-density", "static-search", "sequential-value"])
def test_acquire_reads_a_kspace_file(folder, method):
    file = sorted((folder / "data" / "toy" / "val").iterdir())[0]
    options = ("--budget", "0.5", "--preset", "toy.toml", "--method", method, "--out", folder / method)
    assert "16 of 32 rows measured" in sensewise("acquire", file, *options)
    assert np.load(folder / method / "mask.npy").sum() == 16
    assert json.loads((folder / method / "acquisition.json").read_text())["reconstructor"] == "unet-a"
    assert (folder / method / "acquisition.png").is_file()


def test_demo_of_the_bundled_knee(folder):
    printed = sensewise("demo", "--dataset", "knee", "--prior", "toy.toml", "--images", 2, "--out", folder / "demo")
    assert "judged by U-Net B" in printed
    results = json.loads((folder / "demo" / "results.json").read_text())
    assert {"static-search", "sequential-value", "acs-variable-density"} <= {row["method"] for row in results["rows"]}
    assert "What to measure on knee" in (folder / "demo" / "report.html").read_text()
    with pytest.raises(DataError, match="holds 1 to 4 knee slices"):
        sensewise("demo", "--dataset", "knee", "--prior", "toy.toml", "--images", 5)


def test_acquire_says_what_is_wrong(folder):
    file = sorted((folder / "data" / "toy" / "val").iterdir())[0]
    with pytest.raises(BudgetError, match="ACS block"):
        sensewise("acquire", file, "--budget", "0.1", "--preset", "toy.toml")
    with pytest.raises(ConfigError, match="no method"):
        sensewise("acquire", file, "--budget", "0.5", "--preset", "toy.toml", "--method", "spiral")
    with pytest.raises(DataError, match="knee:0 to knee:"):
        sensewise("acquire", "knee:99", "--budget", "0.5", "--preset", "toy.toml")
    np.save(folder / "short.npy", np.ones(8, bool))
    with pytest.raises(BudgetError, match="a mask of 32 rows is needed"):
        sensewise("acquire", file, "--budget", "0.5", "--preset", "toy.toml", "--method", folder / "short.npy")


def test_shipped_copies_load_like_runs(folder, monkeypatch):
    names = models.ship("toy.toml", folder / "assets" / "mri")
    expected = {
        "unet-a",
        "unet-b",
        "row-prior",
        "row-value-rollout",
        "row-plan-0.25",
        "static-search-0.25",
        "loupe-0.5",
    }
    assert expected <= set(names)
    monkeypatch.setattr(models, "ASSETS", folder / "assets")
    monkeypatch.setattr(models, "RUNS", folder / "none")
    assert load_row_prior(models.find("cpu", "row-prior"))[1].acs == 4
    run, shipped = folder / "runs/mri-toy/unet-a", models.find("cpu", "unet-a")
    assert shipped == folder / "assets/mri/unet-a"
    assert fingerprint(models.load(run, "reconstructor")[0]) == fingerprint(models.load(shipped, "reconstructor")[0])
    assert models.load_plan(models.find("cpu", "row-plan-0.5")).static.sum() == 16
    assert models.load_mask(models.find("cpu", "static-search-0.5", "mask.npy") / "mask.npy", 32).sum() == 16


def test_what_is_missing_is_named(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="train it first"):
        sensewise("search-mask", "--budget", 0.25, "--preset", folder / "toy.toml")
    with pytest.raises(DataError, match="is not a folder"):
        sensewise("data", "prepare", "toy", "--images", tmp_path / "none")
    assert "rows measured" in sensewise("acquire", "knee:0", "--budget", "0.5", "--out", tmp_path / "knee")


def test_trainers_never_get_the_split_that_scores(folder, monkeypatch):
    """Both parts that a trainer sees come from the training split, and share no slice."""
    seen = []
    for name in ("reconstruction.train_reconstructor", "profile.train_row_prior", "row_policy.train_row_policy"):
        monkeypatch.setattr(
            f"sensewise.mri.{name}",
            lambda _settings, train, validation, *_a, **_o: seen.append((train, validation)) or True,
        )
    options = ("--preset", "toy.toml", "--out", "elsewhere")
    monkeypatch.chdir(folder)
    sensewise("train", "reconstructor", "a", *options)
    sensewise("train", "row-prior", *options)
    sensewise("train", "row-policy", "adaptive", *options)
    assert len(seen) == 3
    for train, validation in seen:
        assert (train.split, validation.split) == ("train", "train")
        assert not set(train.sources) & set(validation.sources)
