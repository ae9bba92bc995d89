import pytest
import torch

from conftest import random_tokens, seeded
from sensewise.diffusion import AbsorbingProcess
from sensewise.tokens import MASK

PROCESS = AbsorbingProcess()


def test_survival_is_the_closed_form():
    t = torch.arange(PROCESS.timesteps, dtype=torch.float64)  # at T itself beta is capped
    alpha_bar = torch.cos((t / 1000 + 0.008) / 1.008 * torch.pi / 2)
    torch.testing.assert_close(PROCESS.survival_curve[:-1], alpha_bar / alpha_bar[0])
    assert PROCESS.survival_curve[-1] == pytest.approx(PROCESS.survival_curve[-2].item() * 0.001)
    assert (PROCESS.survival_curve.diff() < 0).all()


@pytest.mark.parametrize(
    ("s", "t"), [(1.0, 0), (0.75, 456), (0.5, 664), (0.3, 804), (0.2, 871), (0.1, 936), (0.05, 968), (0.0, 1000)]
)
def test_timestep_for(s, t):
    assert PROCESS.timestep_for(s).item() == t


def test_timestep_for_is_the_nearest_step():
    s = torch.rand(5, 4, generator=seeded(), dtype=torch.float64)
    nearest = (PROCESS.survival_curve - s[..., None]).abs().argmin(-1)
    assert torch.equal(PROCESS.timestep_for(s), nearest)
    everything = torch.arange(PROCESS.timesteps + 1)
    assert torch.equal(PROCESS.timestep_for(PROCESS.survival_curve), everything)


def test_monte_carlo_agrees_with_the_closed_form():
    batches = [random_tokens((16, 1, 16, 16), 2, seed) for seed in range(20)]
    estimate = PROCESS.survival_monte_carlo(batches, seeded())
    assert estimate.shape == (1001,)
    assert (estimate - PROCESS.survival_curve).abs().max() < 0.01
    assert abs((estimate - 0.1).abs().argmin().item() - 936) <= 2


def test_corrupt_keeps_each_site_with_its_survival():
    x = random_tokens((4, 3, 50, 50), 5)
    t = torch.tensor([0, 300, 936, 1000])
    y = PROCESS.corrupt(x, t, seeded())
    assert ((y == x) | (y == MASK)).all()
    kept = (y != MASK).flatten(1).float().mean(1)
    assert kept[0] == 1
    assert (kept - PROCESS.survival(t)).abs().max() < 0.02


def test_the_generator_alone_decides_what_survives():
    x, t = random_tokens((2, 1, 8, 8), 5), torch.tensor([500, 900])
    first, again = (PROCESS.corrupt(x, t, seeded()) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, PROCESS.corrupt(x, t, seeded(1)))
    assert (PROCESS.corrupt(x, torch.zeros(2, dtype=torch.int64), seeded()) == x).all()


def test_monte_carlo_interpolates_between_knots():
    """Straight lines between every fourth step, the last line to the end."""
    process = AbsorbingProcess(12)
    estimate = process.survival_monte_carlo([random_tokens((1, 1, 64, 64), 2)], seeded(), every=4)
    assert estimate[0] == 1
    assert estimate[12] < 0.01
    for knot in (0, 4, 8):
        torch.testing.assert_close(
            estimate[knot : knot + 5].diff(), (estimate[knot + 4] - estimate[knot]).expand(4) / 4, atol=1e-9, rtol=0
        )
    slopes = estimate.diff()
    assert (slopes[3] - slopes[4]).abs() > 1e-3
    assert (slopes[7] - slopes[8]).abs() > 1e-3
