import pytest
import torch
import torch.nn.functional as F

from conftest import awake, fresh, random_tokens, seeded
from sensewise.networks import NETWORKS, DiT, PaperConv, UNet
from sensewise.networks.dit import rotary
from sensewise.networks.unet import fold
from sensewise.tokens import MASK

SMALL = {
    "unet": {"widths": (8, 16), "blocks": (1, 1), "embedding": 8},
    "dit": {"dim": 32, "layers": 2, "heads": 4},
}


def build(name, channels=1, num_states=2, num_labels=10):
    return awake(fresh(NETWORKS[name], channels, num_states, num_labels, **SMALL.get(name, {})), std=0.1)


@pytest.fixture(scope="module")
def networks():
    return {name: build(name) for name in NETWORKS}


@pytest.fixture(params=NETWORKS)
def network(request, networks):
    return networks[request.param]


def inputs(batch, height=32, width=32, channels=1, states=2):
    y = random_tokens((batch, channels, height, width), states)
    hidden = torch.rand(y.shape, generator=seeded(1)) < 0.5
    label = torch.arange(batch) % 11
    return torch.where(hidden, MASK, y), label, torch.linspace(0.1, 0.9, batch)


@pytest.mark.parametrize("size", [(32, 32), (32, 64), (64, 32)])
@torch.inference_mode()
def test_shape(network, size):
    logits = network(*inputs(2, *size))
    assert logits.shape == (2, 1, *size, 2)
    assert logits.isfinite().all()


@torch.inference_mode()
def test_channels_states_and_no_label():
    for name in NETWORKS:
        network = build(name, channels=3, num_states=4, num_labels=None)
        y, _, survival = inputs(1, channels=3, states=4)
        assert network(y, torch.zeros(1, dtype=torch.int64), survival).shape == (1, 3, 32, 32, 4)


def test_gradient_reaches_every_parameter(network):
    logits = network(*inputs(3))
    weights = torch.randn(logits.shape, generator=seeded())
    network.zero_grad()
    (logits * weights).sum().backward()
    silent = [name for name, p in network.named_parameters() if p.grad is None or not p.grad.any()]
    assert not silent
    assert all(p.grad.isfinite().all() for p in network.parameters())


def test_zero_blocks_wake_after_a_step():
    network = fresh(UNet, 1, 2, None, widths=(8, 16), blocks=(1, 1), embedding=8)
    assert not network.down[0][0].second.weight.any()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        network(*inputs(2)).square().sum().div(1000).backward()
        optimizer.step()
    assert all(p.grad.any() for p in network.parameters())


@torch.inference_mode()
def test_a_prediction_does_not_depend_on_batch_mates(network):
    network.eval()
    y, label, survival = inputs(3)
    together = network(y, label, survival)
    for b in range(3):
        alone = network(y[b : b + 1], label[b : b + 1], survival[b : b + 1])
        torch.testing.assert_close(together[b : b + 1], alone, atol=1e-5, rtol=1e-4)


@torch.inference_mode()
def test_label_survival_and_hidden_sites_matter(network):
    y, label, survival = inputs(1)
    base = network(y, label, survival)
    assert not torch.allclose(base, network(y, label + 1, survival))
    assert not torch.allclose(base, network(y, label, survival + 0.3))
    assert not torch.allclose(base, network(torch.where(y == MASK, 1, y), label, survival))


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "dit"])  # rotary positions know no torus
@torch.inference_mode()
def test_height_and_width_keep_their_order(name):
    """On a torus, what is the same in every column stays so, block by block, while the rows differ."""
    network = build(name)
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.padding_mode = "circular"
    y = torch.ones(1, 1, 64, 64, dtype=torch.int64)
    y[:, :, 10:30] = 2
    logits = network(y, torch.zeros(1, dtype=torch.int64), torch.full((1,), 0.5))[0, 0, :, :, 0]
    blocks = F.avg_pool2d(logits[None], 16)[0]  # (4, 4)
    across_rows, across_columns = blocks.std(0).mean(), blocks.std(1).mean()
    assert across_rows > 100 * across_columns


def test_the_papers_network_has_63_million_parameters():
    with torch.device("meta"):
        network = PaperConv(1, 2, 10)
    assert 62e6 < sum(p.numel() for p in network.parameters()) < 64e6


def test_the_default_unet_is_small():
    with torch.device("meta"):
        assert sum(p.numel() for p in UNet(1, 2, 10).parameters()) < 4e6


def test_widths_and_blocks_must_match():
    with pytest.raises(ValueError, match="one entry per resolution"):
        UNet(1, 2, 10, widths=(8, 16), blocks=(1,))


@torch.inference_mode()
def test_patches_of_the_transformer_keep_their_place():
    """With its layers asleep the network is local: a pixel changes the predictions around it and nowhere else."""
    network = build("dit")
    for layer in network.layers:
        torch.nn.init.zeros_(layer.steer.weight)
        torch.nn.init.zeros_(layer.steer.bias)
    for module in network.modules():
        if isinstance(module, torch.nn.GroupNorm):  # the one thing here that carries a change across the image
            module.forward = lambda x: x
    y = torch.zeros(1, 1, 32, 64, dtype=torch.int64)
    other = y.clone()
    other[0, 0, 5, 40] = 2
    label, survival = torch.zeros(1, dtype=torch.int64), torch.full((1,), 0.5)
    changed = (network(y, label, survival) - network(other, label, survival)).abs().amax(-1)[0, 0] > 1e-7
    rows, columns = changed.nonzero().T
    assert 0 <= rows.min() <= 5 <= rows.max() <= 10
    assert 35 <= columns.min() <= 40 <= columns.max() <= 45


def test_rotary_products_depend_on_distance_alone():
    q, k = torch.randn(2, 1, 1, 1, 8, generator=seeded())
    q, k = rotary(q.expand(1, 1, 12, 8)), rotary(k.expand(1, 1, 12, 8))
    products = (q @ k.transpose(-1, -2))[0, 0]  # (12, 12)
    for shift in (-3, 0, 5):
        along = products.diagonal(shift)
        torch.testing.assert_close(along, along[:1].expand_as(along))
    assert not torch.allclose(products[0, 0], products[0, 5])


def test_the_papers_transformer_has_108_million_parameters():
    with torch.device("meta"):
        network = DiT(3, 8, 10)
    assert 106e6 < sum(p.numel() for p in network.parameters()) < 110e6


def test_a_small_transformer_learns():
    """Its loss falls on one batch: from log 4 to less than half of it."""
    network = build("dit", channels=3, num_states=4)
    y, label, survival = inputs(2, 8, 8, channels=3, states=4)
    x = random_tokens((2, 3, 8, 8), 4, seed=3)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = F.cross_entropy(network(y, label, survival).flatten(0, 3), x.flatten() - 1)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("options", [{"dim": 24, "heads": 16}, {"layers": 0}, {"encoding": "morse"}])
def test_a_transformer_that_cannot_be(options):
    with pytest.raises(ValueError, match=r"dim must be|not known"):
        DiT(3, 8, 10, **options)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_folding_is_pixel_unshuffle_in_channels_last_memory(layout):
    x = torch.randn(2, 3, 8, 12, generator=seeded()).contiguous(memory_format=layout)
    found = fold(x, 2)
    assert torch.equal(found, F.pixel_unshuffle(x, 2))
    assert found.is_contiguous(memory_format=torch.channels_last)
