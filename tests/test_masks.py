import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import seeded
from sensewise import masks
from sensewise.errors import BudgetError

shapes = st.tuples(st.integers(1, 12), st.integers(1, 12))


@st.composite
def shape_and_count(draw):
    height, width = draw(shapes)
    return (height, width), draw(st.integers(1, height * width))


def correlations(batch, size, seed=0, rank=3):
    """Of a few common causes: `(B, K, K)`."""
    causes = torch.nn.functional.normalize(torch.randn(batch, size, rank, generator=seeded(seed)), dim=2)
    return torch.lerp(torch.eye(size), causes @ causes.transpose(1, 2), 0.8)


@given(shape_and_count(), st.integers(1, 3), st.integers(0, 2**32))
def test_every_mask_spends_exactly_its_budget(case, batch, seed):
    shape, k = case
    size = shape[0] * shape[1]
    drawn = {
        "random": masks.random(batch, size, k, seeded(seed)),
        "variable density": masks.variable_density(batch, shape, k, seeded(seed)),
        "jittered grid": masks.jittered_grid(batch, shape, k, seeded(seed)),
        "on budget": masks.sample_on_budget(torch.randn(batch, size, generator=seeded(seed)), k, seeded(seed)),
        "top k": masks.top_k(torch.zeros(batch, size), k),
        "spread": masks.spread_top_k(torch.rand(batch, size, generator=seeded(seed)), k, shape, 0.9, 2.0),
        "joint": masks.joint_top_k(torch.rand(batch, size, generator=seeded(seed)), k, correlations(batch, size, seed)),
    }
    for name, mask in drawn.items():
        assert mask.dtype == torch.bool, name
        assert mask.shape == (batch, size), name
        assert (mask.sum(1) == k).all(), name


@given(shape_and_count(), st.integers(0, 2**32))
def test_jittered_grid_has_one_pixel_in_each_cell(case, seed):
    shape, k = case
    mask = masks.jittered_grid(2, shape, k, seeded(seed)).view(2, *shape)
    covered = torch.zeros(shape, dtype=torch.int64)
    for top, left, rows, columns in masks._grid_cells(shape, k).tolist():
        cell = (slice(top, top + rows), slice(left, left + columns))
        covered[cell] += 1
        assert (mask[:, *cell].flatten(1).sum(1) == 1).all()
    assert (covered == 1).all()


def test_jittered_grid_moves_within_its_cells():
    drawn = masks.jittered_grid(200, (8, 8), 4, seeded())
    assert drawn.any(0).all()


@pytest.mark.parametrize(("budget", "size", "expected"), [(0.1, 1024, 102), (0.05, 1024, 51), (0.5, 3, 2), (7, 64, 7)])
def test_count_is_the_rounded_share(budget, size, expected):
    assert masks.count(budget, size) == expected


@pytest.mark.parametrize(
    "budget",
    [0, 1, 1.0, 1.5, -1, -0.1, 64, 65, 2.0, "ten", None, True, float("nan"), float("inf"), 1e-9, 10**400],
    ids=lambda budget: str(budget)[:8],
)
def test_impossible_budgets_are_refused(budget):
    with pytest.raises(BudgetError, match="fraction between 0 and 1"):
        masks.count(budget, 64)


@given(st.integers(1, 300), st.data())
def test_step_sizes_are_even_and_add_up(total, data):
    steps = data.draw(st.integers(1, total))
    sizes = masks.step_sizes(total, steps)
    assert len(sizes) == steps
    assert sum(sizes) == total
    assert max(sizes) - min(sizes) <= 1


def test_numbers_of_numpy_are_numbers():
    assert masks.step_sizes(10, np.int64(4)) == masks.step_sizes(10, 4)
    assert masks.count(np.int64(8), 64) == 8
    assert masks.count(np.float32(0.125), 64) == 8


@pytest.mark.parametrize("steps", [0, -1, 11, 1.0, "two", True, None])
def test_impossible_steps_are_refused(steps):
    with pytest.raises(BudgetError, match="steps"):
        masks.step_sizes(10, steps)


def test_top_k_takes_the_highest():
    mask = masks.top_k(torch.tensor([[0.0, 3.0, -1.0, 2.0], [9.0, -9.0, 8.0, 0.0]]), 2)
    assert mask.tolist() == [[False, True, False, True], [True, False, True, False]]


def test_random_masks_are_uniform():
    share = masks.random(4000, 10, 3, seeded()).float().mean(0)
    assert (share - 0.3).abs().max() < 0.04


def test_sampling_on_budget_takes_a_certain_set_whole():
    logits = torch.full((200, 12), -40.0)
    logits[:, ::3] = 40.0
    mask = masks.sample_on_budget(logits, 4, seeded())
    assert mask[:, ::3].all()


def test_sampling_on_budget_keeps_bernoulli_probabilities():
    probs = torch.linspace(0.05, 0.95, 400)
    mask = masks.sample_on_budget(probs.logit().expand(2000, -1), round(float(probs.sum())), seeded())
    assert (mask.float().mean(0) - probs).abs().max() < 0.06


def test_variable_density_decays_from_the_centre():
    share = masks.variable_density(3000, (9, 9), 9, seeded()).float().mean(0).view(9, 9)
    rings = torch.stack([share[4, 4], share[4, 6], share[4, 8], share[8, 8]])
    assert (rings.diff() < 0).all()
    assert (share - share.T).abs().max() < 0.06
    narrow = masks.variable_density(500, (9, 9), 9, seeded(), sigma=0.2).float().mean(0).view(9, 9)
    assert narrow[4, 4] > share[4, 4]


def test_noises_have_their_distributions():
    gumbel = masks.gumbel((200_000,), seeded())
    assert abs(gumbel.mean().item() - 0.5772) < 0.02
    logistic = masks.logistic((200_000,), seeded())
    assert logistic.isfinite().all()
    assert abs((logistic < 1).float().mean().item() - torch.tensor(1.0).sigmoid().item()) < 0.005


@given(shape_and_count(), st.integers(0, 2**32))
def test_spread_without_damping_is_top_k(case, seed):
    shape, k = case
    scores = torch.rand(3, shape[0] * shape[1], generator=seeded(seed))
    assert torch.equal(masks.spread_top_k(scores, k, shape, 0.0, 1.0), masks.top_k(scores, k))


def test_spread_keeps_its_distance():
    """A pick of 1.0 leaves its neighbours 0.9 (1 - 0.6 exp(-1/2)) = 0.57 and the next 0.8 (1 - 0.6 exp(-2)) = 0.73."""
    scores = torch.tensor([[0.9, 1.0, 0.9, 0.8, 0.72]])
    assert masks.top_k(scores, 3).tolist() == [[True, True, True, False, False]]
    assert masks.spread_top_k(scores, 2, (1, 5), 0.6, 1.0).tolist() == [[False, True, False, True, False]]
    column = masks.spread_top_k(scores, 2, (5, 1), 0.6, 1.0)
    assert column.tolist() == [[False, True, False, True, False]]


def test_spread_with_a_number_and_a_damping_for_each_row():
    scores = torch.tensor([[0.9, 1.0, 0.9, 0.8, 0.72]]).expand(3, 5)
    found = masks.spread_top_k(scores, torch.tensor([2, 2, 1]), (1, 5), torch.tensor([0.6, 0.0, 0.6]), 1.0)
    assert [row.nonzero()[:, 0].tolist() for row in found] == [[1, 3], [0, 1], [1]]


def test_spread_stops_where_nothing_is_left():
    scores = torch.tensor([[-torch.inf, 0.5, -torch.inf, -torch.inf], [0.1, 0.2, 0.3, 0.4]])
    found = masks.spread_top_k(scores, torch.tensor([3, 3]), (2, 2), 0.5, 1.0)
    assert found.tolist() == [[False, True, False, False], [False, True, True, True]]


@given(st.integers(0, 2**32), st.integers(1, 7))
@settings(max_examples=25)
def test_joint_picks_by_what_is_left_given_the_picks_before(seed, k):
    """The Schur complement, solved anew for each pick."""
    scores, correlation = torch.rand(1, 12, generator=seeded(seed)), correlations(1, 12, seed)
    scores[0, 3] = -torch.inf
    exact, picks = correlation[0].double(), []
    for _ in range(k):
        known = exact[:, picks] @ torch.linalg.solve(exact[picks][:, picks], exact[picks]) if picks else 0 * exact
        left = scores[0] * (exact - known).diagonal()
        left[[3, *picks]] = -torch.inf
        picks.append(int(left.argmax()))
    assert masks.joint_top_k(scores, k, correlation)[0].nonzero()[:, 0].tolist() == sorted(picks)


def test_joint_without_correlation_is_top_k():
    scores = torch.rand(3, 20, generator=seeded())
    assert torch.equal(masks.joint_top_k(scores, 5, torch.eye(20).expand(3, 20, 20)), masks.top_k(scores, 5))


def test_joint_takes_a_copy_last():
    scores, correlation = torch.tensor([[1.0, 0.99, 0.2, 0.1]]), torch.eye(4)[None].clone()
    correlation[0, 0, 1] = correlation[0, 1, 0] = 1.0
    assert masks.joint_top_k(scores, 3, correlation).tolist() == [[True, False, True, True]]
    assert masks.joint_top_k(scores, 4, correlation).all()


def test_joint_with_a_number_for_each_row_stops_where_nothing_is_left():
    scores = torch.tensor([[-torch.inf, 0.5, -torch.inf, -torch.inf], [0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4]])
    found = masks.joint_top_k(scores, torch.tensor([3, 3, 0]), torch.eye(4).expand(3, 4, 4))
    assert [row.nonzero()[:, 0].tolist() for row in found] == [[1], [1, 2, 3], []]
    assert masks.joint_top_k(scores[:0], torch.zeros(0).long(), torch.eye(4).expand(0, 4, 4)).shape == (0, 4)


def test_nearness_has_no_numbers_below_the_normal_range():
    """They change no sum, and products with them are slow."""
    for reach in (0.6, 2.0, 5.0):
        found = masks.nearness(64, reach)
        assert not ((found > 0) & (found < torch.finfo(torch.float32).tiny)).any()
        place = torch.arange(64.0)
        whole = torch.exp(-((place[:, None] - place) ** 2) / (2 * reach**2))
        values = torch.rand(64, 64, generator=seeded())
        assert torch.equal(found @ values, whole @ values)


def test_around_sums_a_gaussian_neighbourhood():
    one = torch.zeros(1, 12)
    one[0, 5] = 2.0  # row 1, column 1 of 3 x 4
    found = masks.around(one, (3, 4), 0.5).view(3, 4)
    rows, columns = torch.meshgrid(torch.arange(3.0), torch.arange(4.0), indexing="ij")
    expected = 2 * torch.exp(-((rows - 1) ** 2 + (columns - 1) ** 2) / 0.5)
    torch.testing.assert_close(found, expected)


def test_spread_leaves_out_what_is_taken():
    scores = torch.tensor([[0.1, -torch.inf, 0.0, -torch.inf]])
    assert masks.spread_top_k(scores, 2, (2, 2), 0.5, 1.0).tolist() == [[True, False, True, False]]


def test_bottom_k_takes_the_lowest_finite_values():
    values = torch.tensor([[3.0, 1.0, torch.inf, 2.0], [torch.inf, torch.inf, 0.5, torch.inf]])
    assert masks.bottom_k(values, torch.tensor([2, 3])).tolist() == [
        [False, True, False, True],
        [False, False, True, False],
    ]


def test_plain_draws_follow_the_probabilities():
    drawn = masks.bernoulli(torch.full((4, 5000), -1.0), seeded())
    assert drawn.float().mean() == pytest.approx(torch.sigmoid(torch.tensor(-1.0)).item(), abs=0.01)


@given(st.integers(0, 2**31), st.integers(0, 60), st.floats(0, 0.99), st.floats(0.3, 8.0), st.booleans())
@settings(max_examples=25)
def test_windows_pick_what_whole_maps_pick(seed, k, damping, sigma, ties):
    shape = (48, 51)
    scores = torch.rand(2, shape[0] * shape[1], generator=seeded(seed))
    scores = (4 * scores).round() if ties else scores
    scores = scores.masked_fill(torch.rand(scores.shape, generator=seeded(seed + 1)) < 0.3, -torch.inf)
    assert scores.shape[1] >= masks.WINDOWED
    found = masks.spread_top_k(scores, k, shape, damping, sigma)
    assert torch.equal(found, masks._spread_whole(scores, k, shape, damping, sigma))


def test_windows_take_settings_per_image():
    scores = torch.rand(3, 2500, generator=seeded())
    each = {
        "k": torch.tensor([3, 0, 9]),
        "damping": torch.tensor([0.5, 0.9, 0.0]),
        "sigma": torch.tensor([1.0, 2.0, 4.0]),
    }
    found = masks.spread_top_k(scores, shape=(50, 50), **each)
    assert torch.equal(found, masks._spread_whole(scores, shape=(50, 50), **each))
    assert found.sum(1).tolist() == [3, 0, 9]


def test_windows_never_pick_what_may_not_be_picked():
    scores = torch.full((1, 2500), -torch.inf)
    scores[0, 107:111] = 1.0
    assert masks.spread_top_k(scores, 10, (50, 50), 0.5, 1.0).nonzero()[:, 1].tolist() == [107, 108, 109, 110]


def test_draws_repeat_digit_for_digit():
    """The noise is added: an equal distribution with other digits would change every published number."""
    logits = torch.linspace(-3, 3, 40).expand(3, -1)
    noise = masks.logistic((3, 40), seeded())
    assert torch.equal(masks.bernoulli(logits, seeded()), logits + noise > 0)
    assert torch.equal(masks.sample_on_budget(logits, 10, seeded()), masks.top_k(logits + noise, 10))


def test_variable_density_draws_without_replacement():
    """Two of three places: the chance of the pair, by enumeration of both orders."""
    sigma = 0.5
    place = torch.linspace(-1, 1, 3)
    weights = torch.exp(-place.square() / (2 * sigma**2))
    found = masks.variable_density(40_000, (1, 3), 2, seeded(), sigma=sigma).float().mean(0)
    p = weights / weights.sum()
    left_out = [sum(p[a] * p[b] / (1 - p[a]) for a, b in ((i, j), (j, i))) for i, j in ((1, 2), (0, 2), (0, 1))]
    torch.testing.assert_close(1 - found, torch.stack(left_out), atol=0.01, rtol=0)


def test_logistic_noise_of_the_ends_is_finite():
    found = masks.logistic_from(torch.tensor([0.0, 0.5, 1.0]))
    assert found[1] == 0
    assert found.isfinite().all()
    assert (found.abs()[[0, 2]] > 15).all()


@pytest.mark.parametrize("shape", [(5, 9), (1, 12), (12, 1)])
def test_room_is_the_distance_to_the_nearest_measured_pixel(shape):
    mask = torch.rand(4, shape[0] * shape[1], generator=seeded()) < 0.2
    mask[0] = False
    mask[1] = True
    found = masks.room(mask, shape)
    place = torch.stack(torch.meshgrid(*map(torch.arange, shape), indexing="ij"), -1).view(-1, 2).float()
    for image, measured in zip(found[1:], mask[1:], strict=True):
        expected = torch.cdist(place, place[measured]).amin(1)
        torch.testing.assert_close(image, expected, rtol=0, atol=1e-6)
    assert (found[0] == 1).all()
    assert found.dtype == torch.float32


@pytest.mark.parametrize(("grid", "shape"), [((7,), (7, 1)), ((4, 5), (4, 5)), ((3, 4, 5), (4, 5))])
def test_where_actions_lie(grid, shape):
    assert masks.plane(grid) == shape


@pytest.mark.parametrize("corner", [0, 50, 47 * 51, 48 * 51 - 1])
def test_windows_wider_than_the_image(corner):
    """A pick in a corner reaches the opposite one."""
    scores = torch.rand(1, 48 * 51, generator=seeded())
    scores[0, corner] = 2.0
    found = masks.spread_top_k(scores, 40, (48, 51), 0.9, 16.0)
    assert torch.equal(found, masks._spread_whole(scores, 40, (48, 51), 0.9, 16.0))


@pytest.mark.parametrize("side", [2, 50])
def test_nothing_is_picked_of_no_images(side):
    nobody = torch.zeros(0, dtype=torch.int64)
    assert masks.spread_top_k(torch.zeros(0, side**2), nobody, (side, side), 0.5, 1.0).shape == (0, side**2)


@pytest.mark.parametrize(
    ("shape", "k", "cell"), [((8, 8), 4, (4, 4)), ((4, 16), 4, (4, 4)), ((16, 4), 4, (4, 4)), ((6, 9), 6, (3, 3))]
)
def test_cells_of_a_grid_are_square_where_they_can_be(shape, k, cell):
    places = [(row, column) for row in range(0, shape[0], cell[0]) for column in range(0, shape[1], cell[1])]
    assert masks._grid_cells(shape, k).tolist() == [[row, column, *cell] for row, column in places]


def test_a_jittered_grid_takes_two_numbers_for_each_pixel():
    """No more and no fewer: what is drawn next has the published digits."""
    used, expected = seeded(), seeded()
    row, column = torch.rand(2, 3, 4, generator=expected)
    found = masks.jittered_grid(3, (8, 8), 4, used)
    place = (torch.tensor([0, 0, 4, 4]) + (4 * row).long()) * 8 + torch.tensor([0, 4, 0, 4]) + (4 * column).long()
    assert torch.equal(found.nonzero()[:, 1].view(3, 4), place.sort(1).values)
    assert torch.equal(used.get_state(), expected.get_state())


@pytest.mark.parametrize(
    ("shape", "k", "places"),
    [
        ((4, 4), 4, [(1, 1), (1, 3), (3, 1), (3, 3)]),
        ((3, 6), 2, [(1, 1), (1, 4)]),
        ((6, 3), 2, [(1, 1), (4, 1)]),
        ((8, 16), 8, [(row, column) for row in (2, 6) for column in (2, 6, 10, 14)]),
    ],
)
def test_a_regular_grid_takes_the_middle_of_each_cell(shape, k, places):
    found = masks.regular_grid(shape, k)
    assert found.dtype == torch.bool
    assert found.view(shape).nonzero().tolist() == [list(place) for place in places]


def test_a_grid_of_more_pixels_than_a_row_has():
    """Square cells would lie in one row of ten here."""
    assert masks.regular_grid((2, 10), 11).sum() == 11


@pytest.mark.parametrize("shape", [(5, 3), (1, 5), (5, 1), (1, 1), (4, 2)])
def test_density_falls_as_a_bell_from_the_centre(shape):
    def place(i, side):
        return 2 * i / (side - 1) - 1 if side > 1 else 0.0

    found = masks.centre_log_density(*shape, 0.7).view(shape)
    for row in range(shape[0]):
        for column in range(shape[1]):
            distance = place(row, shape[0]) ** 2 + place(column, shape[1]) ** 2
            assert found[row, column].item() == pytest.approx(-distance / (2 * 0.7**2), abs=1e-6)


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (0, "budget 0 is not possible"),
        (64, "budget 64 is not possible"),
        (1e-9, "budget 1e-09 of 64 actions rounds to none"),
    ],
)
def test_an_impossible_budget_is_told_what_is_possible(budget, said):
    allowed = r"give a fraction between 0 and 1 \(such as 0.1\) or a count from 2 to 63"
    with pytest.raises(BudgetError, match=rf"^{said}: {allowed}$"):
        masks.count(budget, 64)
