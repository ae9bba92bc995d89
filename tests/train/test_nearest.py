"""Masks for slices that look alike, on two kinds of slices whose best rows are known."""

import json

import pytest
import torch

from sensewise import hub
from sensewise.data.scenes import Scenes
from sensewise.errors import BudgetError, ConfigError
from sensewise.evaluate.method import Method
from sensewise.kspace import acs_rows, scout
from sensewise.policies.nearest import NearestMask, features
from sensewise.policies.starts import CentralBlock
from sensewise.sensors.base import Side
from sensewise.sensors.rows import RowSensor
from sensewise.train.nearest import NearestRecipe, NearestSettings, k_means
from sensewise.train.processes import Execution
from sensewise.train.search import MaskError, SearchSettings
from zoo import ZeroFilling

ROWS, ACS, K = 16, 4, 6
WORTH = {0: (1, 3), 1: (12, 14)}  # rows of either kind beside the ACS block


def kspace(kinds, seed=0):
    """Slices `(n, 16, 16)` of kinds 0 and 1: another column of the ACS block, other rows outside it."""
    draw = torch.Generator().manual_seed(seed)
    k = 0.01 * torch.randn(len(kinds), ROWS, 16, dtype=torch.complex64, generator=draw)
    k[:, 8, 8] = 8
    for number, kind in enumerate(kinds):
        k[number, 8, 9 if kind else 7] = 4  # in the scout: a phase does not show in magnitudes, a wave does
        k[number, 9 if kind else 8, 8] += 3
        k[number, WORTH[kind], 8] = 2
    return k


def start():
    mask = acs_rows(ROWS, ACS)
    mask[[1, 12]] = True  # one row of either kind: the best for both together
    return mask


def recipe(kinds=(0, 1, 0, 1, 1, 0, 0, 1), **changes):
    search = SearchSettings(drops=2, adds=4, screen=3)
    settings = NearestSettings(**{"clusters": 2, "size": 4, "search": search, **changes})
    slices, held = (Scenes("toy", "train", kspace(k, seed)) for seed, k in enumerate((kinds, (0, 1))))
    return NearestRecipe(settings, slices, held, ACS, ZeroFilling(), K / ROWS, start())


def run(job):
    for step in range(job.steps):
        job.advance(step)
    return job


def rows_of(mask):
    return set((mask & ~acs_rows(ROWS, ACS)).nonzero()[:, 0].tolist())


@pytest.mark.parametrize("nearest", [1, 3])
def test_a_new_slice_takes_the_mask_of_its_own_kind(nearest):
    job = run(recipe(nearest=nearest).job(fresh=True))
    kinds = [1, 0, 0, 1, 0]
    fresh = kspace(kinds, seed=5)
    method = Method("nearest-mask", NearestMask([job.model]))
    taken = method.spend(
        RowSensor(fresh),
        K / ROWS,
        side=Side(summary=scout(fresh, ACS)),
        start=CentralBlock(ACS),
        generator=torch.Generator(),
    )
    assert [rows_of(mask) for mask in taken.mask] == [set(WORTH[kind]) for kind in kinds]


@pytest.mark.parametrize("sweeps", [1, 3])
def test_no_mask_is_worse_on_its_own_slices_than_the_static_one(sweeps):
    draw = torch.Generator().manual_seed(2)
    made = recipe(clusters=3, sweeps=sweeps, rounds=1, nearest=2)
    noise = torch.randn(made.scenes.values.shape, dtype=torch.complex64, generator=draw)
    made.scenes.values.add_(0.8 * noise)  # clusters that say little
    job = run(made.job(fresh=True))
    for number, search in job.searches.items():
        own = MaskError(ZeroFilling(), job.kspace[job.assigned == number])
        assert search.nmse == pytest.approx(own(job.model.masks[number]), rel=1e-6)
        assert own(job.model.masks[number]) <= own(start()) * (1 + 1e-6)
    assert (job.model.masks.sum(1) == K).all()
    assert job.model.masks[:, acs_rows(ROWS, ACS)].all()
    assert torch.equal(job.model.masks[0], start())


def test_a_mask_that_serves_its_slices_worse_is_given_up():
    job = run(recipe(sweeps=1).job(fresh=True))
    bad = acs_rows(ROWS, ACS)
    bad[[4, 5]] = True
    job.model.masks[1], job.errors[:, 1] = bad, 1.0
    assert torch.equal(job._search(1).mask, start())


def test_slices_without_a_better_mask_stay_with_the_static_one():
    model = recipe().job(fresh=True).model
    assert model.choose(model.features).tolist() == [0] * 8  # nothing searched yet
    model.worth = torch.tensor([[0.0, -0.5, 0.5], [0.0, 0.5, 0.2]] * 4)
    assert model.choose(model.features).tolist() == [1, 0] * 4


def test_the_nearest_together_decide():
    model = recipe(nearest=2).job(fresh=True).model
    model.features = torch.arange(8.0)[:, None] * torch.ones(1, 16)
    model.worth = torch.tensor([[0.0, -0.2, 1.0], [0.0, 0.1, -0.3]] * 4)
    assert model.choose(torch.full((1, 16), 2.4)).tolist() == [1]  # slices 2 and 3 together: -0.05, 0.35
    model.nearest = 1
    assert model.choose(torch.full((1, 16), 2.6)).tolist() == [2]


def test_clusters_of_points_that_lie_apart():
    points = torch.tensor([0.0, 0.1, 5.0, 5.1, 9.0, 0.2])[:, None]
    for seed in range(4):
        found = k_means(points, 3, torch.Generator().manual_seed(seed)).tolist()
        assert found[0] == found[1] == found[5]
        assert found[2] == found[3]
        assert len(set(found)) == 3
    assert features(torch.arange(16.0).view(1, 4, 4), 2).tolist() == [[2.5, 4.5, 10.5, 12.5]]


def test_a_stopped_search_goes_on_to_the_same_masks(tmp_path, console):
    def train(name, **options):
        return recipe(nearest=2).train(tmp_path / name, Execution(console=console, **options))

    assert train("whole")
    complete = train("parts", max_minutes=0)
    assert hub.load(tmp_path / "parts", "nearest-mask")[0].masks.sum(1).tolist() == [K] * 3  # usable already
    while not complete:
        complete = train("parts", max_minutes=0, resume=True)
    whole, parts = (hub.load(tmp_path / name, "nearest-mask")[0] for name in ("whole", "parts"))
    assert all(torch.equal(tensor, parts.state_dict()[name]) for name, tensor in whole.state_dict().items())
    logged = [json.loads(line) for line in (tmp_path / "whole" / "log.jsonl").read_text().splitlines()]
    assert len(logged) == 2
    assert logged[-1]["train_nearest"] < logged[-1]["train_static"]
    assert logged[-1]["nearest"] < logged[-1]["static"]


def test_impossible_searches_are_refused():
    with pytest.raises(ConfigError, match="clusters must be at least 1"):
        NearestSettings(clusters=0)
    with pytest.raises(ConfigError, match="9 clusters need as many slices, 8 are here"):
        recipe(clusters=9).job(fresh=True)
    wrong = recipe()
    wrong.start[0] = True
    with pytest.raises(BudgetError, match="static mask of 6 of 16 rows"):
        wrong.config()
