from dataclasses import replace

import pytest
import torch

from sensewise import hub
from sensewise.data.scenes import Scenes
from sensewise.errors import CheckpointError, ConfigError
from sensewise.kspace import acs_rows, keep_rows, to_kspace
from sensewise.train.gradient import FitSettings
from sensewise.train.processes import Execution
from sensewise.train.reconstructor import (
    ReconNetworkSettings,
    ReconstructionObjective,
    ReconstructorRecipe,
    ReconstructorSettings,
    augmented,
    training_masks,
)

SIDE, ACS = 16, 4


def slices(split: str = "train", count: int = 6, seed: int = 0) -> Scenes:
    draw = torch.Generator().manual_seed(seed)
    image = torch.zeros(count, SIDE, SIDE, dtype=torch.complex64)
    image[:, 4:12, 5:11] = torch.rand(count, 1, 1, generator=draw) + 0.5
    noise = 0.05 * torch.randn(count, SIDE, SIDE, dtype=torch.complex64, generator=draw)
    return Scenes("toy", split, to_kspace(image) + noise)


def test_training_masks_hold_every_family_and_no_budget_below_acs():
    mask = training_masks(500, 40, 6, 0.1, 0.75, torch.Generator().manual_seed(0))
    counts = mask.sum(1)
    assert counts.min() >= 4
    assert counts.max() <= 30
    whole = mask[:, acs_rows(40, 6)].all(1)
    assert 200 < int(whole.sum()) < 400


def settings(steps: int = 40) -> ReconstructorSettings:
    network = ReconNetworkSettings(widths=(8, 16), blocks=(1, 1), embedding=8)
    fit = FitSettings(steps=steps, learning_rate=5e-3, warmup=2, clip=1.0, average=0.5, validate_every=steps)
    return ReconstructorSettings(batch_size=4, network=network, fit=fit)


@pytest.fixture
def train(tmp_path, console):
    def call(name, steps=6, **options):
        recipe = ReconstructorRecipe(settings(steps), slices(), slices("val", 4, seed=1), ACS)
        return recipe.train(tmp_path / name, Execution(console=console, **options))

    return call


def test_training_beats_zero_filling_and_loads_again(train, tmp_path):
    assert train("run", steps=40)
    network, config = hub.load(tmp_path / "run", "reconstructor")
    values = ReconstructionObjective(network, slices(), slices("val", 4, seed=1), ACS, settings()).validate(network)
    assert values["nmse_0.5"] < 0.9 * values["zero_filled_0.5"]
    assert config["data"] == "toy"
    with pytest.raises(CheckpointError, match="this is a reconstructor, not a row-value"):
        hub.load(tmp_path / "run", "row-value")


def test_a_resumed_run_takes_the_steps_of_an_undisturbed_one(train, tmp_path):
    train("whole")
    assert not train("parts", max_minutes=0)
    assert train("parts", resume=True)
    whole, parts = (hub.load(tmp_path / name, "reconstructor")[0] for name in ("whole", "parts"))
    for one, other in zip(whole.parameters(), parts.parameters(), strict=True):
        assert torch.equal(one, other)


def test_augmentation_mirrors_and_turns_the_phase():
    kspace = slices(count=40).values
    changed = augmented(kspace, torch.Generator().manual_seed(0))
    same = torch.isclose(changed.abs(), kspace.abs(), atol=1e-5).all((1, 2))
    assert 10 < int(same.sum()) < 30
    torch.testing.assert_close(changed.abs().square().sum((1, 2)), kspace.abs().square().sum((1, 2)))
    assert not torch.allclose(changed[same], kspace[same])


def test_impossible_settings():
    with pytest.raises(ConfigError, match="min_budget"):
        ReconstructorSettings(min_budget=0.8, max_budget=0.2)


def test_several_coils_are_trained_as_one_is(tmp_path, console):
    """The same recipe on slices of two coils; the weights have the same shapes."""

    def shared(scenes: Scenes) -> Scenes:
        return replace(scenes, values=torch.stack([0.6 * scenes.values, 0.8j * scenes.values], dim=1))

    recipe = ReconstructorRecipe(settings(6), shared(slices()), shared(slices("val", 4, seed=1)), ACS)
    recipe.train(tmp_path / "coils", Execution(console=console))
    network, config = hub.load(tmp_path / "coils", "reconstructor")
    assert config["model"]["shape"] == [SIDE, SIDE]
    mask = acs_rows(SIDE, ACS).expand(6, -1)
    assert network(keep_rows(shared(slices()).values, mask), mask).isfinite().all()
