"""What every data set is here: scenes to be measured, what is known about them, and where they come from."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from rich.console import Console
from torch import Tensor

from sensewise.data.crops import Pictures
from sensewise.errors import DataError

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Scenes:
    """Token images with labels, or fully sampled MR slices.

    Attributes:
        name: of the data set.
        split: "train", "validation" or "test"; "train" or "val" for slices, as fastMRI calls them.
        values: tokens 1..N, uint8 `(n, C, H, W)`, or intensities in [0, 1], float32 `(n, C, H, W)`, or complex k-space
            with zero frequency in the centre, `(n, H, W)`.
        labels: int64 `(n,)`, or None.
        num_states: `N`, or None for slices and intensities.
        num_labels: classes, or None.
        licence: of the data, where it is known.
        sources: where each scene comes from, where that is known.
    """

    name: str
    split: str
    values: Tensor
    labels: Tensor | None = None
    num_states: int | None = None
    num_labels: int | None = None
    licence: str = ""
    sources: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Tensor | slice) -> tuple[Tensor, Tensor | None]:
        """Some scenes, tokens as int64, and their labels `(B,)`."""
        values = self.values[index]
        whole = values.is_complex() or values.is_floating_point()
        return values if whole else values.long(), None if self.labels is None else self.labels[index]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one scene: `(C, H, W)` or `(H, W)`."""
        return tuple(self.values.shape[1:])

    def part(self, scenes: slice) -> Self:
        """Some of the scenes, in file order."""
        labels = None if self.labels is None else self.labels[scenes]
        return replace(self, values=self.values[scenes], labels=labels, sources=self.sources[scenes])

    def first(self, count: int) -> Self:
        """The first scenes, in file order."""
        return self.part(slice(0, count))

    def bundled(self, count: int | None) -> Self:
        """The first `count` of the scenes that come with the package; None for all of them."""
        if count is None:
            return self
        if not 1 <= count <= len(self):
            raise DataError(f"{count} scenes of {self.name} are not possible: the package holds 1 to {len(self)}")
        return self.first(count)

    def hold_out(self) -> tuple[Self, Self]:
        """All but the last to learn from, and the last (64, or an eighth of fewer) to look at while training."""
        kept = len(self) - min(64, max(1, len(self) // 8))
        return self.first(kept), self.part(slice(kept, None))


Root = str | Path | None
"""The folder of all data sets; None for `sources.data_root()`."""


@dataclass(frozen=True)
class Dataset:
    """A data set by name. To add one: a file with one of these, given as `module:NAME` on the command line.

    Attributes:
        name: as on the command line and in results.
        title: for people.
        licence: of the data.
        load: a split and the folder of all data sets to scenes.
        classes: names of the labels, in order; empty where there are none.
        fetch: brings the files into the folder of all data sets and says where they are; None if it cannot.
        bundled: the first so many (None: all) of the scenes that come with the package; None if there are none.
        pictures: the same as `load` for pictures of many sizes, from which priors over readings are trained.
    """

    name: str
    title: str
    licence: str
    load: Callable[[str, Root], Scenes]
    classes: tuple[str, ...] = ()
    fetch: Callable[[Root, Console], Path] | None = None
    bundled: Callable[[int | None], Scenes] | None = None
    pictures: Callable[[str, Root], Pictures] | None = None


def check_split(split: str) -> None:
    """Refuse a split that images do not have."""
    if split not in SPLITS:
        raise DataError(f"split {split!r} is not known: train, validation or test")


def held_out(split: str, count: int) -> slice:
    """Where a split lies in its file: the last `count` of the training file are for validation."""
    return {"train": slice(None, -count), "validation": slice(-count, None), "test": slice(None)}[split]
