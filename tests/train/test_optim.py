import pytest
import torch
from torch import nn

from sensewise.train.optim import Muon, build_optimizer, orthogonal


def small():
    torch.manual_seed(0)
    return nn.ModuleDict({"stem": nn.Conv2d(2, 4, 3), "down": nn.Conv2d(4, 6, 3), "head": nn.Conv2d(6, 3, 1)})


def backward(model, seed):
    x = torch.randn(2, 2, 8, 8, generator=torch.Generator().manual_seed(seed))
    model["head"](model["down"](model["stem"](x)).relu()).square().mean().backward()


@pytest.mark.parametrize("shape", [(3, 8, 20), (3, 20, 8), (1, 12, 12)])
def test_orthogonal_keeps_the_directions_and_levels_their_strengths(shape):
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    found = orthogonal(matrices)
    assert found.shape == matrices.shape
    left, strengths, right = torch.linalg.svd(matrices, full_matrices=False)
    levelled = left.mT @ found @ right.mT  # diagonal, if the singular vectors are the same
    diagonal = levelled.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(levelled, torch.diag_embed(diagonal), atol=1e-4, rtol=0)
    clear = strengths > strengths[:, :1] / 50
    assert clear.float().mean() > 0.9
    assert diagonal[clear].min() > 0.5
    assert diagonal[clear].max() < 1.3


def test_orthogonal_of_nothing_is_nothing():
    assert orthogonal(torch.zeros(1, 3, 4)).eq(0).all()


def test_orthogonal_does_not_mind_the_scale():
    matrices = torch.randn(2, 4, 9, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(orthogonal(1000 * matrices), orthogonal(matrices), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("shape", [(2, 16, 48), (1, 48, 16)])
def test_rounded_products_level_singular_values_as_well(shape):
    """Under autocast the products are rounded; what comes out is of the precision that went in, and nearly the same."""
    moves = torch.randn(shape, generator=torch.Generator().manual_seed(4))
    with torch.autocast("cpu", torch.bfloat16):
        rounded = orthogonal(moves)
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, orthogonal(moves))
    assert torch.allclose(rounded, orthogonal(moves), atol=0.05)
    assert 0.4 < torch.linalg.svdvals(rounded).min() <= torch.linalg.svdvals(rounded).max() < 1.4


def test_adamw_is_torchs():
    ours, theirs = small(), small()
    theirs_optimizer = torch.optim.AdamW(theirs.parameters(), lr=0.01, betas=(0.9, 0.99), weight_decay=0.1, fused=True)
    optimizers = build_optimizer(ours, "adamw", 0.01, 0.1), theirs_optimizer
    for seed in range(3):
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            backward(model, seed)
            optimizer.step()
            optimizer.zero_grad()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b)


def test_muon_turns_inner_kernels_alone():
    model, adam = small(), small()
    optimizer, other = build_optimizer(model, "muon", 0.01, 0.0), build_optimizer(adam, "adamw", 0.01, 0.0)
    before = model["down"].weight.detach().clone()
    for each, steps in ((model, optimizer), (adam, other)):
        backward(each, 0)
        steps.step()
    for name in ("stem", "head"):
        assert torch.equal(model[name].weight, adam[name].weight)
    assert torch.equal(model["down"].bias, adam["down"].bias)
    gradient = adam["down"].weight.grad.reshape(1, 6, -1)
    move = (before - model["down"].weight.detach()).reshape(1, 6, -1)
    torch.testing.assert_close(move, 0.01 * 0.2 * 36**0.5 * orthogonal(gradient), atol=1e-6, rtol=1e-4)


def test_muon_decays_and_remembers():
    kernel = nn.Parameter(torch.ones(2, 2, 1, 1))
    optimizer = Muon([kernel], [nn.Parameter(torch.zeros(1))], lr=0.1, weight_decay=0.5, fused=True)
    kernel.grad = torch.zeros_like(kernel)
    optimizer.step()
    torch.testing.assert_close(kernel.detach(), torch.full((2, 2, 1, 1), 0.95))
    kernel.grad = torch.eye(2).view(2, 2, 1, 1)
    optimizer.step()
    torch.testing.assert_close(optimizer.state[kernel]["momentum"].squeeze(), 0.05 * torch.eye(2))
    at = kernel.detach().clone()
    kernel.grad = torch.zeros_like(kernel)
    optimizer.step()  # no gradient, but momentum goes on
    assert (at * 0.95 - kernel.detach()).squeeze().diagonal().min() > 0.005


def test_a_kernel_without_a_gradient_stays():
    model = small()
    optimizer = build_optimizer(model, "muon", 0.01, 0.1)
    before = model["down"].weight.detach().clone()
    optimizer.step()
    assert torch.equal(model["down"].weight, before)


def test_some_weights_learn_faster():
    moved = []
    for rates in ({"head.weight": 10.0}, None):
        model = small()
        optimizer = build_optimizer(model, "adamw", 1e-3, 0.0, rates)
        for group in optimizer.param_groups:
            group["lr"] *= group["rate"]
        before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        backward(model, 1)
        optimizer.step()
        moved.append({name: (weight.detach() - before[name]).norm() for name, weight in model.named_parameters()})
    faster, alike = moved
    for name in faster:
        torch.testing.assert_close(faster[name], alike[name] * (10 if name == "head.weight" else 1), rtol=1e-3, atol=0)
