"""`mri-masks`: Tables recon-gain and mri-main, and the figures of every row mask under every reconstructor."""

from collections.abc import Sequence

import numpy as np
import torch
from rich.progress import Progress
from torch import Tensor

from sensewise.data.fastmri import Slices
from sensewise.experiments.mri_evaluation import Paper, RowStrategy, evaluate_rows, heuristics, spend
from sensewise.experiments.mri_models import Models, static_strategies
from sensewise.experiments.results import Results
from sensewise.metrics import nmse
from sensewise.mri.kspace import magnitude
from sensewise.mri.settings import load_settings
from sensewise.reconstruct import Reconstructor, ZeroFilled
from sensewise.sensors import Side

EXAMPLE_BUDGET = 0.25
_GAIN = {  # Table recon-gain: zero-filled and U-Net B at s = 0.25
    "acs-equispaced": (0.03820, 0.02623),
    "acs-random": (0.03819, 0.02696),
    "static-search": (0.03283, 0.02389),
    "acs-variable-density": (0.03382, 0.02474),
    "learned-static": (0.03431, 0.02887),
    "learned-adaptive": (0.03337, 0.02840),
    "energy-oracle": (0.03147, 0.02715),
}
_MAIN = {  # Table mri-main: U-Net B at s = 0.25, 0.40, 0.50, 0.75
    "static-search": (0.02389, 0.01860, 0.01523, 0.00751),
    "acs-variable-density": (0.02471, 0.01889, 0.01546, 0.00764),
    "loupe": (0.02759, 0.02213, 0.01995, 0.00966),
    "sequential-entropy": (0.02589, 0.01992, 0.01559, 0.00807),
}
BUDGETS = (0.25, 0.40, 0.50, 0.75)


def paper(method: str, _: int, budget: float, reconstructor: str, metric: str) -> float | None:
    """The paper's NMSE, on fastMRI."""
    if metric != "nmse":
        return None
    if reconstructor == "unet-b" and method in _MAIN and budget in BUDGETS:
        return _MAIN[method][BUDGETS.index(budget)]
    if budget == 0.25 and method in _GAIN and reconstructor in ("zero-filled", "unet-b"):
        return _GAIN[method][0 if reconstructor == "zero-filled" else 1]
    return None


def run(preset: str, seeds: Sequence[int], progress: Progress) -> Results:
    """Every mask at every budget on the held-out slices, and two slices to look at."""
    mri = load_settings(preset)
    models = Models(preset, mri)
    train, val = mri.load()
    masks = models.energy_oracle(train.kspace) | models.static()
    learned = models.one_shot() + models.by_profile((16,)) + models.planned((1,))[:1]
    return measure(models, val, masks, learned, seeds, progress, paper, Results("mri-masks", preset, mri.dataset))


def measure(
    models: Models,
    val: Slices,
    masks: dict[str, dict[float, Tensor]],
    learned: Sequence[RowStrategy],
    seeds: Sequence[int],
    progress: Progress,
    paper: Paper,
    results: Results,
) -> Results:
    """Heuristics, static masks and learned strategies on some slices, with everything that the figures show."""
    mri, judges = models.mri, models.judges()
    strategies = [*heuristics(), *static_strategies(masks), *learned]
    results.rows = evaluate_rows(val.kspace, mri.acs, judges, strategies, mri.budgets, seeds, paper, progress)
    results.weights, results.notes = models.weights, models.notes
    results.arrays = {
        f"rows/{method}/{budget:g}": mask.numpy() for method, found in masks.items() for budget, mask in found.items()
    }
    density = heuristics(("variable-density",))[0]
    for budget in mri.budgets:
        one = spend(density, val.kspace[:1], mri.acs, budget, seeds[0]).mask[0]
        results.arrays[f"rows/acs-variable-density/{budget:g}"] = one.numpy()
    results.arrays |= example_arrays(val.kspace, mri.acs, judges["unet-b"], strategies, seeds[0])
    return results


def difficulty(kspace: Tensor, acs: int, judge: Reconstructor, seed: int) -> Tensor:
    """Slices from easy to hard for ACS + variable density at s = 0.25, `(n,)`."""
    taken = spend(heuristics(("variable-density",))[0], kspace, acs, EXAMPLE_BUDGET, seed)
    return nmse(judge(taken.observation, taken.mask, Side()), magnitude(kspace)).argsort()


def example_arrays(
    kspace: Tensor, acs: int, judge: Reconstructor, strategies: Sequence[RowStrategy], seed: int
) -> dict[str, np.ndarray]:
    """Reconstructions by the judge of a slice of median difficulty and one of the 75th percentile, at s = 0.25."""
    order = difficulty(kspace, acs, judge, seed)
    arrays: dict[str, np.ndarray] = {}
    for name, place in (("median", 0.5), ("p75", 0.75)):
        number = int(order[int(place * (len(order) - 1))])
        one = kspace[number : number + 1]
        scale = magnitude(one).max()
        arrays[f"example/{name}/target"] = _small(magnitude(one) / scale)
        for strategy in strategies:
            if strategy.other_scout:
                continue
            taken = spend(strategy, one, acs, EXAMPLE_BUDGET, seed)
            x_hat = judge(taken.observation, taken.mask, Side())
            arrays[f"example/{name}/{strategy.method}"] = _small(x_hat / scale)
            if strategy.method == "acs-variable-density":
                zero_filled = ZeroFilled()(taken.observation, taken.mask, Side())
                arrays[f"example/{name}/zero-filled"] = _small(zero_filled / scale)
    return arrays


def _small(image: Tensor) -> np.ndarray:
    return image[0].to(torch.float16).numpy()
