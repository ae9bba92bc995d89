"""The mask designer's loss and its training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from conftest import fresh
from sensewise import masks
from sensewise.data.scenes import Scenes
from sensewise.errors import CheckpointError, ConfigError, DataError
from sensewise.estimators import exact_gradient
from sensewise.hub import load_designer, save
from sensewise.networks.decoders import MaskDesigner
from sensewise.networks.unet import UNet
from sensewise.predictions import Categorical
from sensewise.presets import load
from sensewise.priors.absorbing import AbsorbingPrior
from sensewise.tokens import observe
from sensewise.train.designer import (
    DesignerLoss,
    DesignerObjective,
    DesignerRecipe,
    DesignerSettings,
    Surrogate,
    density_penalty,
    disarm_gradient,
    entropy_loss,
    entropy_map,
    relaxed_entropy,
    with_penalty,
    within_reach,
)
from sensewise.train.fit import step_generator
from sensewise.train.gradient import FitSettings
from sensewise.train.processes import Execution

SHAPE = (1, 8, 8)
K = 64
QUIET = Console(quiet=True)


@pytest.fixture
def prior() -> AbsorbingPrior:
    def network() -> UNet:
        made = UNet(1, 2, 3, widths=(8, 8), blocks=(1, 1), embedding=8)
        nn.init.normal_(made.head.weight)
        return made

    return AbsorbingPrior(fresh(network), 1, 2, 3, size=(8, 8)).eval().requires_grad_(False)


@pytest.fixture
def images() -> Scenes:
    tokens = torch.randint(1, 3, (20, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    return Scenes("toy", "train", tokens, torch.arange(20) % 3, 2, 3)


def designer(decoder: str = "full") -> MaskDesigner:
    return fresh(MaskDesigner, SHAPE, 3, decoder, seed=2)


def test_density_penalty_is_the_enumerated_expectation() -> None:
    logits = torch.tensor([[0.5, -1.0, 2.0]], dtype=torch.float64)
    every = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 3)  # (8, 3)
    p = torch.sigmoid(logits)
    probability = torch.where(every > 0, p, 1 - p).prod(1)
    expected = (probability * (every.mean(1) - 0.3) ** 2).sum()
    torch.testing.assert_close(density_penalty(logits, torch.tensor([0.3], dtype=torch.float64))[0], expected)


@pytest.mark.parametrize("surrogate", ["all", "all-raw", "observed"])
def test_relaxed_entropy_agrees_with_hard_masks(prior: AbsorbingPrior, images: Scenes, surrogate: Surrogate) -> None:
    x, label = images[slice(0, 5)]
    assert label is not None
    t = torch.full((5,), 700)
    mask = torch.rand(5, K, generator=torch.Generator().manual_seed(0)) < 0.4
    hard = entropy_loss(prior, x, label, t, surrogate)(mask, torch.arange(5))
    torch.testing.assert_close(relaxed_entropy(prior, x, label, t, surrogate, mask.float()), hard)


def test_observed_surrogate_is_zero_for_an_empty_mask(prior: AbsorbingPrior, images: Scenes) -> None:
    x, label = images[slice(0, 2)]
    assert label is not None
    loss = entropy_loss(prior, x, label, torch.full((2,), 700), "observed")
    assert loss(torch.zeros(2, K, dtype=torch.bool), torch.arange(2)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("surrogate", ["all", "variance", "all-raw"])
def test_map_adds_up_to_the_loss(prior: AbsorbingPrior, images: Scenes, surrogate: Surrogate) -> None:
    x, label = images[slice(0, 4)]
    assert label is not None
    t, mask = torch.full((4,), 700), torch.rand(4, K, generator=torch.Generator().manual_seed(0)) < 0.4
    pixels = entropy_map(prior, x, label, t, surrogate)(mask, torch.arange(4))
    torch.testing.assert_close(pixels.sum(1), entropy_loss(prior, x, label, t, surrogate)(mask, torch.arange(4)))


def test_variance_surrogate_is_what_the_posterior_mean_is_expected_to_get_wrong(
    prior: AbsorbingPrior, images: Scenes
) -> None:
    x, label = images[slice(0, 4)]
    assert label is not None
    t, mask = torch.full((4,), 700), torch.rand(4, K, generator=torch.Generator().manual_seed(0)) < 0.4
    bright = prior(observe(x, mask), label, t).mean()  # two levels, 0 and 1
    expected = (bright * (1 - bright)).mean(dim=(1, 2, 3))
    torch.testing.assert_close(entropy_loss(prior, x, label, t, "variance")(mask, torch.arange(4)), expected)


def test_reach_over_the_whole_image_is_plain_disarm(prior: AbsorbingPrior, images: Scenes) -> None:
    x, label = images[slice(0, 4)]
    assert label is not None
    logits, t = torch.randn(4, K, generator=torch.Generator().manual_seed(0)), torch.full((4,), 700)
    u = torch.rand(4, K, generator=torch.Generator().manual_seed(1))
    plain = disarm_gradient(logits, entropy_loss(prior, x, label, t, "all"), u)
    near = disarm_gradient(logits, entropy_map(prior, x, label, t), u, (8, 8), reach=7)
    torch.testing.assert_close(plain, near, atol=1e-6, rtol=1e-4)


def test_within_reach_adds_up_a_square() -> None:
    pixels = torch.zeros(1, 25)
    pixels[0, 12] = 2.0
    near = within_reach(pixels, (5, 5), 1).view(5, 5)
    assert near[1:4, 1:4].eq(2).all()
    assert near.sum() == 18


def test_disarm_through_the_prior_agrees_with_flips(prior: AbsorbingPrior, images: Scenes) -> None:
    x, label = images[slice(0, 2)]
    assert label is not None
    generator, logits = torch.Generator().manual_seed(0), torch.zeros(2, K)
    loss = entropy_loss(prior, x, label, torch.full((2,), 700), "all")
    exact = torch.stack([exact_gradient(logits, masks.bernoulli(logits, generator), loss) for _ in range(20)]).mean(0)
    many, u = torch.zeros(2 * 1000, K), torch.rand(2 * 1000, K, generator=generator)
    _, ours = disarm_gradient(many, lambda mask, index: loss(mask, index % 2), u)
    mean = ours.view(1000, 2, K).mean(0)
    assert torch.cosine_similarity(mean.flatten(), exact.flatten(), dim=0) > 0.9


@pytest.mark.parametrize(
    "settings",
    [
        DesignerLoss(),
        DesignerLoss(reach=2, relative=True),
        DesignerLoss("observed"),
        DesignerLoss("variance", reach=2, relative=True),
        DesignerLoss("all-raw", penalty="sampled"),
    ],
)
def test_objective_gives_a_finite_loss_and_no_gradient_to_the_prior(
    prior: AbsorbingPrior, images: Scenes, settings: DesignerLoss
) -> None:
    model = designer()
    objective = DesignerObjective(model, prior, images, images, settings, batch_size=4)
    loss = objective.loss(model, 0, step_generator(0, 0))
    loss.backward()
    assert bool(loss.isfinite())
    assert model.decoder.head.weight.grad.abs().sum() > 0  # type: ignore[union-attr, operator]
    assert all(p.grad is None for p in prior.parameters())


def test_straight_through_trains_the_generator(prior: AbsorbingPrior, images: Scenes) -> None:
    model = designer()
    objective = DesignerObjective(model, prior, images, images, DesignerLoss(estimator="straight-through"), 4)
    objective.loss(model, 0, step_generator(0, 0)).backward()
    assert model.decoder.head.weight.grad.abs().sum() > 0  # type: ignore[union-attr, operator]


def test_validation_reports_learned_random_and_plain_draws(prior: AbsorbingPrior, images: Scenes) -> None:
    model = designer().eval()
    values = DesignerObjective(model, prior, images, images, DesignerLoss(), 4).validate(model)
    for s in (0.1, 0.3, 0.5, 0.7):
        for name in (f"entropy_{s}", f"errors_{s}", f"recovery_{s}", f"errors_{s}_random"):
            assert name in values
        assert values[f"bernoulli_density_{s}"] == pytest.approx(s, abs=0.06)
    assert "psnr_0.1" not in values
    ordered = DesignerObjective(model, prior, images, images, DesignerLoss("variance"), 4).validate(model)
    assert ordered["psnr_0.7"] > ordered["psnr_0.1"] > 0


class HalfKnown(AbsorbingPrior):
    """Every pixel of the left half is a coin toss of its own; the right half is black, and known to be."""

    def predict(self, y: Tensor, label: Tensor, t: Tensor | None) -> Categorical:
        left = (torch.arange(8) < 4).expand(*y.shape)
        probs = torch.stack([torch.where(left, 0.5, 1 - 1e-6), torch.where(left, 0.5, 1e-6)], dim=-1)
        return Categorical(probs.log())


def train(settings: DesignerSettings, prior: AbsorbingPrior, images: Scenes, folder: Path, **options: Any) -> bool:
    return DesignerRecipe(settings, images, images, prior).train(folder, Execution(console=QUIET, **options))


def test_training_finds_where_the_uncertainty_is(tmp_path: Path) -> None:
    x = torch.ones(40, 1, 8, 8, dtype=torch.uint8)
    x[..., :4] += torch.randint(0, 2, (40, 1, 8, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    halves = Scenes("toy", "train", x, torch.arange(40) % 3, 2, 3)
    prior = HalfKnown(UNet(1, 2, 3, widths=(8,), blocks=(1,), embedding=8), 1, 2, 3, size=(8, 8))
    fit = FitSettings(steps=40, learning_rate=0.003, warmup=5, clip=1.0, average=0.9, validate_every=40)
    settings = DesignerSettings(8, "full", DesignerLoss(max_budget=0.4, reach=1), fit)
    assert train(settings, prior, halves, tmp_path / "run")
    model = load_designer(tmp_path / "run", prior)
    values = DesignerObjective(model, prior, halves, halves, DesignerLoss(), 4).validate(model)
    assert values["entropy_0.3"] < 0.8 * values["entropy_0.3_random"]
    assert (tmp_path / "run" / "log.jsonl").is_file()


def small_settings(steps: int = 4) -> DesignerSettings:
    return DesignerSettings(4, "paper", DesignerLoss(), FitSettings(steps=steps, validate_every=steps, clip=1.0))


def test_resumed_training_takes_the_same_steps(prior: AbsorbingPrior, images: Scenes, tmp_path: Path) -> None:
    assert train(small_settings(), prior, images, tmp_path / "whole")
    assert not train(small_settings(), prior, images, tmp_path / "parts", max_minutes=0)
    assert train(small_settings(), prior, images, tmp_path / "parts", resume=True)
    whole, parts = (load_designer(tmp_path / name, prior) for name in ("whole", "parts"))
    for a, b in zip(whole.state_dict().values(), parts.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_resuming_another_models_folder_changes_nothing(prior: AbsorbingPrior, images: Scenes, tmp_path: Path) -> None:
    save(tmp_path, {"kind": "prior", "model": {}}, prior)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != ".lock"}
    with pytest.raises(CheckpointError, match="kind"):
        train(small_settings(), prior, images, tmp_path, resume=True)
    with pytest.raises(ConfigError, match="holds a run already"):
        train(small_settings(), prior, images, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != ".lock"} == before


@pytest.mark.parametrize(
    "changes",
    [
        {"sparsity": -1.0},
        {"min_budget": 0.9, "max_budget": 0.1},
        {"max_budget": 1.0},
        {"min_budget": 0.0},
        {"reach": -1},
        {"reach": 2, "surrogate": "observed"},
        {"reach": 2, "penalty": "sampled"},
        {"temperature": 0.0},
    ],
)
def test_impossible_losses_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        DesignerLoss(**changes)  # type: ignore[arg-type]


def test_a_sampled_penalty_is_on_average_the_expected_one(prior: AbsorbingPrior, images: Scenes) -> None:
    logits = torch.randn(1, 16, generator=torch.Generator().manual_seed(0))
    budget = torch.tensor([0.3])
    loss = with_penalty(lambda mask, index: torch.zeros(len(mask)), budget, 1.0)
    drawn = torch.rand(40_000, 16, generator=torch.Generator().manual_seed(1)) < torch.sigmoid(logits)
    sampled = loss(drawn, torch.zeros(len(drawn), dtype=torch.int64)).mean()
    assert sampled.item() == pytest.approx(density_penalty(logits, budget).item(), rel=0.02)


def test_a_designer_without_labels_does_not_look_at_them(prior: AbsorbingPrior, images: Scenes, tmp_path: Path) -> None:
    settings = replace(small_settings(), labels=False)
    assert train(settings, prior, images, tmp_path)
    found = load_designer(tmp_path, prior)
    assert found.num_labels is None
    seen, budget = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.full((2,), 0.3)
    assert torch.equal(found.keep_logits(seen, torch.tensor([0, 1]), budget), found.keep_logits(seen, None, budget))


def test_the_papers_designer_of_photographs_has_ten_thousand_weights() -> None:
    settings = load("cpu", "generator.cifar10.paper", DesignerSettings)
    made = MaskDesigner((3, 32, 32), None, settings.decoder)
    assert round(sum(weight.numel() for weight in made.parameters()), -3) == 10_000
    loss = settings.loss
    assert (loss.surrogate, loss.sparsity) == ("all-raw", 10)
    assert (loss.min_budget, loss.max_budget, settings.labels) == (0.1, 0.9, False)
    assert settings.fit.learning_rate * settings.fit.steps == pytest.approx(2e-5 * 200 * 50_000 / 128, rel=0.03)


def test_straight_through_has_no_variance_surrogate(prior: AbsorbingPrior, images: Scenes) -> None:
    settings = DesignerLoss("variance", "straight-through")
    with pytest.raises(ConfigError, match="entropy surrogates"):
        DesignerObjective(designer(), prior, images, images, settings, 4)


def test_mismatched_images_are_refused(prior: AbsorbingPrior, images: Scenes) -> None:
    with pytest.raises(DataError, match="same shape"):
        DesignerObjective(MaskDesigner((1, 16, 16), 3), prior, images, images, DesignerLoss(), 4)
    with pytest.raises(DataError, match="same labels"):
        DesignerObjective(MaskDesigner(SHAPE, 4), prior, images, images, DesignerLoss(), 4)


@pytest.mark.parametrize("preset", ["cpu", "paper"])
@pytest.mark.parametrize("variant", ["disarm", "observed", "straight-through"])
def test_presets_describe_generators(preset: str, variant: str) -> None:
    assert load(preset, f"generator.mnist.{variant}", DesignerSettings).batch_size > 0


def test_paper_preset_is_the_papers() -> None:
    settings = load("paper", "generator.mnist.disarm", DesignerSettings)
    assert (settings.batch_size, settings.decoder, settings.fit.learning_rate) == (512, "paper", 3e-4)
    assert (settings.loss.sparsity, settings.loss.min_budget, settings.loss.max_budget) == (10, 0.05, 0.95)
    assert round(settings.fit.steps * 512 / 60_000) == 200
