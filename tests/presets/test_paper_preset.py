"""Every section of the preset `paper` starts: two steps of a small batch, at its true size or a tenth of its width."""

import math
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from conftest import awake, fresh
from sensewise import hub, presets
from sensewise.apps.cli import app
from sensewise.apps.cli import train as commands
from sensewise.data.scenes import Scenes
from sensewise.errors import CheckpointError
from sensewise.kspace import to_kspace
from sensewise.networks.recon import PaperUNet
from sensewise.networks.rows import RowConv
from sensewise.paper.gradient_estimators import GradientSettings
from sensewise.policies.simple import best_rows
from sensewise.presets.mri import load_settings
from sensewise.priors.absorbing import AbsorbingPrior
from sensewise.sensors.rows import BINS, RowProfile
from sensewise.train.designer import DesignerRecipe, DesignerSettings
from sensewise.train.loupe import LoupeRowsRecipe, LoupeRowsSettings, LoupeSettings, loupe_recipes
from sensewise.train.mask_state import MaskStateSettings, mask_state_recipes
from sensewise.train.nearest import NearestRecipe, NearestSettings
from sensewise.train.plan import PlanRecipe, PlanSettings
from sensewise.train.prior import PriorRecipe, PriorSettings
from sensewise.train.processes import launch
from sensewise.train.reconstructor import ReconstructorRecipe, ReconstructorSettings
from sensewise.train.relaxed import RelaxedRecipe, RelaxedSettings
from sensewise.train.row_policy import RowPolicyRecipe, RowPolicySettings
from sensewise.train.row_prior import RowPriorRecipe, RowPriorSettings
from sensewise.train.search import SearchRecipe, SearchSettings
from sensewise.train.value import RowValueRecipe, RowValueSettings

PRESET = "paper"
ACS, BUDGET = 32, 0.25
STATES = {"mnist": ((1, 32, 32), 2), "cifar10": ((3, 32, 32), 8)}


def images(dataset, count=4):
    shape, states = STATES[dataset]
    tokens = torch.randint(
        1, states + 1, (count, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    return Scenes(dataset, "train", tokens, torch.arange(count) % 10, states, 10)


def slices(count=4):
    draw = torch.Generator().manual_seed(0)
    image = torch.rand(count, 300, 300, dtype=torch.complex64, generator=draw) * 1e-5  # as small as fastMRI's
    return Scenes("fastmri", "train", to_kspace(image), sources=tuple(map(str, range(count))))


def recipe(section, **small):
    """The recipe of a section on toy scenes of the true size; `small` replaces what a test machine cannot carry."""
    thing, *rest = section.split(".")
    if thing in ("prior", "generator", "loupe", "mask-state"):
        scenes = images(rest[0])
        pair = (scenes, scenes)
        if thing == "prior":
            settings = replace(presets.load(PRESET, section, PriorSettings), batch_size=2, **small)
            return PriorRecipe(settings, *pair, mask_state=False if rest[1] == commands.WITHOUT else None)
        if thing == "mask-state":
            settings = replace(presets.load(PRESET, section, MaskStateSettings), batch_size=2)
            return mask_state_recipes(settings, *pair, Path("unused"))["start"]
        if thing == "loupe":
            settings = replace(presets.load(PRESET, section, LoupeSettings), batch_size=2)
            return next(iter(loupe_recipes(settings, *pair).values()))
        settings = replace(presets.load(PRESET, section, DesignerSettings), batch_size=2)
        shape, states = STATES[rest[0]]
        config = {
            "model": {"shape": shape, "num_states": states, "num_labels": 10, "network": "unet", "widths": [8, 8]}
        }
        config["model"] |= {"blocks": [1, 1], "patch": 2, "embedding": 8, "encoding": "one-hot", "time_input": True}
        frozen = fresh(hub.build, config | {"kind": "prior"}, "prior").requires_grad_(False)
        return DesignerRecipe(settings, *pair, frozen)
    name, scenes = rest[0], slices()
    network = awake(fresh(PaperUNet, base=8), std=0.02).requires_grad_(False)
    if name.startswith("reconstructor"):
        settings = replace(presets.load(PRESET, section, ReconstructorSettings), batch_size=1, **small)
        return ReconstructorRecipe(settings, scenes, scenes, ACS)
    if name == "row-prior":
        return RowPriorRecipe(presets.load(PRESET, section, RowPriorSettings), scenes, scenes, ACS)
    if name == "row-policy":
        prior = fresh(AbsorbingPrior, RowConv(1, BINS, None), 1, BINS, None, size=(300, 1))
        settings = replace(presets.load(PRESET, section, RowPolicySettings), batch_size=2)
        return RowPolicyRecipe(settings, scenes, scenes, ACS, prior, RowProfile.of(scenes.values, ACS), True)
    if name == "relaxed-profile":
        settings = replace(presets.load(PRESET, section, RelaxedSettings), batch_size=2, judge_slices=2)
        return RelaxedRecipe(settings, scenes, ACS, network, BUDGET)
    if name == "loupe":
        settings = replace(presets.load(PRESET, section, LoupeRowsSettings), batch_size=1, **small)
        return LoupeRowsRecipe(settings, scenes, scenes, ACS, BUDGET)
    if name == "row-value":
        settings = replace(presets.load(PRESET, section, RowValueSettings), batch_size=1, candidates=2)
        return RowValueRecipe(settings, scenes, scenes, ACS, network, "gain", (BUDGET,))
    if name == "row-plan":
        settings = replace(presets.load(PRESET, section, PlanSettings), batch_size=2, tries=2)
        return PlanRecipe(settings, scenes, scenes, ACS, network, BUDGET)
    if name == "nearest-mask":
        settings = presets.load(PRESET, section, NearestSettings)
        settings = replace(settings, clusters=2, search=replace(settings.search, screen=2))
        start = best_rows(torch.zeros(300), round(BUDGET * 300), ACS)
        return NearestRecipe(settings, scenes, scenes, ACS, network, BUDGET, start)
    settings = replace(presets.load(PRESET, section, SearchSettings), draws=2, screen=2)
    return SearchRecipe(settings, scenes, ACS, network, BUDGET)


def sections():
    """Every section that is a thing to train, to search or to measure."""
    table = tomllib.loads(presets.find(PRESET).read_text())
    deep = {"prior": 2, "generator": 2}
    for thing, inner in table.items():
        for name, part in inner.items():
            if deep.get(thing) == 2:
                yield from (f"{thing}.{name}.{stage}" for stage in part)
            else:
                yield f"{thing}.{name}"


READ_ONLY = {"mri.data", "experiment.gradient-estimators"}
TRAINED = sorted(set(sections()) - READ_ONLY)
TENTH = {
    "prior.cifar10.without-mask-state": "dit",
    "prior.cifar10.random-masks": "dit",
    "mri.loupe": "base",
}


def small(section):
    kind = TENTH.get(section)
    if kind == "dit":
        network = presets.load(PRESET, section, PriorSettings).network
        return {"network": replace(network, dim=128, heads=4)}
    return {"base": 8} if kind == "base" else {}


@pytest.mark.parametrize("section", TRAINED)
def test_a_section_starts(section):
    job = recipe(section, **small(section)).job(fresh=True)
    team = launch(device="cpu", devices=1, num_nodes=1, strategy="auto", precision="32-true")
    job.begin(team, compiled=False)
    before = {name: tensor.clone() for name, tensor in job.state().items()}
    values = [value for step in range(2) for value in job.advance(step).values()]
    assert all(math.isfinite(value) for value in values)
    after = job.state()
    assert any(not torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_every_section_is_read():
    assert set(TENTH) < set(TRAINED)
    assert load_settings(PRESET).dataset == "fastmri"
    assert presets.load(PRESET, "experiment.gradient-estimators", GradientSettings).masks == 8
    wanted = {
        "generator.cifar10.paper",
        "loupe.cifar10",
        "generator.mnist.paper-decoder",
        "generator.mnist.observed-weak",
    }
    assert wanted <= set(TRAINED)


def count(section):
    made = recipe(section)
    with torch.device("meta"):
        model = made.fresh()
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize(
    ("section", "expected", "share"),
    [
        ("prior.mnist.random-masks", 63.3e6, 0.005),
        ("prior.mnist.without-mask-state", 63.3e6, 0.005),
        ("mask-state.mnist", 63.3e6, 0.005),
        ("prior.cifar10.random-masks", 108e6, 0.01),
        ("mri.reconstructor-a", 1.93e6, 0.01),
        ("mri.reconstructor-b", 4.33e6, 0.01),
        ("mri.row-prior", 86e3, 0.05),
        ("generator.mnist.disarm", 19.5e3, 0.05),
        ("generator.cifar10.paper", 10e3, 0.05),
    ],
)
def test_networks_have_the_papers_size(section, expected, share):
    assert count(section) == pytest.approx(expected, rel=share)


def test_the_prior_is_trained_as_the_base_was():
    for dataset, stage in (("mnist", "random-masks"), ("cifar10", "random-masks"), ("mnist", commands.WITHOUT)):
        found = presets.load(PRESET, f"prior.{dataset}.{stage}", PriorSettings)
        assert (found.curriculum.survival_power, found.curriculum.observed_weight) == (0.0, 1.0)
        assert (found.fit.learning_rate, found.fit.clip, found.fit.average) == (1e-3, 0.1, 0.0)
        assert (found.batch_size, found.fit.optimizer) == (512, "adamw")


@pytest.mark.parametrize(
    ("preset", "stage", "init", "mask_state"),
    [
        ("paper", "random-masks", "mnist-without-mask-state", None),
        ("paper", "without-mask-state", None, False),
        ("cpu", "random-masks", None, None),
        ("cpu", "on-policy", None, None),
        ("cpu", "small", "mnist-random-masks", None),
    ],
)
def test_where_a_stage_starts(monkeypatch, preset, stage, init, mask_state):
    made = []
    monkeypatch.setattr(commands, "_images", lambda *_: (images("mnist"), images("mnist")))
    monkeypatch.setattr(commands, "_carry_out", lambda recipe, *_: made.append(recipe))
    done = CliRunner().invoke(app, ["train", "prior", "--preset", preset, "--stage", stage])
    assert done.exit_code == 0, done.output
    assert (made[0].init, made[0].mask_state) == (init, mask_state)


@pytest.mark.parametrize(
    ("experiment", "command"),
    [
        ("mnist-sequential", "train prior --dataset mnist --stage random-masks --out runs/paper/mnist --preset paper"),
        ("cifar10-sequential", "train prior --dataset cifar10 --stage random-masks --out runs/paper/cifar10"),
        ("mnist-one-shot", "train prior --dataset mnist --stage random-masks --out runs/paper/mnist"),
        ("mask-state", "train mask-state --preset paper"),
        ("mri-masks", "train reconstructor a --preset paper"),
    ],
)
def test_run_refuses_while_weights_are_missing(monkeypatch, tmp_path, experiment, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SENSEWISE_RUNS", raising=False)
    done = CliRunner().invoke(app, ["run", experiment, "--preset", "paper", "--results", str(tmp_path / "results")])
    assert isinstance(done.exception, CheckpointError)  # exit code 2, as `sensewise.__main__` says it
    assert command in str(done.exception)
    assert not list(tmp_path.rglob("*.json"))
