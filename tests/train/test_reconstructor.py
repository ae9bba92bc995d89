import numpy as np
import pytest
import torch

from sensewise.data.fastmri import Slices
from sensewise.errors import BudgetError, CheckpointError, ConfigError
from sensewise.metrics import nmse
from sensewise.mri import models
from sensewise.mri.kspace import acs_rows, keep_rows, magnitude, relaxed_rows, to_kspace
from sensewise.mri.reconstruction import (
    ReconNetworkSettings,
    ReconstructionObjective,
    ReconstructorSettings,
    train_reconstructor,
    training_masks,
)
from sensewise.networks.recon_unet import ComplexUNet, PaperUNet
from sensewise.training import FitSettings

SIDE, ACS = 16, 4


def slices(split: str = "train", count: int = 6, seed: int = 0) -> Slices:
    draw = torch.Generator().manual_seed(seed)
    image = torch.zeros(count, SIDE, SIDE, dtype=torch.complex64)
    image[:, 4:12, 5:11] = torch.rand(count, 1, 1, generator=draw) + 0.5
    noise = 0.05 * torch.randn(count, SIDE, SIDE, dtype=torch.complex64, generator=draw)
    return Slices("toy", split, to_kspace(image) + noise, tuple(f"{split}{n}" for n in range(count)))


def networks():
    return [PaperUNet(base=8, levels=3), ComplexUNet(SIDE, (8, 16), (1, 1), cascades=2, embedding=8)]


def stirred(network: torch.nn.Module) -> torch.nn.Module:
    """The same network with weights that are not zero anywhere."""
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))
    return network


@pytest.mark.parametrize("network", networks(), ids=lambda n: type(n).__name__)
def test_a_fresh_network_is_zero_filling(network):
    k = slices().kspace
    mask = torch.rand(len(k), SIDE) < 0.5
    mask[:, SIDE // 2] = True
    y = keep_rows(k, mask)
    torch.testing.assert_close(network(y, mask), magnitude(y), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(network.complex_image(y, mask).abs(), network(y, mask), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("network", networks(), ids=lambda n: type(n).__name__)
def test_results_do_not_depend_on_units_batch_mates_or_size(network):
    network, k = stirred(network), slices().kspace
    mask = torch.rand(len(k), SIDE, generator=torch.Generator().manual_seed(0)) < 0.5
    mask[:, SIDE // 2] = True
    y = keep_rows(k, mask)
    x = network(y, mask)
    assert x.shape == k.shape
    torch.testing.assert_close(network(1e-6 * y, mask), 1e-6 * x, atol=1e-9, rtol=1e-3)
    torch.testing.assert_close(network(y[:1], mask[:1]), x[:1], atol=1e-5, rtol=1e-4)
    if isinstance(network, PaperUNet):
        assert network(y[:, :15, :13], mask[:, :15]).shape == (len(k), 15, 13)


def test_measured_rows_are_kept_as_they_were_measured():
    network, k = stirred(ComplexUNet(SIDE, (8, 16), (1, 1), embedding=8)), slices().kspace
    mask = acs_rows(SIDE, ACS).expand(len(k), -1)
    y = keep_rows(k, mask)
    drawn = to_kspace(network.complex_image(y, mask))
    torch.testing.assert_close(drawn[mask], k[mask], atol=1e-5, rtol=1e-4)
    assert (drawn[~mask].abs() > 1e-3).any()


def test_parameters_of_the_paper():
    assert round(sum(p.numel() for p in PaperUNet(32).parameters()) / 1e6, 2) == 1.93
    assert round(sum(p.numel() for p in PaperUNet(48).parameters()) / 1e6, 2) == 4.33


def test_relaxed_masks_agree_with_hard_ones_and_have_gradients():
    network, k = stirred(ComplexUNet(SIDE, (8, 16), (1, 1), embedding=8)), slices().kspace
    mask = acs_rows(SIDE, ACS)
    weights = mask.float().requires_grad_()
    relaxed = network(relaxed_rows(k, weights), weights.expand(len(k), -1))
    hard = mask.expand(len(k), -1)
    torch.testing.assert_close(relaxed, network(keep_rows(k, hard), hard), atol=1e-5, rtol=1e-4)
    nmse(relaxed, magnitude(k)).mean().backward()
    assert bool((weights.grad != 0).all())


def test_training_masks_hold_every_family_and_no_budget_below_acs():
    mask = training_masks(500, 40, 6, 0.1, 0.75, torch.Generator().manual_seed(0))
    counts = mask.sum(1)
    assert counts.min() >= 4
    assert counts.max() <= 30
    whole = mask[:, acs_rows(40, 6)].all(1)
    assert 200 < int(whole.sum()) < 400


def settings(steps: int = 40) -> ReconstructorSettings:
    network = ReconNetworkSettings(widths=(8, 16), blocks=(1, 1), embedding=8)
    fit = FitSettings(steps=steps, learning_rate=5e-3, warmup=2, clip=1.0, average=0.5, validate_every=steps)
    return ReconstructorSettings(batch_size=4, network=network, fit=fit)


def test_training_beats_zero_filling_and_loads_again(tmp_path):
    train, val = slices(), slices("val", 4, seed=1)
    assert train_reconstructor(settings(), train, val, ACS, tmp_path / "run")
    network, config = models.load(tmp_path / "run", "reconstructor")
    values = ReconstructionObjective(network, train, val, ACS, settings()).validate(network)
    assert values["nmse_0.5"] < 0.9 * values["zero_filled_0.5"]
    assert config["data"] == "toy"
    with pytest.raises(CheckpointError, match="this is a reconstructor, not a row-value"):
        models.load(tmp_path / "run", "row-value")


def test_a_resumed_run_takes_the_steps_of_an_undisturbed_one(tmp_path):
    train, val = slices(), slices("val", 4, seed=1)
    train_reconstructor(settings(6), train, val, ACS, tmp_path / "whole")
    assert not train_reconstructor(settings(6), train, val, ACS, tmp_path / "parts", max_minutes=0)
    assert train_reconstructor(settings(6), train, val, ACS, tmp_path / "parts", resume=True)
    whole, parts = (models.load(tmp_path / name, "reconstructor")[0] for name in ("whole", "parts"))
    for one, other in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_impossible_settings_and_missing_models():
    with pytest.raises(ConfigError, match="min_budget"):
        ReconstructorSettings(min_budget=0.8, max_budget=0.2)
    with pytest.raises(CheckpointError, match="train it first"):
        models.find("no-such-preset", "unet-a")


def test_masks_from_files(tmp_path):
    mask = acs_rows(SIDE, ACS)
    np.save(tmp_path / "mask.npy", mask.numpy())
    np.savetxt(tmp_path / "mask.txt", mask.nonzero().numpy(), fmt="%d")
    for name in ("mask.npy", "mask.txt"):
        assert torch.equal(models.load_mask(tmp_path / name, SIDE), mask)
    with pytest.raises(BudgetError, match="a mask of 20 rows is needed"):
        models.load_mask(tmp_path / "mask.npy", 20)
    with pytest.raises(BudgetError, match=r"outside 0\.\.7"):
        models.load_mask(tmp_path / "mask.txt", 8)
    (tmp_path / "bad.npy").write_bytes(b"no")
    with pytest.raises(CheckpointError, match="is not a mask"):
        models.load_mask(tmp_path / "bad.npy", SIDE)
    with pytest.raises(CheckpointError, match="does not exist"):
        models.load_mask(tmp_path / "none.npy", SIDE)
