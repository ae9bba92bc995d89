"""Pictures of any size: every method on two small ones, what goals say, and a tool that answers from its cache."""

import sys

import numpy as np
import pytest
import torch

from conftest import awake, fresh, seeded
from sensewise.beyond import peers, pictures
from sensewise.beyond.scan_lines import ColumnSensor, LineEntropy, particle_entropy
from sensewise.data.gallery import middle_square
from sensewise.data.scenes import Scenes
from sensewise.errors import ConfigError
from sensewise.evaluate.experiment import Setup
from sensewise.evaluate.results import Results
from sensewise.loop import acquire
from sensewise.networks.any_size import AnySize
from sensewise.priors.readings import ReadingPrior
from sensewise.reconstruct.interpolate import Interpolation, inverse_distance, linear
from sensewise.sensors.readings import ReadingSensor

SIDE = 32
IMAGES = torch.rand(2, 1, SIDE, SIDE, generator=seeded())
SCENES = Scenes("pictures", "test", IMAGES, sources=("wse2", "camera"))


def tool(picture, budgets):
    """Every pixel in raster order; hidden ones at the mean of the others."""
    found = []
    for number, budget in enumerate(budgets):
        order = np.arange(round(budget * picture.size))
        drawn = np.full(picture.size, picture.flat[order].mean())
        drawn[order] = picture.flat[order]
        found.append(peers.Peer(order, drawn.reshape(picture.shape), float(number)))
    return found


@pytest.fixture
def prior():
    network = awake(fresh(AnySize, widths=(8, 12), blocks=(1, 1), components=3, embedding=8), std=0.05)
    return ReadingPrior(network).eval().requires_grad_(False)


def test_rows_goals_and_figure(prior, tmp_path, monkeypatch):
    monkeypatch.setenv("SENSEWISE_DATA", str(tmp_path))
    monkeypatch.setattr(pictures, "SHOWN_SIDE", SIDE)
    monkeypatch.setattr(pictures, "LINE_SIDES", (SIDE,))
    elsewhere = peers.Tool("elsewhere", "1", tool, sides=(SIDE + 1,))
    tools = [peers.Tool("fast", "1", tool, 50), peers.Tool("gpcam", "1", tool, sides=(SIDE,)), elsewhere]
    rows = pictures.measure(Setup(seeds=range(2)), prior, {SIDE: SCENES}, tools)
    names = {"fast", "gpcam", "line-entropy", "random", "random-idw", "random-linear", "raster", pictures.OURS}
    assert {row.method for row in rows} == names
    assert {(row.picture, row.side) for row in rows} == {("wse2", SIDE), ("camera", SIDE)}
    assert {row.form for row in rows if row.method == "fast" and row.picture == "camera"} == {"its training picture"}
    for row in rows:
        assert abs(row.density - row.budget) < (0.03 if row.method == "line-entropy" else 0.001)
        assert row.metric != "travel" or row.mean > 0
    assert {row.seeds for row in rows if row.method == "random-linear"} == {2}
    at_128 = [pictures.replace(row, side=128) for row in rows]
    made = dict(pictures.goals(at_128).lines)
    ours, fast = (pictures._values(at_128, name, "psnr", 128) for name in (pictures.OURS, "fast"))
    gains = [ours["wse2", s] - fast["wse2", s] for s in (0.05, 0.1, 0.2)]  # without camera
    assert made["above FAST, mean, s >= 0.05 (dB)"][1].ours == f"{sum(gains) / 3:.2f}"
    arrays = pictures.shown(prior, SCENES, tools[0])
    section = pictures.section(Results("pictures", "cpu", "pictures", at_128, arrays=arrays))
    assert len(section.figures) == 1
    assert all(row.images == 1 for row in pictures.averages(rows))


def test_a_tool_is_run_once_per_picture(tmp_path, monkeypatch):
    monkeypatch.setenv("SENSEWISE_DATA", str(tmp_path))
    calls = []

    def counted(picture, budgets):
        calls.append(1)
        return tool(picture, budgets)

    picture = IMAGES[0, 0].numpy()
    first = peers.Tool("fast", "1", counted)(picture, (0.1, 0.2))
    again = peers.Tool("fast", "1", counted)(picture, (0.1, 0.2))
    assert len(calls) == 1
    for a, b in zip(first, again, strict=True):
        assert np.array_equal(a.order, b.order)
        np.testing.assert_allclose(a.picture, b.picture, atol=1e-6)
    peers.Tool("fast", "2", counted)(picture, (0.1, 0.2))
    assert len(calls) == 2


def test_a_folder_without_fast_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="not a clone of FAST"):
        peers.fast(tmp_path)


def test_gpcam_reads_every_pixel_once_and_draws_between():
    pytest.importorskip("gpcam", reason="gpCAM is not installed")
    picture = np.add.outer(np.sin(np.arange(24) / 5), np.cos(np.arange(16) / 4)).astype(np.float32) / 4 + 0.5
    for budget, peer in zip((0.05, 0.15), peers.gpcam((24,)).run(picture, (0.05, 0.15)), strict=True):
        assert len(set(peer.order.tolist())) == len(peer.order) == round(budget * picture.size)
    assert ((peer.picture - picture) ** 2).mean() < 0.1 * picture.var()


def test_gpcam_that_is_not_installed_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "gpcam", None)
    with pytest.raises(ConfigError, match="gpCAM needs a package that is not installed"):
        peers.gpcam((64,))


def test_lines_are_read_whole_and_the_most_uncertain_first(prior):
    taken = acquire(LineEntropy(prior, particles=4), ColumnSensor(IMAGES), 5, steps=5, generator=seeded())
    seen = ~taken.observation[:, 0].isnan()
    assert torch.equal(seen.all(1), taken.mask)
    assert torch.equal(seen.any(1), taken.mask)
    same, spread = torch.zeros(1, 4, 1, 1), torch.tensor([0.0, 0.3, 0.6, 1.0]).view(1, 4, 1, 1)
    assert particle_entropy(same, 0.5) == 0
    assert particle_entropy(spread, 0.5) > particle_entropy(0.5 * spread, 0.5) > 0


@pytest.mark.parametrize("reconstruct", [Interpolation(linear), Interpolation(inverse_distance)])
def test_interpolations_keep_readings_and_fill_a_constant(reconstruct):
    mask = torch.rand(2, SIDE**2, generator=seeded()) < 0.2
    y = ReadingSensor(IMAGES)(mask)
    filled = reconstruct(y, mask)
    assert filled.shape == IMAGES.shape
    seen = mask.view(IMAGES.shape)
    torch.testing.assert_close(filled[seen], IMAGES[seen], atol=1e-4, rtol=0)
    flat = ReadingSensor(torch.full_like(IMAGES, 0.3))(mask)
    torch.testing.assert_close(reconstruct(flat, mask), torch.full_like(IMAGES, 0.3))
    two = torch.zeros_like(mask)
    two[:, [5, 90]] = True
    assert reconstruct(ReadingSensor(IMAGES)(two), two).isfinite().all()


def test_linear_interpolation_is_exact_on_a_plane():
    plane = (torch.arange(SIDE).view(-1, 1) + 2 * torch.arange(SIDE)).expand(1, 1, SIDE, SIDE) / (3 * SIDE)
    mask = torch.rand(1, SIDE**2, generator=seeded()) < 0.2
    for corner in (0, SIDE - 1, SIDE * (SIDE - 1), SIDE**2 - 1):
        mask[:, corner] = True
    torch.testing.assert_close(Interpolation(linear)(ReadingSensor(plane)(mask), mask), plane, atol=1e-5, rtol=0)


def test_middle_squares_fill_the_range():
    found = middle_square(np.arange(30 * 50, dtype=float).reshape(30, 50), 10)
    assert found.shape == (10, 10)
    assert found.min() == 0
    assert found.max() == 1
