import json
from itertools import pairwise

import numpy as np
import pytest
import torch

from sensewise.data.scenes import Scenes
from sensewise.errors import BudgetError, CheckpointError, ConfigError
from sensewise.kspace import acs_rows, magnitude
from sensewise.train.processes import Execution
from sensewise.train.search import (
    MaskError,
    Search,
    SearchRecipe,
    SearchSettings,
    SearchStory,
    Swap,
    read_story,
    swapped,
    worth_order,
)

ROWS, ACS = 16, 4


class ZeroFilling(torch.nn.Module):
    """Zero filling as a network: its best mask is known, the rows of highest energy."""

    def forward(self, y, mask):
        return magnitude(y)


def kspace(count: int = 6) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    k = 0.01 * torch.randn(count, ROWS, 8, dtype=torch.complex64, generator=draw)
    k[:, ROWS // 2, 4] = 8
    for strength, row in enumerate((0, 3, 12, 14)):
        k[:, row, 4] = 1 + 0.2 * strength
    return k


def recipe(k: int = 8, **changes) -> SearchRecipe:
    settings = SearchSettings(**{"draws": 2, "screen": 3, "drops": 3, "adds": 4, **changes})
    return SearchRecipe(settings, Scenes("toy", "train", kspace()), ACS, ZeroFilling(), k / ROWS)


def search(**changes) -> Search:
    return recipe(**changes).job(fresh=True)


def run(found: Search) -> Search:
    """All rounds, without a folder."""
    while not found.settled():
        found.advance(0)
    return found


def test_it_finds_the_rows_that_matter_and_never_swaps_acs():
    found = run(search())
    mask = found.mask
    assert mask.sum() == 8
    assert mask[acs_rows(ROWS, ACS)].all()
    assert set(mask.nonzero()[:, 0].tolist()) >= {0, 3, 12, 14}
    for swap in found.swaps:
        assert swap.after < swap.before
        assert not acs_rows(ROWS, ACS)[swap.drop]


def test_one_round_accepts_every_swap_that_still_helps():
    found = search()
    useless = acs_rows(ROWS, ACS)
    useless[[1, 2, 4, 5]] = True
    found.mask, found.nmse = useless, found.error(useless)
    found.advance(0)
    assert len(found.swaps) > 1
    assert all(before.after == after.before for before, after in pairwise(found.swaps))
    assert found.nmse == found.error(found.mask)
    assert found.mask.sum() == 8


def test_it_looks_further_before_it_gives_up():
    found = run(search())
    assert found.failures == 2
    assert len(found.tried) > 3 * 4
    assert len(set(found.tried)) == len(found.tried)


def test_exported_files_agree(tmp_path, console):
    assert recipe().train(tmp_path, Execution(console=console))
    mask = np.load(tmp_path / "mask.npy")
    assert np.loadtxt(tmp_path / "mask.txt", dtype=int).tolist() == np.flatnonzero(mask).tolist()
    order = np.load(tmp_path / "order.npy")
    assert sorted(order) == np.flatnonzero(mask).tolist()
    assert acs_rows(ROWS, ACS)[order[:ACS]].all()
    trained = json.loads((tmp_path / "config.json").read_text())["trained"]
    assert trained["complete"]
    assert trained["validation"]["nmse"] <= trained["validation"]["start_nmse"]


def test_the_story_of_a_search(tmp_path, console):
    assert read_story(tmp_path) is None
    assert recipe().train(tmp_path, Execution(console=console))
    story = read_story(tmp_path)
    assert story.start == "energy-oracle"  # zero filling likes nothing better
    assert story.start_share == 1
    assert story.nmse == story.start_nmse < story.redrawn_nmse
    assert story.swaps == ()
    found = SearchStory("a draw", 0.05, 0.04, 0.01, (Swap(1, 2, 0.04, 0.01),))
    assert found.start_share == pytest.approx(0.25)


def test_every_slice_may_have_a_mask_of_its_own():
    slices = kspace(3)
    error, masks = (
        MaskError(ZeroFilling(), slices),
        torch.rand(3, ROWS, generator=torch.Generator().manual_seed(1)) < 0.5,
    )
    apart = [MaskError(ZeroFilling(), slices[i : i + 1])(masks[i]) for i in range(3)]
    assert error(masks) == pytest.approx(sum(apart) / 3)


def test_a_stopped_search_goes_on_to_the_same_mask(tmp_path, console):
    def train(name, seed=3, **options):
        return recipe(seed=seed).train(tmp_path / name, Execution(console=console, **options))

    train("whole")
    runs, complete = 1, train("parts", max_minutes=0)
    assert np.load(tmp_path / "parts" / "mask.npy").sum() == 8  # usable already
    while not complete:
        runs, complete = runs + 1, train("parts", max_minutes=0, resume=True)
    assert runs > 1
    for name in ("mask.npy", "order.npy", "search.json"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    whole, parts = ((tmp_path / name / "log.jsonl").read_text().splitlines() for name in ("whole", "parts"))
    assert [json.loads(line)["nmse"] for line in whole] == [json.loads(line)["nmse"] for line in parts]
    with pytest.raises(ConfigError, match="--resume"):
        train("parts")
    with pytest.raises(CheckpointError, match="other settings"):
        train("parts", seed=4, resume=True)


def test_the_gradient_says_which_rows_matter():
    error = MaskError(ZeroFilling(), kspace())
    mask = acs_rows(ROWS, ACS)
    gradient = error.gradient(mask)
    assert set(gradient.masked_fill(mask, torch.inf).argsort()[:4].tolist()) == {0, 3, 12, 14}
    for row in (0, 14):
        assert error(swapped(mask, 7, row)) < error(swapped(mask, 7, 1))


def test_rows_are_ordered_by_what_they_are_worth():
    error = MaskError(ZeroFilling(), kspace())
    mask = acs_rows(ROWS, ACS)
    mask[[0, 1, 14]] = True
    assert worth_order(error, mask, ACS, 6)[ACS:].tolist() == [14, 0, 1]


def test_impossible_searches_are_refused():
    with pytest.raises(BudgetError, match="ACS block"):
        search(k=3)
    with pytest.raises(ConfigError, match="draws must be at least 1"):
        SearchSettings(draws=0)
