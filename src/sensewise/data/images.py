"""What every image data set is here: tokens, labels and how to read them."""

from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor


@dataclass(frozen=True)
class Images:
    """Discrete images with labels.

    Attributes:
        name: of the data set.
        split: "train", "validation" or "test".
        tokens: 1..N, uint8 `(n, C, H, W)`; index it to get the int64 tokens that priors take.
        labels: int64 `(n,)`, or None.
        num_states: `N`.
        num_labels: classes, or None.
        licence: of the images, where it was given.
    """

    name: str
    split: str
    tokens: Tensor
    labels: Tensor | None
    num_states: int
    num_labels: int | None
    licence: str = ""

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: Tensor | slice) -> tuple[Tensor, Tensor | None]:
        """Tokens int64 `(B, C, H, W)` and labels `(B,)`."""
        return self.tokens[index].long(), None if self.labels is None else self.labels[index]

    def first(self, count: int) -> Self:
        """The first images, in file order."""
        labels = None if self.labels is None else self.labels[:count]
        return replace(self, tokens=self.tokens[:count], labels=labels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """`(C, H, W)`."""
        return (self.tokens.shape[1], self.tokens.shape[2], self.tokens.shape[3])
