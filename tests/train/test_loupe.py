"""LOUPE's training, on pixels and on rows."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from conftest import fresh
from sensewise.data.scenes import Scenes
from sensewise.errors import CheckpointError, ConfigError
from sensewise.hub import load, load_loupe, load_mask
from sensewise.kspace import acs_rows
from sensewise.networks.loupe import Loupe, LoupeRows
from sensewise.presets import load as load_preset
from sensewise.train.fit import step_generator
from sensewise.train.gradient import FitSettings, Training
from sensewise.train.loupe import (
    LoupeObjective,
    LoupeRowsObjective,
    LoupeRowsRecipe,
    LoupeRowsSettings,
    LoupeSettings,
    loupe_name,
    loupe_recipes,
)
from sensewise.train.processes import Execution, launch
from sensewise.train.recipe import train_all
from tiny_trainings import ACS, ROWS, slices

SHAPE = (1, 8, 8)
QUIET = Console(quiet=True)


@pytest.fixture
def images() -> Scenes:
    tokens = torch.randint(1, 3, (16, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return Scenes("toy", "train", tokens, None, 2, None)


def small_loupe(budget: float = 0.25) -> Loupe:
    return fresh(Loupe, SHAPE, 2, budget, widths=(8, 8), blocks=(1, 1))


def test_objective_and_validation(images: Scenes) -> None:
    loupe = small_loupe()
    objective = LoupeObjective(loupe, images, images, settings(batch_size=4))
    loss = objective.loss(loupe, 0, step_generator(0, 0))
    loss.backward()
    assert 0 < loss.item() < 1
    values = objective.validate(loupe.eval())
    assert set(values) == {"errors_topk", "errors_sampled", "undecided", "changed", "calm", "from_start"}
    assert (values["changed"], values["calm"], values["from_start"]) == (0, 1, 1)
    with torch.no_grad():
        loupe.map.weight.neg_()  # the least probable pixels are now the most probable
    values = objective.validate(loupe)
    assert values["from_start"] == 0
    assert values["calm"] == 0
    assert values["changed"] == 1


@pytest.mark.parametrize(("calm", "looks"), [(1.0, 2), (-1.0, 4)])
def test_pixels_stop_when_their_mask_has_settled(images: Scenes, tmp_path: Path, calm: float, looks: int) -> None:
    fit = FitSettings(steps=4, validate_every=1, clip=1.0)
    chosen = settings(budgets=(0.2,), calm=calm, patience=2, fit=fit)
    for resume in (False, True):
        assert train(chosen, images, tmp_path, resume=resume)
        log = (tmp_path / loupe_name("toy", 0.2) / "log.jsonl").read_text().splitlines()
        assert len(log) == looks


def settings(**changes: Any) -> LoupeSettings:
    fit = FitSettings(steps=3, validate_every=3, clip=1.0)
    return replace(LoupeSettings((0.2, 0.4), 4, (8, 8), (1, 1), fit), **changes)


def train(chosen: LoupeSettings, images: Scenes, folder: Path, **options: Any) -> bool:
    return train_all(loupe_recipes(chosen, images, images), folder, Execution(console=QUIET, **options))


def test_every_budget_is_trained_once(images: Scenes, tmp_path: Path) -> None:
    assert train(settings(), images, tmp_path)
    path = tmp_path / loupe_name("toy", 0.2) / "weights.safetensors"
    before = path.stat().st_mtime_ns
    assert train(settings(), images, tmp_path, resume=True)
    assert path.stat().st_mtime_ns == before
    assert load_loupe(tmp_path / loupe_name("toy", 0.4), SHAPE, 0.4).map.budget == 0.4
    with pytest.raises(CheckpointError, match="cannot be resumed"):
        train(settings(batch_size=2), images, tmp_path, resume=True)
    with pytest.raises(ConfigError, match="holds a run already"):
        train(settings(), images, tmp_path)


def test_a_stop_stops_every_budget(images: Scenes, tmp_path: Path) -> None:
    assert not train(settings(), images, tmp_path, max_minutes=0)
    assert [path.name for path in tmp_path.iterdir()] == [loupe_name("toy", 0.2)]


def test_loupe_for_another_budget_or_size_is_refused(images: Scenes, tmp_path: Path) -> None:
    train(settings(budgets=(0.2,)), images, tmp_path)
    with pytest.raises(CheckpointError, match=r"budget 0\.2"):
        load_loupe(tmp_path / loupe_name("toy", 0.2), SHAPE, 0.3)
    with pytest.raises(CheckpointError, match="shape"):
        load_loupe(tmp_path / loupe_name("toy", 0.2), (1, 16, 16), 0.2)


@pytest.mark.parametrize("changes", [{"budgets": (0.2, 1.0)}, {"budgets": ()}, {"batch_size": 0}])
def test_impossible_settings_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        settings(**changes)


@pytest.mark.parametrize("preset", ["cpu", "paper"])
def test_presets_describe_loupe(preset: str) -> None:
    assert load_preset(preset, "loupe.mnist", LoupeSettings).budgets == (0.05, 0.1, 0.2, 0.3)


def test_a_series_stopped_in_the_middle_goes_on_there(images: Scenes, tmp_path: Path) -> None:
    train(settings(), images, tmp_path / "whole")
    runs = 1
    complete = train(settings(), images, tmp_path / "parts", max_minutes=0)
    while not complete:
        runs += 1
        complete = train(settings(), images, tmp_path / "parts", max_minutes=0, resume=True)
    assert runs == 2 * 3 + 1  # a budget that is complete hands over to the next at once; the last look is left over
    for budget in (0.2, 0.4):
        whole, parts = (load(tmp_path / name / loupe_name("toy", budget))[0] for name in ("whole", "parts"))
        for one, other in zip(whole.parameters(), parts.parameters(), strict=True):
            assert torch.equal(one, other)


def test_rows_make_a_mask_with_the_acs_block() -> None:
    model = fresh(LoupeRows, ROWS, 0.5, 8, ACS)
    objective = LoupeRowsObjective(model, slices(), slices(), 8, ACS, LoupeRowsSettings(batch_size=4))
    objective.loss(model, 0, step_generator(0, 0)).backward()
    mask = objective.mask(model)
    assert mask.sum() == 8
    assert bool(mask[acs_rows(ROWS, ACS)].all())


def test_rows_say_what_became_of_the_first_mask() -> None:
    model = fresh(LoupeRows, ROWS, 0.5, 8, ACS)
    objective = LoupeRowsObjective(model, slices(), slices(), 8, ACS, LoupeRowsSettings(batch_size=4))
    values = objective.validate(model)
    assert values["from_start"] == 1
    assert values["changed"] == 0
    assert values["calm"] == 1
    with torch.no_grad():
        model.map.weight.neg_()  # the least likely rows become the likeliest
    values = objective.validate(model)
    assert values["from_start"] == 0
    assert values["changed"] == 0.5
    assert values["calm"] == 0
    others = fresh(LoupeRows, ROWS, 0.5, 8, ACS)
    resumed = LoupeRowsObjective(others, slices(), slices(), 8, ACS, LoupeRowsSettings(batch_size=4))
    resumed.load_state(objective.state())
    assert torch.equal(resumed.first, objective.first)
    assert not torch.equal(resumed.last, resumed.first)


@pytest.mark.parametrize(("calm", "ended"), [(1.0, 3), (-1.0, 5)])
def test_rows_stop_when_they_have_settled(calm: float, ended: int, tmp_path: Path) -> None:
    fit = FitSettings(steps=5, validate_every=1, average=0.0)
    chosen = LoupeRowsSettings(batch_size=2, base=8, calm=calm, patience=3, fit=fit)
    recipe = LoupeRowsRecipe(chosen, slices(), slices(), ACS, 0.5)
    assert recipe.train(tmp_path, Execution(console=QUIET))
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == ended
    assert load_mask(tmp_path / "mask.npy", ROWS).sum() == 8
    assert recipe.train(tmp_path, Execution(resume=True, console=QUIET))
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == ended
    assert isinstance(load(tmp_path, "loupe-rows")[0], LoupeRows)


@pytest.mark.parametrize("rate", [1.0, 10.0])
def test_the_map_learns_at_its_own_rate(images: Scenes, tmp_path: Path, rate: float) -> None:
    """Adam's first step is as long as its rate, whatever the gradient."""
    made = settings(budgets=(0.25,), map_rate=rate, fit=FitSettings(steps=1, warmup=1, learning_rate=1e-3, average=0.0))
    (recipe,) = loupe_recipes(made, images, images).values()
    objective = recipe.objective(small_loupe())
    before = objective.model.map.weight.detach().clone()
    training = Training(objective, made.fit)
    training.begin(launch(device="cpu"), compiled=False)
    training.advance(0)
    moved = (objective.model.map.weight.detach() - before).abs()
    torch.testing.assert_close(moved.max(), torch.tensor(1e-3 * rate), rtol=1e-2, atol=0)
