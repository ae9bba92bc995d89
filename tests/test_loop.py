from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import make_absorbing, make_empirical, random_kspace, random_tokens, seeded
from sensewise import predictions
from sensewise.errors import BudgetError, ConfigError, SessionError
from sensewise.loop import Acquisition, acquire, begin
from sensewise.metrics import errors
from sensewise.policies.base import Policy
from sensewise.policies.choose import Joint, Spread, TopK
from sensewise.policies.greedy import Greedy
from sensewise.policies.known import KnownImages
from sensewise.policies.simple import Equispaced, Random, VariableDensity
from sensewise.policies.starts import CentralBlock, GridProbe, RandomProbe
from sensewise.reconstruct.prior import Mode
from sensewise.sensors.base import Side
from sensewise.sensors.pixels import PixelSensor
from sensewise.sensors.rows import RowSensor
from sensewise.tokens import MASK, observe

SHAPE = (1, 4, 4)
EMPIRICAL = make_empirical()
POLICIES = {
    "random": Random(),
    "variable-density": VariableDensity(),
    "equispaced": Equispaced(),
    "entropy": Greedy(EMPIRICAL),
    "variance": Greedy(EMPIRICAL, predictions.variance),
}
CHOICES = {"top-k": TopK(), "spread": Spread(damping=0.7), "spacing": Spread(0.8, 4.0, 0.8)}
CHOICES |= {"joint": Joint(), "known": Joint(KnownImages(EMPIRICAL.images, 2, EMPIRICAL.labels))}
STARTS = {"nothing": None, "random": RandomProbe(), "grid": GridProbe()}


@st.composite
def acquisitions(draw):
    k = draw(st.integers(2, 15))
    start = draw(st.sampled_from(list(STARTS)))
    probe = {"nothing": 0, "random": round(0.2 * k), "grid": max(1, round(0.2 * k))}[start]
    return {
        "policy": POLICIES[draw(st.sampled_from(list(POLICIES)))],
        "choose": CHOICES[draw(st.sampled_from(list(CHOICES)))],
        "budget": k if draw(st.booleans()) else k / 16,
        "steps": draw(st.integers(1, k - probe)),
        "start": STARTS[start],
        "probe": probe,
    }


def run(case, x, seed=0):
    options = {name: case[name] for name in ("steps", "start", "choose")}
    side = Side(label=torch.arange(len(x)) % 3)
    return acquire(case["policy"], PixelSensor(x), case["budget"], side=side, generator=seeded(seed), **options)


@given(acquisitions(), st.integers(1, 4), st.integers(0, 2**32))
def test_exact_budget_nothing_twice(case, batch, seed):
    x = random_tokens((batch, *SHAPE), seed=seed)
    taken = run(case, x, seed)
    k = case["budget"] if isinstance(case["budget"], int) else round(case["budget"] * 16)
    assert (taken.mask.sum(1) == k).all()
    assert torch.equal(taken.observation, observe(x, taken.mask))
    torch.testing.assert_close(taken.density, torch.full((batch,), k / 16))
    counts = torch.stack([taken.mask_after(r).sum(1) for r in range(case["steps"] + 1)])  # (R + 1, B)
    sizes = counts.diff(dim=0)
    assert (counts == counts[:, :1]).all()
    assert (sizes >= 1).all()
    assert sizes.max() - sizes.min() <= 1
    assert counts[0, 0] == case["probe"]
    for r in range(case["steps"]):
        assert not (taken.mask_after(r) & ~taken.mask_after(r + 1)).any()


def test_steps_are_counted_beyond_every_picture():
    taken = acquire(Random(), PixelSensor(random_tokens((1, *SHAPE))), 8, steps=2)
    assert torch.iinfo(taken.step.dtype).max > 2**30  # 16 bits are too few for 40,000 pixels one by one


@given(acquisitions(), st.integers(0, 2**32))
def test_hidden_values_never_matter(case, seed):
    x, other = (random_tokens((3, *SHAPE), seed=seed + i) for i in range(2))
    taken = run(case, x, seed)
    changed = torch.where(taken.mask.view(3, *SHAPE), x, other)
    again = run(case, changed, seed)
    assert torch.equal(again.step, taken.step)
    assert torch.equal(again.observation, taken.observation)


@given(acquisitions(), st.integers(0, 2**32))
def test_the_seed_decides_everything(case, seed):
    x = random_tokens((2, *SHAPE))
    assert torch.equal(run(case, x, seed).step, run(case, x, seed).step)


@given(st.integers(7, 19), st.integers(0, 2**32))
def test_rows_exact_budget_nothing_twice_nothing_hidden(k, seed):
    one, other = random_kspace(3, 20, 6, seed), random_kspace(3, 20, 6, seed + 1)
    options = {"steps": 2, "start": CentralBlock(4)} if k > 5 else {}
    taken = acquire(VariableDensity(0.3), RowSensor(one), k, generator=seeded(seed), **options)
    assert (taken.mask.sum(1) == k).all()
    mixed = RowSensor(torch.where(taken.mask.unsqueeze(-1), one, other))
    again = acquire(VariableDensity(0.3), mixed, k, generator=seeded(seed), **options)
    assert torch.equal(again.step, taken.step)
    assert torch.equal(again.observation, taken.observation)


def test_other_seeds_give_other_masks():
    x = random_tokens((1, 1, 8, 8))
    drawn = [acquire(Random(), PixelSensor(x), 20, generator=seeded(seed)).mask for seed in (0, 1)]
    assert not torch.equal(*drawn)
    assert torch.equal(acquire(Random(), PixelSensor(x), 20).mask, drawn[0])


@pytest.mark.parametrize("prior", [EMPIRICAL, make_absorbing()])
def test_greedy_does_not_depend_on_the_size_of_the_batch(prior):
    x = random_tokens((6, *prior.shape))
    label = torch.arange(6) % 3

    def steps(part):
        return acquire(Greedy(prior), PixelSensor(x[part]), 0.3, side=Side(label=label[part]), steps=4).step

    assert torch.equal(torch.cat([steps(slice(b, b + 1)) for b in range(6)]), steps(slice(None)))


@pytest.mark.parametrize("channels", [1, 2])
def test_greedy_measures_the_pixel_of_largest_information_gain(channels):
    prior = make_empirical(count=20, shape=(channels, 3, 3), num_states=3, labels=None)
    x = prior.images[:5]
    taken = acquire(Greedy(prior), PixelSensor(x), 5, steps=5)
    for b in range(5):
        for r in range(1, 6):
            before = observe(x[b : b + 1], taken.mask_after(r - 1)[b : b + 1])[0]
            agree = ((prior.images == before) | (before == MASK)).flatten(1).all(1)
            values = prior.images[agree].flatten(2)  # (M, C, K)
            probs = torch.stack([(values == s).double().mean(0) for s in (1, 2, 3)])  # (N, C, K)
            gain = torch.special.entr(probs).sum((0, 1))
            chosen = (taken.step[b] == r).nonzero().item()
            assert gain[chosen].item() == pytest.approx(gain.max().item(), abs=1e-6)


def test_information_gain_is_never_negative_on_average():
    x = EMPIRICAL.images
    taken = acquire(Greedy(EMPIRICAL), PixelSensor(x), 6, steps=6)
    left = [EMPIRICAL(observe(x, taken.mask_after(r))).entropy().sum().item() for r in range(7)]
    assert all(after <= before + 1e-4 for before, after in pairwise(left))


def test_a_start_mask_is_taken_first():
    first = torch.zeros(2, 16, dtype=torch.bool)
    first[:, [0, 5]] = True
    taken = acquire(Greedy(EMPIRICAL), PixelSensor(EMPIRICAL.images[:2]), 6, steps=2, start=first)
    assert torch.equal(taken.mask_after(0), first)
    assert (taken.mask.sum(1) == 6).all()


@pytest.mark.parametrize(
    "start",
    [
        torch.zeros(2, 15, dtype=torch.bool),
        torch.zeros(2, 16),
        torch.ones(2, 16, dtype=torch.bool),
        torch.arange(16).expand(2, -1) < 6,
        torch.arange(16) < torch.tensor([[1], [2]]),
    ],
)
def test_starts_that_do_not_fit(start):
    with pytest.raises(BudgetError, match="start"):
        acquire(Random(), PixelSensor(random_tokens((2, *SHAPE))), 6, start=start)


@pytest.mark.parametrize("budget", [0, 1, 1.0, 1.5, -1, 16, "ten", float("nan"), True, 0.01])
def test_impossible_budgets(budget):
    with pytest.raises(BudgetError, match="budget"):
        acquire(Random(), PixelSensor(random_tokens((1, *SHAPE))), budget)


@pytest.mark.parametrize(("steps", "start"), [(0, None), (-1, None), (7, None), (5, STARTS["grid"]), (1.5, None)])
def test_impossible_steps(steps, start):
    with pytest.raises(BudgetError, match="steps"):
        acquire(Random(), PixelSensor(random_tokens((1, *SHAPE))), 5 + (start is None), steps=steps, start=start)


def test_scores_are_kept_on_request():
    x = EMPIRICAL.images[:2]
    taken = acquire(Greedy(EMPIRICAL), PixelSensor(x), 6, steps=3, keep_scores=True)
    assert [scores.shape for scores in taken.scores] == [(2, 16)] * 3
    torch.testing.assert_close(taken.scores[0], EMPIRICAL(torch.zeros_like(x)).entropy().flatten(1))
    assert acquire(Greedy(EMPIRICAL), PixelSensor(x), 6, steps=3).scores == ()


def test_policies_know_the_whole_context_and_only_what_was_measured():
    seen = []

    class Spy(Policy):
        def scores(self, observation, mask, context):
            seen.append((observation.clone(), mask.clone(), context))
            return Random().scores(observation, mask, context)

    x, side, generator = random_tokens((2, *SHAPE)), Side(label=torch.tensor([1, 2])), seeded()
    acquire(Spy(), PixelSensor(x), 0.5, steps=4, side=side, generator=generator)
    assert len(seen) == 4
    for r, (observation, mask, context) in enumerate(seen):
        assert (context.budget, context.fraction, context.step, context.grid) == (8, 0.5, r + 1, (4, 4))
        assert context.side is side
        assert context.generator is generator
        assert (mask.sum(1) == 2 * r).all()
        assert torch.equal(observation, observe(x, mask))


def test_ask_repeats_until_tell_and_tell_needs_ask():
    sensor = PixelSensor(random_tokens((2, *SHAPE)))
    loop = Acquisition(Random(), sensor(torch.zeros(2, 16, dtype=torch.bool)), sensor.grid, 6, steps=2)
    with pytest.raises(
        SessionError, match=r"^tell was called before ask: ask first, measure what it names, then tell$"
    ):
        loop.tell(sensor(loop.mask))
    first = loop.ask()
    assert torch.equal(loop.ask(), first)
    loop.tell(sensor(loop.mask | first))
    second = loop.ask()
    assert not (first & second).any()
    before = loop.trajectory()
    loop.tell(sensor(loop.mask | second))
    assert before.mask.sum() == 6  # a trajectory is not changed by what comes later
    assert loop.ask() is None


def test_greedy_makes_less_than_half_of_the_errors_of_random(mnist, digits):
    x, label = digits[slice(None)]
    side = Side(label=label)
    wrong = {}
    for name, policy, steps in (("random", Random(), 1), ("greedy", Greedy(mnist), 16)):
        taken = acquire(policy, PixelSensor(x), 0.1, side=side, steps=steps)
        wrong[name] = errors(Mode(mnist)(taken.observation, taken.mask, side), x).mean().item()
    assert wrong["greedy"] < 0.5 * wrong["random"]


@settings(max_examples=20)
@given(st.integers(2, 15))
def test_more_budget_never_takes_fewer_pixels(k):
    x = EMPIRICAL.images[:1]
    small = acquire(Greedy(EMPIRICAL), PixelSensor(x), k, steps=k).step[0]
    large = acquire(Greedy(EMPIRICAL), PixelSensor(x), 15, steps=15).step[0]
    assert torch.equal(small != -1, (large != -1) & (large <= k))


@pytest.mark.parametrize(
    ("scores", "wrong"),
    [
        (
            torch.zeros(2, 5),
            r"torch.float32 of shape \(2, 5\): floating-point numbers of shape \(2, 16\) are needed, one",
        ),
        (torch.zeros(2, 16, dtype=torch.int64), r"torch.int64 of shape \(2, 16\): floating-point numbers of shape"),
    ],
)
def test_scores_that_do_not_rank_every_action(scores, wrong):
    class Gives(Policy):
        def scores(self, observation, mask, context):
            return scores

    with pytest.raises(ConfigError, match=f"^Gives gave scores {wrong}"):
        acquire(Gives(), PixelSensor(random_tokens((2, *SHAPE))), 6)


def test_a_score_that_is_not_a_number():
    class Gives(Policy):
        def scores(self, observation, mask, context):
            return torch.zeros(mask.shape).index_fill(1, torch.tensor([3]), torch.nan)

    with pytest.raises(ConfigError, match=r"^Gives gave a score that is not a number: every action needs one"):
        acquire(Gives(), PixelSensor(random_tokens((2, *SHAPE))), 6)


def test_what_begins_is_what_acquire_runs():
    """Every argument arrives, and what is left out means the same."""
    sensor, draw = PixelSensor(random_tokens((2, *SHAPE))), seeded()
    choose, side = Spread(0.3), Side(label=torch.tensor([1, 2]))
    loop = begin(
        Random(), sensor, 6, side=side, steps=3, start=RandomProbe(), choose=choose, generator=draw, keep_scores=True
    )
    assert (loop.choose, loop.side, loop.generator, loop.keep_scores) == (choose, side, draw, True)
    assert (loop.steps, loop.budget, int(loop.ask().sum())) == (3, 6, 2)
    plain = begin(Random(), sensor, 6)
    assert (plain.steps, plain.keep_scores, plain.stop) == (1, False, None)
    assert torch.equal(plain.ask(), acquire(Random(), sensor, 6).mask)


def test_acquire_runs_what_begins_to_its_end():
    """With a choice, a start and a stop of its own; the trajectory says how it went."""
    sensor, options = PixelSensor(EMPIRICAL.images[:4]), {"steps": 3, "start": GridProbe(), "keep_scores": True}
    for choose in (Spread(0.9, 2.0), TopK()):
        loop = begin(Greedy(EMPIRICAL), sensor, 9, choose=choose, generator=seeded(), **options)
        for _ in loop.run(sensor):
            pass
        taken = acquire(Greedy(EMPIRICAL), sensor, 9, choose=choose, generator=seeded(), **options)
        assert torch.equal(taken.step, loop.step)
        assert (taken.steps, taken.grid, len(taken.scores), taken.stopped) == (3, (4, 4), 3, None)
    assert not torch.equal(taken.step, acquire(Greedy(EMPIRICAL), sensor, 9, choose=Spread(0.9, 2.0), **options).step)


def test_an_acquisition_says_when_each_action_was_taken():
    """Uneven steps come in the order of `step_sizes`; 32 bits per action."""
    taken = acquire(Greedy(EMPIRICAL), PixelSensor(EMPIRICAL.images[:2]), 7, steps=3)
    assert taken.step.dtype == torch.int32
    assert [(taken.step == step).sum(1).tolist() for step in (1, 2, 3)] == [[2, 2], [2, 2], [3, 3]]


def test_what_an_acquisition_does_unless_it_is_told_otherwise():
    sensor = PixelSensor(random_tokens((2, *SHAPE)))
    loop = Acquisition(Random(), sensor(torch.zeros(2, 16, dtype=torch.bool)), sensor.grid, 6)
    assert (loop.steps, loop.keep_scores, loop.stop, loop.choose) == (1, False, None, TopK())
    assert loop.ask().sum(1).tolist() == [6, 6]


def test_a_pixel_cannot_be_read_more_often_than_there_are_readings():
    observation = torch.zeros(1, 1, 6, 7)
    said = "a pixel may be read 5 times, but the budget leaves 4 readings in all: lower repeats, or raise the budget"
    with pytest.raises(BudgetError, match=f"^{said}$"):
        Acquisition(Random(), observation, (5, 6, 7), 4)
    assert Acquisition(Random(), observation, (4, 6, 7), 4).budget == 4
    assert Acquisition(Random(), observation, (6, 7), 4).budget == 4
