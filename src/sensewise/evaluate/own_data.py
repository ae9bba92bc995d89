"""Any prior on any scenes of pixels: every method at the usual budgets, a few examples, one image step by step."""

from collections.abc import Sequence

from rich.progress import Progress

from sensewise import predictions
from sensewise.data.scenes import Scenes
from sensewise.evaluate.evaluate import Published, evaluate
from sensewise.evaluate.examples import example_arrays
from sensewise.evaluate.method import Method, pixel_methods
from sensewise.evaluate.record import record
from sensewise.evaluate.results import Results
from sensewise.evaluate.task import pixel_task
from sensewise.files import fingerprint
from sensewise.policies.choose import Spread
from sensewise.policies.greedy import Greedy
from sensewise.policies.simple import Random, VariableDensity
from sensewise.policies.starts import RandomProbe
from sensewise.priors.base import Prior

BUDGETS = (0.05, 0.1, 0.2, 0.3)
METRICS = ("errors", "exact", "accuracy", "foreground-recovery", "informative")
STEPS = 16
EXAMPLE_BUDGET = 0.1


def own_methods(prior: Prior) -> list[Method]:
    """Every method; greedy is called label-greedy where labels say where to begin."""
    greedy, name = Greedy(prior), "greedy" if prior.num_labels is None else "label-greedy"
    found = [
        Method("random", Random()),
        Method("variable-density", VariableDensity()),
        Method("probe-greedy", greedy, STEPS, start=RandomProbe()),
        Method(name, greedy, 4),
        Method(name, greedy, STEPS),
        Method("spread-greedy", greedy, STEPS, choose=Spread()),
    ]
    if prior.num_states > 2:  # with two levels, variance and entropy order pixels alike
        found.append(Method("variance-greedy", Greedy(prior, predictions.variance), STEPS))
    return found


def evaluate_prior(
    prior: Prior,
    scenes: Scenes,
    seeds: Sequence[int],
    *,
    methods: Sequence[Method] | None = None,
    extra: Sequence[Method] = (),
    metrics: Sequence[str] | None = None,
    budgets: Sequence[float] = BUDGETS,
    paper: Published | None = None,
    progress: Progress | None = None,
    name: str = "evaluate",
) -> Results:
    """What the page of an evaluation shows: rows, a few images, one image step by step.

    Args:
        methods: what is compared; None for `own_methods`.
        extra: methods beside them, such as your own.
        metrics: None for those of the number of levels.
        paper: published values, where there are any.
        name: of the experiment in the results.
    """
    names = metrics or (METRICS if prior.num_states == 2 else (*METRICS, "psnr"))
    task = pixel_task(scenes, prior, names, split=scenes.split)
    compared = [*(own_methods(prior) if methods is None else methods), *extra]
    rows = evaluate(task, compared, budgets, seeds, progress=progress, paper=paper)
    shown = [method for method in compared if method.steps in (1, STEPS)]
    arrays = example_arrays(task, shown, EXAMPLE_BUDGET, seeds[0])
    x, label = scenes[slice(0, 1)]
    greedy = pixel_methods(prior, STEPS)["greedy"]
    arrays |= record(prior, greedy, x, label, EXAMPLE_BUDGET).store()
    return Results(name, "cpu", scenes.name, rows, {"prior": fingerprint(prior)}, arrays=arrays)
