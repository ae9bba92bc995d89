import pytest
import torch

from conftest import awake, fresh, seeded
from sensewise.kspace import acs_rows, keep_rows, magnitude, relaxed_rows, to_kspace
from sensewise.metrics import nmse
from sensewise.networks.recon import ComplexUNet, PaperUNet

SIDE, ACS = 16, 4
NETWORKS = {
    "paper-unet": lambda: fresh(PaperUNet, base=8, levels=3),
    "complex-unet": lambda: fresh(ComplexUNet, SIDE, (8, 16), (1, 1), cascades=2, embedding=8),
}


@pytest.fixture(params=NETWORKS)
def network(request):
    return NETWORKS[request.param]()


def slices(count=6, side=SIDE):
    image = torch.zeros(count, SIDE, side, dtype=torch.complex64)
    image[:, 4:12, 5:11] = torch.rand(count, 1, 1, generator=seeded()) + 0.5
    return to_kspace(image) + 0.05 * torch.randn(count, SIDE, side, dtype=torch.complex64, generator=seeded(1))


def some_rows(count=6):
    mask = torch.rand(count, SIDE, generator=seeded(2)) < 0.5
    mask[:, SIDE // 2] = True
    return mask


def stirred(network):
    """The same network with weights that are not zero anywhere."""
    with torch.no_grad():
        for weight in awake(network, std=0.05).parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=seeded()))
    return network


def test_a_fresh_network_is_zero_filling(network):
    mask = some_rows()
    y = keep_rows(slices(), mask)
    torch.testing.assert_close(network(y, mask), magnitude(y), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(network.complex_image(y, mask).abs(), network(y, mask), atol=1e-5, rtol=1e-4)


def test_results_do_not_depend_on_units_or_batch_mates(network):
    network, mask = stirred(network), some_rows()
    y = keep_rows(slices(), mask)
    x = network(y, mask)
    assert x.shape == y.shape
    assert x.dtype == torch.float32
    assert x.isfinite().all()
    torch.testing.assert_close(network(1e-6 * y, mask), 1e-6 * x, atol=1e-9, rtol=1e-3)
    torch.testing.assert_close(network(y[:1], mask[:1]), x[:1], atol=1e-5, rtol=1e-4)


def test_slices_of_any_width(network):
    """Rows are what a mask counts; columns may be any number, also one that the strides do not divide."""
    mask = some_rows()
    for width in (13, 21):
        assert stirred(network)(keep_rows(slices(side=width), mask), mask).shape == (6, SIDE, width)


def test_the_papers_network_takes_any_number_of_rows():
    mask = some_rows()
    y = keep_rows(slices(), mask)
    assert stirred(NETWORKS["paper-unet"]())(y[:, :15, :13], mask[:, :15]).shape == (6, 15, 13)


def test_measured_rows_are_kept_as_they_were_measured():
    network, k = stirred(NETWORKS["complex-unet"]()), slices()
    mask = acs_rows(SIDE, ACS).expand(len(k), -1)
    drawn = to_kspace(network.complex_image(keep_rows(k, mask), mask))
    torch.testing.assert_close(drawn[mask], k[mask], atol=1e-5, rtol=1e-4)
    assert (drawn[~mask].abs() > 1e-3).any()


def test_parameters_of_the_paper():
    assert round(sum(p.numel() for p in PaperUNet(32).parameters()) / 1e6, 2) == 1.93
    assert round(sum(p.numel() for p in PaperUNet(48).parameters()) / 1e6, 2) == 4.33


def test_relaxed_masks_agree_with_hard_ones_and_have_gradients():
    network, k = stirred(fresh(ComplexUNet, SIDE, (8, 16), (1, 1), embedding=8)), slices()
    mask = acs_rows(SIDE, ACS)
    weights = mask.float().requires_grad_()
    relaxed = network(relaxed_rows(k, weights), weights.expand(len(k), -1))
    hard = mask.expand(len(k), -1)
    torch.testing.assert_close(relaxed, network(keep_rows(k, hard), hard), atol=1e-5, rtol=1e-4)
    nmse(relaxed, magnitude(k)).mean().backward()
    assert bool((weights.grad != 0).all())


def test_widths_and_blocks_must_match():
    with pytest.raises(ValueError, match="one entry per resolution"):
        ComplexUNet(SIDE, (8, 16), (1,))
