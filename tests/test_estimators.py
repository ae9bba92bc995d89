"""Gradient estimators against enumeration on a few pixels."""

import itertools

import pytest
import torch
from torch import Tensor

from sensewise.estimators import antithetic_pair, disarm, exact_gradient, straight_through
from sensewise.masks import logistic

K = 6


def loss(mask: Tensor, index: Tensor) -> Tensor:
    """Not additive: pairs of neighbours matter, and each image has other weights."""
    kept = mask.double()
    weight = torch.linspace(-1, 2, K, dtype=torch.float64) + 0.3 * index[:, None]
    return (kept * weight).sum(1) + 1.5 * (kept[:, 1:] * kept[:, :-1]).sum(1) - (kept.mean(1) - 0.5) ** 2


def enumerated_gradient(logits: Tensor) -> Tensor:
    """The gradient of the expected loss, over all `2 ** K` masks."""
    logits = logits.clone().requires_grad_(True)
    every = torch.tensor(list(itertools.product([False, True], repeat=K)))  # (2 ** K, K)
    p = torch.sigmoid(logits)[:, None]  # (B, 1, K)
    probability = torch.where(every, p, 1 - p).prod(-1)  # (B, 2 ** K)
    values = torch.stack([loss(every, torch.full((len(every),), b)) for b in range(len(logits))])
    (gradient,) = torch.autograd.grad((probability * values).sum(), logits)
    return gradient


@pytest.fixture
def logits() -> Tensor:
    return torch.tensor([[-3.0, -1.0, 0.0, 0.5, 1.0, 2.5], [0.2, 0.1, -0.4, 4.0, -4.0, 0.0]], dtype=torch.float64)


def test_pair_has_the_right_marginals(logits: Tensor) -> None:
    u = torch.rand(20_000, K, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for mask in antithetic_pair(logits[:1].expand(len(u), -1), u):
        torch.testing.assert_close(mask.double().mean(0), torch.sigmoid(logits[0]), atol=0.015, rtol=0)


def test_pair_disagrees_as_often_as_it_can(logits: Tensor) -> None:
    u = torch.rand(20_000, K, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    b, b_tilde = antithetic_pair(logits[:1].expand(len(u), -1), u)
    p = torch.sigmoid(logits[0])
    torch.testing.assert_close((b != b_tilde).double().mean(0), 2 * torch.minimum(p, 1 - p), atol=0.015, rtol=0)


def draws(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`count` estimates by DisARM and by REINFORCE, `(B, count, K)` each, two evaluations an estimate."""
    generator = torch.Generator().manual_seed(3)
    batch = len(logits)
    many = logits.repeat_interleave(count, 0)
    index = torch.arange(batch).repeat_interleave(count)
    u = torch.rand(2, *many.shape, dtype=torch.float64, generator=generator)
    pair = antithetic_pair(many, u[0])
    ours = disarm(many, u[0], loss(pair[0], index), loss(pair[1], index))
    masks = [part < torch.sigmoid(many) for part in u]
    values = [loss(mask, index) for mask in masks]
    scores = [mask.double() - torch.sigmoid(many) for mask in masks]
    plain = 0.5 * (values[0] - values[1])[:, None] * (scores[0] - scores[1])  # each is the other's baseline
    return ours.view(batch, count, K), plain.view(batch, count, K)


def test_disarm_is_unbiased(logits: Tensor) -> None:
    ours, _ = draws(logits, 20_000)
    standard_error = ours.std(1) / 20_000**0.5
    assert bool(((ours.mean(1) - enumerated_gradient(logits)).abs() < 4.5 * standard_error).all())


def test_disarm_varies_less_than_reinforce(logits: Tensor) -> None:
    ours, plain = draws(logits, 20_000)
    standard_error = plain.std(1) / 20_000**0.5
    assert bool(((plain.mean(1) - enumerated_gradient(logits)).abs() < 4.5 * standard_error).all())
    assert bool((ours.var(1).sum(1) < plain.var(1).sum(1)).all())


def test_exact_gradient_over_all_masks_is_the_enumerated_one(logits: Tensor) -> None:
    p = torch.sigmoid(logits)
    total = torch.zeros_like(logits)
    for bits in itertools.product([False, True], repeat=K):
        mask = torch.tensor(bits).expand(len(logits), -1)
        probability = torch.where(mask, p, 1 - p).prod(1, keepdim=True)
        total += probability * exact_gradient(logits, mask, loss, chunk=4)
    torch.testing.assert_close(total, enumerated_gradient(logits))


def test_disarm_takes_a_loss_for_each_pixel(logits: Tensor) -> None:
    u = torch.rand(logits.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    first, second = torch.tensor([1.0, 2.0]), torch.tensor([0.5, 3.0])
    spread = disarm(logits, u, first[:, None].expand(-1, K), second[:, None].expand(-1, K))
    torch.testing.assert_close(spread, disarm(logits, u, first, second))


def test_straight_through_is_hard_with_a_soft_gradient() -> None:
    logits = torch.tensor([[-2.0, 0.3, 5.0]], requires_grad=True)
    noise = logistic((1, 3), torch.Generator().manual_seed(0))
    mask = straight_through(logits, noise, temperature=0.5)
    assert set(mask.detach().flatten().tolist()) <= {0.0, 1.0}
    (gradient,) = torch.autograd.grad(mask.sum(), logits)
    soft = torch.sigmoid((logits.detach() + noise) / 0.5)
    torch.testing.assert_close(gradient, soft * (1 - soft) / 0.5)


@pytest.mark.parametrize("batch", [1, 3])
def test_shapes(batch: int) -> None:
    logits = torch.zeros(batch, K)
    u = torch.rand(batch, K, generator=torch.Generator().manual_seed(0))
    gradient = disarm(logits, u, torch.ones(batch), torch.zeros(batch))
    assert gradient.shape == (batch, K)
    assert bool(gradient.isfinite().all())


def test_straight_through_keeps_what_noise_lifts_above_zero() -> None:
    logits = torch.tensor([[-2.0, 0.3, 0.3, -0.5]], dtype=torch.float64, requires_grad=True)
    mask = straight_through(logits, torch.tensor([[2.5, -0.4, 0.1, -0.1]], dtype=torch.float64))
    assert mask.dtype == torch.float64
    assert mask.tolist() == [[1.0, 0.0, 1.0, 0.0]]
    (gradient,) = torch.autograd.grad(mask.sum(), logits)
    soft = torch.sigmoid(torch.tensor([[0.5, -0.1, 0.4, -0.6]], dtype=torch.float64))
    torch.testing.assert_close(gradient, soft * (1 - soft))


def test_draws_at_their_thresholds_are_those_of_the_formulas() -> None:
    """Both inequalities of the pair are strict, and so is that of the hard mask."""
    at_threshold = torch.zeros(1, 1)
    assert [mask.item() for mask in antithetic_pair(at_threshold, torch.full((1, 1), 0.5))] == [False, False]
    assert straight_through(torch.full((1, 1), -0.25), torch.full((1, 1), 0.25)).item() == 0
