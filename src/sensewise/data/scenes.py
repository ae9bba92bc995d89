"""What every data set is here: scenes to be measured, and what is known about them."""

from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor


@dataclass(frozen=True)
class Scenes:
    """Token images with labels, or fully sampled MR slices.

    Attributes:
        name: of the data set.
        split: "train", "validation" or "test".
        values: tokens 1..N, uint8 `(n, C, H, W)`, or complex k-space with zero frequency in the centre, `(n, H, W)`.
        labels: int64 `(n,)`, or None.
        num_states: `N`, or None for slices.
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
        return values if values.is_complex() else values.long(), None if self.labels is None else self.labels[index]

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

    def hold_out(self) -> tuple[Self, Self]:
        """All but the last to learn from, and the last (64, or an eighth of fewer) to look at while training."""
        kept = len(self) - min(64, max(1, len(self) // 8))
        return self.first(kept), self.part(slice(kept, None))
