"""Any prior on any scenes of pixels: every method at the usual budgets, a few examples, one image step by step."""

from collections.abc import Sequence
from dataclasses import replace

from sensewise.data.scenes import Scenes
from sensewise.evaluate.evaluate import Published
from sensewise.evaluate.examples import example_arrays
from sensewise.evaluate.experiment import Setup
from sensewise.evaluate.method import Method, pixel_methods
from sensewise.evaluate.record import record
from sensewise.evaluate.results import Results
from sensewise.evaluate.task import pixel_task
from sensewise.files import fingerprint
from sensewise.priors.base import Prior

BUDGETS = (0.05, 0.1, 0.2, 0.3)
METRICS = ("errors", "exact", "accuracy", "foreground-recovery", "informative")
STEPS = 16
EXAMPLE_BUDGET = 0.1


def own_methods(prior: Prior, scenes: Scenes) -> list[Method]:
    """Every method of `PIXEL_METHODS`; greedy is called label-greedy where labels say where to begin."""
    known = pixel_methods(prior, STEPS)
    labelled = prior.num_labels is not None and scenes.labels is not None
    greedy = replace(known.pop("greedy"), name="label-greedy" if labelled else "greedy")
    simple = [replace(known.pop(name), steps=1) for name in ("random", "variable-density")]  # they learn nothing
    return [*simple, replace(greedy, steps=4), greedy, *known.values()]


def evaluate_prior(
    prior: Prior,
    scenes: Scenes,
    setup: Setup,
    *,
    methods: Sequence[Method] | None = None,
    extra: Sequence[Method] = (),
    metrics: Sequence[str] | None = None,
    budgets: Sequence[float] = BUDGETS,
    paper: Published | None = None,
    name: str = "evaluate",
) -> Results:
    """What the page of an evaluation shows: rows, a few images, one image step by step.

    Args:
        setup: preset, seeds, journal and progress bar.
        methods: what is compared; None for `own_methods`.
        extra: methods beside them, such as your own.
        metrics: None for those of the number of levels.
        paper: published values, where there are any.
        name: of the experiment in the results.
    """
    names = metrics or (METRICS if prior.num_states == 2 else (*METRICS, "psnr"))
    task = pixel_task(scenes, prior, names, split=scenes.split)
    compared = [*(own_methods(prior, scenes) if methods is None else methods), *extra]
    rows = setup.evaluate(task, compared, budgets, paper)
    if setup.journal.is_shard:  # nobody will see its figures
        return Results(name, setup.preset, scenes.name, rows)
    shown = [method for method in compared if method.steps in (1, STEPS)]
    arrays = example_arrays(task, shown, EXAMPLE_BUDGET, setup.seeds[0])
    x, label = scenes[slice(0, 1)]
    greedy = pixel_methods(prior, STEPS)["greedy"]
    arrays |= record(prior, greedy, x, label, EXAMPLE_BUDGET).store()
    return Results(name, setup.preset, scenes.name, rows, {"prior": fingerprint(prior)}, arrays=arrays)
