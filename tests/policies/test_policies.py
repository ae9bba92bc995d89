"""Contracts of every policy, choice and start, on pixels and on rows."""

from importlib import import_module
from pkgutil import walk_packages

import pytest
import torch

import sensewise
import zoo
from conftest import make_context, random_kspace, random_tokens, seeded
from sensewise import masks
from sensewise.loop import acquire
from sensewise.policies.base import Choice, Policy, Start
from sensewise.reconstruct.base import Reconstructor
from sensewise.sensors.base import Side
from sensewise.sensors.pixels import PixelSensor
from sensewise.sensors.rows import RowSensor
from sensewise.tokens import observe

CPU = torch.device("cpu")
CASES = [
    *(("pixels", name) for name in zoo.PIXEL_POLICIES),
    *(("rows", name) for name in zoo.ROW_POLICIES),
]
BATCH = 3


def case(kind, name, batch=BATCH, seed=0):
    """A policy, a sensor and what is known beforehand."""
    if kind == "pixels":
        sensor = PixelSensor(random_tokens((batch, 1, 8, 8), seed=seed))
        return zoo.PIXEL_POLICIES[name](CPU), sensor, Side(torch.arange(batch), sensor.summary(2))
    sensor = RowSensor(random_kspace(3, zoo.ROWS, zoo.COLUMNS)[:batch])
    return zoo.ROW_POLICIES[name](CPU), sensor, Side(summary=sensor.summary(zoo.ACS))


def before(kind, sensor):
    """A mask of some actions that leaves a part of the budget: the ACS block, or some pixels."""
    mask = torch.zeros(sensor.batch, sensor.num_actions, dtype=torch.bool)
    if kind == "rows":
        mask[:] = zoo.ROW_STARTS["central-block"](1, (zoo.ROWS,), zoo.BUDGET, seeded())
    else:
        mask[:, [3, 20, 41]] = True
    return mask


def context(sensor, side, seed=0):
    return make_context(zoo.BUDGET, sensor.grid, side.label, side.summary, seed=seed)


@pytest.mark.parametrize(("kind", "name"), CASES)
@pytest.mark.parametrize("batch", [1, BATCH])
def test_scores(kind, name, batch):
    if name == "oracle-one-step" and batch == 1:
        pytest.skip("the oracle knows three slices")
    policy, sensor, side = case(kind, name, batch)
    mask = before(kind, sensor)
    scores = policy.scores(sensor(mask), mask, context(sensor, side))
    assert scores.shape == (batch, sensor.num_actions)
    assert scores.dtype == torch.float32
    assert scores.isfinite().all()
    assert not scores.requires_grad
    assert torch.equal(scores, policy.scores(sensor(mask), mask, context(sensor, side)))


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_randomness_is_declared_and_is_the_generators(kind, name):
    policy, sensor, side = case(kind, name)
    mask = before(kind, sensor)
    found = [policy.scores(sensor(mask), mask, context(sensor, side, seed)) for seed in (0, 1)]
    assert torch.equal(*found) is not policy.random


@pytest.mark.parametrize(("kind", "name"), [case for case in CASES if case[1] != "oracle-one-step"])
def test_scores_do_not_depend_on_batch_mates(kind, name):
    policy, sensor, side = case(kind, name)
    if policy.random:
        return  # the numbers of a batch come from one generator
    mask = before(kind, sensor)
    together = policy.scores(sensor(mask), mask, context(sensor, side))
    for b in range(BATCH):
        alone = policy.scores(sensor(mask)[b : b + 1], mask[b : b + 1], context(sensor, side[b : b + 1]))
        torch.testing.assert_close(alone, together[b : b + 1], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("kind", "name", "choice"),
    [
        (kind, name, choice)
        for kind, name in CASES
        for choice in (zoo.PIXEL_CHOICES if kind == "pixels" else zoo.CHOICES)
    ],
)
@pytest.mark.parametrize("steps", [1, 3])
def test_every_policy_with_every_choice_spends_the_exact_budget(kind, name, choice, steps):
    policy, sensor, side = case(kind, name)
    start = before(kind, sensor)
    taken = acquire(policy, sensor, zoo.BUDGET, side=side, steps=steps, start=start, choose=zoo.PIXEL_CHOICES[choice])
    assert taken.mask.sum(1).tolist() == [zoo.BUDGET] * BATCH
    assert torch.equal(taken.mask_after(0), start)
    assert torch.equal(taken.observation, sensor(taken.mask))


GRIDS = [*((choice, grid) for choice in zoo.CHOICES for grid in ((5, 7), (16,)))]


@pytest.mark.parametrize(("choice", "grid"), [*((choice, (8, 8)) for choice in zoo.PIXEL_CHOICES), *GRIDS])
def test_choices(choice, grid):
    choose, actions = zoo.PIXEL_CHOICES[choice], torch.Size(grid).numel()
    scores = torch.rand(4, actions, generator=seeded())
    scores[:, :5] = -torch.inf
    numbers = torch.tensor([1, 2, 3, 6])
    mask = torch.zeros(4, 64, dtype=torch.bool)
    mask[:, :5] = True
    y = observe(random_tokens((4, 1, 8, 8), seed=1), mask)
    for n, counts in ((6, [6] * 4), (numbers, numbers.tolist())):
        chosen = choose(scores, n, make_context(grid=grid, observation=y))
        assert chosen.dtype == torch.bool
        assert chosen.shape == scores.shape
        assert chosen.sum(1).tolist() == counts
        assert not chosen[:, :5].any()
    alone = choose(scores[2:3], 6, make_context(grid=grid, observation=y[2:3]))
    assert torch.equal(alone, choose(scores, 6, make_context(grid=grid, observation=y))[2:3])


@pytest.mark.parametrize(
    ("grid", "start"),
    [
        *(((8, 8), start) for start in zoo.PIXEL_STARTS.values()),
        *(((zoo.ROWS,), start) for start in zoo.ROW_STARTS.values()),
    ],
    ids=[*zoo.PIXEL_STARTS, *(f"rows-{name}" for name in zoo.ROW_STARTS)],
)
@pytest.mark.parametrize("batch", [1, 4])
def test_starts(grid, start, batch):
    first = start(batch, grid, zoo.BUDGET, seeded())
    assert first.dtype == torch.bool
    assert first.shape == (batch, torch.Size(grid).numel())
    taken = first.sum(1)
    assert (taken == taken[0]).all()
    assert 0 < taken[0] < zoo.BUDGET
    assert torch.equal(first, start(batch, grid, zoo.BUDGET, seeded()))
    assert torch.equal(first, start(batch, grid, zoo.BUDGET, seeded(1))) is not start.random


def concrete(base):
    """Every class of the package that is a `base`."""
    for module in walk_packages(sensewise.__path__, "sensewise."):
        if module.name.split(".")[1] in {"policies", "reconstruct"}:
            import_module(module.name)
    homes = ("sensewise.policies.", "sensewise.reconstruct.")  # controls of one experiment live beside it
    return {cls for cls in base.__subclasses__() if cls.__module__.startswith(homes)}


def test_nothing_is_left_out():
    """A policy, choice, start or reconstructor that is added to the package has to be added to the zoo."""
    makers = [*zoo.PIXEL_POLICIES.values(), *zoo.ROW_POLICIES.values()]
    assert {type(make(CPU)) for make in makers} >= concrete(Policy)
    assert {type(choice) for choice in zoo.PIXEL_CHOICES.values()} >= concrete(Choice)
    assert {type(start) for start in (*zoo.PIXEL_STARTS.values(), *zoo.ROW_STARTS.values())} >= concrete(Start)
    drawn = [
        *zoo.PIXEL_RECONSTRUCTORS.values(),
        *zoo.READING_RECONSTRUCTORS.values(),
        *zoo.ROW_RECONSTRUCTORS.values(),
    ]
    assert {type(make(CPU)) for make in drawn} >= concrete(Reconstructor)


def test_the_zoo_has_masks_of_its_budget():
    assert masks.count(zoo.BUDGET, zoo.ROWS) == zoo.BUDGET == int(zoo.every_second(zoo.ROWS).sum()) == len(zoo.ORDER)
