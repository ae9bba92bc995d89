"""`sensewise acquire` for k-space: any file, any budget, and what goes back to a scanner."""

import json

import h5py
import numpy as np
import pytest
import torch

from conftest import fresh
from sensewise import hub
from sensewise.apps import slices
from sensewise.apps.acquire import Settings, acquire_source
from sensewise.data.prepare import read_magnitudes, write_volume
from sensewise.errors import BudgetError, CheckpointError, ConfigError, DataError
from sensewise.kspace import to_kspace
from sensewise.policies.planned import RowPlan

TOY = """
[mri.data]
dataset = "toy"
rows = 32
columns = 32
acs = 4
budgets = [0.5]
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A preset with a reconstructor, a searched mask and a plan of rows, none of them trained, and a k-space file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.toml").write_text(TOY)
    network = {"name": "complex-unet", "rows": 32, "widths": [8, 8], "blocks": [1, 1], "embedding": 8}
    config = {"kind": "reconstructor", "model": {"network": network}}
    hub.save(hub.run_folder("toy", "mri/unet-a"), config, fresh(hub.build, config))
    plan = RowPlan(rows=32, acs=4, k=16)
    hub.save(
        hub.run_folder("toy", "mri/row-plan-0.5"), {"kind": "row-plan", "model": {"rows": 32, "acs": 4, "k": 16}}, plan
    )
    mask = torch.zeros(32, dtype=torch.bool)
    mask[8:24] = True
    hub.save_mask(hub.run_folder("toy", "mri/static-search-0.5"), mask)
    pixels = torch.zeros(3, 40, 40)
    pixels[:, 10:30, 12:26] = 1.0
    write_volume(tmp_path / "scan.h5", to_kspace(pixels).numpy())
    return tmp_path


@pytest.mark.parametrize("method", ["acs-variable-density", "static-search", "sequential-value"])
def test_acquire_reads_a_kspace_file(sensewise, toy, method):
    options = ("--budget", "0.5", "--preset", "toy.toml", "--method", method, "--out", method)
    code, out, _ = sensewise("acquire", "scan.h5", *options)
    assert code == 0
    assert out.startswith("16 of 32 rows measured, NMSE ")
    assert {path.name for path in (toy / method).iterdir()} == slices.FILES
    mask = np.load(toy / method / "mask.npy")
    assert mask.sum() == 16
    assert mask[14:18].all()  # the ACS block
    outcome = json.loads((toy / method / "acquisition.json").read_text())
    assert (outcome["reconstructor"], outcome["method"], outcome["of"]) == ("unet-a", method, 32)


def test_zero_filling_only_where_it_is_asked_for(toy):
    settings = Settings(budget=0.5, preset="toy.toml")
    path = hub.run_folder("toy", "mri/unet-a") / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match="damaged or replaced"):
        acquire_source("scan.h5", toy / "out", settings)
    path.parent.rename(path.parent.with_name("elsewhere"))
    with pytest.raises(CheckpointError, match="train it first"):
        acquire_source("scan.h5", toy / "out", settings)
    assert not (toy / "out").exists()
    said = acquire_source("scan.h5", toy / "out", Settings(budget=0.5, preset="toy.toml", reconstructor="zero-filled"))
    assert "with zero-filled" in said


def test_kspace_that_cannot_be_acquired(toy):
    def acquire(source, **settings):
        return acquire_source(source, toy / "out", Settings(**{"budget": 0.5, "preset": "toy.toml", **settings}))

    with pytest.raises(BudgetError, match="ACS block"):
        acquire("scan.h5", budget=0.1)
    with pytest.raises(ConfigError, match="no method 'spiral': choose one of acs-variable-density"):
        acquire("scan.h5", policy="spiral")
    with pytest.raises(ConfigError, match="choose one of unet-a, unet-b, cs-wavelet, zero-filled"):
        acquire("scan.h5", reconstructor="unet-c")
    with pytest.raises(DataError, match="knee:0 to knee:3"):
        acquire("knee:4")
    np.save("short.npy", np.ones(8, bool))
    with pytest.raises(BudgetError, match="a mask of 32 rows is needed"):
        acquire("scan.h5", policy="short.npy")
    assert not (toy / "out").exists()


@pytest.mark.parametrize(("rows", "fits"), [(range(16), True), (range(15), False), (range(17), False)])
def test_a_mask_file_is_measured_as_it_is_or_refused(toy, rows, fits):
    (toy / "own.txt").write_text("".join(f"{row}\n" for row in rows))
    settings = Settings(budget=0.5, preset="toy.toml", policy="own.txt")
    if fits:
        acquire_source("scan.h5", toy / "out", settings)
        assert np.flatnonzero(np.load(toy / "out" / "mask.npy")).tolist() == list(rows)
    else:
        with pytest.raises(BudgetError, match=f"this mask takes {len(rows)} of the actions, the budget is 16"):
            acquire_source("scan.h5", toy / "out", settings)


def outcome(folder):
    return json.loads((folder / "acquisition.json").read_text())


@pytest.mark.parametrize("source", ["knee:0", "phantom:0"])
def test_bundled_slices_have_a_budget_of_their_own(tmp_path, source):
    said = acquire_source(source, tmp_path / "out", Settings())
    assert said.startswith("32 of 128 rows measured, NMSE 0.0")
    found = outcome(tmp_path / "out")
    assert found["lines"] == {"knee:0": 256, "phantom:0": 160}[source]
    assert found["coils"] == {"knee:0": 1, "phantom:0": 2}[source]
    filled = acquire_source(source, tmp_path / "zf", Settings(reconstructor="zero-filled"))
    assert outcome(tmp_path / "zf")["nmse"] > 1.5 * found["nmse"], filled


@pytest.mark.parametrize("name", ["unet-b", "cs-wavelet"])
def test_other_reconstructors(tmp_path, name):
    acquire_source("phantom:0", tmp_path / "out", Settings(reconstructor=name))
    acquire_source("phantom:0", tmp_path / "zf", Settings(reconstructor="zero-filled"))
    assert outcome(tmp_path / "out")["nmse"] < 0.8 * outcome(tmp_path / "zf")["nmse"]


@pytest.mark.parametrize(
    ("method", "word"), [("static-search", "static-search-0.25"), ("sequential-value", "row-plan-0.25")]
)
@pytest.mark.parametrize(("budget", "rows", "verb"), [(0.3, 38, "extended"), (0.2, 26, "cut"), (0.25, 32, "")])
def test_any_budget_from_the_nearest_trained_one(tmp_path, method, word, budget, rows, verb):
    said = acquire_source("knee:0", tmp_path / "out", Settings(budget=budget, policy=method))
    assert said.startswith(f"{rows} of 128 rows measured")
    assert (f"{word} is for 32 of 128 rows, {verb} to {rows}" in said) is bool(verb)
    mask = np.load(tmp_path / "out" / "mask.npy")
    assert mask.sum() == rows
    assert mask[57:71].all()
    acquire_source("knee:0", tmp_path / "vd", Settings(budget=budget))
    assert outcome(tmp_path / "out")["nmse"] < 1.1 * outcome(tmp_path / "vd")["nmse"]


def test_a_cut_mask_has_the_most_valuable_rows(tmp_path):
    whole, _ = slices.searched_mask("cpu", 32, 128)
    less, _ = slices.searched_mask("cpu", 30, 128)
    more, _ = slices.searched_mask("cpu", 36, 128)
    assert not (less & ~whole).any()
    assert not (whole & ~more).any()
    order = np.load(hub.ASSETS / "mri/static-search-0.25/order.npy")
    assert set(order[30:]) == set((whole & ~less).nonzero()[:, 0].tolist())


def test_what_goes_back_to_the_scanner(tmp_path):
    """Line numbers and the mask are of the full matrix of 160; both can be given as a mask again."""
    acquire_source("phantom:0", tmp_path / "out", Settings())
    mask = np.load(tmp_path / "out" / "mask.npy")
    full = np.load(tmp_path / "out" / "mask-full.npy")
    assert full.shape == (160,)
    assert np.array_equal(full[16:144], mask)
    text = (tmp_path / "out" / "mask.txt").read_text().splitlines()
    assert text[0] == "# scanner lines, 160 in all, line 80 in the middle"
    assert list(map(int, text[1:15])) == list(range(73, 87))  # the ACS block is measured first
    assert sorted(map(int, text[1:])) == np.flatnonzero(full).tolist()
    for name in ("mask.txt", "mask-full.npy", "mask.npy"):
        acquire_source("phantom:0", tmp_path / "again", Settings(policy=str(tmp_path / "out" / name)))
        assert np.array_equal(np.load(tmp_path / "again" / "mask.npy"), mask)
        assert outcome(tmp_path / "again")["nmse"] == outcome(tmp_path / "out")["nmse"]


def test_reconstructions_in_other_formats(tmp_path):
    acquire_source("phantom:0", tmp_path / "o", Settings())
    values = np.load(tmp_path / "o" / "reconstruction.npy")
    assert values.shape == (128, 128)
    with h5py.File(tmp_path / "o" / "reconstruction.h5") as file:
        assert np.array_equal(file["reconstruction"][0], values)
        assert file["mask"].shape == (160,)
    assert np.array_equal(read_magnitudes(tmp_path / "o" / "reconstruction.nii.gz")[0], values)


def test_axis_and_slice_of_a_file(sensewise, toy):
    options = ("--budget", "0.5", "--preset", "toy.toml", "--reconstructor", "zero-filled")
    code, out, _ = sensewise("acquire", "scan.h5", *options)
    assert code == 0
    assert "slice 1 of 3, phase-encode along the columns (as fastMRI has it)" in " ".join(out.split())
    code, out, _ = sensewise("acquire", "scan.h5", *options, "--axis", "rows", "--slice", 2)
    assert code == 0
    assert "slice 2 of 3, phase-encode along the rows (as given)" in " ".join(out.split())
    for bad, message in (("--slice=3", "there is no slice 3: give 0 to 2"), ("--axis=up", "no axis 'up'")):
        code, _, err = sensewise("acquire", "scan.h5", *options, bad)
        assert code == 2
        assert message in " ".join(err.split())


def test_an_array_of_kspace(toy):
    kspace = h5py.File("scan.h5")["kspace"][:]
    np.save("scan.npy", np.stack([kspace, 1j * kspace], axis=1))
    settings = Settings(budget=0.5, preset="toy.toml", axis="columns")
    acquire_source("scan.npy", toy / "coils", settings)
    assert outcome(toy / "coils")["coils"] == 2
    np.save("scan.npy", kspace[1])
    acquire_source("scan.npy", toy / "array", settings)
    acquire_source("scan.h5", toy / "file", settings)
    assert outcome(toy / "array")["nmse"] == outcome(toy / "file")["nmse"]


def test_lines_that_cannot_be_measured(tmp_path):
    path = tmp_path / "lines.txt"
    for lines, error, message in (
        ([15], BudgetError, r"names lines outside 16\.\.143"),
        ([20, 20], BudgetError, "names each one once"),
        (["x"], DataError, "not a list of line numbers"),
    ):
        path.write_text("\n".join(["# scanner lines, 160 in all, line 80 in the middle", *map(str, lines)]))
        with pytest.raises(error, match=message):
            acquire_source("phantom:0", tmp_path / "out", Settings(policy=str(path)))
