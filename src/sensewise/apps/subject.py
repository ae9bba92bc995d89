"""What `sensewise acquire` measures, and what the user may ask for; the kinds of subject are in files of their own."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

import torch

from sensewise.data.stored import Axis


@dataclass(frozen=True)
class Settings:
    """What the user asked for; None for what fits the source.

    Attributes:
        budget: a fraction or a count of the pixels or rows.
        steps: `R`.
        policy: a name, `module:Class`, or for rows a mask file.
        prior: for pictures: a bundled name or a run folder.
        label: for pictures: the class.
        samples: for pictures: how many possible images to draw; None for 4, or none for pictures of any size.
        noise: for pictures of any size: of a reading, such as `0.05` or `poisson:200`.
        stop: for pictures: when it is good enough, such as `psnr:30`, `errors:3` or `psnr:30 with 90%`.
        preset: for k-space: sizes and trained models.
        reconstructor: its name.
        axis: for k-space: which axis of a file is phase-encoded.
        slice: for k-space: which slice of a file, from 0; None for the middle one.
        seed: of everything random.
    """

    budget: float | int | None = None
    steps: int | None = None
    policy: str | None = None
    prior: str | None = None
    label: int | None = None
    samples: int | None = None
    noise: str | None = None
    stop: str | None = None
    preset: str = "cpu"
    reconstructor: str | None = None
    axis: Axis = "auto"
    slice: int | None = None
    seed: int = 0

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)


class Subject(ABC):
    """What is measured, and how its acquisition is shown."""

    @abstractmethod
    def acquire(self, settings: Settings, folder: Path) -> str:
        """Measure it, write the files into an empty folder, and say in a sentence how it went."""
