"""LOUPE's mask layers against NumPy, and its training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from sensewise.acquire import acquire
from sensewise.checkpoint import save_run
from sensewise.data import Images
from sensewise.errors import CheckpointError, ConfigError
from sensewise.loupe import (
    Loupe,
    LoupeObjective,
    LoupeReconstructor,
    ProbabilityMap,
    load_loupe,
    relaxed_mask,
    rescale,
)
from sensewise.policies import OneShot
from sensewise.presets import load
from sensewise.sensors import PixelSensor, Side
from sensewise.tokens import dequantize
from sensewise.train_loupe import LoupeSettings, run_name, train_loupe
from sensewise.training import FitSettings, step_generator

SHAPE = (1, 8, 8)


def numpy_probabilities(weight: np.ndarray, slope: float) -> np.ndarray:
    return 1 / (1 + np.exp(-slope * weight))


def numpy_rescaled(probs: np.ndarray, sparsity: float) -> np.ndarray:
    """As in the original: a factor if the mean is too large, the same for the complement if it is too small."""
    mean = probs.mean()
    r, beta = sparsity / mean, (1 - sparsity) / (1 - mean)
    le = float(r <= 1)
    return le * probs * r + (1 - le) * (1 - (1 - probs) * beta)


def numpy_threshold(probs: np.ndarray, u: np.ndarray, slope: float) -> np.ndarray:
    return 1 / (1 + np.exp(-slope * (probs - u)))


@pytest.mark.parametrize("shape", [(8, 8), (30,), (3, 4, 5)])
@pytest.mark.parametrize("budget", [0.05, 0.3, 0.5, 0.9])
def test_layers_match_numpy(shape: tuple[int, ...], budget: float) -> None:
    torch.manual_seed(0)
    layer = ProbabilityMap(shape, budget)
    u = torch.rand(4, *shape)
    weight = layer.weight.detach().double().numpy()
    expected = numpy_rescaled(numpy_probabilities(weight, 5), budget)
    np.testing.assert_allclose(layer().detach().numpy(), expected, atol=3e-7, rtol=0)
    soft = numpy_threshold(expected, u.double().numpy(), 12)
    # float32 through a slope of 12: compare the layer on the same probabilities
    ours = relaxed_mask(torch.from_numpy(expected), u.double())
    np.testing.assert_allclose(ours.numpy(), soft, atol=3e-7, rtol=0)
    np.testing.assert_allclose(relaxed_mask(layer(), u).detach().numpy(), soft, atol=3e-6, rtol=0)


@pytest.mark.parametrize("budget", [0.05, 0.5, 0.95])
def test_rescaling_meets_the_budget_and_stays_in_range(budget: float) -> None:
    probs = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    moved = rescale(probs, budget)
    assert moved.mean().item() == pytest.approx(budget, abs=1e-6)
    assert moved.min() >= 0
    assert moved.max() <= 1


def test_fresh_probabilities_are_uniform() -> None:
    torch.manual_seed(0)
    p = torch.sigmoid(5 * ProbabilityMap((2000,), 0.5).weight.detach())
    assert p.min() >= 0.0099
    assert p.max() <= 0.9901
    assert p.mean().item() == pytest.approx(0.5, abs=0.03)


@pytest.fixture
def images() -> Images:
    tokens = torch.randint(1, 3, (16, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return Images("toy", "train", tokens, None, 2, None)


def small_loupe(budget: float = 0.25) -> Loupe:
    torch.manual_seed(0)
    return Loupe(SHAPE, 2, budget, widths=(8, 8), blocks=(1, 1))


@pytest.mark.parametrize("batch", [1, 3])
def test_forward_gives_intensities_and_gradients(images: Images, batch: int) -> None:
    loupe = small_loupe()
    x, _ = images[slice(0, batch)]
    values = loupe(x, torch.rand(batch, 8, 8))
    assert values.shape == (batch, *SHAPE)
    torch.nn.init.normal_(loupe.network.head.weight)
    loupe(x, torch.rand(batch, 8, 8)).sum().backward()
    assert loupe.map.weight.grad is not None
    assert loupe.map.weight.grad.abs().sum() > 0


def test_a_confident_mistake_still_has_a_gradient(images: Images) -> None:
    """Under a mean absolute error a saturated softmax would stay all black for ever."""
    loupe = small_loupe()
    bias = loupe.network.head.bias
    torch.nn.init.constant_(bias[len(bias) // 2 :], -50.0)  # white is out of the question
    x, _ = images[slice(0, 3)]
    (loupe(x, torch.rand(3, 8, 8)) - dequantize(x, 2)).abs().mean().backward()
    assert loupe.network.head.weight.grad.abs().max() > 1e-3


def test_hidden_pixels_cannot_change_the_reconstruction(images: Images) -> None:
    loupe = small_loupe().eval()
    x, _ = images[slice(0, 2)]
    mask = torch.zeros(2, 64, dtype=torch.bool)
    mask[:, ::3] = True
    y = PixelSensor(x)(mask)
    x_hat = LoupeReconstructor(loupe)(y, mask, Side())
    assert torch.equal(x_hat[y > 0], dequantize(y, 2)[y > 0])
    assert 0 <= x_hat.min() <= x_hat.max() <= 1


@pytest.mark.parametrize("sampled", [True, False])
def test_policy_spends_the_exact_budget(images: Images, sampled: bool) -> None:
    x, _ = images[slice(0, 5)]
    policy = OneShot(small_loupe().keep_logits, sampled=sampled)
    taken = acquire(policy, PixelSensor(x), 0.25, generator=torch.Generator().manual_seed(0))
    assert taken.mask.sum(1).tolist() == [16] * 5
    same = bool((taken.mask == taken.mask[0]).all())
    assert same is not sampled


def test_objective_and_validation(images: Images) -> None:
    loupe = small_loupe()
    objective = LoupeObjective(loupe, images, images, 4)
    loss = objective.loss(loupe, 0, step_generator(0, 0))
    loss.backward()
    assert 0 < loss.item() < 1
    values = objective.validate(loupe.eval())
    assert set(values) == {"errors_topk", "errors_sampled", "undecided"}


def settings(**changes: Any) -> LoupeSettings:
    fit = FitSettings(steps=3, validate_every=3, clip=1.0)
    return replace(LoupeSettings((0.2, 0.4), 4, (8, 8), (1, 1), fit), **changes)


def test_every_budget_is_trained_once(images: Images, tmp_path: Path) -> None:
    quiet = Console(quiet=True)
    assert train_loupe(settings(), images, images, tmp_path, console=quiet)
    path = tmp_path / run_name("toy", 0.2) / "weights.safetensors"
    before = path.stat().st_mtime_ns
    assert train_loupe(settings(), images, images, tmp_path, resume=True, console=quiet)
    assert path.stat().st_mtime_ns == before
    assert load_loupe(tmp_path / run_name("toy", 0.4), SHAPE, 0.4).map.budget == 0.4
    with pytest.raises(CheckpointError, match="cannot be resumed"):
        train_loupe(settings(batch_size=2), images, images, tmp_path, resume=True, console=quiet)
    with pytest.raises(ConfigError, match="holds a run already"):
        train_loupe(settings(), images, images, tmp_path, console=quiet)


def test_a_stop_stops_every_budget(images: Images, tmp_path: Path) -> None:
    assert not train_loupe(settings(), images, images, tmp_path, max_minutes=0, console=Console(quiet=True))
    assert [path.name for path in tmp_path.iterdir()] == [run_name("toy", 0.2)]


def test_loupe_for_another_budget_or_size_is_refused(images: Images, tmp_path: Path) -> None:
    train_loupe(settings(budgets=(0.2,)), images, images, tmp_path, console=Console(quiet=True))
    with pytest.raises(CheckpointError, match=r"budget 0\.2"):
        load_loupe(tmp_path / run_name("toy", 0.2), SHAPE, 0.3)
    with pytest.raises(CheckpointError, match="shape"):
        load_loupe(tmp_path / run_name("toy", 0.2), (1, 16, 16), 0.2)


def test_other_kinds_of_models_are_refused(tmp_path: Path) -> None:
    save_run(tmp_path, {"kind": "generator", "model": {}}, small_loupe())
    with pytest.raises(CheckpointError, match="this is a generator, not a loupe"):
        load_loupe(tmp_path, SHAPE, 0.2)


@pytest.mark.parametrize("changes", [{"budgets": (0.2, 1.0)}, {"budgets": ()}, {"batch_size": 0}])
def test_impossible_settings_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        settings(**changes)
    with pytest.raises(ConfigError):
        ProbabilityMap((4,), 1.5)


@pytest.mark.parametrize("preset", ["cpu", "paper"])
def test_presets_describe_loupe(preset: str) -> None:
    assert load(preset, "loupe.mnist", LoupeSettings).budgets == (0.05, 0.1, 0.2, 0.3)
