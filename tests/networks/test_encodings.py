from functools import partial

import pytest
import torch

from conftest import fresh, seeded
from sensewise.networks import PaperConv, UNet
from sensewise.networks.encodings import ENCODINGS, Ordinal, scalars
from sensewise.networks.push_pull import push_pull


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("batch", [1, 3])
def test_shapes_and_finiteness(name, batch):
    encoding = ENCODINGS[name](3, 8)
    y = torch.randint(0, 9, (batch, 3, 8, 8), generator=seeded())
    features = encoding.encode(y)
    raw = torch.randn(batch, encoding.outputs, 8, 8, generator=seeded())
    logits = encoding.logits(raw, features)
    assert features.shape == (batch, encoding.inputs, 8, 8)
    assert logits.shape == (batch, 3, 8, 8, 8)
    assert logits.isfinite().all()


@pytest.mark.parametrize("name", ENCODINGS)
def test_features_tell_hidden_from_every_state(name):
    encoding = ENCODINGS[name](1, 4)
    y = torch.arange(5).view(5, 1, 1, 1).expand(5, 1, 2, 2)
    features = encoding.encode(y).flatten(1)
    assert torch.cdist(features, features)[~torch.eye(5, dtype=torch.bool)].min() > 0.1


def test_push_pull_keeps_what_is_seen_and_fills_holes_of_a_constant():
    seen = (torch.rand(2, 3, 16, 16, generator=seeded()) < 0.1).float()
    seen[:, :, 0, 0] = 1
    assert torch.allclose(push_pull(0.7 * seen, seen), torch.full_like(seen, 0.7), atol=1e-5)
    values = torch.rand(2, 3, 16, 16, generator=seeded())
    filled = push_pull(values * seen, seen)
    assert torch.equal(filled[seen == 1], values[seen == 1])


def test_push_pull_of_nothing_is_zero_and_odd_sides_work():
    assert torch.equal(push_pull(torch.zeros(1, 1, 8, 8), torch.zeros(1, 1, 8, 8)), torch.zeros(1, 1, 8, 8))
    seen = torch.zeros(1, 1, 6, 10)
    seen[..., 2, 3] = 1
    assert torch.allclose(push_pull(0.3 * seen, seen), torch.full_like(seen, 0.3), atol=1e-6)


def test_push_pull_beats_the_mean_on_a_ramp():
    ramp = torch.linspace(0, 1, 32).expand(1, 1, 32, 32)
    seen = (torch.rand(1, 1, 32, 32, generator=seeded()) < 0.1).float()
    error = (push_pull(ramp * seen, seen) - ramp).abs().mean()
    assert error < 0.2 * (ramp - ramp.mean()).abs().mean()


def test_ordinal_logits_are_a_discrete_gaussian_around_the_interpolation():
    encoding = Ordinal(1, 8)
    y = torch.full((1, 1, 4, 4), 6)
    y[..., 1, 1] = 0
    features = encoding.encode(y)
    raw = torch.zeros(1, encoding.outputs, 4, 4)

    def expected(centre: float, scale: float) -> torch.Tensor:
        return torch.softmax(-(((torch.arange(8) - centre) / (2 * scale)) ** 2), dim=0)

    found = encoding.logits(raw, features).softmax(-1)[0, 0, 1, 1]
    assert torch.allclose(found, expected(5, 1), atol=1e-5)
    raw[0, 0], raw[0, 1] = -2 / 7, torch.tensor(0.5).log()  # one level lower, half as wide
    assert torch.allclose(encoding.logits(raw, features).softmax(-1)[0, 0, 1, 1], expected(4, 0.5), atol=1e-5)
    raw[0, 2 + 7] = 50.0  # a free logit can say anything
    assert int(encoding.logits(raw, features)[0, 0, 1, 1].argmax()) == 7


@pytest.mark.parametrize("name", ENCODINGS)
def test_unet_learns_with_every_encoding(name):
    network = fresh(UNet, 3, 4, 2, widths=(8, 8), blocks=(1, 1), embedding=8, encoding=name)
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    x = torch.randint(1, 5, (4, 3, 8, 8), generator=seeded())
    losses = []
    for _ in range(30):
        logits = network(torch.where(x > 2, 0, x), torch.zeros(4, dtype=torch.int64), torch.full((4,), 0.5))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 3), x.flatten() - 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_unknown_encoding_is_refused():
    with pytest.raises(ValueError, match="encoding"):
        UNet(1, 2, None, encoding="other")


SMALL = partial(UNet, widths=(8, 8), blocks=(1, 1), embedding=8, encoding="scalar")


@pytest.mark.parametrize("make", [SMALL, PaperConv])
def test_relaxed_scalars_are_tokens_at_both_ends_and_pass_black_on_the_way(make):
    network = fresh(make, 1, 2, None).eval()
    x = torch.randint(1, 3, (2, 1, 16, 16), generator=seeded())
    nothing = torch.zeros(2)
    for kept in (0.0, 1.0):
        states = torch.stack([torch.full(x.shape, 1 - kept), kept * (x == 1), kept * (x == 2)], 2)
        with torch.no_grad():
            relaxed = network(states, nothing.long(), nothing)
            assert torch.equal(relaxed, network((x * kept).long(), nothing.long(), nothing))
    half = torch.tensor([0.5, 0.0, 0.5]).view(1, 1, 3, 1, 1)  # a white pixel, kept by half
    assert scalars(half, 2).item() == scalars(torch.ones(1, 1, 1, 1, dtype=torch.int64), 2).item()
