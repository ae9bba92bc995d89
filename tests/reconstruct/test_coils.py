"""Several coils: sensitivities from the measured block, networks and compressed sensing on the combined image."""

import pytest
import torch

from conftest import awake, fresh, seeded
from sensewise.data import bundled_phantom
from sensewise.data.arrays import bundled_arrays
from sensewise.data.prepare import coil_maps, simulate
from sensewise.evaluate.judges import MagnitudeJudge
from sensewise.hub import load
from sensewise.kspace import (
    centre_crop,
    combine,
    keep_rows,
    magnitude,
    relaxed_rows,
    remove_oversampling,
    sensitivities,
    to_image,
    to_kspace,
)
from sensewise.metrics import nmse
from sensewise.networks.recon import ComplexUNet, PaperUNet
from sensewise.policies.planned import log_energy
from sensewise.policies.simple import draw_rows, row_energy
from sensewise.reconstruct.unet import UNetReconstructor
from sensewise.reconstruct.wavelet import CsWavelet, _step
from sensewise.reconstruct.zero_filled import ZeroFilled
from sensewise.sensors.base import Side
from sensewise.sensors.rows import RowSensor, row_levels

ROWS, ACS = 128, 14


@pytest.fixture(scope="module")
def knee():
    """Four slices as 8 coils see them."""
    magnitudes = torch.from_numpy(bundled_arrays("knee.npz")["magnitudes"]).float()
    found = [simulate(one, 20.0, seeded(number), coils=8) for number, one in enumerate(magnitudes)]
    return centre_crop(torch.stack(found), ROWS, ROWS).contiguous()


def masks(count, k=40, seed=0):
    return draw_rows("acs-variable-density", count, ROWS, k, ACS, seeded(seed))


def test_a_row_is_measured_by_all_coils(knee):
    sensor, mask = RowSensor(knee), masks(4)
    assert sensor.num_actions == ROWS
    seen = sensor(mask)
    assert torch.equal(seen[:, 3], RowSensor(knee[:, 3])(mask))
    assert sensor.summary(ACS).shape == (4, ACS, ACS)
    assert torch.equal(relaxed_rows(knee, mask.float()), seen)
    assert torch.equal(relaxed_rows(knee, mask[0].float())[0], seen[0])


def test_what_all_coils_measure_together_does_not_depend_on_how_it_is_shared(knee):
    """One coil, and the same with its energy on two."""
    one = knee[:, 0]
    two = torch.stack([0.6 * one, 0.8j * one], dim=1)
    for function in (magnitude, row_energy, lambda k: row_levels(k, ACS), lambda k: log_energy(k, ACS)):
        torch.testing.assert_close(function(two), function(one), rtol=1e-3, atol=1e-5)


def test_simulated_coils_have_the_magnitude_as_their_root_sum_of_squares():
    maps = coil_maps(8, 20, 24)
    torch.testing.assert_close(maps.abs().square().sum(0), torch.ones(20, 24))
    image = torch.zeros(32, 32)
    image[8:24, 8:24] = 2.0
    kspace = simulate(image, float("inf"), seeded(), coils=3)
    torch.testing.assert_close(magnitude(kspace[None])[0], image / 2, atol=1e-5, rtol=0)
    assert torch.equal(simulate(image, 10.0, seeded()), simulate(image, 10.0, seeded(), coils=1))


def test_sensitivities_are_smooth_and_combine_to_the_object(knee):
    maps = sensitivities(keep_rows(knee, masks(4)), masks(4))
    torch.testing.assert_close(maps.abs().square().sum(1), torch.ones(4, ROWS, ROWS))
    together = combine(to_image(knee), maps).abs()
    assert nmse(together, magnitude(knee)).max() < 0.004
    nothing = torch.zeros(4, ROWS, dtype=torch.bool)
    assert sensitivities(keep_rows(knee, nothing), nothing).isfinite().all()


@pytest.mark.parametrize("make", [lambda: fresh(PaperUNet, base=8, levels=3), lambda: fresh(ComplexUNet, ROWS)])
def test_networks_take_any_number_of_coils(knee, make):
    network, mask = awake(make(), std=0.01).eval(), masks(2)
    y = keep_rows(knee[:2], mask)
    with torch.inference_mode():
        x = network(y, mask)
        assert x.shape == network.complex_image(y, mask).shape == (2, ROWS, ROWS)
        alone = network(y[:1], mask[:1])
        turned = network(y.flip(1), mask)
    torch.testing.assert_close(x[:1], alone, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(x, turned, atol=1e-4, rtol=1e-3)  # coils have no order


def test_measured_rows_of_every_coil_are_kept(knee):
    network, mask = awake(fresh(ComplexUNet, ROWS), std=0.05).eval(), torch.ones(1, ROWS, dtype=torch.bool)
    torch.testing.assert_close(network(knee[:1], mask), magnitude(knee[:1]), atol=1e-5, rtol=1e-4)
    weights = masks(1).float().requires_grad_()
    network(relaxed_rows(knee[:1], weights), weights).sum().backward()
    assert weights.grad.isfinite().all()


@pytest.mark.parametrize("name", ["unet-a", "unet-b", "cs-wavelet"])
@pytest.mark.parametrize("source", ["knee", "phantom"])
def test_shipped_networks_and_compressed_sensing_beat_zero_filling(knee, name, source):
    kspace = knee[:2] if source == "knee" else bundled_phantom().values
    mask = masks(len(kspace))
    reconstruct = CsWavelet() if name == "cs-wavelet" else UNetReconstructor(load(f"mri/{name}")[0])
    judged = MagnitudeJudge(reconstruct, ["nmse"])(keep_rows(kspace, mask), mask, Side(), kspace)["nmse"]
    filled = MagnitudeJudge(ZeroFilled(), ["nmse"])(keep_rows(kspace, mask), mask, Side(), kspace)["nmse"]
    assert (judged < 0.8 * filled).all()


def test_the_wavelet_step_is_orthonormal():
    for side in (8, 30):
        torch.testing.assert_close(_step(side) @ _step(side).T, torch.eye(side), atol=1e-6, rtol=0)
    smooth = torch.linspace(0, 1, 32)
    assert (_step(32) @ smooth)[16:-1].abs().max() < 1e-6  # no details in a ramp, but for the wrap


def test_compressed_sensing_keeps_what_was_measured_and_does_not_depend_on_units(knee):
    mask = masks(2)
    y = keep_rows(knee[:2, 0], mask)
    x = CsWavelet()(y, mask)
    torch.testing.assert_close(CsWavelet()(1e-6 * y, mask), 1e-6 * x, rtol=1e-3, atol=1e-10)
    torch.testing.assert_close(CsWavelet()(y[:1], mask[:1]), x[:1], rtol=1e-3, atol=1e-4)
    everything = torch.ones_like(mask)
    torch.testing.assert_close(CsWavelet(iterations=2)(knee[:2, 0], everything), magnitude(knee[:2, 0]))
    odd = to_kspace(torch.rand(1, 15, 17, generator=seeded()).to(torch.complex64))
    assert CsWavelet(iterations=3)(odd, torch.ones(1, 15, dtype=torch.bool)).shape == (1, 15, 17)


def test_removing_oversampling_keeps_the_middle_of_the_image():
    image = torch.randn(3, 6, 20, dtype=torch.complex64, generator=seeded())
    for columns in (10, 9, 20):
        found = to_image(remove_oversampling(to_kspace(image), columns))
        torch.testing.assert_close(found, centre_crop(image, 6, columns), atol=1e-5, rtol=1e-4)
