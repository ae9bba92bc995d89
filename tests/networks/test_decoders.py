import pytest
import torch

from conftest import fresh, seeded
from sensewise.errors import ConfigError, DataError
from sensewise.networks.decoders import MaskDesigner

SHAPE = (1, 8, 8)
K = 64


def designer(decoder="full", shape=SHAPE, labels=3):
    return fresh(MaskDesigner, shape, labels, decoder).eval()


def summaries(batch):
    return torch.rand(batch, 1, 8, 8, generator=seeded())


@pytest.mark.parametrize("decoder", ["paper", "full"])
@pytest.mark.parametrize("batch", [1, 3])
def test_logits_have_shape_and_gradient(decoder, batch):
    model = designer(decoder)
    logits = model(summaries(batch), torch.zeros(batch, dtype=torch.long), torch.full((batch,), 0.3))
    assert logits.shape == (batch, K)
    assert bool(logits.isfinite().all())
    logits.sum().backward()
    assert sum(float(p.grad.abs().sum()) for p in model.parameters() if p.grad is not None) > 0


@pytest.mark.parametrize("decoder", ["paper", "full"])
@pytest.mark.parametrize("shape", [(1, 16, 40), (3, 24, 8)])
def test_rectangles(decoder, shape):
    logits = designer(decoder, shape)(summaries(2), None, torch.full((2,), 0.3))
    assert logits.shape == (2, shape[1] * shape[2])


@pytest.mark.parametrize("decoder", ["paper", "full"])
def test_masks_do_not_depend_on_batch_mates(decoder):
    model = designer(decoder)
    summary, label, budget = summaries(4), torch.tensor([0, 1, 2, -1]), torch.linspace(0.1, 0.7, 4)
    together = model(summary, label, budget)
    alone = torch.cat([model(summary[i : i + 1], label[i : i + 1], budget[i : i + 1]) for i in range(4)])
    torch.testing.assert_close(together, alone)


@pytest.mark.parametrize(("labels", "count"), [(10, 19_490), (None, 9_954)])
def test_paper_architecture_has_the_papers_size(labels, count):
    assert sum(p.numel() for p in MaskDesigner((1, 32, 32), labels, "paper").parameters()) == count


def test_full_decoder_starts_on_budget():
    budget = torch.tensor([0.1, 0.6])
    torch.testing.assert_close(torch.sigmoid(designer()(summaries(2), None, budget)).mean(1), budget)


def test_unknown_labels_are_none():
    model, summary, budget = designer("paper"), summaries(2), torch.full((2,), 0.2)
    torch.testing.assert_close(model(summary, None, budget), model(summary, torch.tensor([-1, -1]), budget))
    assert not torch.equal(model(summary, None, budget), model(summary, torch.tensor([0, 1]), budget))


@pytest.mark.parametrize("shape", [(2, 8, 8), (2, 1, 4, 4), (2, 3, 8, 8)])
def test_summary_of_the_wrong_shape_is_refused(shape):
    with pytest.raises(DataError, match="summary has shape"):
        designer()(torch.zeros(shape), None, torch.full((2,), 0.1))


def test_wrong_labels_are_refused():
    with pytest.raises(DataError, match="3 classes"):
        designer()(summaries(2), torch.tensor([0, 3]), torch.full((2,), 0.1))
    with pytest.raises(DataError, match="one label per image"):
        designer()(summaries(2), torch.tensor([0]), torch.full((2,), 0.1))


def test_a_designer_needs_one_summary_per_image():
    with pytest.raises(DataError, match="needs a summary"):
        designer().keep_logits(None, None, torch.full((2,), 0.1))
    with pytest.raises(DataError, match="one summary per image"):
        designer().keep_logits(summaries(3), None, torch.full((2,), 0.1))


def test_unknown_decoder_and_odd_sizes_are_refused():
    with pytest.raises(ConfigError, match="decoder"):
        MaskDesigner(SHAPE, 3, "wide")
    with pytest.raises(ConfigError, match="divisible"):
        MaskDesigner((1, 12, 8), 3)
