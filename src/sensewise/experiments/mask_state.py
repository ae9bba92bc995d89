"""`mask-state`: Table token of the paper: what a state of its own for "unobserved" adds.

A random probe of 20% of the budget and one greedy step, with pairs of priors that were fine-tuned from one common start
with the same recipe. They are smaller than the shipped prior, so that eleven of them train in 40 minutes of one core.
"""

from collections.abc import Sequence
from pathlib import Path

from rich.progress import Progress

from sensewise.checkpoint import fingerprint, load_prior
from sensewise.data import Images, bundled_mnist
from sensewise.errors import CheckpointError
from sensewise.experiments.evaluation import Strategy, known_side, score
from sensewise.experiments.results import Results, row
from sensewise.policies import Greedy, random_probe
from sensewise.presets import load
from sensewise.priors import AbsorbingPrior
from sensewise.train_mask_state import MaskStateSettings, variant_name

BUDGETS = (0.1, 0.2, 0.25, 0.3, 0.4)
FOLDER = Path("runs/mnist-mask-state")
WITH, WITHOUT = "mask-state", "shared-zero"

_TABLE_TOKEN: dict[tuple[str, str], tuple[float, ...]] = {
    (WITHOUT, "errors"): (28.72, 10.08, 4.98, 2.07, 0.22),
    (WITH, "errors"): (25.73, 8.83, 4.28, 1.76, 0.19),
    (WITH, "fewer-errors"): (0.104, 0.124, 0.142, 0.150, 0.144),
}
_PAPER_WINS = (5, 5, 5, 5, 4)


def errors_of(prior: AbsorbingPrior, images: Images, budget: float, seeds: Sequence[int]) -> tuple[float, float]:
    """Errors per image, mean over evaluation seeds, and the realised density."""
    x, label = images[slice(None)]
    side = known_side(x, label, images.num_states)
    strategy = Strategy(WITH, Greedy(prior), 1, random_probe(x.shape[2] * x.shape[3]))
    found = [score(prior, strategy, x, side, budget, seed, ("errors",)) for seed in seeds]
    return sum(values["errors"] for values in found) / len(found), found[0]["density"]


def measure(
    pairs: Sequence[tuple[AbsorbingPrior, AbsorbingPrior]], images: Images, seeds: Sequence[int], progress: Progress
) -> Results:
    """Rows for pairs of priors (with, without the mask state), one pair a fine-tuning seed."""
    results = Results("mask-state", "cpu", "mnist")
    bar = progress.add_task("pairs of priors", total=len(BUDGETS) * len(pairs))
    for i, budget in enumerate(BUDGETS):
        ours, shared, density = [], [], 0.0
        for with_state, without in pairs:
            value, density = errors_of(with_state, images, budget, seeds)
            ours.append(value)
            shared.append(errors_of(without, images, budget, seeds)[0])
            progress.advance(bar)
        fewer = [1 - a / b if b else 0.0 for a, b in zip(ours, shared, strict=True)]
        wins = sum(a < b for a, b in zip(ours, shared, strict=True))
        for method, metric, values in (
            (WITHOUT, "errors", shared),
            (WITH, "errors", ours),
            (WITH, "fewer-errors", fewer),
        ):
            columns = {"wins": wins, "paper_wins": _PAPER_WINS[i], "evaluation_seeds": len(seeds)}
            reference = _TABLE_TOKEN[method, metric][i]
            results.rows.append(row(method, 1, budget, density, metric, values, len(images), reference, **columns))
    progress.remove_task(bar)
    return results


def run(preset: str, seeds: Sequence[int], progress: Progress) -> Results:
    """2,560 test digits; needs the runs of `sensewise train mask-state`."""
    settings = load(preset, "mask-state.mnist", MaskStateSettings)
    if not FOLDER.is_dir():
        raise CheckpointError(f"{FOLDER} does not exist: run `sensewise train mask-state` first")
    names = [[variant_name(mask_state, seed) for mask_state in (True, False)] for seed in range(settings.seeds)]
    pairs = [(load_prior(FOLDER / a), load_prior(FOLDER / b)) for a, b in names]
    results = measure(pairs, bundled_mnist(), seeds, progress)
    results.preset = preset
    for both, pair in zip(names, pairs, strict=True):
        results.weights |= {name: fingerprint(prior) for name, prior in zip(both, pair, strict=True)}
    count = sum(weight.numel() for weight in pairs[0][0].parameters())
    results.notes.append(
        f"The priors of this table are smaller than the shipped one ({count:,} weights), and their spread is over "
        f"{settings.seeds} fine-tuning seeds of {settings.fine_tune.steps:,} steps each."
    )
    return results
