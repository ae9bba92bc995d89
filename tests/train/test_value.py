import pytest
import torch
from rich.console import Console

from sensewise import information
from sensewise.acquire import acquire
from sensewise.data.fastmri import Slices
from sensewise.errors import ConfigError, DataError
from sensewise.metrics import nmse
from sensewise.mri import loupe_rows, relaxed, row_policy, train_value, value
from sensewise.mri.kspace import acs_rows, keep_rows, magnitude, scout, to_image
from sensewise.mri.profile import BINS, RowProfile, SequentialRows, row_levels
from sensewise.mri.row_masks import acs_start
from sensewise.networks.rows import RowConv, RowPolicyNetwork, RowValueNetwork
from sensewise.priors import AbsorbingPrior
from sensewise.sensors import KSpaceRowSensor, Side
from sensewise.training import FitSettings

ROWS, ACS = 16, 4


class ZeroFilling(torch.nn.Module):
    """Zero filling as a network: the row of highest energy is the one of highest gain."""

    def complex_image(self, y, mask):
        return to_image(y)

    def forward(self, y, mask):
        return magnitude(y)


def kspace(count: int = 5, seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    falling = torch.exp(-((torch.arange(ROWS) - ROWS // 2).abs() / 3.0)).view(1, -1, 1)
    k = falling * torch.randn(count, ROWS, 12, dtype=torch.complex64, generator=draw)
    k[:, ROWS // 2, 6] = 20
    return k


def row_prior() -> AbsorbingPrior:
    torch.manual_seed(0)
    return AbsorbingPrior(RowConv(1, BINS, None, width=8, layers=1), (1, ROWS, 1), BINS, None).eval()


def test_profile_is_normalised_by_the_acs_block_alone():
    k = kspace()
    levels = row_levels(k, ACS)
    torch.testing.assert_close(levels[:, acs_rows(ROWS, ACS)].exp().mean(1), torch.ones(5))
    torch.testing.assert_close(row_levels(1e-6 * k, ACS), levels, atol=1e-4, rtol=1e-4)
    mask = acs_rows(ROWS, ACS).expand(5, -1).clone()
    mask[:, 1] = True
    profile = RowProfile.of(k, ACS)
    seen, whole = profile.tokens(keep_rows(k, mask), mask), profile.tokens(k)
    assert whole.shape == (5, 1, ROWS, 1)
    assert torch.equal(seen, torch.where(mask[:, None, :, None], whole, 0))
    assert int(whole.min()) >= 1
    assert int(whole.max()) <= BINS
    assert profile.energy.diff().gt(0).all()


def test_row_prior_has_the_paper_s_size_and_is_a_prior():
    size = sum(p.numel() for p in RowConv(1, BINS, None).parameters())
    assert abs(size - 86_000) < 3_000
    prior = row_prior()
    y = torch.zeros(2, 1, ROWS, 1, dtype=torch.int64)
    y[:, :, 3] = 5
    log_probs = prior(y)
    assert log_probs.shape == (2, 1, ROWS, 1, BINS)
    heat = information.per_pixel(information.entropy(log_probs))
    assert heat.shape == (2, ROWS)
    assert heat[0, 3] == 0


@pytest.mark.parametrize("score", ["entropy", "energy"])
@pytest.mark.parametrize("steps", [1, 4])
def test_sequential_rows_spend_the_exact_budget(score, steps):
    k = kspace()
    policy = SequentialRows(row_prior(), RowProfile.of(k, ACS), score)
    taken = acquire(policy, KSpaceRowSensor(k), 0.5, steps=steps, start=acs_start(ROWS, ACS))
    assert taken.mask.sum(1).tolist() == [8] * 5
    with pytest.raises(ConfigError, match="entropy, energy"):
        SequentialRows(row_prior(), RowProfile.of(k, ACS), "size")


def test_one_shot_rows_read_the_scout_only_if_adaptive():
    k = kspace()
    for adaptive in (True, False):
        torch.manual_seed(0)
        policy = row_policy.OneShotRows(RowPolicyNetwork(ROWS, adaptive, width=8, layers=1))
        taken = acquire(policy, KSpaceRowSensor(k), 0.5, side=Side(scout=scout(k, ACS)), start=acs_start(ROWS, ACS))
        assert taken.mask.sum(1).tolist() == [8] * 5
        scores = policy.scores(k, taken.mask, Side(scout=scout(k, ACS), budget=0.5))
        assert (scores.std(0).max() > 1e-6) == adaptive
    with pytest.raises(DataError, match="needs a scout"):
        policy.scores(k, taken.mask, Side())


def test_row_policy_loss_has_a_gradient_on_every_free_row():
    k = kspace(8)
    network = RowPolicyNetwork(ROWS, width=8, layers=1)
    settings = row_policy.RowPolicySettings(batch_size=8)
    profile = RowProfile.of(k, ACS)
    objective = row_policy.RowPolicyObjective(network, row_prior(), profile, k, k, settings)
    objective.loss(network, 0, torch.Generator().manual_seed(0)).backward()
    assert all(p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in network.parameters())
    assert set(objective.validate(network)) == {"error", "entropy", "off_budget"}


def test_expected_zero_filled_error_is_the_energy_left_out():
    k = kspace(3)
    mask = acs_rows(ROWS, ACS).expand(3, -1)
    left = torch.where(mask.unsqueeze(-1), 0, k).abs().square().sum((1, 2)) / k.abs().square().sum((1, 2))
    error = (to_image(keep_rows(k, mask)) - to_image(k)).abs().square().sum((1, 2)) / to_image(k).abs().square().sum(
        (1, 2)
    )
    torch.testing.assert_close(left, error)


def test_relaxed_profile_is_on_budget_and_has_gradients_beside_acs():
    scores = relaxed.RowScores(torch.rand(ROWS) + 0.1, 8, ACS, 0.25)
    weights = scores()
    assert torch.equal(weights.detach().bool(), scores.hard())
    assert scores.hard().sum() == 8
    weights.sum().backward()
    block = acs_rows(ROWS, ACS)
    assert bool((scores.scores.grad[block] == 0).all())
    assert bool((scores.scores.grad[~block] > 0).all())


def test_loupe_makes_a_mask_with_the_acs_block():
    torch.manual_seed(0)
    model = loupe_rows.LoupeRows(ROWS, 0.5, 8)
    x = magnitude(kspace())
    model(x, torch.rand(5, ROWS)).mean().backward()
    settings = loupe_rows.LoupeRowsSettings(batch_size=4)
    mask = loupe_rows.LoupeRowsObjective(model, kspace(), kspace(), 8, ACS, settings).mask(model)
    assert mask.sum() == 8
    assert bool(mask[acs_rows(ROWS, ACS)].all())


@pytest.mark.parametrize(("calm", "ended"), [(1.0, 3), (-1.0, 5)])
def test_loupe_stops_when_its_rows_have_settled(calm, ended, tmp_path):
    fit = FitSettings(steps=5, validate_every=1, average=0.0)
    settings = loupe_rows.LoupeRowsSettings(batch_size=2, base=8, calm=calm, patience=3, fit=fit)
    slices = Slices("toy", "train", kspace(), [])
    quiet = Console(quiet=True)
    assert loupe_rows.train_loupe_rows(settings, slices, slices, ACS, 0.5, tmp_path, console=quiet)
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == ended
    assert (tmp_path / "mask.npy").is_file()
    assert loupe_rows.train_loupe_rows(settings, slices, slices, ACS, 0.5, tmp_path, resume=True, console=quiet)
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == ended


def test_completion_fills_up_with_the_static_mask():
    order = torch.tensor([7, 8, 2, 3, 4])
    rank = value.ranks(order, ROWS).expand(2, -1)
    mask = torch.zeros(2, ROWS, dtype=torch.bool)
    mask[0, [7, 8]] = True
    mask[1, [7, 8, 12]] = True
    done = value.complete(mask, rank, torch.tensor([5, 5]))
    assert done[0].nonzero()[:, 0].tolist() == [2, 3, 4, 7, 8]
    assert done[1].nonzero()[:, 0].tolist() == [2, 3, 7, 8, 12]


def test_oracle_takes_the_row_that_helps_most():
    k = kspace()
    sensor, start = KSpaceRowSensor(k), acs_start(ROWS, ACS)
    oracle = value.OneStepOracle(ZeroFilling(), k, shortlist=None)
    taken = acquire(oracle, sensor, ACS + 1, start=start)
    best = value.slice_errors(ZeroFilling(), k, taken.mask)
    for row in (~acs_rows(ROWS, ACS)).nonzero()[:, 0].tolist():
        other = acs_rows(ROWS, ACS).expand(5, -1).clone()
        other[:, row] = True
        assert bool((best <= value.slice_errors(ZeroFilling(), k, other) + 1e-7).all())
    short = acquire(value.OneStepOracle(ZeroFilling(), k, shortlist=4), sensor, ACS + 2, start=start, steps=2)
    assert short.mask.sum(1).tolist() == [ACS + 2] * 5


def test_mask_gradients_belong_to_their_own_slice():
    k = kspace()
    mask = acs_rows(ROWS, ACS).expand(5, -1)
    error, gradient = value.mask_gradients(ZeroFilling(), k, mask)
    torch.testing.assert_close(error, nmse(magnitude(keep_rows(k, mask)), magnitude(k)))
    alone = value.mask_gradients(ZeroFilling(), k[2:3], mask[2:3])[1]
    torch.testing.assert_close(gradient[2:3], alone)


def objective(form: str, batch: int = 6) -> train_value.ValueObjective:
    torch.manual_seed(0)
    network = RowValueNetwork(width=8, layers=1, columns=(2, 2))
    orders = [torch.tensor([6, 7, 8, 9, 5, 10, 4, 11])] if form == "rollout" else None
    train = Slices("toy", "train", kspace(8), tuple("abcdefgh"))
    settings = train_value.RowValueSettings(batch_size=batch, candidates=4)
    return train_value.ValueObjective(network, ZeroFilling(), train, train, ACS, form, [8], orders, settings)


@pytest.mark.parametrize("form", ["gain", "gradient", "rollout"])
def test_value_objective_walks_its_own_states(form):
    goal = objective(form)
    for step in range(6):
        loss = goal.loss(goal.model, step, torch.Generator().manual_seed(step))
        assert bool(torch.isfinite(loss))
        loss.backward()
        counts = goal.mask.sum(1)
        assert counts.min() >= ACS + 1
        assert counts.max() <= 8
        assert goal.mask[:, acs_rows(ROWS, ACS)].all()
    goal.load_state(goal.state())
    assert set(goal.validate(goal.model)) == {"nmse_8"}


def test_rollout_targets_are_zero_for_rows_of_the_static_mask():
    goal = objective("rollout", batch=1)
    k = goal._restart(torch.Generator().manual_seed(0))
    inside = [row for row in (5, 10, 4, 11) if not goal.mask[0, row]]
    targets = goal._targets(goal.train.kspace[goal.index], torch.tensor([[*inside, 0]]), k)
    assert bool((targets[0, :-1] == 0).all())
    assert targets[0, -1] != 0


def test_gain_targets_are_the_exact_fall_of_the_error():
    goal = objective("gain", batch=2)
    k = goal._restart(torch.Generator().manual_seed(0))
    slices = goal.train.kspace[goal.index]
    target = goal._targets(slices, torch.tensor([[3], [12]]), k)
    after = goal.mask.clone()
    after[0, 3] = after[1, 12] = True
    before = value.slice_errors(goal.network, slices, goal.mask)
    expected = 100 * (1 - value.slice_errors(goal.network, slices, after) / before)
    torch.testing.assert_close(target[:, 0], expected)


def test_value_policy_with_the_static_mask_keeps_it_where_nothing_helps():
    class Nothing(torch.nn.Module):
        def forward(self, drawn, mask, budget):
            return torch.full(mask.shape, -1.0)

    order = torch.tensor([6, 7, 8, 9, 1, 15, 3, 12])
    policy = value.ValuePolicy(Nothing(), ZeroFilling(), order)
    start = value.static_core(order, ROWS, ACS, 0.5)
    taken = acquire(policy, KSpaceRowSensor(kspace()), 8, steps=2, start=start)
    assert torch.equal(taken.mask, value.ranks(order, ROWS).lt(ROWS).expand(5, -1))
    first = taken.step[0]
    assert first[[1, 15]].tolist() == [0, 0]
    assert first[[3, 12]].tolist() == [1, 2]


def test_impossible_settings():
    with pytest.raises(ConfigError, match="candidates"):
        train_value.RowValueSettings(candidates=1)
    train = Slices("toy", "train", kspace(2), ("a", "b"))
    rest = (train, train, ACS, "rollout", [8], None, train_value.RowValueSettings())
    with pytest.raises(ConfigError, match="search-mask"):
        train_value.ValueObjective(RowValueNetwork(), ZeroFilling(), *rest)
