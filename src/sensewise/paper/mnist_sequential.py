"""`mnist-sequential`: Table closed and Figure closed of the paper, for both stages of the prior."""

from collections.abc import Sequence
from dataclasses import replace

from sensewise.data.scenes import Scenes
from sensewise.evaluate.evaluate import published
from sensewise.evaluate.examples import example_arrays
from sensewise.evaluate.experiment import Experiment, Setup
from sensewise.evaluate.method import Method, amortised, pixel_methods, spread_entropy
from sensewise.evaluate.record import record
from sensewise.evaluate.recording import read_recording
from sensewise.evaluate.results import Results
from sensewise.evaluate.rows import Row
from sensewise.evaluate.task import Task, pixel_task
from sensewise.files import fingerprint
from sensewise.paper import models, scenes
from sensewise.policies.choose import Joint
from sensewise.policies.greedy import Greedy
from sensewise.policies.known import KnownImages
from sensewise.policies.sampling import PosteriorSampling
from sensewise.policies.simple import Random, VariableDensity
from sensewise.policies.starts import RandomProbe
from sensewise.priors.base import Prior
from sensewise.report import metrics
from sensewise.report.figures import curves, recording
from sensewise.report.section import STAGES, Picture, Section, examples_picture
from sensewise.report.table import table

BUDGETS = (0.05, 0.1, 0.2, 0.3)
METRICS = ("errors", "exact", "foreground-recovery", "informative")
EXAMPLE_BUDGET = 0.1
FEW, FEW_SPLIT = 256, "first-256"  # images of what costs too much for all of them
SAMPLED_BUDGETS = (0.05, 0.1, 0.2)
PAPER = published(
    BUDGETS,
    {
        ("random", 1, "errors"): (60.5, 46.7, 32.1, 24.0),
        ("random", 1, "exact"): (0.0, 0.0, 0.0, 0.0),
        ("probe-greedy", 1, "errors"): (40.0, 26.1, 9.22, 1.97),
        ("probe-greedy", 1, "exact"): (0.0, 0.01, 0.14, 0.50),
        ("probe-greedy", 16, "errors"): (26.9, 8.45, 0.42, 0.02),
        ("probe-greedy", 16, "exact"): (0.04, 0.17, 0.83, 0.99),
        ("label-greedy", 4, "errors"): (26.8, 10.0, 0.64, 0.03),
        ("label-greedy", 4, "exact"): (0.04, 0.14, 0.81, 0.99),
        ("label-greedy", 16, "errors"): (22.9, 5.63, 0.19, 0.01),
        ("label-greedy", 16, "exact"): (0.06, 0.26, 0.92, 1.00),
    },
)
"""Table closed."""


def methods(prior: Prior, extra_steps: Sequence[int] = ()) -> list[Method]:
    """Every method of Table closed, variable density, and greedy steps whose pixels keep their distance."""
    greedy = Greedy(prior)
    return [
        Method("random", Random()),
        Method("variable-density", VariableDensity()),
        Method("probe-greedy", greedy, 1, start=RandomProbe()),
        Method("probe-greedy", greedy, 16, start=RandomProbe()),
        *(Method("label-greedy", greedy, r) for r in (4, 16, *extra_steps)),
        spread_entropy("spread-greedy", prior, 16),
    ]


def batch_aware(prior: Prior, known: Scenes | None) -> list[Method]:
    """Few steps of pixels chosen together: the highest entropies, spread out, and judged by known digits if any."""
    greedy = Greedy(prior)
    found = [
        Method("label-greedy", greedy, 8),
        *(spread_entropy("spread-greedy", prior, steps) for steps in (4, 8)),
    ]
    if known is not None:
        joint = Joint(KnownImages(known.values, prior.num_states, known.labels))
        found += [Method("joint-greedy", greedy, steps, choose=joint) for steps in (4, 8, 16)]
    return found


def sampled(prior: Prior) -> list[Method]:
    """Active diffusion subsampling (Nolan et al., 2025), and label-greedy to compare it with.

    It costs 128 passes per step, so it is run on few images with one seed.
    """
    ask = PosteriorSampling(prior, samples=16, rounds=8)
    return [Method("posterior-sampling", ask, 16), Method("label-greedy", Greedy(prior), 16)]


def by_small(name: str, digits: Scenes, prior: Prior, stage: str, small: Prior) -> tuple[Task, list[Method]]:
    """What is measured of a small prior: the guide's picks, pictured by the full prior, or the tiny one by itself."""
    if name == "guide":
        return pixel_task(digits, prior, METRICS, prior=stage), [amortised(prior, small, 16)]
    return pixel_task(digits, small, METRICS, prior=name), methods(small)[-2:]  # label-greedy and spread-greedy


def run(setup: Setup) -> Results:
    """2,560 test digits with both priors; with the on-policy one all 10,000 if MNIST is on this machine, and 256.

    On all 10,000, what takes many steps and several seeds is left out.
    """
    digits, notes = scenes.digits(), list[str]()
    priors = models.priors(setup.preset, "mnist", notes, setup.engine)
    rows: list[Row] = []
    known = scenes.known_digits(notes)
    for stage, prior in priors.items():
        last = stage == "on-policy"
        compared = methods(prior, (32,)) + batch_aware(prior, known) if last else methods(prior)
        rows += setup.evaluate(pixel_task(digits, prior, METRICS, prior=stage), compared, BUDGETS, PAPER)
    stage, prior = list(priors.items())[-1]
    shown = [method for method in methods(prior) if method.steps in (1, 16)]
    arrays = example_arrays(pixel_task(digits, prior, METRICS), shown, EXAMPLE_BUDGET, setup.seeds[0])
    greedy = pixel_methods(prior, 16)["greedy"]
    arrays |= record(prior, greedy, *digits[slice(0, 1)], EXAMPLE_BUDGET).store()
    everything = scenes.all_digits(notes)
    if everything is not None:
        task = pixel_task(everything, prior, METRICS, prior=stage)
        cheap = [method for method in methods(prior) if method.steps == 1 or not method.is_random()]
        rows += setup.evaluate(task, cheap, BUDGETS)  # the paper's values are of the first 2,560
    small = models.small_priors(setup.preset, "mnist", notes, engine=setup.engine)
    for name, other in small.items():
        task, compared = by_small(name, digits, prior, stage, other)
        rows += setup.evaluate(task, compared, BUDGETS, PAPER)
    few = pixel_task(digits.first(FEW), prior, METRICS, prior=stage, split=FEW_SPLIT)
    rows += replace(setup, seeds=setup.seeds[:1]).evaluate(few, sampled(prior), SAMPLED_BUDGETS)
    weights = {stage: fingerprint(prior) for stage, prior in [*priors.items(), *small.items()]}
    return Results("mnist-sequential", setup.preset, "mnist", rows, weights, notes, arrays)


SHOWN = (0, 1, 2, 4, 8, 12, 16)
SAMPLED = "entropies counted in 16 joint samples of 8 reverse steps each (Nolan et al., 2025) and read off one pass"
TINY = "prior `mnist-tiny`: the smallest that is as good as the paper's, taught by the full one"
DRAWN = (
    ("random", 1),
    ("probe-greedy", 1),
    ("probe-greedy", 16),
    ("label-greedy", 4),
    ("label-greedy", 16),
    ("spread-greedy", 16),
)
"""Lines of Figure closed, and the one of ours that is best; the others stand in the table."""


def section(results: Results) -> Section:
    """Table closed and Figure closed."""
    tables, parts = [], []
    rows = metrics.pick(results.rows, split=None)
    for images in sorted({row.images for row in rows}):
        for prior, words in STAGES.items():
            if part := metrics.pick(rows, images=images, prior=prior):
                caption = f"{images:,} test digits, prior trained on {words}"
                tables.append(table(part, caption, "errors", corner="method"))
                parts.append(part)
    if tiny := metrics.pick(rows, prior="tiny"):
        tables.append(table(tiny, f"{tiny[0].images:,} test digits, {TINY}", "errors", corner="method"))
    if few := metrics.pick(results.rows, split=FEW_SPLIT):
        tables.append(table(few, f"The first {few[0].images} test digits: {SAMPLED}", "errors", corner="method"))
    recorded = read_recording(results.arrays)
    paragraphs = [
        "Errors are wrong pixels per image, out of 1,024, with hidden pixels at the prior's argmax; in parentheses the "
        f"fraction of images reconstructed exactly. Mean ± standard deviation over {parts[0][0].seeds} seeds; "
        "label-greedy has no randomness. The label is known to every method through the prior. “spread” and “joint” "
        "choose the pixels of a step so that they repeat each other less: by distance, or by what pixels have to do "
        f"with each other in {scenes.KNOWN:,} training digits.",
        *results.notes,
    ]
    steps = [r for r in SHOWN if r <= recorded.steps]
    drawn = [row for row in parts[0] if (row.method, row.steps) in DRAWN]
    figures = [
        Picture(
            "mnist-sequential.png",
            curves.against_budget(drawn, ("errors", "exact")),
            "Errors and exact fraction against the budget, with bands of two standard deviations over seeds; more in "
            "the table.",
        ),
        examples_picture("mnist-examples.png", results, 2, "example"),
        Picture(
            "mnist-steps.png",
            recording.sheet(recorded, steps),
            "One digit, label-greedy: entropy, measured pixels, reconstruction.",
        ),
        Picture("mnist-steps.gif", recording.gif(recorded), "The same as an animation."),
    ]
    return Section("MNIST, sequential acquisition", paragraphs, tables, figures, results)


EXPERIMENT = Experiment("mnist-sequential", run, section)
