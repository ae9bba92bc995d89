from itertools import pairwise

import numpy as np
import pytest
import torch

from sensewise.errors import BudgetError, CheckpointError, ConfigError
from sensewise.mri.kspace import acs_rows, magnitude
from sensewise.mri.search import MaskError, Search, SearchSettings, swapped, worth_order

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


def search(folder, k: int = 8, **changes) -> Search:
    settings = SearchSettings(**{"draws": 2, "screen": 3, "drops": 3, "adds": 4, **changes})
    return Search(ZeroFilling(), kspace(), k, ACS, settings, folder)


def test_it_finds_the_rows_that_matter_and_never_swaps_acs(tmp_path):
    found = search(tmp_path)
    assert found.run()
    mask = found.state.tensor(ROWS)
    assert mask.sum() == 8
    assert mask[acs_rows(ROWS, ACS)].all()
    assert set(mask.nonzero()[:, 0].tolist()) >= {0, 3, 12, 14}
    for swap in found.state.swaps:
        assert swap["after"] < swap["before"]
        assert not acs_rows(ROWS, ACS)[int(swap["drop"])]


def test_one_round_accepts_every_swap_that_still_helps(tmp_path):
    found = search(tmp_path)
    found.begin(resume=False)
    useless = acs_rows(ROWS, ACS)
    useless[[1, 2, 4, 5]] = True
    found.state.mask, found.state.nmse = useless.nonzero()[:, 0].tolist(), found.error(useless)
    found.round()
    swaps = found.state.swaps
    assert len(swaps) > 1
    assert all(before["after"] == after["before"] for before, after in pairwise(swaps))
    assert found.state.nmse == found.error(found.state.tensor(ROWS))
    assert len(found.state.mask) == 8


def test_it_looks_further_before_it_gives_up(tmp_path):
    found = search(tmp_path)
    found.run()
    assert found.state.failures == 2
    assert len(found.state.tried) > 3 * 4
    assert len({tuple(pair) for pair in found.state.tried}) == len(found.state.tried)


def test_exported_files_agree(tmp_path):
    found = search(tmp_path / "search-0.5")
    found.run()
    mask = np.load(tmp_path / "search-0.5" / "mask.npy")
    assert np.loadtxt(tmp_path / "search-0.5" / "mask.txt", dtype=int).tolist() == np.flatnonzero(mask).tolist()
    assert (tmp_path / "search-0.5" / "mask.png").stat().st_size > 1000
    order = np.load(tmp_path / "search-0.5" / "order.npy")
    assert sorted(order) == np.flatnonzero(mask).tolist()
    assert acs_rows(ROWS, ACS)[order[:ACS]].all()


def test_a_stopped_search_goes_on_to_the_same_mask(tmp_path):
    whole = search(tmp_path / "whole", seed=3)
    whole.run()
    assert not search(tmp_path / "parts", seed=3).run(max_minutes=0)
    parts = search(tmp_path / "parts", seed=3)
    assert parts.run(resume=True)
    assert parts.state.mask == whole.state.mask
    assert parts.state.swaps == whole.state.swaps
    lines = (tmp_path / "parts" / "log.jsonl").read_text().splitlines() if parts.state.swaps else []
    assert len(lines) == len(parts.state.swaps)
    with pytest.raises(ConfigError, match="--resume"):
        search(tmp_path / "parts", seed=3).run()
    with pytest.raises(CheckpointError, match="other settings"):
        search(tmp_path / "parts", seed=4).run(resume=True)


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


def test_impossible_searches_are_refused(tmp_path):
    with pytest.raises(BudgetError, match="ACS block"):
        search(tmp_path, k=3)
    with pytest.raises(ConfigError, match="draws must be at least 1"):
        SearchSettings(draws=0)
