"""The demo: bundled models on bundled digits, photographs or knee slices, every method at four budgets."""

from collections.abc import Callable
from dataclasses import dataclass

from rich.progress import Progress

from sensewise import hub
from sensewise.data.cifar10 import bundled_cifar10
from sensewise.data.mnist import bundled_mnist
from sensewise.data.prepare import bundled_knee
from sensewise.data.scenes import Scenes
from sensewise.errors import CheckpointError, DataError
from sensewise.evaluate.experiment import Setup
from sensewise.evaluate.method import Method
from sensewise.evaluate.own_data import evaluate_prior
from sensewise.evaluate.results import Results
from sensewise.evaluate.task import row_task
from sensewise.paper import baselines, cifar10_sequential, mnist_sequential, models, mri_masks
from sensewise.paper.mri_models import MRIModels
from sensewise.policies.one_shot import OneShot
from sensewise.priors.base import Prior


@dataclass(frozen=True)
class Demo:
    """One choice of bundled data.

    Attributes:
        count: scenes that take about a minute.
        title: of its table; `{}` is the number of scenes.
        metric: that the table shows.
        run: count, seed, progress and the name of a prior (or, for slices, of a preset) to results.
    """

    count: int
    title: str
    metric: str
    run: Callable[[int, int, Progress | None, str], Results]
    prior: str


def _on_pixels(
    images: Scenes,
    prior: Prior,
    methods: list[Method],
    metrics: tuple[str, ...] | None,
    budgets: tuple[float, ...],
    seed: int,
    progress: Progress | None,
) -> Results:
    """Methods and, where there is one for this prior, the bundled designer's masks."""
    notes = []
    try:
        designer = models.designer(hub.SHIPPED, images.name, prior)
        methods = [*methods, Method("one-shot", OneShot(designer))]
    except CheckpointError as error:
        notes.append(f"One-shot masks were left out: {error}")
    results = evaluate_prior(
        prior,
        images,
        Setup(seeds=range(seed, seed + 1), progress=progress or Progress(disable=True)),
        methods=methods,
        metrics=metrics,
        budgets=budgets,
        paper=baselines.PARTS[images.name].paper,
        name="demo",
    )
    return results.adding(notes=notes)


def on_digits(count: int, seed: int, progress: Progress | None = None, prior: str = "mnist") -> Results:
    """The first `count` bundled digits."""
    believed = hub.load_prior(prior)
    methods, metrics = mnist_sequential.methods(believed), ("errors", "exact")
    return _on_pixels(bundled_mnist(count), believed, methods, metrics, mnist_sequential.BUDGETS, seed, progress)


def on_photographs(count: int, seed: int, progress: Progress | None = None, prior: str = "cifar10") -> Results:
    """The first `count` bundled photographs, in 16 steps."""
    believed = hub.load_prior(prior)
    methods = cifar10_sequential.in_one_or_sixteen(believed)
    return _on_pixels(bundled_cifar10(count), believed, methods, None, cifar10_sequential.BUDGETS, seed, progress)


def on_knees(count: int, seed: int, progress: Progress | None = None, preset: str = "cpu") -> Results:
    """Rows of k-space for the first `count` bundled knee slices: heuristics, the searched masks and plans of rows."""
    found = MRIModels(preset)
    knee = bundled_knee((found.mri.rows, found.mri.columns))
    if not 1 <= count <= len(knee):
        raise DataError(f"the package holds 1 to {len(knee)} knee slices, {count} were asked for")
    found.notes.append("U-Nets, masks and plans were trained on brains (brain-t1): none of them has seen a knee.")
    planned, masks = found.planned((1,))[:1], found.static(("static-search", "loupe"))
    task = row_task(knee.first(count), found.judges(), found.mri.acs)
    setup = Setup(preset, range(seed, seed + 1), progress=progress or Progress(disable=True))
    return mri_masks.measure(setup, "demo", found, task, masks, planned)


DEMOS = {
    "mnist": Demo(256, "MNIST, {} test digits", "errors", on_digits, "mnist"),
    "cifar10": Demo(32, "CIFAR-10, {} test photographs", "psnr", on_photographs, "cifar10"),
    "knee": Demo(4, "Knee, {} slices, judged by U-Net B", "nmse", on_knees, "cpu"),
}
"""What the demo can show, by name of the data set."""
