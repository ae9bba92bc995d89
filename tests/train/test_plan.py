import dataclasses
import itertools

import pytest
import torch

from sensewise import hub
from sensewise.data.scenes import Scenes
from sensewise.errors import CheckpointError, ConfigError
from sensewise.kspace import acs_rows, magnitude
from sensewise.policies.planned import RowPlan
from sensewise.policies.simple import draw_rows
from sensewise.train.plan import PlanFit, PlanRecipe, PlanSettings, swap_some
from sensewise.train.processes import Execution

ROWS, ACS, K = 32, 4, 12
MIDDLES = (5, 22)  # slices are of two kinds: their energy lies around one of these rows or around the other


class ZeroFilling(torch.nn.Module):
    """Zero filling as a network: a row is worth its energy."""

    def forward(self, y, mask):
        return magnitude(y)


def slices(count: int = 48, seed: int = 0) -> Scenes:
    draw_ = torch.Generator().manual_seed(seed)
    kspace = 0.02 * torch.randn(count, ROWS, 8, dtype=torch.complex64, generator=draw_)
    kspace[:, ROWS // 2, 4] = 8
    for kind, middle in itertools.product(range(2), MIDDLES):
        here = middle == MIDDLES[kind]
        kspace[kind::2, middle - 2 : middle + 3, 4] = 1.0 if here else 0.3
        kspace[kind::2, middle, 4] = 1.6 if here else 0.8
    return Scenes("toy", "train", kspace)


def fitted(**changes) -> tuple[RowPlan, dict[str, float]]:
    settings = PlanSettings(**{"epochs": 6, "batch_size": 16, "tries": 6, "swaps": 4, "ridge": 0.01, **changes})
    settings = dataclasses.replace(settings, ridge_slopes=0.01)
    plan = RowPlan(ROWS, ACS, K)
    fit = PlanFit(plan, ZeroFilling(), slices(), slices(18, seed=1), settings)
    for step in range(fit.steps):
        fit.advance(step)
        if fit.looks_at(step + 1):
            found = fit.look(bool)
    return plan, found


def masks(count: int, seed: int = 0, k: int = K) -> torch.Tensor:
    return draw_rows("acs-variable-density", count, ROWS, k, ACS, torch.Generator().manual_seed(seed))


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
    fit.advance(0)
    rows = len(fit.free)
    assert fit.gram.diagonal()[:rows].sum() > 1
    assert fit.gram[:, :rows].sum(1).abs().max() < 1e-4  # every mask has the same number of rows: no difference


@pytest.fixture
def train(tmp_path, console):
    def call(name, epochs=3, **options):
        settings = PlanSettings(epochs=epochs, batch_size=16, tries=2, swaps=2)
        recipe = PlanRecipe(settings, slices(32), slices(8, seed=1), ACS, ZeroFilling(), K / ROWS)
        return recipe.train(tmp_path / name, Execution(console=console, **options))

    return call


def test_a_stopped_fit_goes_on_to_the_same_plan(train, tmp_path):
    assert train("whole")
    assert not train("parts", max_minutes=0)
    runs = 1
    while not train("parts", resume=True, max_minutes=0):
        runs += 1
        assert isinstance(hub.load(tmp_path / "parts", "row-plan")[0], RowPlan)  # usable after every stop
    assert runs >= 4
    whole, parts = (hub.load(tmp_path / name, "row-plan")[0] for name in ("whole", "parts"))
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, parts.state_dict()[name]), name
    assert len((tmp_path / "parts" / "log.jsonl").read_text().splitlines()) == 3
    assert set(hub.card(tmp_path / "parts").validation) == {"plan", "static"}


def test_a_fit_overwrites_nothing_and_resumes_only_itself(train):
    train("run", max_minutes=0)
    with pytest.raises(ConfigError, match="holds a run already"):
        train("run")
    with pytest.raises(CheckpointError, match="other settings"):
        train("run", epochs=1, resume=True)


@pytest.mark.parametrize("changes", [{"tries": 1}, {"epochs": 0}, {"share": 0.0}, {"fade": 1.5}, {"ridge": 0.0}])
def test_impossible_settings(changes):
    with pytest.raises(ConfigError, match=r"needed|at least"):
        PlanSettings(**changes)
