from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import make_context, seeded
from sensewise.loop import acquire
from sensewise.policies import travel
from sensewise.policies.choose import Spread
from sensewise.policies.simple import Random
from sensewise.sensors.pixels import PixelSensor

SIDE = 32


def scattered(count, seed=0, side=SIDE):
    """Different places on a square in raster order, `(n, 2)`."""
    chosen = np.random.default_rng(seed).choice(side * side, count, replace=False)
    return travel.places(np.sort(chosen), (side, side))


def total(points, start=None):
    return travel.length(points if start is None else np.concatenate([[start], points]))


def shortest(points, start=None):
    """The oracle: every order."""
    return min(total(points[list(order)], start) for order in permutations(range(len(points))))


def test_places_and_length():
    assert travel.places(np.array([0, 5, 7]), (2, 4)).tolist() == [[0, 0], [1, 1], [1, 3]]
    assert travel.places(np.array([0, 5]), (9,)).tolist() == [[0, 0], [5, 0]]
    assert travel.places(np.array([1, 9]), (2, 2, 4)).tolist() == [[0, 1], [0, 1]]
    assert travel.length(np.array([[0, 0], [3, 4], [3, 0]])) == 9
    assert travel.length(np.array([[2, 2]])) == 0
    assert travel.length(np.empty((0, 2))) == 0


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7])
def test_few_places_are_visited_on_nearly_the_shortest_path(count):
    """At most 15% longer than the shortest of all orders, the shortest itself nine times of ten."""
    ratios = []
    for seed in range(20):
        points, start = scattered(count, seed), None if seed % 2 else np.array([31, 0])
        order = travel.short_path(points, start)
        ratios.append(total(points[order], start) / shortest(points, start))
    assert max(ratios) < 1.15
    assert np.mean(np.array(ratios) < 1 + 1e-9) >= 0.85


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=0, max_size=40), st.booleans())
def test_a_path_visits_everything_once_and_is_never_longer_than_the_order_given(places, begun):
    points = np.array(places, dtype=np.int64).reshape(-1, 2)
    start = np.array([4, 4]) if begun else None
    order = travel.short_path(points, start)
    assert sorted(order) == list(range(len(points)))
    assert total(points[order], start) <= total(points, start) + 1e-9


@pytest.mark.parametrize("count", [30, travel.FEW + 16])  # the second tries places near each other first
def test_a_path_without_crossings_cannot_be_shortened_by_a_reversal(count):
    points = scattered(count)
    path = points[travel.short_path(points, np.zeros(2))]
    for first in range(count):
        for last in range(first + 1, count + 1):
            turned = np.concatenate([path[:first], path[first:last][::-1], path[last:]])
            assert total(turned, np.zeros(2)) >= total(path, np.zeros(2)) - 1e-6


def test_equal_places_and_one_line():
    assert travel.length(np.zeros((5, 2))[travel.short_path(np.zeros((5, 2)))]) == 0
    line = np.array([[0, 7], [0, 1], [0, 9], [0, 3]])
    assert travel.length(line[travel.short_path(line)]) == 8
    assert line[travel.short_path(line, np.array([0, 10]))][:, 1].tolist() == [9, 7, 3, 1]


@pytest.mark.parametrize(("count", "bound"), [(600, 0.93), (3000, 1.0)])
def test_many_places_take_about_as_long_as_theory_says(count, bound):
    """The shortest path through n random places of an area A is near 0.7124 sqrt(n A); windows have to fit together."""
    points = scattered(count, side=256)
    order = travel.short_path(points)
    assert sorted(order) == list(range(count))
    assert travel.length(points[order]) < bound * (count * 256**2) ** 0.5


def test_detours_that_are_worth_little_are_dropped():
    points = np.array([[0, 0], [0, 1], [9, 2], [0, 3], [0, 4]])
    assert travel.drop_detours(points, np.ones(5), 4).tolist() == [0, 1, 3, 4]
    assert travel.drop_detours(points, np.array([1, 1, 99, 1, 0.1]), 4).tolist() == [0, 1, 2, 3]
    assert travel.drop_detours(points, np.ones(5), 5).tolist() == [0, 1, 2, 3, 4]


def test_a_trajectory_knows_its_path():
    """Step after step, each from where the last ended; the length is that of the path."""
    taken = acquire(Random(), PixelSensor(torch.ones(3, 1, 8, 8).long()), 12, steps=3, generator=seeded())
    for scene in range(3):
        path = taken.path(scene)
        assert taken.step[scene, path].tolist() == [1] * 4 + [2] * 4 + [3] * 4
        points = travel.places(path.numpy(), (8, 8))
        assert float(taken.travel[scene]) == pytest.approx(travel.length(points))
        assert travel.length(points[4:8]) <= travel.length(points[np.sort(np.arange(4, 8))]) + 1e-9
    raster = [travel.length(travel.places(taken.mask[b].nonzero()[:, 0].numpy(), (8, 8))) for b in range(3)]
    assert taken.travel.shape == (3,)
    assert taken.travel.mean() < 2 * np.mean(raster)


def path_length(chosen):
    return np.mean(
        [travel.length(travel.places(travel.path(row.int().numpy() - 1, (32, 32)), (32, 32))) for row in chosen]
    )


def test_the_more_travel_counts_the_shorter_the_path_and_the_lower_the_scores():
    scores = torch.rand(4, 1024, generator=seeded())
    context = make_context(grid=(32, 32))
    choices = [Spread(travel=weight)(scores, 40, context) for weight in (0.0, 0.5, 2.0)]
    assert torch.equal(choices[0], Spread()(scores, 40, context))
    lengths = [path_length(chosen) for chosen in choices]
    worths = [float(scores[chosen].sum()) for chosen in choices]
    assert lengths[0] > 1.1 * lengths[1] > 1.2 * lengths[2]
    assert worths[0] > worths[1] > worths[2] > 0.5 * worths[0]
    assert all((chosen.sum(1) == 40).all() for chosen in choices)


def test_travel_takes_what_is_left_and_each_scene_s_own_number():
    scores = torch.rand(3, 64, generator=seeded()).masked_fill(torch.arange(64) >= 10, -torch.inf)
    chosen = Spread(travel=5.0)(scores, torch.tensor([3, 9, 10]), make_context())
    assert chosen.sum(1).tolist() == [3, 9, 10]
    assert not chosen[:, 10:].any()


@pytest.mark.parametrize(
    ("scores", "dropped"),
    [
        ([0.6, 0.5, 0.55, 0.9], 9),  # 0.9 for a way of 7 more
        ([0.6, 0.2, 0.55, 9.0], 1),
        ([-0.5, -0.45, -0.48, -0.1], 0),  # below 0: what lies above the lowest counts
    ],
)
def test_one_of_four_places_on_a_line_is_dropped_by_worth_per_way(scores, dropped):
    offered = torch.full((1, 10), -torch.inf)
    offered[0, [0, 1, 2, 9]] = torch.tensor(scores)
    chosen = Spread(damping=0.0, travel=1 / 3)(offered, 3, make_context(grid=(10,)))
    assert chosen.nonzero()[:, 1].tolist() == [place for place in (0, 1, 2, 9) if place != dropped]


def test_half_as_many_again_are_picked_before_some_are_dropped():
    scores = torch.rand(4, 256, generator=seeded())
    context = make_context(grid=(16, 16))
    chosen, offered = Spread(travel=0.5)(scores, 20, context), Spread()(scores, 30, context)
    assert not (chosen & ~offered).any()
    assert (chosen & ~Spread()(scores, 20, context)).any()


def test_travel_of_a_scene_does_not_depend_on_its_batch():
    scores = torch.rand(2, 64, generator=seeded())
    scores[0, 10:] = -torch.inf
    choose = Spread(0.9, 8.0, spacing=0.8, travel=5.0)
    together = choose(scores, 9, make_context())
    for b in range(2):
        assert torch.equal(together[b : b + 1], choose(scores[b : b + 1], 9, make_context()))
