import pytest
import torch

from conftest import random_kspace, seeded
from sensewise import kspace as ks
from sensewise.errors import BudgetError, DataError


@pytest.mark.parametrize("shape", [(12, 10), (9, 7), (8, 5)])
def test_fourier_pair_is_inverse_and_adjoint(shape):
    x, k = random_kspace(2, *shape), random_kspace(2, *shape, seed=1)
    torch.testing.assert_close(ks.to_image(ks.to_kspace(x)), x)
    left, right = torch.vdot(ks.to_kspace(x).flatten(), k.flatten()), torch.vdot(x.flatten(), ks.to_image(k).flatten())
    torch.testing.assert_close(left, right)


def test_energy_is_the_same_on_both_sides():
    x = random_kspace()
    torch.testing.assert_close(ks.to_kspace(x).abs().square().sum(), x.abs().square().sum())


@pytest.mark.parametrize("shape", [(12, 10), (9, 7)])
def test_zero_frequency_is_in_the_centre(shape):
    k = ks.to_kspace(torch.ones(1, *shape, dtype=torch.complex64))
    expected = torch.zeros(1, *shape, dtype=torch.complex64)
    expected[0, shape[0] // 2, shape[1] // 2] = (shape[0] * shape[1]) ** 0.5
    torch.testing.assert_close(k, expected, atol=1e-5, rtol=0)


def test_masked_measurement_is_self_adjoint():
    x, z = random_kspace(), random_kspace(seed=1)
    mask = torch.rand(3, 12, generator=seeded(2)) < 0.5
    measured, back = ks.keep_rows(ks.to_kspace(x), mask), ks.to_image(ks.keep_rows(z, mask))
    torch.testing.assert_close(torch.vdot(measured.flatten(), z.flatten()), torch.vdot(x.flatten(), back.flatten()))


@pytest.mark.parametrize("mask", [torch.ones(3, 11, dtype=torch.bool), torch.ones(3, 12)])
def test_masks_of_rows_that_do_not_fit(mask):
    with pytest.raises(BudgetError, match="a mask of rows"):
        ks.keep_rows(random_kspace(), mask)


def test_relaxed_rows_agree_with_a_mask_and_have_gradients():
    k, mask = random_kspace(), torch.rand(3, 12, generator=seeded()) < 0.5
    weights = mask.float().requires_grad_()
    relaxed = ks.relaxed_rows(k, weights)
    torch.testing.assert_close(relaxed, ks.keep_rows(k, mask))
    relaxed.abs().square().sum().backward()
    torch.testing.assert_close(weights.grad, 2 * weights.detach() * k.abs().square().sum(2))


@pytest.mark.parametrize("width", [8, 9])
def test_mirror_is_the_mirrored_image(width):
    x = torch.rand(1, 6, width, generator=seeded()).to(torch.complex64)
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


@pytest.mark.parametrize(
    ("rows", "chosen", "pairs"), [(8, (3, 5), 1), (8, (0, 4), 0), (8, (1, 7, 2, 6), 2), (7, (0, 6, 3), 1)]
)
def test_mirrored_pairs(rows, chosen, pairs):
    mask = torch.zeros(2, rows, dtype=torch.bool)
    mask[0, list(chosen)] = True
    assert ks.mirrored_pairs(mask).tolist() == [pairs, 0]
