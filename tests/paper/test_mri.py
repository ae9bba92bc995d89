"""The MR experiments on toy slices with untrained models of a toy preset, and the demo."""

import numpy as np
import pytest
import torch

from conftest import fresh, random_kspace, seeded
from sensewise import hub
from sensewise.data.scenes import Scenes
from sensewise.errors import DataError
from sensewise.evaluate.experiment import Setup
from sensewise.evaluate.journal import Journal
from sensewise.evaluate.recording import read_recording
from sensewise.files import write_json
from sensewise.kspace import acs_rows
from sensewise.paper import demo, mri_masks, mri_models, mri_sequential
from sensewise.paper.mri_models import MRIModels, derangement

ROWS, ACS, BUDGETS = 32, 4, (0.25, 0.5)
PRESET = """
[mri.data]
dataset = "toy"
rows = 32
columns = 32
acs = 4
budgets = [0.25, 0.5]
oracle_slices = 2
"""
QUALITY = {"nmse", "psnr", "ssim"}
JUDGES = {
    **dict.fromkeys(("zero-filled", "cs-wavelet", "unet-a", "unet-b"), QUALITY),
    "rows": {"mirrored-pairs", "different-masks"},
    "row-prior": {"entropy"},
}
UNET = {"name": "complex-unet", "rows": ROWS, "widths": [8, 8], "blocks": [1, 1], "patch": 2, "embedding": 8}
STORY = {
    "start": "variable-density 3",
    "redrawn_nmse": 0.05,
    "start_nmse": 0.04,
    "nmse": 0.03,
    "swaps": [{"drop": 1, "add": 2, "before": 0.04, "after": 0.03}],
}
PRIOR = {"shape": [1, ROWS, 1], "num_states": 8, "num_labels": None, "network": "rows", "width": 8, "layers": 1}
CONFIGS = {
    "unet-a": {"kind": "reconstructor", "model": {"network": UNET}},
    "unet-b": {"kind": "reconstructor", "model": {"network": UNET | {"widths": [8, 12]}}},
    "row-prior": {"kind": "prior", "model": PRIOR, "profile": {"acs": ACS, "low": -2.0, "high": 1.0}},
    **{
        f"row-policy-{form}": {"kind": "row-policy", "model": {"network": {"rows": ROWS, "width": 8, "adaptive": wide}}}
        for form, wide in (("adaptive", True), ("static", False))
    },
    **{
        f"row-value-{form}": {"kind": "row-value", "model": {"network": {"width": 8}}, "training": {"share": 0.5}}
        for form in ("gain", "gradient", "rollout")
    },
    **{
        f"row-plan-{s:g}": {"kind": "row-plan", "model": {"rows": ROWS, "acs": ACS, "k": round(s * ROWS)}}
        for s in BUDGETS
    },
    **{
        f"nearest-mask-{s:g}": {
            "kind": "nearest-mask",
            "model": {"rows": ROWS, "k": round(s * ROWS), "masks": 2, "slices": 3, "size": 2, "nearest": 1},
        }
        for s in BUDGETS
    },
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A preset, runs of everything that it trains, and toy slices."""
    folder = tmp_path_factory.mktemp("mri")
    (folder / "toy.toml").write_text(PRESET)
    for name, config in CONFIGS.items():
        model = fresh(hub.build, config)
        if config["kind"] == "row-plan":
            model.static = _mask(config["model"]["k"], 1)
        if config["kind"] == "nearest-mask":
            model.masks = torch.stack([_mask(config["model"]["k"], seed) for seed in range(2)])
            model.features, model.worth[0, 1] = torch.randn(3, 4, generator=seeded()), -1.0
        hub.save(folder / "runs" / "toy" / "mri" / name, config, model)
    for seed, name in enumerate(mri_models.MAKERS):
        for budget in BUDGETS:
            mask, place = _mask(round(budget * ROWS), seed), folder / "runs" / "toy" / "mri" / f"{name}-{budget:g}"
            hub.save_mask(place, mask)
            hub.save_array(place / "order.npy", mask.nonzero()[:, 0].numpy())
            if name == "static-search":
                write_json(place / "search.json", STORY)
            if name == "loupe":
                (place / "log.jsonl").write_text('{"step": 1, "from_start": 0.9}\n{"step": 2, "from_start": 0.5}\n')
    train, val = (Scenes("toy", split, random_kspace(5, ROWS, 32, seed)) for seed, split in enumerate(("train", "val")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SENSEWISE_RUNS", str(folder / "runs"))
        patch.setattr(mri_models, "load_splits", lambda *given, **options: (train, val))
        yield str(folder / "toy.toml")


def _mask(k, seed):
    scores = torch.rand(ROWS, generator=torch.Generator().manual_seed(seed)) + 2 * acs_rows(ROWS, ACS)
    mask = torch.zeros(ROWS, dtype=torch.bool)
    mask[scores.topk(k).indices] = True
    return mask


@pytest.fixture(scope="module")
def masks(toy):
    return mri_masks.run(Setup(toy, range(2)))


@pytest.fixture(scope="module")
def sequential(toy):
    return mri_sequential.run(Setup(toy, range(2)))


def test_every_mask_is_scored_on_budget_by_every_reconstructor(masks):
    rows = masks.rows
    assert masks.notes == []
    by_judge = {name: {row.metric for row in rows if row.reconstructor == name} for name in JUDGES}
    assert by_judge == JUDGES
    assert {row.method for row in rows} == {
        *("acs-random", "acs-equispaced", "acs-variable-density", "energy-oracle", "static-search", "relaxed-profile"),
        *("loupe", "learned-adaptive", "learned-static", "sequential-entropy", "sequential-energy", "sequential-value"),
        *("relaxed-profile-fast", "nearest-mask"),
    }
    rows = [row for row in rows if row.split is None]
    assert all(row.density == row.budget and row.images == 5 for row in rows)
    assert {row.method for row in rows if row.seeds == 2} == {
        *("acs-random", "acs-equispaced", "acs-variable-density", "learned-adaptive", "nearest-mask"),
    }


def test_logs_say_how_masks_were_made(masks):
    made = {(row.method, row.metric, row.budget): row.mean for row in masks.rows if row.split == "train"}
    assert made == {
        (method, metric, budget): value
        for method, metric, value in (
            ("static-search", "accepted-swaps", 1),
            ("static-search", "start-share", 0.5),
            ("loupe", "from-start", 0.5),
        )
        for budget in BUDGETS
    }


def test_one_entropy_step_makes_one_mask_for_all_slices(masks, sequential):
    """Whether it does is measured for every method; a fixed mask is the case that is known."""
    for rows in (masks.rows, sequential.rows):
        different = {(row.method, row.steps): row.mean for row in rows if row.metric == "different-masks"}
        assert different["static-search", 1] == 1
    assert different["sequential-entropy", 1] >= 1


def test_another_slices_scout_is_a_control_without_the_papers_value(masks):
    control = [row for row in masks.rows if row.scout == "another slice's"]
    assert {row.method for row in control} == {"learned-adaptive", "nearest-mask"}
    assert all(row.paper is None and row.seeds == 2 for row in control)
    own = [row for row in masks.rows if row.method == "learned-adaptive" and row.scout is None]
    assert {row.paper for row in own if row.metric == "nmse" and row.budget == 0.25} == {0.03337, None, 0.02840}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (("static-search", 1, 0.25, "nmse", "unet-b"), 0.02389),
        (("acs-variable-density", 1, 0.25, "nmse", "unet-b"), 0.02471),
        (("acs-variable-density", 1, 0.25, "nmse", "zero-filled"), 0.03382),
        (("sequential-entropy", 16, 0.75, "nmse", "unet-b"), 0.00807),
        (("acs-random", 1, 0.25, "nmse", "unet-b"), 0.02696),
        (("acs-random", 1, 0.4, "nmse", "unet-b"), None),
        (("static-search", 1, 0.25, "psnr", "unet-b"), None),
        (("static-search", 1, 0.25, "nmse", "unet-a"), None),
    ],
)
def test_the_papers_values(key, value):
    assert mri_masks.PAPER.get(key) == value


def test_sequential_results_hold_every_variant_and_the_oracle(sequential):
    rows = sequential.rows
    found = {(row.method, row.steps, row.form, row.slices) for row in rows}
    for score in ("entropy", "energy"):
        assert {("sequential-" + score, r, None, "all") for r in (1, 4, 16)} <= found
    assert {("sequential-value", 16, form, "all") for form in ("gain", "gradient", "rollout", "plan")} <= found
    assert {("sequential-value", 1, form, "all") for form in ("plan", "plan-other", "plan-blind")} <= found
    assert ("oracle-one-step", 16, None, "oracle") in found
    imagined = {(row.method, row.budget) for row in rows if row.slices == "samples"}
    names = ("acs-variable-density", "static-search", "nearest-mask", "sequential-samples", "oracle-one-step")
    assert imagined == {(name, 0.25) for name in names}
    assert all(row.density == row.budget for row in rows)
    assert {row.images for row in rows if row.slices == "oracle"} == {2}
    assert set(sequential.weights) == set(CONFIGS) - {"row-policy-adaptive", "row-policy-static"}


def test_compressed_sensing_judges_every_mask_in_tables_and_figures(masks, sequential):
    drawn = mri_masks.section(masks)
    assert {"mri-judge.png", "mri-cs.png", "mri-zf.png"} < {picture.name for picture in drawn.figures}
    for section in (drawn, mri_sequential.section(sequential)):
        judge, sensing = section.tables[:2]
        assert "U-Net B" in judge.caption
        assert "compressed sensing" in sensing.caption
        lines = [name for name, _ in judge.lines if "another slice" not in name]  # controls have three judges
        assert [name for name, _ in sensing.lines] == lines
        assert sensing.head == judge.head


def test_arrays_of_the_figures(masks, sequential):
    assert masks.arrays["rows/static-search/0.25"].sum() == 8
    assert masks.arrays["rows/acs-variable-density/0.5"].sum() == 16
    assert masks.arrays["example/median/static-search"].shape == (32, 32)
    assert masks.arrays["example/p75/zero-filled"].dtype == np.float16
    story = sequential.arrays["story/sequential-entropy/mask"]
    assert story.sum(1).tolist() == [4, 5, 6, 7, 8]  # at most 16 steps: the budget leaves four rows
    assert len(sequential.arrays["story/sequential-entropy/reconstruction"]) == len(story)


def test_what_is_missing_is_left_out_with_a_note(toy, tmp_path, monkeypatch):
    runs = tmp_path / "toy" / "mri"
    runs.mkdir(parents=True)
    for name in ("unet-a", "unet-b"):
        (runs / name).symlink_to(hub.run_folder("toy", f"mri/{name}"))
    monkeypatch.setenv("SENSEWISE_RUNS", str(tmp_path))
    results = mri_masks.run(Setup(toy, range(1)))
    assert {row.method for row in results.rows} == {
        *("acs-random", "acs-equispaced", "acs-variable-density", "energy-oracle"),
    }
    assert len(results.notes) == 10
    assert "the coarse entropy of the masks was left out" in results.notes[0]
    assert "static-search was left out" in results.notes[1]
    assert f"sensewise train static-search --budget 0.25 --preset {toy}" in results.notes[1]


def test_mri_experiments_shard(toy, masks):
    parts = [mri_masks.run(Setup(toy, range(2), Journal(shard=(i, 2)))).rows for i in range(2)]
    assert all(row in masks.rows for part in parts for row in part)
    assert all(0 < len(part) < len(masks.rows) for part in parts)


@pytest.mark.parametrize("count", [2, 3, 5, 64])
def test_derangement(count):
    for seed in range(5):
        order = derangement(count, torch.Generator().manual_seed(seed))
        assert sorted(order.tolist()) == list(range(count))
        assert not (order == torch.arange(count)).any()


def test_demo_of_the_bundled_knee(toy):
    results = demo.on_knees(2, 0, preset=toy)
    assert (results.experiment, results.dataset) == ("demo", "knee")
    assert {"static-search", "sequential-value", "acs-variable-density"} <= {row.method for row in results.rows}
    assert "none of them has seen a knee" in results.notes[0]
    with pytest.raises(DataError, match="1 to 4 knee slices"):
        demo.on_knees(5, 0, preset=toy)
    assert MRIModels(toy).mri.rows == ROWS


def test_demo_of_the_bundled_digits(quick_run):
    results = demo.on_digits(2, 0, prior=str(quick_run))
    assert {row.metric for row in results.rows} == {"errors", "exact"}
    assert "One-shot masks were left out" in results.notes[0]  # the bundled designer belongs to the bundled prior
    assert any(row.paper == 5.63 for row in results.rows)
    assert read_recording(results.arrays).steps == 16


def test_demo_of_the_bundled_photographs():
    results = demo.on_photographs(1, 0)
    assert {"one-shot", "spread-variance-greedy"} <= {row.method for row in results.rows}
    assert "psnr" in {row.metric for row in results.rows}
    assert set(demo.DEMOS) == {"mnist", "cifar10", "knee"}
