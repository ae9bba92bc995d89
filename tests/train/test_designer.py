"""The mask generator, its loss and its training."""

from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from sensewise import masks
from sensewise.acquire import acquire
from sensewise.checkpoint import save_run
from sensewise.data import Images
from sensewise.errors import CheckpointError, ConfigError, DataError
from sensewise.estimators import exact_gradient
from sensewise.generator import MaskGenerator, load_generator
from sensewise.generator_objective import (
    GeneratorLoss,
    GeneratorObjective,
    Surrogate,
    density_penalty,
    disarm_gradient,
    entropy_loss,
    entropy_map,
    relaxed_entropy,
    within_reach,
)
from sensewise.networks import UNet
from sensewise.policies import OneShot
from sensewise.presets import load
from sensewise.priors import AbsorbingPrior
from sensewise.sensors import PixelSensor, Side
from sensewise.tokens import observe
from sensewise.train_generator import GeneratorSettings, generator_config, train_generator
from sensewise.training import FitSettings, step_generator

SHAPE = (1, 8, 8)
K = 64


@pytest.fixture
def prior() -> AbsorbingPrior:
    torch.manual_seed(0)
    network = UNet(1, 2, 3, widths=(8, 8), blocks=(1, 1), embedding=8)
    nn.init.normal_(network.head.weight)
    return AbsorbingPrior(network, SHAPE, 2, 3).eval().requires_grad_(False)


@pytest.fixture
def images() -> Images:
    torch.manual_seed(1)
    return Images("toy", "train", torch.randint(1, 3, (20, *SHAPE), dtype=torch.uint8), torch.arange(20) % 3, 2, 3)


def generator(decoder: str = "full") -> MaskGenerator:
    torch.manual_seed(2)
    return MaskGenerator(SHAPE, 3, decoder)  # type: ignore[arg-type]


@pytest.mark.parametrize("decoder", ["paper", "full"])
@pytest.mark.parametrize("batch", [1, 3])
def test_logits_have_shape_and_gradient(decoder: str, batch: int) -> None:
    model = generator(decoder).eval()
    logits = model(torch.rand(batch, 1, 8, 8), torch.zeros(batch, dtype=torch.long), torch.full((batch,), 0.3))
    assert logits.shape == (batch, K)
    assert bool(logits.isfinite().all())
    logits.sum().backward()
    assert sum(float(p.grad.abs().sum()) for p in model.parameters() if p.grad is not None) > 0


@pytest.mark.parametrize("decoder", ["paper", "full"])
def test_masks_do_not_depend_on_batch_mates(decoder: str) -> None:
    model = generator(decoder).eval()
    summary, label, budget = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 2, -1]), torch.linspace(0.1, 0.7, 4)
    together = model(summary, label, budget)
    alone = torch.cat([model(summary[i : i + 1], label[i : i + 1], budget[i : i + 1]) for i in range(4)])
    torch.testing.assert_close(together, alone)


@pytest.mark.parametrize(("labels", "count"), [(10, 19_490), (None, 9_954)])
def test_paper_architecture_has_the_papers_size(labels: int | None, count: int) -> None:
    assert sum(p.numel() for p in MaskGenerator((1, 32, 32), labels, "paper").parameters()) == count


def test_full_decoder_starts_on_budget() -> None:
    budget = torch.tensor([0.1, 0.6])
    logits = generator()(torch.rand(2, 1, 8, 8), None, budget)
    torch.testing.assert_close(torch.sigmoid(logits).mean(1), budget)


def test_unknown_labels_are_none(images: Images) -> None:
    model, summary, budget = generator("paper").eval(), torch.rand(2, 1, 8, 8), torch.full((2,), 0.2)
    torch.testing.assert_close(model(summary, None, budget), model(summary, torch.tensor([-1, -1]), budget))
    assert not torch.equal(model(summary, None, budget), model(summary, torch.tensor([0, 1]), budget))


def test_density_penalty_is_the_enumerated_expectation() -> None:
    logits = torch.tensor([[0.5, -1.0, 2.0]], dtype=torch.float64)
    every = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 3)  # (8, 3)
    p = torch.sigmoid(logits)
    probability = torch.where(every > 0, p, 1 - p).prod(1)
    expected = (probability * (every.mean(1) - 0.3) ** 2).sum()
    torch.testing.assert_close(density_penalty(logits, torch.tensor([0.3], dtype=torch.float64))[0], expected)


@pytest.mark.parametrize("surrogate", ["all", "all-raw", "observed"])
def test_relaxed_entropy_agrees_with_hard_masks(prior: AbsorbingPrior, images: Images, surrogate: Surrogate) -> None:
    x, label = images[slice(0, 5)]
    assert label is not None
    t = torch.full((5,), 700)
    mask = torch.rand(5, K, generator=torch.Generator().manual_seed(0)) < 0.4
    hard = entropy_loss(prior, x, label, t, surrogate)(mask, torch.arange(5))
    torch.testing.assert_close(relaxed_entropy(prior, x, label, t, surrogate, mask.float()), hard)


def test_observed_surrogate_is_zero_for_an_empty_mask(prior: AbsorbingPrior, images: Images) -> None:
    x, label = images[slice(0, 2)]
    assert label is not None
    loss = entropy_loss(prior, x, label, torch.full((2,), 700), "observed")
    assert loss(torch.zeros(2, K, dtype=torch.bool), torch.arange(2)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("surrogate", ["all", "variance"])
def test_map_adds_up_to_the_loss(prior: AbsorbingPrior, images: Images, surrogate: Surrogate) -> None:
    x, label = images[slice(0, 4)]
    assert label is not None
    t, mask = torch.full((4,), 700), torch.rand(4, K, generator=torch.Generator().manual_seed(0)) < 0.4
    pixels = entropy_map(prior, x, label, t, surrogate)(mask, torch.arange(4))
    torch.testing.assert_close(pixels.sum(1), entropy_loss(prior, x, label, t, surrogate)(mask, torch.arange(4)))


def test_variance_surrogate_is_what_the_posterior_mean_is_expected_to_get_wrong(
    prior: AbsorbingPrior, images: Images
) -> None:
    x, label = images[slice(0, 4)]
    assert label is not None
    t, mask = torch.full((4,), 700), torch.rand(4, K, generator=torch.Generator().manual_seed(0)) < 0.4
    bright = prior(observe(x, mask), label, t).exp()[..., 1]  # two levels, 0 and 1
    expected = (bright * (1 - bright)).mean(dim=(1, 2, 3))
    torch.testing.assert_close(entropy_loss(prior, x, label, t, "variance")(mask, torch.arange(4)), expected)


def test_reach_over_the_whole_image_is_plain_disarm(prior: AbsorbingPrior, images: Images) -> None:
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


def test_disarm_through_the_prior_agrees_with_flips(prior: AbsorbingPrior, images: Images) -> None:
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
        GeneratorLoss(),
        GeneratorLoss(reach=2, relative=True),
        GeneratorLoss("observed"),
        GeneratorLoss("variance", reach=2, relative=True),
    ],
)
def test_objective_gives_a_finite_loss_and_no_gradient_to_the_prior(
    prior: AbsorbingPrior, images: Images, settings: GeneratorLoss
) -> None:
    model = generator()
    objective = GeneratorObjective(model, prior, images, images, settings, batch_size=4)
    loss = objective.loss(model, 0, step_generator(0, 0))
    loss.backward()
    assert bool(loss.isfinite())
    assert model.decoder.head.weight.grad.abs().sum() > 0  # type: ignore[union-attr, operator]
    assert all(p.grad is None for p in prior.parameters())


def test_straight_through_trains_the_generator(prior: AbsorbingPrior, images: Images) -> None:
    model = generator()
    objective = GeneratorObjective(model, prior, images, images, GeneratorLoss(estimator="straight-through"), 4)
    objective.loss(model, 0, step_generator(0, 0)).backward()
    assert model.decoder.head.weight.grad.abs().sum() > 0  # type: ignore[union-attr, operator]


def test_validation_reports_learned_random_and_plain_draws(prior: AbsorbingPrior, images: Images) -> None:
    model = generator().eval()
    values = GeneratorObjective(model, prior, images, images, GeneratorLoss(), 4).validate(model)
    for s in (0.1, 0.3, 0.5, 0.7):
        for name in (f"entropy_{s}", f"errors_{s}", f"recovery_{s}", f"errors_{s}_random"):
            assert name in values
        assert values[f"bernoulli_density_{s}"] == pytest.approx(s, abs=0.06)
    assert "psnr_0.1" not in values
    ordered = GeneratorObjective(model, prior, images, images, GeneratorLoss("variance"), 4).validate(model)
    assert ordered["psnr_0.7"] > ordered["psnr_0.1"] > 0


class HalfKnown(AbsorbingPrior):
    """Every pixel of the left half is a coin toss of its own; the right half is black, and known to be."""

    def predict(self, y: Tensor, label: Tensor, t: Tensor | None) -> Tensor:
        left = (torch.arange(8) < 4).expand(*y.shape)
        return torch.stack([torch.where(left, 0.5, 1 - 1e-6), torch.where(left, 0.5, 1e-6)], dim=-1).log()


def test_training_finds_where_the_uncertainty_is(tmp_path: Path) -> None:
    x = torch.ones(40, 1, 8, 8, dtype=torch.uint8)
    x[..., :4] += torch.randint(0, 2, (40, 1, 8, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    halves = Images("toy", "train", x, torch.arange(40) % 3, 2, 3)
    prior = HalfKnown(UNet(1, 2, 3, widths=(8,), blocks=(1,), embedding=8), SHAPE, 2, 3)
    fit = FitSettings(steps=40, learning_rate=0.003, warmup=5, clip=1.0, average=0.9, validate_every=40)
    settings = GeneratorSettings(8, "full", GeneratorLoss(max_budget=0.4, reach=1), fit)
    assert train_generator(settings, prior, halves, halves, tmp_path / "run", console=Console(quiet=True))
    model = load_generator(tmp_path / "run", prior)
    values = GeneratorObjective(model, prior, halves, halves, GeneratorLoss(), 4).validate(model)
    assert values["entropy_0.3"] < 0.8 * values["entropy_0.3_random"]
    assert (tmp_path / "run" / "log.jsonl").is_file()


def small_settings(steps: int = 4) -> GeneratorSettings:
    return GeneratorSettings(4, "paper", GeneratorLoss(), FitSettings(steps=steps, validate_every=steps, clip=1.0))


def test_resumed_training_takes_the_same_steps(prior: AbsorbingPrior, images: Images, tmp_path: Path) -> None:
    quiet = Console(quiet=True)
    assert train_generator(small_settings(), prior, images, images, tmp_path / "whole", console=quiet)
    stopped = train_generator(small_settings(), prior, images, images, tmp_path / "parts", max_minutes=0, console=quiet)
    assert not stopped
    assert train_generator(small_settings(), prior, images, images, tmp_path / "parts", resume=True, console=quiet)
    whole, parts = (load_generator(tmp_path / name, prior) for name in ("whole", "parts"))
    for a, b in zip(whole.state_dict().values(), parts.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_resuming_another_models_folder_changes_nothing(prior: AbsorbingPrior, images: Images, tmp_path: Path) -> None:
    save_run(tmp_path, {"kind": "prior", "model": {}}, prior)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(CheckpointError, match="kind"):
        train_generator(small_settings(), prior, images, images, tmp_path, resume=True, console=Console(quiet=True))
    with pytest.raises(ConfigError, match="holds a run already"):
        train_generator(small_settings(), prior, images, images, tmp_path, console=Console(quiet=True))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def saved(folder: Path, prior: AbsorbingPrior, images: Images, **changes: object) -> Path:
    config = generator_config(small_settings(), images, prior)
    config["model"] |= changes
    torch.manual_seed(0)
    channels, height, width = config["model"]["shape"]
    model = MaskGenerator((channels, height, width), config["model"]["num_labels"], "paper")
    save_run(folder, config, model)
    return folder


def test_saved_generator_loads(prior: AbsorbingPrior, images: Images, tmp_path: Path) -> None:
    assert load_generator(saved(tmp_path, prior, images), prior).shape == SHAPE


@pytest.mark.parametrize(("changes", "message"), [({"shape": [1, 16, 16]}, "shape"), ({"num_labels": 7}, "7 labels")])
def test_generator_for_other_images_is_refused(
    prior: AbsorbingPrior, images: Images, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        load_generator(saved(tmp_path, prior, images, **changes), prior)


def test_generator_for_another_prior_is_refused(prior: AbsorbingPrior, images: Images, tmp_path: Path) -> None:
    folder = saved(tmp_path, prior, images)
    prior.network.head.bias.data += 1  # type: ignore[union-attr, operator]
    with pytest.raises(CheckpointError, match="another prior"):
        load_generator(folder, prior)


def test_a_prior_is_no_generator(prior: AbsorbingPrior, tmp_path: Path) -> None:
    save_run(tmp_path, {"kind": "prior", "model": {}}, prior)
    with pytest.raises(CheckpointError, match="this is a prior, not a generator"):
        load_generator(tmp_path, prior)


@pytest.mark.parametrize("summary", [torch.rand(2, 8, 8), torch.rand(2, 1, 4, 4), torch.rand(2, 3, 8, 8)])
def test_summary_of_the_wrong_shape_is_refused(summary: Tensor) -> None:
    with pytest.raises(DataError, match="summary has shape"):
        generator()(summary, None, torch.full((2,), 0.1))


def test_wrong_labels_are_refused() -> None:
    with pytest.raises(DataError, match="3 classes"):
        generator()(torch.rand(2, 1, 8, 8), torch.tensor([0, 3]), torch.full((2,), 0.1))
    with pytest.raises(DataError, match="one label per image"):
        generator()(torch.rand(2, 1, 8, 8), torch.tensor([0]), torch.full((2,), 0.1))


@pytest.mark.parametrize(
    "changes",
    [
        {"sparsity": -1.0},
        {"min_budget": 0.9, "max_budget": 0.1},
        {"max_budget": 1.0},
        {"min_budget": 0.0},
        {"reach": -1},
        {"reach": 2, "surrogate": "observed"},
        {"temperature": 0.0},
    ],
)
def test_impossible_losses_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        GeneratorLoss(**changes)  # type: ignore[arg-type]


def test_straight_through_has_no_variance_surrogate(prior: AbsorbingPrior, images: Images) -> None:
    settings = GeneratorLoss("variance", "straight-through")
    with pytest.raises(ConfigError, match="entropy surrogates"):
        GeneratorObjective(generator(), prior, images, images, settings, 4)


def test_mismatched_images_are_refused(prior: AbsorbingPrior, images: Images) -> None:
    with pytest.raises(DataError, match="same shape"):
        GeneratorObjective(MaskGenerator((1, 16, 16), 3), prior, images, images, GeneratorLoss(), 4)
    with pytest.raises(DataError, match="same labels"):
        GeneratorObjective(MaskGenerator(SHAPE, 4), prior, images, images, GeneratorLoss(), 4)


def test_unknown_decoder_and_odd_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="decoder"):
        MaskGenerator(SHAPE, 3, "wide")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="divisible"):
        MaskGenerator((1, 12, 8), 3)


@pytest.mark.parametrize("sampled", [True, False])
def test_one_shot_policy_spends_the_exact_budget(images: Images, sampled: bool) -> None:
    x, label = images[slice(0, 6)]
    sensor = PixelSensor(x)
    side = Side(label=label, summary=sensor.summary(2))
    policy = OneShot(generator().eval().keep_logits, sampled=sampled)
    taken = acquire(policy, sensor, 0.25, side=side, generator=torch.Generator().manual_seed(0))
    assert taken.mask.sum(1).tolist() == [16] * 6


def test_one_shot_policy_needs_a_summary(images: Images) -> None:
    x, label = images[slice(0, 2)]
    policy = OneShot(generator().eval().keep_logits)
    with pytest.raises(DataError, match="needs a summary"):
        acquire(policy, PixelSensor(x), 0.25, side=Side(label=label))
    with pytest.raises(DataError, match="one summary per image"):
        acquire(policy, PixelSensor(x), 0.25, side=Side(summary=torch.rand(3, 1, 8, 8)))


def test_plain_draws_follow_the_probabilities() -> None:
    logits = torch.full((4, 5000), -1.0)
    drawn = masks.bernoulli(logits, torch.Generator().manual_seed(0))
    assert drawn.float().mean() == pytest.approx(torch.sigmoid(torch.tensor(-1.0)).item(), abs=0.01)


@pytest.mark.parametrize("preset", ["cpu", "paper"])
@pytest.mark.parametrize("variant", ["disarm", "observed", "straight-through"])
def test_presets_describe_generators(preset: str, variant: str) -> None:
    assert load(preset, f"generator.mnist.{variant}", GeneratorSettings).batch_size > 0


def test_paper_preset_is_the_papers() -> None:
    settings = load("paper", "generator.mnist.disarm", GeneratorSettings)
    assert (settings.batch_size, settings.decoder, settings.fit.learning_rate) == (512, "paper", 3e-4)
    assert (settings.loss.sparsity, settings.loss.min_budget, settings.loss.max_budget) == (10, 0.05, 0.95)
    assert settings.fit.steps * 512 // 60_000 == 199
