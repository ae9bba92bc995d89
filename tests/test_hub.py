import json
import shutil
import time

import numpy as np
import pytest
import torch

import zoo
from conftest import fresh, make_absorbing
from sensewise import hub
from sensewise.errors import BudgetError, CheckpointError
from sensewise.files import fingerprint, read_tensors, sha256_of, write_json, write_tensors
from sensewise.hub import CONFIG, KINDS, WEIGHTS, build, find, load, load_prior, save
from sensewise.kspace import acs_rows
from sensewise.networks.decoders import MaskDesigner
from sensewise.networks.loupe import Loupe, LoupeRows
from sensewise.networks.recon import ComplexUNet
from sensewise.networks.rows import RowPolicyNetwork, RowValueNetwork
from sensewise.priors.absorbing import AbsorbingPrior

MODEL = {
    "shape": [1, 8, 8],
    "num_states": 2,
    "num_labels": 10,
    "time_input": True,
    "network": "unet",
    "widths": [8, 16],
    "blocks": [1, 1],
    "embedding": 8,
}
CARD = {"kind": "prior", "model": MODEL}
BUNDLED = sorted(str(path.parent.relative_to(hub.ASSETS)) for path in hub.ASSETS.rglob(CONFIG))
LICENCES = {
    "mnist": "CC-BY-SA-3.0 (LeCun and Cortes)",
    "cifar10": "LicenseRef-CIFAR-10 (no licence stated; cite Krizhevsky, 2009)",
    "brain-t1": "CC-BY-4.0 (J. Cheng, figshare 1512427)",
    "any-grey": "CC-BY-SA-3.0 AND CC0-1.0 AND LicenseRef-CIFAR-10 AND ",
}


@pytest.fixture
def run(tmp_path):
    save(tmp_path / "run", CARD, make_absorbing())
    return tmp_path / "run"


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """An empty folder of runs."""
    monkeypatch.setenv("SENSEWISE_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def rewrite(folder, card, sha256=True):
    """Another card for the same weights."""
    write_json(folder / CONFIG, {**card, "sha256": sha256_of(folder / WEIGHTS)} if sha256 else card)


# What comes with the package.


@pytest.mark.parametrize("name", BUNDLED)
def test_every_bundled_model_loads_and_its_card_is_complete(name):
    model, config = load(name)
    assert config["sha256"] == sha256_of(hub.ASSETS / name / WEIGHTS)
    assert config["licence"].startswith(LICENCES[config["data"]])
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert all(part.isfinite().all() for part in model.state_dict().values() if part.is_floating_point())
    assert (hub.ASSETS / name / CONFIG).read_text().endswith("}\n")


def test_bundled_models_are_of_many_kinds():
    kinds = {json.loads((hub.ASSETS / name / CONFIG).read_text())["kind"] for name in BUNDLED}
    assert kinds == set(KINDS) - {"loupe-rows"}  # of LOUPE for rows, the masks are what is shipped


@pytest.mark.parametrize("name", ["mnist", "mri/unet-a"])
def test_a_flipped_bit_is_noticed(name, tmp_path):
    shutil.copytree(hub.ASSETS / name, tmp_path / "copy")
    path = tmp_path / "copy" / WEIGHTS
    content = bytearray(path.read_bytes())
    content[-5] ^= 4
    path.write_bytes(bytes(content))
    with pytest.raises(CheckpointError, match="sha256"):
        load(tmp_path / "copy")


def test_row_priors_come_with_their_profile():
    prior, profile = hub.load_row_prior()
    assert prior.shape == (1, 128, 1)
    assert profile.acs == 14
    assert profile.low < profile.high
    with pytest.raises(CheckpointError, match="not hold a prior over rows"):
        hub.load_row_prior("mnist")


def test_bundled_masks_hold_the_acs_block():
    for budget, k in ((0.25, 32), (0.4, 51), (0.5, 64), (0.75, 96)):
        for name in ("static-search", "relaxed-profile", "loupe"):
            folder = find(f"mri/{name}-{budget}", file="mask.npy")
            for file in ("mask.npy", "mask.txt"):
                mask = hub.load_mask(folder / file, 128)
                assert int(mask.sum()) == k
                assert mask[acs_rows(128, 14)].all()


# Where names lead.


def test_precedence_is_path_then_preset_then_runs_then_bundled(runs, tmp_path):
    assert find("mnist") == hub.ASSETS / "mnist"
    places = [runs / "mnist", runs / "cpu" / "mnist", tmp_path / "mnist"]
    for seed, folder in enumerate(places):  # each place goes before the ones that were there
        save(folder, CARD, make_absorbing(seed=seed))
        assert find("mnist").resolve() == folder.resolve()
        assert fingerprint(load_prior("mnist")) == fingerprint(make_absorbing(seed=seed))
    assert find(hub.ASSETS / "mnist") == hub.ASSETS / "mnist"


def test_a_preset_that_is_not_shipped_never_finds_bundled_models(runs):
    with pytest.raises(CheckpointError, match=r"runs/paper/mnist/config.json does not exist: train it first"):
        load_prior("mnist", "paper")
    save(runs / "paper" / "mnist", CARD, make_absorbing())
    assert load_prior("mnist", "paper").shape == (1, 8, 8)
    assert load_prior("mnist").shape == (1, 32, 32)


def test_a_preset_of_one_s_own_is_filed_under_its_name(runs):
    assert hub.run_folder("presets/small.toml", "mri/unet-a") == runs / "small" / "mri" / "unet-a"
    assert hub.preset_name("cpu") == "cpu"


def test_runs_are_in_the_present_folder_by_default(monkeypatch, tmp_path):
    monkeypatch.delenv("SENSEWISE_RUNS", raising=False)
    monkeypatch.chdir(tmp_path)
    assert hub.runs().resolve() == tmp_path / "runs"


def test_unknown_names_list_the_bundled_ones(runs, tmp_path):
    for name in ("mnits", tmp_path, ""):
        with pytest.raises(CheckpointError, match="mnist"):
            load_prior(name)


# Folders that hold a model.


def test_a_run_loads_as_it_was(run):
    prior, expected = load_prior(run), make_absorbing()
    y = torch.zeros(1, 1, 8, 8, dtype=torch.int64)
    torch.testing.assert_close(prior(y).log_probs, expected(y).log_probs)
    assert (prior.shape, prior.num_states, prior.num_labels, prior.time_input) == ((1, 8, 8), 2, 10, True)
    assert not prior.training
    assert not any(p.requires_grad for p in prior.parameters())
    assert load_prior(str(run)).shape == (1, 8, 8)
    assert isinstance(hub.load_absorbing(run), AbsorbingPrior)


def test_half_precision_has_the_same_fingerprint(run, tmp_path):
    save(tmp_path / "half", CARD, make_absorbing(), half=True)
    small, large = ((folder / WEIGHTS).stat().st_size for folder in (tmp_path / "half", run))
    assert small < 0.7 * large
    assert all(p.dtype == torch.float32 for p in load_prior(tmp_path / "half").parameters())
    assert fingerprint(load_prior(tmp_path / "half")) == fingerprint(load_prior(run)) == fingerprint(make_absorbing())


MODELS = {
    "prior": (make_absorbing, MODEL),
    "generator": (
        lambda: fresh(MaskDesigner, (1, 8, 8), 10),
        {"shape": [1, 8, 8], "num_labels": 10, "decoder": "full"},
    ),
    "loupe": (
        lambda: fresh(Loupe, (1, 8, 8), 2, 0.25, (8, 8), (1, 1)),
        {"shape": [1, 8, 8], "num_states": 2, "budget": 0.25, "widths": [8, 8], "blocks": [1, 1]},
    ),
    "loupe-rows": (lambda: fresh(LoupeRows, 16, 0.5, 8), {"rows": 16, "budget": 0.5, "base": 8}),
    "reconstructor": (
        lambda: fresh(ComplexUNet, 16, (8, 8), (1, 1)),
        {"network": {"name": "complex-unet", "rows": 16, "widths": [8, 8], "blocks": [1, 1]}},
    ),
    "row-policy": (lambda: fresh(RowPolicyNetwork, 16, width=8), {"network": {"rows": 16, "width": 8}}),
    "row-value": (
        lambda: fresh(RowValueNetwork, 8, 1, (2, 2)),
        {"network": {"width": 8, "layers": 1, "columns": [2, 2]}},
    ),
    "row-plan": (zoo.row_plan, {"rows": 16, "acs": 4, "k": 8}),
    "nearest-mask": (
        zoo.nearest_rows,
        {"rows": 16, "k": 8, "masks": 2, "slices": 3, "size": 2, "nearest": 2},
    ),
}


def test_every_kind_is_here():
    assert set(MODELS) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_saved_loaded_and_shipped(kind, tmp_path):
    make, described = MODELS[kind]
    save(tmp_path / "run", {"kind": kind, "data": "toy", "model": described}, make())
    model, config = load(tmp_path / "run", kind)
    assert type(model) is type(make())
    assert fingerprint(model) == fingerprint(make())
    with pytest.raises(CheckpointError, match=f"this is a {kind}, not a other"):
        load(tmp_path / "run", "other")
    hub.ship(tmp_path / "run", tmp_path / "shipped")
    shipped, card = load(tmp_path / "shipped")
    assert fingerprint(shipped) == fingerprint(model)
    assert {**card, "sha256": None} == {**config, "sha256": None}
    described_by = dict(hub.card(tmp_path / "run").lines())
    assert described_by["kind"] == kind
    assert described_by["licence of the data"] == "not recorded"
    assert described_by["sha256 of the weights"] == fingerprint(model)


def test_masks_and_logs_are_shipped_as_they_are(tmp_path):
    mask = acs_rows(16, 4)
    hub.save_mask(tmp_path / "run", mask)
    hub.save_array(tmp_path / "run" / "order.npy", np.arange(4))
    (tmp_path / "run" / "log.jsonl").write_text("{}\n")
    (tmp_path / "run" / "checkpoint.safetensors").write_text("not this")
    hub.ship(tmp_path / "run", tmp_path / "shipped")
    assert sorted(path.name for path in (tmp_path / "shipped").iterdir()) == [
        "log.jsonl",
        "mask.npy",
        "mask.txt",
        "order.npy",
    ]
    assert torch.equal(hub.load_mask(tmp_path / "shipped" / "mask.npy", 16), mask)


def test_the_card_of_a_bundled_model():
    card = hub.card("mnist")
    assert (card.kind, card.data, card.licence) == ("prior", "mnist", LICENCES["mnist"])
    assert card.parameters > 1_000_000
    assert card.steps == 13000
    assert card.validation["greedy_errors_0.1"] == pytest.approx(1.4766)


@pytest.mark.parametrize(
    "trained",
    [
        {"steps": float("inf"), "minutes": float("nan")},
        {"steps": 10**400, "minutes": 10**400, "validation": {"a": 10**400, "b": float("nan"), "c": "x", "d": 0.5}},
        {"steps": [], "minutes": {}, "validation": [1]},
        [1, 2],
        None,
    ],
)
def test_cards_with_odd_fields(run, trained):
    text = json.dumps({**CARD, "trained": trained, "licence": {"a": 1}, "data": ["x"]})
    (run / CONFIG).write_text(text)
    card = hub.card(run)
    assert card.steps is None
    assert card.minutes is None
    assert set(card.validation) <= {"d"}
    assert card.lines()


# What is damaged.


@pytest.mark.parametrize("kept", [0, 7, 8, 200, -1])
def test_weights_cut_short(run, kept):
    path = run / WEIGHTS
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CheckpointError, match="not a complete safetensors file"):
        load_prior(run)


def test_weights_missing_or_foreign(run):
    path = run / WEIGHTS
    path.write_bytes(b"PK\x03\x04 a zip file, say, from torch" * 10)
    with pytest.raises(CheckpointError, match="safetensors"):
        load_prior(run)
    path.unlink()
    with pytest.raises(CheckpointError, match="does not exist"):
        load_prior(run)
    path.mkdir()
    with pytest.raises(CheckpointError, match="safetensors"):
        load_prior(run)


def test_weights_of_another_model(run):
    write_tensors(run / WEIGHTS, {"something": torch.zeros(2)})
    with pytest.raises(CheckpointError, match="sha256"):
        load_prior(run)
    rewrite(run, CARD)
    with pytest.raises(CheckpointError, match=r"is missing; .* more"):
        load_prior(run)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_not_finite(run, value):
    tensors, _ = read_tensors(run / WEIGHTS)
    tensors["network.head.bias"][0] = value
    write_tensors(run / WEIGHTS, tensors)
    rewrite(run, CARD)
    with pytest.raises(CheckpointError, match=r"not finite, in network\.head\.bias"):
        load_prior(run)


def test_a_card_without_a_hash_is_taken_a_wrong_one_is_not(run):
    rewrite(run, CARD, sha256=False)
    assert load_prior(run).shape == (1, 8, 8)
    for wrong in ("0" * 64, "", 0, []):
        write_json(run / CONFIG, {**CARD, "sha256": wrong})
        with pytest.raises(CheckpointError, match="sha256"):
            load_prior(run)


@pytest.mark.parametrize("change", [{"widths": [8, 24]}, {"blocks": [2, 1]}, {"num_labels": None}, {"num_states": 3}])
def test_config_of_another_model(run, change):
    rewrite(run, {**CARD, "model": MODEL | change})
    with pytest.raises(CheckpointError, match="does not fit its config"):
        load_prior(run)


@pytest.mark.parametrize(
    "model",
    [
        {"network": "gpt"},
        {"network": None},
        {"network": ["unet"]},
        {"shape": [1, 8]},
        {"shape": "1, 8, 8"},
        {"shape": [1, 8, "8"]},
        {"shape": [1, 8, 0]},
        {"shape": [1, 8, 8.5]},
        {"num_states": -1},
        {"num_states": "2"},
        {"num_labels": -5},
        {"widths": [8]},
        {"widths": 8},
        {"widths": ["a", "b"]},
        {"patch": 0},
        {"hidden": 5},
    ],
    ids=str,
)
def test_configs_that_describe_no_prior(run, model):
    rewrite(run, {**CARD, "model": MODEL | model})
    with pytest.raises(CheckpointError, match="run"):
        load_prior(run)


@pytest.mark.parametrize(
    "config", [{}, [], "prior", None, {"model": MODEL}, {"kind": "prior"}, {"kind": 1, "model": []}, {"kind": []}]
)
def test_configs_of_another_kind(run, config):
    write_json(run / CONFIG, config)
    with pytest.raises(CheckpointError, match="run"):
        load_prior(run)


HUGE = {
    "side": ("prior", {**MODEL, "shape": [1, 8, 10**9]}),
    "widths": ("prior", {**MODEL, "widths": [10**8, 10**8]}),
    "wide": ("prior", {**MODEL, "widths": [4096, 4096]}),
    "deep": ("prior", {**MODEL, "blocks": [4096, 4096]}),
    "labels": ("prior", {**MODEL, "num_labels": 10**12}),
    "embedding": ("prior", {**MODEL, "embedding": 4096, "num_labels": 4096}),
    "states": ("prior", {**MODEL, "num_states": 4096, "widths": [4096, 16]}),
    "levels": ("reconstructor", {"network": {"name": "paper-unet", "base": 8, "levels": 4096}}),
    "designer": ("generator", {"shape": [1, 4096, 4096], "num_labels": 10, "decoder": "full"}),
    "map": ("loupe", {"shape": [1, 4096, 4096], "num_states": 2, "budget": 0.5}),
    "rows": ("row-plan", {"rows": 10**6, "acs": 4, "k": 8}),
    "columns": ("row-value", {"network": {"width": 8, "columns": [2] * 4096}}),
}


@pytest.mark.parametrize("name", HUGE)
def test_sizes_that_no_model_has_are_refused_at_once(run, name):
    kind, model = HUGE[name]
    rewrite(run, {"kind": kind, "model": model})
    started = time.process_time()
    with pytest.raises(CheckpointError, match=r"run|larger"):
        load(run)
    assert time.process_time() - started < 2


def test_loading_draws_nothing_from_the_global_generator(run):
    before = torch.get_rng_state()
    load_prior(run)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_generator_is_not_a_prior():
    with pytest.raises(CheckpointError, match="this is a generator, not a prior"):
        build({"kind": "generator", "model": MODEL}, "prior")


# Models that belong to others.


def designer_run(folder, prior, **changes):
    described = {"shape": [1, 8, 8], "num_labels": 10, "decoder": "paper"} | changes
    model = build({"kind": "generator", "model": described})
    save(folder, {"kind": "generator", "model": described, "prior": fingerprint(prior)}, model)
    return folder


def test_designers_load_with_the_prior_that_they_were_trained_against(tmp_path):
    prior = make_absorbing()
    assert hub.load_designer(designer_run(tmp_path / "own", prior), prior).shape == (1, 8, 8)
    with pytest.raises(CheckpointError, match="another prior"):
        hub.load_designer(tmp_path / "own", make_absorbing(seed=1))
    for changes, message in (({"shape": [1, 16, 16]}, "shape"), ({"num_labels": 7}, "7 labels")):
        with pytest.raises(CheckpointError, match=message):
            hub.load_designer(designer_run(tmp_path / message[:1], prior, **changes), prior)


def test_loupes_are_for_their_shape_and_budget():
    assert hub.load_loupe("mnist-loupe-0.1", (1, 32, 32), 0.1).map.budget == 0.1
    with pytest.raises(CheckpointError, match=r"budget 0\.1"):
        hub.load_loupe("mnist-loupe-0.1", (1, 32, 32), 0.3)
    with pytest.raises(CheckpointError, match="shape"):
        hub.load_loupe("mnist-loupe-0.1", (1, 16, 16), 0.1)
    with pytest.raises(CheckpointError, match="this is a generator, not a loupe"):
        hub.load_loupe("mnist-generator", (1, 32, 32), 0.1)


# Masks of rows.


def test_masks_from_files(tmp_path):
    mask = acs_rows(16, 4)
    np.save(tmp_path / "mask.npy", mask.numpy())
    np.savetxt(tmp_path / "mask.txt", mask.nonzero().numpy(), fmt="%d")
    for name in ("mask.npy", "mask.txt"):
        assert torch.equal(hub.load_mask(tmp_path / name, 16), mask)
    with pytest.raises(BudgetError, match="a mask of 20 rows is needed"):
        hub.load_mask(tmp_path / "mask.npy", 20)
    with pytest.raises(BudgetError, match=r"outside 0\.\.7"):
        hub.load_mask(tmp_path / "mask.txt", 8)
    (tmp_path / "bad.npy").write_bytes(b"no")
    with pytest.raises(CheckpointError, match="is not a mask"):
        hub.load_mask(tmp_path / "bad.npy", 16)
    with pytest.raises(CheckpointError, match="does not exist"):
        hub.load_mask(tmp_path / "none.npy", 16)


def test_mask_files_that_are_none(tmp_path):
    np.save(tmp_path / "empty.npy", np.zeros(0, bool))
    with pytest.raises(BudgetError, match=r"a mask of 16 rows is needed, got bool with shape \(0,\)"):
        hub.load_mask(tmp_path / "empty.npy", 16)
    np.save(tmp_path / "huge.npy", np.zeros(hub.LARGEST_MASK, bool))
    with pytest.raises(CheckpointError, match="at most 1,000,000 are read"):
        hub.load_mask(tmp_path / "huge.npy", 16)
    (tmp_path / "huge.txt").write_text("1\n" * hub.LARGEST_MASK)
    with pytest.raises(CheckpointError, match="at most 1,000,000 are read"):
        hub.load_mask(tmp_path / "huge.txt", 16)
    np.savez(tmp_path / "zipped.npz", np.zeros(16, bool))
    (tmp_path / "zipped.npz").rename(tmp_path / "zipped.npy")
    with pytest.raises(CheckpointError, match="is not a mask"):
        hub.load_mask(tmp_path / "zipped.npy", 16)


def test_every_budget_that_was_trained(tmp_path, monkeypatch):
    """A run of one's own stands before what comes with the package; other presets have their own runs only."""
    monkeypatch.setenv("SENSEWISE_RUNS", str(tmp_path))
    shipped = hub.trained_budgets("mri/static-search", file="mask.npy")
    assert sorted(shipped) == [0.25, 0.4, 0.5, 0.75]
    for budget in (0.25, 0.3):
        hub.save_mask(hub.run_folder("cpu", f"mri/static-search-{budget:g}"), torch.ones(4, dtype=torch.bool))
    (hub.run_folder("cpu", "mri/static-search-other")).mkdir()
    found = hub.trained_budgets("mri/static-search", file="mask.npy")
    assert sorted(found) == [0.25, 0.3, 0.4, 0.5, 0.75]
    assert found[0.25].is_relative_to(tmp_path)
    with pytest.raises(CheckpointError, match="train it first"):
        hub.trained_budgets("mri/static-search", "paper", "mask.npy")
