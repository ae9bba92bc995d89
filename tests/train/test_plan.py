import dataclasses
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sensewise.acquire import acquire
from sensewise.data.fastmri import Slices
from sensewise.errors import BudgetError, CheckpointError, ConfigError
from sensewise.mri.kspace import acs_rows, keep_rows, magnitude
from sensewise.mri.models import load_plan
from sensewise.mri.plan import (
    WINDOWS,
    ZONES,
    PlannedRows,
    RowPlan,
    improve,
    overlap_matrix,
    pair_terms,
    partners,
    windows,
    zones,
)
from sensewise.mri.row_masks import draw, fixed_start
from sensewise.mri.train_plan import PlanFit, PlanSettings, swap_some, train_plan
from sensewise.sensors import KSpaceRowSensor

ROWS, ACS, K = 32, 4, 12
MIDDLES = (5, 22)  # slices are of two kinds: their energy lies around one of these rows or around the other


class ZeroFilling(torch.nn.Module):
    """Zero filling as a network: a row is worth its energy."""

    def forward(self, y, mask):
        return magnitude(y)


def slices(count: int = 48, seed: int = 0) -> Slices:
    draw_ = torch.Generator().manual_seed(seed)
    kspace = 0.02 * torch.randn(count, ROWS, 8, dtype=torch.complex64, generator=draw_)
    kspace[:, ROWS // 2, 4] = 8
    for kind, middle in itertools.product(range(2), MIDDLES):
        here = middle == MIDDLES[kind]
        kspace[kind::2, middle - 2 : middle + 3, 4] = 1.0 if here else 0.3
        kspace[kind::2, middle, 4] = 1.6 if here else 0.8
    return Slices("toy", "train", kspace, tuple(f"{n}" for n in range(count)))


def fitted(**changes) -> tuple[RowPlan, dict[str, float]]:
    settings = PlanSettings(**{"epochs": 6, "batch_size": 16, "tries": 6, "swaps": 4, "ridge": 0.01, **changes})
    settings = dataclasses.replace(settings, ridge_slopes=0.01)
    plan = RowPlan(ROWS, ACS, K)
    fit = PlanFit(plan, ZeroFilling(), slices(), slices(18, seed=1), settings)
    while fit.step < fit.steps:
        found = fit.advance()
    return plan, found


def masks(count: int, seed: int = 0, k: int = K) -> torch.Tensor:
    return draw("acs-variable-density", count, ROWS, k, ACS, torch.Generator().manual_seed(seed))


@given(st.integers(0, 2**31))
def test_the_matrix_says_of_a_mask_what_its_pairs_say(seed):
    generator = torch.Generator().manual_seed(seed)
    coefficients = torch.randn(len(partners(ROWS)) * ZONES, generator=generator)
    mask = torch.rand(3, ROWS, generator=generator) < 0.4
    matrix = overlap_matrix(coefficients, ROWS)
    assert torch.equal(matrix, matrix.T)
    assert not matrix.diagonal().any()
    form = torch.einsum("bj,jk,bk->b", mask.float(), matrix, mask.float())
    assert torch.allclose(form, pair_terms(mask) @ coefficients, atol=1e-3)


def test_pairs_are_neighbours_and_mirror_rows_each_once():
    other = partners(ROWS)
    assert other[0, 3] == 4
    assert other[0, ROWS - 1] == -1
    mirror = other[8 + 3]  # lag 0 from the mirror row: frequency f with -f
    assert mirror[ROWS // 2 - 5] == ROWS // 2 + 5
    assert mirror[ROWS // 2 + 5] == -1
    assert torch.allclose(zones(ROWS).sum(1), torch.ones(ROWS))


@given(st.integers(0, 2**31))
def test_swaps_end_where_no_single_swap_helps(seed):
    generator = torch.Generator().manual_seed(seed)
    worth = torch.randn(2, 10, generator=generator)
    overlap = torch.randn(10, 10, generator=generator)
    overlap = (overlap + overlap.T).fill_diagonal_(0)
    start = torch.zeros(2, 10, dtype=torch.bool)
    start[:, :4] = True
    fixed = torch.zeros_like(start)
    fixed[:, 0] = True
    found = improve(worth, overlap, start, fixed)

    def cost(mask, n):
        return (worth[n] @ mask.float() + mask.float() @ overlap @ mask.float()).item()

    assert torch.equal(found.sum(1), torch.tensor([4, 4]))
    assert found[:, 0].all()
    for n in range(2):
        assert cost(found[n], n) <= cost(start[n], n) + 1e-4
        for drop, add in itertools.product(range(1, 10), range(10)):
            if found[n, drop] and not found[n, add]:
                swapped = found[n].clone()
                swapped[drop], swapped[add] = False, True
                assert cost(found[n], n) <= cost(swapped, n) + 1e-4


def test_without_overlap_the_plan_is_the_best_rows():
    plan = RowPlan(ROWS, ACS, K)
    worth = torch.randn(3, ROWS, generator=torch.Generator().manual_seed(0))
    start = acs_rows(ROWS, ACS).expand(3, -1)
    chosen = plan.plan(worth, start)
    best = worth.masked_fill(start, -torch.inf).argsort(1)[:, :K]
    assert torch.equal(chosen, torch.zeros_like(start).scatter(1, best, True))


def test_what_is_hidden_cannot_change_a_plan():
    plan, _ = fitted(epochs=2)
    data, core = slices(4), plan.core.expand(4, -1)
    other = torch.where(core.unsqueeze(-1), data.kspace, 100 * slices(4, seed=3).kspace)
    seen = [plan.unusual(keep_rows(kspace, core), core) for kspace in (data.kspace, other)]
    assert torch.equal(*seen)
    assert torch.allclose(seen[0], plan.unusual(1e-5 * keep_rows(data.kspace, core), core), atol=1e-4)  # no unit
    assert seen[0].shape == (4, len(WINDOWS), ROWS)


def test_a_usual_slice_is_not_unusual_and_windows_look_where_they_should():
    plan = RowPlan(ROWS, ACS, K)
    y = torch.ones(1, ROWS, 8, dtype=torch.complex64)
    plan.usual = torch.full((ROWS,), -torch.log(torch.tensor(float(ACS))))
    mask = torch.ones(1, ROWS, dtype=torch.bool)
    assert plan.unusual(y, mask).abs().max() < 1e-5
    y[0, 20] *= 3
    narrow, mirrored = plan.unusual(y, mask)[0, [0, 3]]
    assert narrow.argmax() == 20
    assert mirrored.argmax() == ROWS - 20
    assert windows(ROWS).shape == (len(WINDOWS), ROWS, ROWS)


def test_swaps_keep_the_budget_and_the_acs_block():
    mask = masks(50)
    changed = swap_some(mask, ACS, 3, 0.5, torch.Generator().manual_seed(0))
    assert torch.equal(changed.sum(1), mask.sum(1))
    assert changed[:, acs_rows(ROWS, ACS)].all()
    moved = (changed & ~mask).sum(1)
    assert moved.min() == 1
    assert moved.max() == 3


def test_the_fit_finds_what_all_slices_share_and_what_each_has_of_its_own():
    plan, found = fitted()
    assert plan.static.sum() == K
    assert plan.static[list(MIDDLES)].all()
    assert plan.core.sum() == ACS + (K - ACS) // 2
    assert not (plan.core & ~plan.static).any()  # "another's" is nine slices away, of the other kind
    assert found["plan"] < 0.97 * found["static"]
    assert found["plan"] < 0.97 * found["another's"]


def test_only_masks_of_one_slice_are_compared():
    fit = PlanFit(RowPlan(ROWS, ACS, K), ZeroFilling(), slices(), slices(4), PlanSettings(batch_size=16, tries=3))
    fit.advance()
    rows = len(fit.free)
    assert fit.gram.diagonal()[:rows].sum() > 1
    assert fit.gram[:, :rows].sum(1).abs().max() < 1e-4  # every mask has the same number of rows: no difference


def test_planned_rows_spend_the_exact_budget_core_first():
    plan, _ = fitted()
    kspace = slices(6).kspace
    for steps in (1, 3):
        policy = PlannedRows(plan)
        taken = acquire(policy, KSpaceRowSensor(kspace), K, steps=steps, start=fixed_start(plan.core), keep_scores=True)
        assert torch.equal(taken.mask.sum(1), torch.full((6,), K))
        assert taken.mask_after(0).eq(plan.core).all()
    first = taken.scores[0]
    assert torch.equal((first >= 1).sum(1), torch.full((6,), K))
    assert ((first >= 1) | (first <= 0.9)).all()
    other = acquire(PlannedRows(plan, shift=1), KSpaceRowSensor(kspace), K, start=fixed_start(plan.core))
    own = acquire(PlannedRows(plan), KSpaceRowSensor(kspace), K, start=fixed_start(plan.core))
    assert not torch.equal(other.mask, own.mask)
    with pytest.raises(BudgetError, match="this plan is for 12 of 32 rows"):
        acquire(PlannedRows(plan), KSpaceRowSensor(kspace), 20, start=fixed_start(plan.core))


def train(folder, **how) -> bool:
    settings = PlanSettings(epochs=3, batch_size=16, tries=2, swaps=2)
    return train_plan(settings, slices(32), slices(8, seed=1), ACS, ZeroFilling(), K / ROWS, folder, **how)


def test_a_stopped_fit_goes_on_to_the_same_plan(tmp_path):
    assert train(tmp_path / "whole")
    assert not train(tmp_path / "parts", max_minutes=0)
    runs = 1
    while not train(tmp_path / "parts", resume=True, max_minutes=0):
        runs += 1
    assert runs >= 4
    whole, parts = load_plan(tmp_path / "whole"), load_plan(tmp_path / "parts")
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, parts.state_dict()[name]), name
    assert len((tmp_path / "parts" / "log.jsonl").read_text().splitlines()) == 3


def test_a_fit_overwrites_nothing_and_resumes_only_itself(tmp_path):
    train(tmp_path, max_minutes=0)
    with pytest.raises(ConfigError, match="holds a run already"):
        train(tmp_path)
    with pytest.raises(CheckpointError, match="other settings"):
        train_plan(PlanSettings(epochs=1), slices(32), slices(8), ACS, ZeroFilling(), 0.5, tmp_path, resume=True)


@pytest.mark.parametrize("changes", [{"tries": 1}, {"epochs": 0}, {"share": 0.0}, {"fade": 1.5}, {"ridge": 0.0}])
def test_impossible_settings(changes):
    with pytest.raises(ConfigError, match=r"needed|at least"):
        PlanSettings(**changes)
