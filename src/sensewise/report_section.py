"""What a report is made of: sections with tables of rows and figures."""

from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Section:
    """One experiment in the report: tables of rows, figures by file name, and what a reader should know."""

    title: str
    text: list[str]
    tables: list[tuple[str, Rows]]
    figures: dict[str, tuple[Figure | bytes, str]]
    results: dict[str, Any]
