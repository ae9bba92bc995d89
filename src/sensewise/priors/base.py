"""What every prior is: tokens in, a prediction of every site out.

Hidden sites carry the predictive distribution over the N data states; observed sites are certain, so their entropy is
exactly 0. A prediction never depends on the other images of the batch.
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from sensewise.errors import DataError
from sensewise.predictions import Prediction
from sensewise.tokens import MASK, UNKNOWN


class Prior(nn.Module, ABC):
    """Base of every prior.

    Attributes:
        channels: `C`.
        num_states: data states `N`.
        num_labels: classes, or None for a prior that takes no label.
        size: `(H, W)`, or None for a prior that takes images of any size.
    """

    channels: int
    num_states: int
    num_labels: int | None
    size: tuple[int, int] | None

    @abstractmethod
    def predict(self, y: Tensor, label: Tensor, t: Tensor | None) -> Prediction:
        """The raw prediction of every site, observed or not.

        Args:
            y: tokens, with shape `(B, C, H, W)`.
            label: labels 0..`num_labels - 1` or `UNKNOWN`, with shape `(B,)`.
            t: timesteps, with shape `(B,)`, or None for the ones that match the density of `y`.
        """

    def forward(self, y: Tensor, label: Tensor | None = None, t: Tensor | None = None) -> Prediction:
        """The prediction of every site, certain where observed; arguments as for `predict`."""
        labels = self.check(y, label)
        y = y if y.is_floating_point() else y.long()  # networks look tokens up by number; readings stay as they are
        return self.predict(y, labels, t).given(y)

    @property
    def shape(self) -> tuple[int, int, int]:
        """`(C, H, W)`; refuses a prior that takes any size, where the caller has to know the size."""
        if self.size is None:
            raise DataError("this prior takes images of any size: say which one, with shape=(C, H, W)")
        return (self.channels, *self.size)

    def blank(self, size: tuple[int, int]) -> Tensor:
        """The observation of one image of which nothing was seen."""
        return torch.full((1, self.channels, *size), MASK)

    def seen(self, y: Tensor) -> Tensor:
        """True where a site was observed, `(B, C, H, W)`."""
        return y != MASK

    def check(self, y: Tensor, label: Tensor | None) -> Tensor:
        """Labels `(B,)` with `UNKNOWN` for missing ones; refuses an observation or a label that does not fit."""
        sides = ("H", "W") if self.size is None else self.size
        if y.dim() != 4 or y.shape[1] != self.channels or (self.size is not None and tuple(y.shape[2:]) != self.size):
            wanted = ", ".join(map(str, ("B", self.channels, *sides)))
            raise DataError(f"this prior takes tokens of shape ({wanted}), got {tuple(y.shape)}")
        if not y.numel():
            raise DataError(f"a batch of shape {tuple(y.shape)} is empty: at least one image is needed")
        if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
            raise DataError(f"tokens must be whole numbers, got {y.dtype}: sensewise.quantize makes them")
        if not y.is_meta and not MASK <= int(y.min()) <= int(y.max()) <= self.num_states:
            raise DataError(f"tokens must be 0 (hidden) or 1..{self.num_states}, got {int(y.min())}..{int(y.max())}")
        if label is None:
            return torch.full((len(y),), UNKNOWN, device=y.device)
        if label.shape != y.shape[:1]:
            raise DataError(f"one label per image is needed, shape ({len(y)},), got {tuple(label.shape)}")
        if label.is_floating_point() or label.is_complex() or label.dtype == torch.bool:
            raise DataError(f"labels must be whole numbers, got {label.dtype}")
        for value in (int(label.min()), int(label.max())) if label.numel() and not label.is_meta else ():
            if value != UNKNOWN:
                self.known_label(value)
        return label

    def known_label(self, label: int | None) -> Tensor | None:
        """The label of one image as a tensor `(1,)`, None if it is not known; refuses one that is not a class."""
        if label is None:
            return None
        classes = self.num_labels or 0
        allowed = f"0..{classes - 1}" if classes else "none (this prior takes no labels)"
        try:
            number = operator.index(label)
        except TypeError as error:
            raise DataError(f"label {label!r} is not a whole number: allowed are {allowed}") from error
        if not 0 <= number < classes:
            raise DataError(f"label {number} is not possible: allowed are {allowed}; leave it out if it is not known")
        return torch.tensor([number])

    @torch.inference_mode()
    def in_chunks(
        self, function: Callable[[Prediction], Tensor], y: Tensor, label: Tensor | None, chunk: int = 64
    ) -> Tensor:
        """`function(self(y, label))`, some images at a time, so that memory stays small for any batch.

        Args:
            function: such as `predictions.entropy`; its result has the images first.
            chunk: images of 32 x 32 at a time; of larger ones fewer.
        """
        labels = self.check(y, label)
        chunk = max(1, chunk * 32 * 32 // max(1024, y.shape[2] * y.shape[3]))
        parts = zip(torch.split(y, chunk), torch.split(labels, chunk), strict=True)
        return torch.cat([function(self(part, part_label)) for part, part_label in parts])

    @torch.inference_mode()
    def sample(
        self, y: Tensor, label: Tensor | None, generator: Generator, *, steps: int = 64, samples: int = 1
    ) -> Tensor:
        """Joint samples of the hidden sites given `y`: the reverse process, with what is observed kept.

        From the survival of `y` to 1 in `steps` rounds; in each, every hidden site is revealed with the probability of
        the reverse step and takes a value drawn from the prediction. The last round reveals all that is left.

        Args:
            y: observation, with shape `(B, C, H, W)`.
            label: class labels `(B,)` or None.
            samples: how many images for each observation.

        Returns:
            Tokens without hidden sites, with shape `(samples, B, C, H, W)`.
        """
        self.check(y, label)
        x = y.long().repeat(samples, 1, 1, 1)  # (samples B, C, H, W)
        labels = None if label is None else label.repeat(samples)
        start = 0.0 if y.is_meta else int((y != MASK).sum()) / y.numel()
        survival = torch.linspace(start, 1.0, steps + 1, dtype=torch.float64)

        def draw(prediction: Prediction) -> Tensor:
            return prediction.sample(1, generator)[0]

        for r in range(steps):
            hidden = x == MASK
            if not x.is_meta and not bool(hidden.any()):
                break
            reveal = float((survival[r + 1] - survival[r]) / (1 - survival[r])) if r < steps - 1 else 1.0
            noise = torch.rand(x.shape, generator=generator, device=generator.device).to(x.device)
            x = torch.where(hidden & (noise < reveal), self.in_chunks(draw, x, labels), x)
        return x.view(samples, *y.shape)
