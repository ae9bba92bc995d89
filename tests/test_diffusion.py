import itertools
import math

import pytest
import torch

from conftest import random_tokens, seeded
from sensewise.diffusion import AbsorbingProcess, crossing
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


@pytest.mark.parametrize(("s", "when"), [(1.0, 0.0), (0.9, 0.5), (0.8, 1.0), (0.65, 1.5), (0.2, 2.75), (0.1, 3.0)])
def test_when_a_curve_passes_a_share(s, when):
    curve = torch.tensor([1.0, 0.8, 0.5, 0.1, 0.0], dtype=torch.float64)
    assert crossing(curve, s) == pytest.approx(when)


def test_a_curve_that_rests_passes_when_it_goes_on():
    assert crossing(torch.tensor([1.0, 0.5, 0.5, 0.1]), 0.5) == pytest.approx(2.0)


def test_monte_carlo_measures_every_tenth_step():
    estimate = AbsorbingProcess(40).survival_monte_carlo([random_tokens((1, 1, 64, 64), 2)], seeded())
    bends = estimate.diff().diff().abs() > 1e-9
    assert (bends.nonzero()[:, 0] + 1).tolist() == [10, 20, 30]


def test_monte_carlo_of_steps_that_do_not_divide_the_process():
    """The last line is drawn on to the end; no step beyond the end is asked for."""
    process = AbsorbingProcess(11)
    estimate = process.survival_monte_carlo([random_tokens((4, 1, 64, 64), 2)], seeded(), every=4)
    assert estimate.shape == (12,)
    assert (estimate[[0, 4, 8]] - process.survival_curve[[0, 4, 8]]).abs().max() < 0.02
    torch.testing.assert_close(estimate[4:].diff(), (estimate[8] - estimate[4]).expand(7) / 4)


@pytest.mark.parametrize(("options", "steps"), [({}, 1000), ({"timesteps": 7}, 7)])
def test_the_schedule_to_the_last_digit(options, steps):
    """Step by step in Python's own numbers."""
    process = AbsorbingProcess(**options)
    assert process.timesteps == steps
    cosine = [math.cos((t / steps + 0.008) / 1.008 * math.pi / 2) for t in range(steps + 1)]
    exact = [1.0]
    for before, after in itertools.pairwise(cosine):
        exact.append(exact[-1] * (1 - min(1 - after / before, 0.999)))
    assert process.survival_curve.tolist() == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("step", [3, 456, 871, 997])
def test_the_nearest_step_is_found_in_double_precision(step):
    """Just above and just below the middle between two steps."""
    process = AbsorbingProcess()
    middle = process.survival_curve[step : step + 2].mean()
    assert process.timestep_for(middle + 1e-10).item() == step
    assert process.timestep_for(middle - 1e-10).item() == step + 1


def test_steps_for_shares_of_any_precision_and_beyond_the_curve():
    process = AbsorbingProcess(50)
    for dtype in (torch.float16, torch.float32, torch.float64):
        shares = torch.tensor([-0.5, 0.0, 0.5, 1.0, 1.5], dtype=dtype)
        nearest = (process.survival_curve - shares[:, None]).abs().argmin(1)
        assert torch.equal(process.timestep_for(shares), nearest)
