import pytest
import torch

from sensewise import metrics
from sensewise.errors import BudgetError, DataError
from sensewise.mri import kspace as ks
from sensewise.reconstruct import UNetReconstructor, ZeroFilled
from sensewise.sensors import KSpaceRowSensor, Side


def random_kspace(batch: int = 3, height: int = 12, width: int = 10, seed: int = 0) -> torch.Tensor:
    return torch.randn(batch, height, width, dtype=torch.complex64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(12, 10), (9, 7), (8, 5)])
def test_fourier_pair_is_inverse_and_adjoint(shape):
    x, k = random_kspace(2, *shape), random_kspace(2, *shape, seed=1)
    torch.testing.assert_close(ks.to_image(ks.to_kspace(x)), x)
    left, right = torch.vdot(ks.to_kspace(x).flatten(), k.flatten()), torch.vdot(x.flatten(), ks.to_image(k).flatten())
    torch.testing.assert_close(left, right)


@pytest.mark.parametrize("shape", [(12, 10), (9, 7)])
def test_zero_frequency_is_in_the_centre(shape):
    k = ks.to_kspace(torch.ones(1, *shape, dtype=torch.complex64))
    expected = torch.zeros(1, *shape, dtype=torch.complex64)
    expected[0, shape[0] // 2, shape[1] // 2] = (shape[0] * shape[1]) ** 0.5
    torch.testing.assert_close(k, expected, atol=1e-5, rtol=0)


def test_masked_measurement_is_self_adjoint():
    x, z = random_kspace(), random_kspace(seed=1)
    mask = torch.rand(3, 12, generator=torch.Generator().manual_seed(2)) < 0.5
    measured, back = ks.keep_rows(ks.to_kspace(x), mask), ks.to_image(ks.keep_rows(z, mask))
    torch.testing.assert_close(torch.vdot(measured.flatten(), z.flatten()), torch.vdot(x.flatten(), back.flatten()))


@pytest.mark.parametrize("width", [8, 9])
def test_mirror_is_the_mirrored_image(width):
    x = torch.rand(1, 6, width).to(torch.complex64)
    expected = x.flip(-1).roll(1, -1) if width % 2 == 0 else x.flip(-1)
    torch.testing.assert_close(ks.to_image(ks.mirror(ks.to_kspace(x))), expected, atol=1e-5, rtol=1e-5)


def test_acs_rows_match_the_paper():
    assert ks.acs_rows(300, 32).nonzero().flatten().tolist() == list(range(134, 166))
    assert ks.acs_rows(128, 14).nonzero().flatten().tolist() == list(range(57, 71))
    for wrong in (0, 128):
        with pytest.raises(BudgetError, match="ACS block must have"):
            ks.acs_rows(128, wrong)


def test_centre_crop_keeps_zero_frequency_in_the_centre():
    k = torch.zeros(1, 12, 10, dtype=torch.complex64)
    k[0, 6, 5] = 1
    for height, width in ((6, 4), (5, 7)):
        assert ks.centre_crop(k, height, width)[0, height // 2, width // 2] == 1
    with pytest.raises(DataError, match="smaller than the crop"):
        ks.centre_crop(k, 13, 4)


def test_scout_is_z_scored_and_needs_only_the_acs_block():
    k = random_kspace(4, 16, 16)
    s = ks.scout(k, 6)
    assert s.shape == (4, 6, 6)
    torch.testing.assert_close(s.mean((1, 2)), torch.zeros(4), atol=1e-5, rtol=0)
    torch.testing.assert_close(s.std((1, 2)), torch.ones(4))
    torch.testing.assert_close(ks.scout(1e-6 * k, 6), s, atol=1e-4, rtol=1e-4)
    measured = ks.keep_rows(k, ks.acs_rows(16, 6).expand(4, -1))
    torch.testing.assert_close(ks.scout(measured, 6), s)


def test_sensor_reveals_measured_rows_and_nothing_else():
    k = random_kspace()
    mask = torch.zeros(3, 12, dtype=torch.bool)
    mask[:, [1, 5]] = True
    y = KSpaceRowSensor(k)(mask)
    assert torch.equal(y[:, [1, 5]], k[:, [1, 5]])
    hidden = torch.view_as_real(y[~mask])
    assert torch.equal(hidden, torch.zeros_like(hidden))
    assert not torch.signbit(hidden).any()  # a product would leak the signs of what is hidden
    other = torch.where(mask.unsqueeze(-1), k, 7j)
    assert torch.equal(KSpaceRowSensor(other)(mask), y)


def test_sensor_refuses_what_does_not_fit():
    with pytest.raises(DataError, match="complex with shape"):
        KSpaceRowSensor(torch.rand(3, 12, 10))
    with pytest.raises(BudgetError, match=r"shape \(3, 12\)"):
        KSpaceRowSensor(random_kspace())(torch.ones(3, 11, dtype=torch.bool))
    with pytest.raises(BudgetError, match="a mask of rows"):
        ks.keep_rows(random_kspace(), torch.ones(3, 11, dtype=torch.bool))


def test_nmse_does_not_depend_on_the_units():
    x, x_hat = torch.rand(4, 16, 16), torch.rand(4, 16, 16)
    plain, tiny = metrics.nmse(x_hat, x), metrics.nmse(1e-6 * x_hat, 1e-6 * x)
    torch.testing.assert_close(tiny, plain, atol=0, rtol=1e-5)
    assert plain.shape == (4,)
    torch.testing.assert_close(metrics.nmse(x, x), torch.zeros(4))
    torch.testing.assert_close(metrics.nmse(0 * x, x), torch.ones(4))


def test_slice_metrics_are_per_slice_and_scale_free():
    x = torch.rand(3, 32, 32)
    x_hat = x + 0.05 * torch.rand(3, 32, 32)
    for name, metric in metrics.SLICE_METRICS.items():
        value = metric(x_hat, x)
        assert value.shape == (3,), name
        torch.testing.assert_close(metric(1e-6 * x_hat, 1e-6 * x), value, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(metric(x_hat[:1], x[:1]), value[:1])
    torch.testing.assert_close(metrics.ssim(x, x), torch.ones(3))


def test_zero_filled_is_exact_with_every_row():
    k = random_kspace()
    everything = torch.ones(3, 12, dtype=torch.bool)
    torch.testing.assert_close(ZeroFilled()(KSpaceRowSensor(k)(everything), everything, Side()), ks.magnitude(k))


def test_unet_reconstructor_goes_through_chunks():
    class Network(torch.nn.Module):
        def forward(self, y, mask):
            return ks.magnitude(y)

    k = random_kspace(5)
    mask = torch.rand(5, 12) < 0.5
    y = ks.keep_rows(k, mask)
    torch.testing.assert_close(UNetReconstructor(Network(), chunk=2)(y, mask, Side()), ks.magnitude(y))
