"""A table of one's own: which lines of a room to measure."""

from farthest import FarthestFirst
from line_scan import Lines, LineScan
from rooms import LEVELS, load

from sensewise.evaluate.experiment import Experiment, Setup
from sensewise.evaluate.judges import PriorJudge
from sensewise.evaluate.method import Method
from sensewise.evaluate.results import Results
from sensewise.evaluate.task import Task
from sensewise.files import fingerprint
from sensewise.policies.greedy import Greedy
from sensewise.policies.simple import Random
from sensewise.priors.empirical import EmpiricalPrior
from sensewise.report.figures.curves import against_budget
from sensewise.report.section import Picture, Section
from sensewise.report.table import table

BUDGETS = (0.125, 0.25)


def run(setup: Setup) -> Results:
    """Every method on the rooms, with a prior that has seen all of them."""
    rooms = load("test")
    prior = EmpiricalPrior(rooms[slice(None)][0], LEVELS)
    task = Task("rooms", rooms, LineScan, {"prior": PriorJudge(prior, ("errors", "exact", "psnr"), Lines())})
    methods = [
        Method("random", Random()),
        Method("farthest-first", FarthestFirst(), 2),
        Method("greedy", Greedy(prior, view=Lines()), 2),
    ]
    rows = setup.evaluate(task, methods, BUDGETS)
    return Results("room-lines", setup.preset, "rooms", rows, {"prior": fingerprint(prior)})


def section(results: Results) -> Section:
    """One table and one figure."""
    words = "Wrong pixels per room, out of 256; in parentheses the fraction of rooms that are exactly right."
    picture = Picture("room-lines.png", against_budget(results.rows, ("errors", "psnr")), "Against the budget.")
    lines = table(results.rows, "Which lines to measure", "errors", corner="method")
    return Section("Lines of a room", [words], [lines], [picture], results)


EXPERIMENT = Experiment("room-lines", run, section)
