"""A prior's card: what it was trained on, how large it is, how long it took, how well it does, which weights these are.

`training.fit` writes the time and the last validation into `config.json`; a run that is not complete has its log.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sensewise.checkpoint import fingerprint, load_prior, read_json, resolve
from sensewise.data.catalog import CATALOG

UNKNOWN = "not recorded"


@dataclass(frozen=True)
class Card:
    """What a person asks about a prior.

    Attributes:
        name: bundled name or run folder.
        data: name of the data set.
        licence: of the data.
        shape: `(C, H, W)`.
        num_states: data states `N`.
        num_labels: classes, or None.
        network: its name.
        parameters: how many.
        steps: optimiser steps, or None where not recorded.
        minutes: of training, or None.
        validation: named numbers on held-out images, in the order in which they were logged.
        sha256: fingerprint of the weights.
    """

    name: str
    data: str
    licence: str
    shape: tuple[int, int, int]
    num_states: int
    num_labels: int | None
    network: str
    parameters: int
    steps: int | None
    minutes: float | None
    validation: dict[str, float]
    sha256: str

    def lines(self) -> list[tuple[str, str]]:
        """Names and values, as a person reads them."""
        channels, height, width = self.shape
        labels = "none" if self.num_labels is None else str(self.num_labels)
        values = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in self.validation.items())
        minutes = UNKNOWN if self.minutes is None else f"{self.minutes:g} minutes"
        steps = "" if self.steps is None else f", {self.steps:,} steps"
        return [
            ("data", self.data),
            ("licence of the data", self.licence),
            ("images", f"{height} x {width}, {channels} channel{'s' * (channels > 1)}, {self.num_states} states"),
            ("labels", labels),
            ("network", f"{self.network}, {self.parameters:,} parameters"),
            ("trained", minutes + steps),
            ("validation", values or UNKNOWN),
            ("sha256 of the weights", self.sha256),
        ]


def card(name_or_run: str | Path) -> Card:
    """The card of a bundled prior or of a run folder."""
    folder = resolve(name_or_run)
    config, prior = read_json(folder / "config.json"), load_prior(name_or_run)
    trained = config.get("trained") or {}
    data = str(config.get("data", UNKNOWN))
    return Card(
        name=str(name_or_run),
        data=data,
        licence=str(config.get("licence") or (CATALOG[data].licence if data in CATALOG else UNKNOWN)),
        shape=prior.shape,
        num_states=prior.num_states,
        num_labels=prior.num_labels,
        network=str(config["model"]["network"]),
        parameters=sum(p.numel() for p in prior.parameters()),
        steps=trained.get("steps"),
        minutes=trained.get("minutes"),
        validation=trained.get("validation") or _last_logged(folder / "log.jsonl"),
        sha256=fingerprint(prior),
    )


def _last_logged(path: Path) -> dict[str, float]:
    """The last line of a training log, without what is not validation; empty where there is none."""
    try:
        last: dict[str, Any] = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return {}
    return {name: value for name, value in last.items() if name not in ("step", "seconds", "loss")}
