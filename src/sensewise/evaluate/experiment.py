"""An experiment: one file per table or figure, found by name and run with a setup."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any

from rich.progress import Progress

from sensewise.errors import ConfigError
from sensewise.evaluate.evaluate import Published, evaluate
from sensewise.evaluate.journal import Journal, code_digest
from sensewise.evaluate.kept import Kept
from sensewise.evaluate.method import Contender
from sensewise.evaluate.results import Results
from sensewise.evaluate.rows import Row
from sensewise.evaluate.task import Task
from sensewise.files import from_text
from sensewise.priors.engines import EngineName


def _silent() -> Progress:
    return Progress(disable=True)


@dataclass(frozen=True)
class Setup:
    """What a run of an experiment is given.

    Attributes:
        preset: whose models are measured: a bundled name, or the path of a TOML file.
        seeds: of everything random.
        journal: remembers measurements.
        progress: shows how far it is; silent by default.
        kept: rows of an earlier file, which are not measured again.
        engine: what computes the networks of priors over images.
    """

    preset: str = "cpu"
    seeds: Sequence[int] = range(5)
    journal: Journal = field(default_factory=Journal)
    progress: Progress = field(default_factory=_silent)
    kept: Kept | None = None
    engine: EngineName = "torch"

    def evaluate(
        self, task: Task, methods: Sequence[Contender], budgets: Sequence[float], paper: Published | None = None
    ) -> list[Row]:
        """`evaluate` with these seeds, this journal and this progress bar."""
        return evaluate(
            task,
            methods,
            budgets,
            self.seeds,
            journal=self.journal,
            progress=self.progress,
            paper=paper,
            kept=self.kept,
        )


@dataclass(frozen=True)
class Experiment:
    """One table or figure.

    Attributes:
        name: its name in results and on the command line.
        run: measures everything.
        section: makes its section of the report from `results/NAME.json`; None for an experiment without one.
        code: further modules that what is measured depends on, such as that of a policy of one's own.
    """

    name: str
    run: Callable[[Setup], Results]
    section: Callable[..., Any] | None = None
    code: tuple[ModuleType, ...] = ()

    def digest(self) -> str:
        """The digest of all code that it depends on: measurements of different code are never mixed."""
        return code_digest(self.run, *self.code)


class Experiments(Mapping[str, Experiment]):
    """Experiments by name, each imported when it is first asked for, so that listing them is quick.

    Args:
        homes: the package of each, such as "sensewise.paper"; `mnist-sequential` is `EXPERIMENT` in its module
            `mnist_sequential`.
    """

    def __init__(self, homes: Mapping[str, str]) -> None:
        self.homes = dict(homes)

    def __getitem__(self, name: str) -> Experiment:
        found: Experiment = import_module(f"{self.homes[name]}.{name.replace('-', '_')}").EXPERIMENT
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.homes)

    def __len__(self) -> int:
        return len(self.homes)

    def find(self, name: str) -> Experiment:
        """The experiment of that name, or that of another module, `module:NAME`; refuses one that there is not."""
        if ":" in name:
            return from_text(name, Experiment)
        if name not in self.homes:
            raise ConfigError(f"no experiment {name!r}: choose one of {', '.join(self.homes)}")
        return self[name]
