"""`mask-state`: Table token of the paper: what a state of its own for "unobserved" adds.

A random probe of 20% of the budget, then one greedy step as in the paper, or 16, with pairs of priors that were
fine-tuned from one common start with the same settings. They are smaller than the shipped prior, so that eleven of them
train in an hour of one core.
"""

from collections.abc import Sequence
from itertools import product

from sensewise import hub, presets
from sensewise.data.scenes import Scenes
from sensewise.evaluate.evaluate import measure as score
from sensewise.evaluate.evaluate import published
from sensewise.evaluate.experiment import Experiment, Setup
from sensewise.evaluate.method import Method
from sensewise.evaluate.results import Results
from sensewise.evaluate.rows import Row, summarise
from sensewise.evaluate.task import pixel_task
from sensewise.files import fingerprint
from sensewise.paper import models, scenes
from sensewise.policies.greedy import Greedy
from sensewise.policies.starts import RandomProbe
from sensewise.priors.base import Prior
from sensewise.report import metrics
from sensewise.report.methods import name_of
from sensewise.report.section import Section
from sensewise.report.table import Cell, Table, table, with_lines
from sensewise.train.mask_state import MaskStateSettings, variant_name

BUDGETS = (0.1, 0.2, 0.25, 0.3, 0.4)
STEPS = (1, 16)
WITH, WITHOUT = "mask-state", "shared-zero"
PAPER = published(
    BUDGETS,
    {
        (WITHOUT, 1, "errors"): (28.72, 10.08, 4.98, 2.07, 0.22),
        (WITH, 1, "errors"): (25.73, 8.83, 4.28, 1.76, 0.19),
        (WITH, 1, "fewer-errors"): (0.104, 0.124, 0.142, 0.150, 0.144),
    },
)
"""Table token."""
PAPER_WINS = dict(zip(BUDGETS, (5, 5, 5, 5, 4), strict=True))
Pair = tuple[Prior, Prior]


def errors_of(setup: Setup, prior: Prior, images: Scenes, budget: float, steps: int) -> tuple[float, float] | None:
    """Errors per image, mean over evaluation seeds, and the realised density; None if they are another shard's."""
    method = Method(WITH, Greedy(prior), steps, start=RandomProbe())
    found = score(pixel_task(images, prior, ("errors",)), method, budget, setup.seeds, setup.journal)
    if found is None:
        return None
    return sum(value["prior errors"] for value in found) / len(found), found[0]["density"]


def rows_at(setup: Setup, pairs: Sequence[Pair], images: Scenes, budget: float, steps: int) -> list[Row]:
    """Errors without and with the mask state at one budget, and how many fewer they are; one value per pair."""
    measured = [[errors_of(setup, prior, images, budget, steps) for prior in pair] for pair in pairs]
    found = [(a, b) for a, b in measured if a is not None and b is not None]
    if len(found) < len(pairs):
        return []
    ours, shared = [a[0] for a, _ in found], [b[0] for _, b in found]
    fewer = [1 - a / b if b else 0.0 for a, b in zip(ours, shared, strict=True)]
    rows = []
    for method, metric, values in ((WITHOUT, "errors", shared), (WITH, "errors", ours), (WITH, "fewer-errors", fewer)):
        mean, sd = summarise(values)
        rows.append(
            Row(
                dataset=images.name,
                method=method,
                steps=steps,
                budget=budget,
                density=round(found[-1][0][1], 6),
                metric=metric,
                mean=mean,
                sd=sd,
                images=len(images),
                seeds=len(pairs),
                paper=PAPER.get((method, steps, budget, metric, None)),
                wins=sum(a < b for a, b in zip(ours, shared, strict=True)),
                paper_wins=PAPER_WINS[budget] if steps == 1 else None,
                evaluation_seeds=len(setup.seeds),
            )
        )
    return rows


def measure(setup: Setup, pairs: Sequence[Pair], images: Scenes) -> list[Row]:
    """Rows for pairs of priors (with, without the mask state), one pair per fine-tuning seed."""
    places = setup.progress.track(list(product(STEPS, BUDGETS)), description="pairs of priors")
    return [row for steps, budget in places for row in rows_at(setup, pairs, images, budget, steps)]


def run(setup: Setup) -> Results:
    """2,560 test digits; needs the runs of `sensewise train mask-state`."""
    settings = presets.load(setup.preset, "mask-state.mnist", MaskStateSettings)
    names = [variant_name(state, seed) for seed in range(settings.seeds) for state in (True, False)]
    found = {name: _load(setup.preset, name) for name in names}
    pairs = list(zip(*[iter(found.values())] * 2, strict=True))
    rows = measure(setup, pairs, scenes.digits())
    count = sum(weight.numel() for weight in pairs[0][0].parameters())
    note = (
        f"The priors of this table are smaller than the shipped one ({count:,} weights), and their spread is over "
        f"{settings.seeds} fine-tuning seeds of {settings.fine_tune.steps:,} steps each."
    )
    weights = {name: fingerprint(prior) for name, prior in found.items()}
    return Results("mask-state", setup.preset, "mnist", rows, weights, [note])


def _load(preset: str, name: str) -> Prior:
    return hub.load_prior(models.folder(preset, f"mnist-mask-state/{name}", "train mask-state"))


def section(results: Results) -> Section:
    """Table token, and the same with 16 steps."""
    tables = [_table(metrics.pick(results.rows, steps=steps), words) for steps, words in STEP_WORDS.items()]
    paragraphs = [
        "Pairs of priors fine-tuned from one common start with the same recipe: one with a state of its own for "
        "“unobserved”, one in which 0 means both black and unobserved. A random probe of 20% of the budget, then one "
        "greedy step, as in the paper, or 16. Our start has seen both encodings, each on half of its images; the "
        "paper's has no mask state.",
        *results.notes,
    ]
    return Section("What the mask state adds", paragraphs, [made for made in tables if made], source=results)


STEP_WORDS = {1: "one greedy step", 16: "16 greedy steps"}


def _table(rows: Sequence[Row], words: str) -> Table | None:
    """Errors of both kinds of priors, and how often one has fewer; None for results without such rows."""
    if not rows:
        return None
    lines = [name_of(WITHOUT), name_of(WITH)]
    errors = table(rows, f"Errors per image, probe and {words}", "errors", lines=lines)
    compared = sorted(metrics.pick(rows, metric="fewer-errors"), key=lambda row: row.budget)
    fewer = [Cell(metrics.with_spread(row), paper=metrics.paper_value(row)) for row in compared]
    wins = [Cell(f"{row.wins}/{row.seeds}", paper=_paper_wins(row)) for row in compared]
    return with_lines(errors, ("fewer errors (%)", fewer), ("seeds with fewer errors", wins))


def _paper_wins(row: Row) -> str | None:
    return None if row.paper_wins is None else f"{row.paper_wins}/5"


EXPERIMENT = Experiment("mask-state", run, section)
