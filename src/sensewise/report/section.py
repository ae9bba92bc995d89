"""One experiment in the report: what its `section(results)` returns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from sensewise.evaluate.results import Results
from sensewise.evaluate.rows import Row
from sensewise.report.figures.examples import examples
from sensewise.report.figures.style import DPI, SHEET_DPI, to_bytes
from sensewise.report.table import Table

STAGES = {"on-policy": "random masks, then its own greedy masks", "random-masks": "random masks only"}
"""What a prior was trained on, by the column `prior` of the results."""


@dataclass(frozen=True)
class Picture:
    """A figure, or the content of a GIF, with the name of its file and a caption.

    Attributes:
        dpi: dots per inch of its PNG; large sheets of pictures have fewer.
    """

    name: str
    content: Figure | bytes
    caption: str
    dpi: int = DPI

    def to_bytes(self) -> bytes:
        """The content of its file."""
        return self.content if isinstance(self.content, bytes) else to_bytes(self.content, dpi=self.dpi)


@dataclass(frozen=True)
class Section:
    """Tables, figures and what a reader must know to read them. What they mean is written by people, in docs/.

    Attributes:
        title: its heading.
        paragraphs: what was measured and how; no conclusions.
        tables: with their captions.
        figures: with theirs.
        source: the results file, or None for a part of a page.
    """

    title: str
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Picture] = ()
    source: Results | None = None


SectionOf = Callable[[Results], Section]
JointSection = Callable[[Mapping[str, Results]], Section | None]
"""A section made from the results of several experiments, by name; None while some of them are not there."""


def last_stage(rows: Sequence[Row]) -> list[Row]:
    """The rows of the last stage of the prior that there is."""
    known = {row.prior for row in rows}
    last = next((stage for stage in STAGES if stage in known), None)
    return [row for row in rows if row.prior == last]


def examples_picture(
    name: str, results: Results, levels: int, part: str, what: str = "What each method measures"
) -> Picture:
    """The examples of a part of the arrays, with a caption that explains their colours."""
    budget = float(results.arrays[f"{part}/budget"])
    shown = "measured pixels from dark to light, grey where hidden; reconstruction, wrong pixels orange"
    if levels > 2:
        shown = "measured pixels from dark to light, grey where hidden; posterior mean; its errors"
    caption = f"{what} at s = {budget:g}: {shown}."
    return Picture(name, examples(results.arrays, levels, part), caption, SHEET_DPI)
