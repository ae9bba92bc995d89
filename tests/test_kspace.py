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
        with pytest.raises(BudgetError, match=f"^the ACS block must have 1 to 127 of 128 rows, got {wrong}$"):
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
    ("rows", "chosen", "pairs"),
    [(8, (3, 5), 1), (8, (0, 4), 0), (8, (1, 7, 2, 6), 2), (8, (1, 2, 6), 1), (7, (0, 6, 3), 1), (7, (1, 4), 0)],
)
def test_mirrored_pairs(rows, chosen, pairs):
    mask = torch.zeros(2, rows, dtype=torch.bool)
    mask[0, list(chosen)] = True
    assert ks.mirrored_pairs(mask).tolist() == [pairs, 0]
    assert ks.mirrored_pairs(mask[0]).item() == pairs  # one mask
    assert ks.mirrored_pairs(mask.expand(3, 2, rows)).tolist() == [[pairs, 0]] * 3


@pytest.mark.parametrize(("rows", "acs", "first"), [(9, 3, 3), (9, 4, 2), (8, 3, 3), (9, 8, 0), (9, 1, 4)])
def test_acs_rows_lie_around_zero_frequency(rows, acs, first):
    assert ks.acs_rows(rows, acs).nonzero().flatten().tolist() == list(range(first, first + acs))


def several_coils(rows, columns, coils=3):
    return torch.randn(1, coils, rows, columns, dtype=torch.complex64, generator=seeded())


@pytest.mark.parametrize(
    ("rows", "columns", "block", "half"),
    [
        (96, 64, (40, 56), 8),  # a block of 16
        (96, 64, (30, 66), 8),  # never more than a twelfth of the rows
        (96, 64, (43, 53), 5),  # a block of 10
        (96, 64, (43, 60), 5),  # the shorter side counts
        (96, 64, (30, 53), 5),
        (96, 64, (47, 49), 3),  # never less than a thirty-second
        (24, 15, (8, 16), 2),
        (40, 16, (19, 21), 1),
        (13, 9, (2, 11), 1),
        (10, 7, (2, 8), 1),
    ],
)
def test_sensitivities_are_images_of_the_middle_under_a_smooth_window(rows, columns, block, half):
    """Every pixel by its Fourier sum, in double precision."""
    mask = torch.zeros(1, rows, dtype=torch.bool)
    mask[:, block[0] : block[1]] = True
    y = ks.keep_rows(several_coils(rows, columns), mask)
    window, wave = [], []
    for side in (rows, columns):
        frequency = torch.arange(side, dtype=torch.float64) - side // 2
        bell = 0.5 + 0.5 * torch.cos(torch.pi * frequency / half)
        window.append(torch.where(frequency.abs() < half, bell, 0.0).to(torch.complex128))
        wave.append(torch.exp(2j * torch.pi * frequency[:, None] * frequency / side))
    seen = y[0].to(torch.complex128) * window[0][:, None] * window[1]
    image = wave[0] @ seen @ wave[1]
    expected = image / image.abs().square().sum(0).sqrt()
    found = ks.sensitivities(y, mask)
    torch.testing.assert_close(found[0].to(torch.complex128), expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(found.abs().square().sum(1), torch.ones(1, rows, columns))


def test_sensitivities_count_rows_above_a_half_as_measured():
    y, mask = several_coils(48, 16), torch.zeros(1, 48)
    mask[:, 21:27] = 0.9
    mask[:, [20, 27]] = 0.5
    torch.testing.assert_close(ks.sensitivities(y, mask), ks.sensitivities(y, mask > 0.5))
    assert not torch.allclose(ks.sensitivities(y, mask), ks.sensitivities(y, mask > 0.4))


def test_all_coils_count_alike_where_nothing_is_seen():
    mask = torch.zeros(2, 64, dtype=torch.bool)
    mask[1, :31] = True  # up to where the window of two rows ends
    y = ks.keep_rows(several_coils(64, 16, coils=4).expand(2, -1, -1, -1), mask)
    torch.testing.assert_close(ks.sensitivities(y, mask), torch.full((2, 4, 64, 16), 0.5, dtype=torch.complex64))
