import pytest
import torch
import torch.nn.functional as F

from conftest import random_tokens, seeded
from sensewise.networks import NETWORKS, PaperConv, UNet
from sensewise.tokens import MASK


def build(name, channels=1, num_states=2, num_labels=10):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        small = {"widths": (8, 16), "blocks": (1, 1), "embedding": 8} if name == "unet" else {}
        network = NETWORKS[name](channels, num_states, num_labels, **small)
        for parameter in network.parameters():
            if not parameter.any():
                torch.nn.init.normal_(parameter, std=0.1)
    return network


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
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = UNet(1, 2, None, widths=(8, 16), blocks=(1, 1), embedding=8)
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


@pytest.mark.parametrize("name", NETWORKS)
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
