"""One row of results: every column that some table needs is declared here, and nowhere else."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from sensewise.errors import DataError


@dataclass(frozen=True)
class Row:
    """What one method reached at one budget, by one metric.

    Attributes:
        dataset: what was measured.
        method: its name in results.
        steps: `R`.
        budget: the fraction that was asked for.
        density: the fraction that was measured, averaged over scenes and seeds.
        metric: its name in results.
        mean: over scenes and seeds; None where it is not a number.
        sd: the sample standard deviation over seeds; None where it is not a number.
        images: how many scenes.
        seeds: how many seeds; 1 for a method without randomness.
        paper: the paper's value, or None.
        prior: which stage of the prior chose or reconstructed.
        reconstructor: who reconstructed, where there are several.
        summary: which summary a designer saw: own, another, none or unused.
        form: of a value or a plan.
        scout: whose scout a row policy saw, where it was not its own.
        slices: which of the held-out slices.
        masks: how LOUPE's masks were drawn: top-k or sampled.
        better: whether that is the better of the two.
        generator: which designer a gradient belongs to.
        surrogate: which loss it is of.
        part: of the loss: entropy or loss.
        samples: how many draws were averaged.
        wins: in how many seeds a method was better than its control.
        paper_wins: the same in the paper.
        evaluation_seeds: seeds of the evaluation, where `seeds` counts trainings.
        split: of the data, where it is not a paper's.
        noise: standard deviation or probability of a reading's error.
        travel: length of the path between readings.
        picture: which picture.
        side: its height and width.
        stop: the level that a stop waits for: expected errors, or an expected PSNR in dB.
        promise: how probable it should be that the level is kept.
        guide: which small prior decided.
        weights: how many that one has.
        commit: of the code that measured it, where that is not the commit of its file.
    """

    dataset: str
    method: str
    steps: int
    budget: float
    density: float
    metric: str
    mean: float | None
    sd: float | None
    images: int
    seeds: int
    paper: float | None = None
    prior: str | None = None
    reconstructor: str | None = None
    summary: str | None = None
    form: str | None = None
    scout: str | None = None
    slices: str | None = None
    masks: str | None = None
    better: bool | None = None
    generator: str | None = None
    surrogate: str | None = None
    part: str | None = None
    samples: int | None = None
    wins: int | None = None
    paper_wins: int | None = None
    evaluation_seeds: int | None = None
    split: str | None = None
    noise: float | None = None
    travel: float | None = None
    picture: str | None = None
    side: int | None = None
    stop: float | None = None
    promise: float | None = None
    guide: str | None = None
    weights: int | None = None
    commit: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The columns that say something; mean, sd and paper always stand there."""
        always = {"mean", "sd", "paper"}
        return {name: value for name, value in vars(self).items() if value is not None or name in always}

    @classmethod
    def from_json(cls, table: Any, dataset: str) -> "Row":
        """A row of a results file, of this version or an older one; refuses words where numbers belong.

        Args:
            dataset: of the file, for rows that do not say theirs.
        """
        if not isinstance(table, Mapping):
            raise DataError("a row is a table")
        values = {name: value for name, value in table.items() if name in _KINDS}
        values.setdefault("dataset", dataset)
        if missing := sorted(_NEEDED - set(values)):
            raise DataError(f"a row needs {', '.join(missing)}")
        for name, value in values.items():
            if not fits(value, _KINDS[name], name not in _NEEDED or name in ("mean", "sd")):
                raise DataError(f"{name} cannot be {value!r:.40}")
        return cls(**values)


_KINDS = {name: (get_args(hint) or (hint,))[0] for name, hint in get_type_hints(Row).items()}
_NEEDED = {field.name for field in dataclasses.fields(Row) if field.default is dataclasses.MISSING}


def fits(value: Any, kind: type, optional: bool = False) -> bool:
    """Whether a value of a file is of a kind; numbers are finite and of a size that can be printed."""
    if value is None:
        return optional
    if isinstance(value, bool) is not (kind is bool):
        return False
    if isinstance(value, int | float) and not abs(value) < 1e300:
        return False
    return isinstance(value, int | float if kind is float else kind)


def summarise(per_seed: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean and sample standard deviation over seeds, rounded to six places; None where they are not numbers."""
    mean = sum(per_seed) / len(per_seed)
    spread = sum((value - mean) ** 2 for value in per_seed) / max(1, len(per_seed) - 1)
    return _rounded(mean), _rounded(math.sqrt(spread)) if math.isfinite(spread) else None


def _rounded(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


@dataclass(frozen=True)
class Speed:
    """One row of `sensewise bench`: a ratio or a time, and what it should be.

    Attributes:
        name: of the row.
        value: what was measured.
        at_least: what it should be at least, or None.
        at_most: what it should be at most, or None; without either bound it is only reported.
        details: what the value was made from.
    """

    name: str
    value: float
    at_least: float | None = None
    at_most: float | None = None
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def holds(self) -> bool | None:
        """Whether the value is within its bound; None where it has none."""
        if self.at_least is not None:
            return self.value >= self.at_least
        return None if self.at_most is None else self.value <= self.at_most

    def as_json(self) -> dict[str, Any]:
        """As `bench.json` holds it."""
        bounds = {"at_least": self.at_least} if self.at_least is not None else {"at_most": self.at_most}
        return {"row": self.name, "value": round(self.value, 4), **bounds, "holds": self.holds, **self.details}

    @classmethod
    def from_json(cls, table: Any) -> "Speed":
        """A row of `bench.json`."""
        try:
            named = {"row", "value", "at_least", "at_most", "holds"}
            details = {name: value for name, value in table.items() if name not in named}
            found = cls(table["row"], table["value"], table.get("at_least"), table.get("at_most"), details)
        except (AttributeError, KeyError, TypeError) as error:
            raise DataError(f"a row of speeds needs row and value: {error!r}") from error
        bounds = all(fits(bound, float, True) for bound in (found.at_least, found.at_most))
        if not (fits(found.name, str) and fits(found.value, float) and bounds):
            raise DataError(f"a row of speeds needs a name, and numbers as value and bounds: {found!r:.80}")
        return found
