"""`mri-sequential`: Table mri-closed, and beyond the paper the value of a row with its one-step ceiling."""

from collections.abc import Sequence

import numpy as np
import torch
from rich.progress import Progress
from torch import Tensor

from sensewise.experiments.mri_evaluation import RowStrategy, evaluate_rows, heuristics, spend
from sensewise.experiments.mri_masks import BUDGETS, EXAMPLE_BUDGET, difficulty
from sensewise.experiments.mri_models import Models, static_strategies
from sensewise.experiments.results import Results
from sensewise.mri.kspace import keep_rows, magnitude
from sensewise.mri.settings import load_settings
from sensewise.mri.value import OneStepOracle
from sensewise.reconstruct import Reconstructor
from sensewise.sensors import Side

_CLOSED = {  # Table mri-closed: U-Net B
    ("acs-variable-density", 1): (0.02471, 0.01889, 0.01546, 0.00764),
    ("static-search", 1): (0.02389, 0.01860, 0.01523, 0.00751),
    ("sequential-entropy", 1): (0.03031, 0.02571, 0.02061, 0.00751),
    ("sequential-entropy", 4): (0.02670, 0.02254, 0.01916, 0.00941),
    ("sequential-entropy", 16): (0.02589, 0.01992, 0.01559, 0.00807),
    ("sequential-energy", 1): (0.03359, 0.02928, 0.02381, 0.01145),
    ("sequential-energy", 4): (0.02982, 0.02438, 0.01940, 0.01209),
    ("sequential-energy", 16): (0.02699, 0.02122, 0.01790, 0.00966),
}


def paper(method: str, steps: int, budget: float, reconstructor: str, metric: str) -> float | None:
    """The paper's NMSE, on fastMRI."""
    if metric != "nmse" or reconstructor != "unet-b" or budget not in BUDGETS:
        return None
    values = _CLOSED.get((method, steps))
    return None if values is None else values[BUDGETS.index(budget)]


def run(preset: str, seeds: Sequence[int], progress: Progress) -> Results:
    """Every sequential variant on all held-out slices, then the oracle beside them on the first few."""
    mri = load_settings(preset)
    models = Models(preset, mri)
    judges = models.judges()
    _, val = mri.load()
    results = Results("mri-sequential", preset, mri.dataset)
    base = [*heuristics(("variable-density",)), *static_strategies(models.static(("static-search",)))]
    by_profile, planned = models.by_profile(), models.planned()
    by_value = planned + models.by_value()
    strategies = [*base, *by_profile, *by_value]
    results.rows = evaluate_rows(
        val.kspace, mri.acs, judges, strategies, mri.budgets, seeds, paper, progress, slices="all"
    )
    few = val.kspace[: mri.oracle_slices]
    oracle = OneStepOracle(models.reconstructor("unet-a"), few)
    beside = [*base, *by_value, RowStrategy("oracle-one-step", lambda _: oracle, steps=16)]
    results.rows += evaluate_rows(
        few, mri.acs, judges, beside, mri.budgets, seeds, lambda *_: None, progress, slices="oracle"
    )
    results.weights, results.notes = models.weights, models.notes
    number = difficulty(val.kspace, mri.acs, judges["unet-b"], seeds[0])[(len(val) - 1) // 2]
    one = val.kspace[number : number + 1]
    for strategy in [*(s for s in by_profile if s.steps == 16), *(s for s in planned if s.steps == 4)]:
        results.arrays |= story_arrays(one, mri.acs, judges["unet-b"], strategy, seeds[0])
    return results


def story_arrays(
    kspace: Tensor, acs: int, judge: Reconstructor, strategy: RowStrategy, seed: int
) -> dict[str, np.ndarray]:
    """One slice `(1, H, W)` step by step: `story/METHOD/scores`, `mask`, `reconstruction` and `target`."""
    taken = spend(strategy, kspace, acs, EXAMPLE_BUDGET, seed, keep_scores=True)
    mask = torch.cat([taken.mask_after(r) for r in range(taken.steps + 1)])  # (R + 1, H)
    x, scale = magnitude(kspace), magnitude(kspace).max()
    drawn = judge(keep_rows(kspace.expand(len(mask), -1, -1), mask), mask, Side())
    place = f"story/{strategy.method}"
    return {
        f"{place}/target": (x[0] / scale).half().numpy(),
        f"{place}/scores": torch.cat(taken.scores).float().numpy(),
        f"{place}/mask": mask.numpy(),
        f"{place}/reconstruction": (drawn / scale).half().numpy(),
    }
