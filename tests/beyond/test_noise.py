"""Noise on a handful of images: told the noise, repeats and a budget of readings, and what a trusting view shows."""

import torch

from conftest import awake, fresh, make_absorbing, seeded
from sensewise.beyond import noise
from sensewise.channels import BitFlip, Gaussian
from sensewise.data.scenes import Scenes
from sensewise.evaluate.experiment import Setup
from sensewise.evaluate.readings import PictureJudge, StateJudge, Trusting
from sensewise.evaluate.results import Results
from sensewise.metrics import psnr
from sensewise.networks.any_size import AnySize
from sensewise.networks.unet import UNet
from sensewise.priors.flips import FlipPrior
from sensewise.priors.readings import ReadingPrior
from sensewise.sensors.base import Side
from sensewise.sensors.readings import Readings, ReadingSensor
from sensewise.tokens import dequantize, observe, unpack

BITS = torch.randint(1, 3, (3, 1, 16, 16), generator=seeded())
SCENES = Scenes("mnist", "test", BITS.to(torch.uint8), torch.tensor([1, 2, 3]), 2, 10)


def flip_prior():
    network = awake(fresh(UNet, 1, 2, 10, widths=(8, 16), blocks=(1, 1), embedding=8, encoding="noisy"), std=0.1)
    return FlipPrior(network, 1, 2, 10, size=(16, 16)).eval().requires_grad_(False)


def grey_prior():
    network = awake(fresh(AnySize, widths=(8, 12), blocks=(1, 1), components=3, embedding=8), std=0.05)
    return ReadingPrior(network).eval().requires_grad_(False)


def test_rows_of_digits_and_pictures():
    setup = Setup(seeds=range(1))
    rows = noise.digit_rows(setup, flip_prior(), make_absorbing((1, 16, 16)), SCENES, (0.0, 0.1))
    methods = {(row.method, row.noise) for row in rows}
    assert methods == {
        (noise.AWARE, 0.0),
        (noise.AWARE, 0.1),
        (noise.REPEATED, 0.1),
        (noise.TRUSTING, 0.0),
        (noise.TRUSTING, 0.1),
    }
    assert {row.budget for row in rows} == {0.1}
    assert all(abs(row.density - 0.1) < 0.003 for row in rows)  # as many readings with repeats as without
    pictures = Scenes("pictures", "test", torch.rand(2, 1, 24, 24, generator=seeded()))
    rows += noise.picture_rows(setup, grey_prior(), pictures)
    assert {row.form for row in rows if row.dataset == "pictures"} == set(noise.BLURS)
    section = noise.section(Results("noise", "cpu", "mnist", rows))
    assert len(section.tables) == 2
    assert "flips of 10%: takes readings for the truth" in section.tables[0].markdown()


def test_every_seed_has_noise_of_its_own():
    rows = noise.digit_rows(Setup(seeds=range(3)), flip_prior(), make_absorbing((1, 16, 16)), SCENES, (0.0, 0.1))
    assert {row.seeds for row in rows if row.noise} == {3}
    assert {row.seeds for row in rows if not row.noise} == {1}
    assert any(row.sd for row in rows if row.noise)


def test_a_trusting_view_shows_the_readings_as_the_truth():
    mask = torch.rand(3, 256, generator=seeded()) < 0.3
    y = ReadingSensor(dequantize(BITS, 2), BitFlip(0.0))(mask)
    assert torch.equal(Trusting(2).tokens(y, mask), observe(BITS, mask))
    blurred = ReadingSensor(dequantize(BITS, 2), Gaussian(0.1))(mask)
    values, sigma, seen = unpack(Trusting().tokens(blurred, mask))
    assert torch.equal(values, unpack(blurred)[0])
    assert torch.equal(seen.flatten(1), mask)
    assert (sigma == 0).all()


def test_judges_say_what_is_wrong_and_what_was_expected():
    mask = torch.rand(3, 256, generator=seeded()) < 0.3
    y = ReadingSensor(dequantize(BITS, 2), BitFlip(0.1))(mask)
    prior = flip_prior()
    found = StateJudge(prior, Readings())(y, mask, Side(label=SCENES.labels), BITS)
    prediction = prior(y, SCENES.labels)
    torch.testing.assert_close(found["errors"], (prediction.mode() != BITS).sum((1, 2, 3)).float())
    torch.testing.assert_close(found["expected-errors"], prediction.expected_errors().sum((1, 2, 3)))
    picture, grey = torch.rand(2, 1, 24, 24, generator=seeded()), grey_prior()
    mask = torch.rand(2, 576, generator=seeded()) < 0.3
    y = ReadingSensor(picture, Gaussian(0.05))(mask)
    found = PictureJudge(grey, Readings())(y, mask, Side(), picture)
    torch.testing.assert_close(found["psnr"], psnr(grey(y).mean().clamp(0, 1), picture))
    torch.testing.assert_close(found["expected-psnr"], -10 * grey(y).variance().mean((1, 2, 3)).log10())
    assert found["ssim"].shape == (2,)
