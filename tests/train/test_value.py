import pytest
import torch

from conftest import fresh
from sensewise.data.scenes import Scenes
from sensewise.errors import ConfigError
from sensewise.kspace import acs_rows, magnitude, to_image
from sensewise.networks.rows import RowValueNetwork
from sensewise.policies.value import slice_errors
from sensewise.train.value import RowValueSettings, ValueObjective

ROWS, ACS = 16, 4
ORDER = torch.tensor([6, 7, 8, 9, 5, 10, 4, 11])


class ZeroFilling(torch.nn.Module):
    """Zero filling as a network: the row of highest energy is the one of highest gain."""

    def complex_image(self, y, mask):
        return to_image(y)

    def forward(self, y, mask):
        return magnitude(y)


def scenes(count: int = 8) -> Scenes:
    draw = torch.Generator().manual_seed(0)
    falling = torch.exp(-((torch.arange(ROWS) - ROWS // 2).abs() / 3.0)).view(1, -1, 1)
    kspace = falling * torch.randn(count, ROWS, 12, dtype=torch.complex64, generator=draw)
    kspace[:, ROWS // 2, 6] = 20
    return Scenes("toy", "train", kspace)


def objective(form: str, batch: int = 6, orders=...) -> ValueObjective:
    orders = ([ORDER] if form == "rollout" else None) if orders is ... else orders
    settings = RowValueSettings(batch_size=batch, candidates=4)
    network = fresh(RowValueNetwork, width=8, layers=1, columns=(2, 2))
    options = {"acs": ACS, "form": form, "counts": [8], "orders": orders, "settings": settings}
    return ValueObjective(network, ZeroFilling(), scenes(), scenes(), **options)


@pytest.mark.parametrize("form", ["gain", "gradient", "rollout"])
def test_it_walks_its_own_states(form):
    goal = objective(form)
    for step in range(6):
        loss = goal.loss(goal.model, step, torch.Generator().manual_seed(step))
        assert bool(torch.isfinite(loss))
        loss.backward()
        counts = goal.mask.sum(1)
        assert torch.equal(counts, goal.taken)
        assert counts.min() >= ACS + 1
        assert counts.max() <= 8
        assert goal.mask[:, acs_rows(ROWS, ACS)].all()
    other = objective(form)
    other.load_state(goal.state())
    assert torch.equal(other.taken, goal.taken)
    assert set(goal.validate(goal.model)) == {"nmse_8"}


def test_rollout_targets_are_zero_for_rows_of_the_static_mask():
    goal = objective("rollout", batch=1)
    k = goal.restart(torch.Generator().manual_seed(0))
    inside = [row for row in (5, 10, 4, 11) if not goal.mask[0, row]]
    targets = goal.targets(goal.scenes.values[goal.index], torch.tensor([[*inside, 0]]), k)
    assert bool((targets[0, :-1] == 0).all())
    assert targets[0, -1] != 0


def test_gain_targets_are_the_exact_fall_of_the_error():
    goal = objective("gain", batch=2)
    k = goal.restart(torch.Generator().manual_seed(0))
    slices = goal.scenes.values[goal.index]
    target = goal.targets(slices, torch.tensor([[3], [12]]), k)
    after = goal.mask.clone()
    after[0, 3] = after[1, 12] = True
    before = slice_errors(goal.network, slices, goal.mask)
    expected = 100 * (1 - slice_errors(goal.network, slices, after) / before)
    torch.testing.assert_close(target[:, 0], expected)


def test_candidates_are_open_rows_half_of_them_the_best():
    goal = objective("gain", batch=3)
    goal.restart(torch.Generator().manual_seed(0))
    values = torch.rand(3, ROWS, generator=torch.Generator().manual_seed(1))
    rows = goal.candidates(values, goal.mask, ROWS - ACS, torch.Generator().manual_seed(2))
    assert rows.shape == (3, 4)
    assert not goal.mask.gather(1, rows).any()
    assert all(len(set(row)) == 4 for row in rows.tolist())
    best = values.masked_fill(goal.mask, -1).topk(2, dim=1).indices
    assert torch.equal(rows[:, :2], best)


def test_impossible_settings():
    with pytest.raises(ConfigError, match="candidates"):
        RowValueSettings(candidates=1)
    with pytest.raises(ConfigError, match="static-search"):
        objective("rollout", orders=None)
