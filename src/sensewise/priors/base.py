"""What every prior is: tokens in, a prediction of every site out.

Hidden sites carry the predictive distribution over the N data states; observed sites are certain, so their entropy is
exactly 0. A prediction never depends on the other images of the batch.
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Generator, Tensor, nn

from sensewise.errors import ConfigError, DataError
from sensewise.predictions import Prediction
from sensewise.tokens import MASK, UNKNOWN, Place, dequantize, pack, quantize

NEEDED = {
    "channels": "1 for grey images",
    "num_states": "2 for black and white",
    "num_labels": "None for a prior that takes no label",
    "size": "(H, W), or None for images of any size",
}
"""What every prior says of itself, and examples of it."""


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

    def __getattr__(self, name: str) -> Any:
        """What is missing from a prior of one's own, in a sentence; all else as torch has it."""
        kind = type(self).__name__
        if name.startswith("_") and not name.startswith("__") and "_modules" not in vars(self):
            raise ConfigError(f"{kind} is not ready: call super().__init__() first in its __init__")
        if name in NEEDED:
            raise ConfigError(f"{kind} does not say its {name}: set self.{name} in its __init__ ({NEEDED[name]})")
        return super().__getattr__(name)

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
        return self._checked(self.predict(y, labels, t), y).given(y)

    def _checked(self, found: Prediction, y: Tensor) -> Prediction:
        """What `predict` returned; refuses what is no prediction of every site."""
        wanted, name = (len(y), self.channels, *y.shape[2:]), f"{type(self).__name__}.predict"
        if not isinstance(found, Prediction):
            raise ConfigError(
                f"{name} returned a {type(found).__name__}: return a Prediction, such as Categorical(log_probs)"
            )
        if (found.shape, found.num_states) != (wanted, self.num_states):
            raise ConfigError(
                f"{name} returned sites of shape {found.shape} with {found.num_states} states: {wanted} with "
                f"{self.num_states} states are needed"
            )
        return found

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

    def certain(self, y: Tensor) -> Tensor:
        """True where a site is known for certain, `(B, C, H, W)`."""
        return self.seen(y)

    def reveal(self, y: Tensor, sites: Tensor, tokens: Tensor) -> Tensor:
        """The observation `y` with some sites known for certain, all with shape `(B, C, H, W)`."""
        return torch.where(sites, tokens, y)

    def as_tokens(self, y: Tensor) -> Tensor:
        """An observation of which every site is certain as tokens, `(B, C, H, W)`."""
        return y

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
        return torch.cat([function(self(*part)) for part in self._parts(y, self.check(y, label), chunk)])

    @property
    def takes(self) -> tuple[int, int, int | None, tuple[int, int] | None]:
        """What it is asked about: channels, states, labels, size. Priors that agree in it can stand for each other."""
        return self.channels, self.num_states, self.num_labels, self.size

    @torch.inference_mode()
    def maps(self, function: Callable[[Prediction], Tensor], y: Tensor, label: Tensor | None) -> Tensor:
        """The same for what a function says site by site: a large picture is looked at tile by tile.

        Args:
            function: such as `predictions.entropy`; its result has shape `(B, ..., H, W)`.
        """
        return torch.cat([self._map(function, *part) for part in self._parts(y, self.check(y, label))])

    def _map(self, function: Callable[[Prediction], Tensor], y: Tensor, label: Tensor) -> Tensor:
        whole = None
        for (rows, columns), prediction in self.tiles(y, label):
            found = function(prediction)
            if found.shape[-2:] == y.shape[-2:]:
                return found
            whole = found.new_empty(*found.shape[:-2], *y.shape[-2:]) if whole is None else whole
            whole[..., rows, columns] = found
        assert whole is not None
        return whole

    def tiles(self, y: Tensor, label: Tensor) -> Iterator[tuple[Place, Prediction]]:
        """The prediction of all sites, some rows and columns at a time where memory would not do; else all at once."""
        yield (slice(None), slice(None)), self(y, label)

    @staticmethod
    def _parts(y: Tensor, labels: Tensor, chunk: int = 64) -> Iterator[tuple[Tensor, Tensor]]:
        """Some images at a time: `chunk` of 32 x 32, fewer of larger ones."""
        chunk = max(1, chunk * 32 * 32 // max(1024, y.shape[2] * y.shape[3]))
        return zip(torch.split(y, chunk), torch.split(labels, chunk), strict=True)

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
        x = (y if y.is_floating_point() else y.long()).repeat(samples, 1, 1, 1)  # (samples B, C, H, W)
        labels = None if label is None else label.repeat(samples)
        first = self.certain(y)
        start = 0.0 if y.is_meta else int(first.sum()) / first.numel()
        survival = torch.linspace(start, 1.0, steps + 1, dtype=torch.float64)

        def draw(prediction: Prediction) -> Tensor:
            return prediction.sample(1, generator)[0]

        for r in range(steps):
            hidden = ~self.certain(x)
            if not x.is_meta and not bool(hidden.any()):
                break
            reveal = float((survival[r + 1] - survival[r]) / (1 - survival[r])) if r < steps - 1 else 1.0
            noise = torch.rand(hidden.shape, generator=generator, device=generator.device).to(x.device)
            x = self.reveal(x, hidden & (noise < reveal), self.in_chunks(draw, x, labels))
        return self.as_tokens(x).view(samples, *first.shape)


class NoisyPrior(Prior):
    """Base of every prior that takes readings `(B, 2 C, H, W)`, values and their noise (see `tokens.pack`)."""

    def blank(self, size: tuple[int, int]) -> Tensor:
        nothing = torch.full((1, self.channels, *size), torch.nan)
        return pack(nothing, torch.zeros_like(nothing))

    def seen(self, y: Tensor) -> Tensor:
        return ~y[:, : self.channels].isnan()

    def certain(self, y: Tensor) -> Tensor:
        return self.seen(y) & (y[:, self.channels :] == 0)

    def reveal(self, y: Tensor, sites: Tensor, tokens: Tensor) -> Tensor:
        values, noise = y.chunk(2, dim=1)
        return pack(torch.where(sites, dequantize(tokens, self.num_states), values), torch.where(sites, 0.0, noise))

    def as_tokens(self, y: Tensor) -> Tensor:
        return quantize(y[:, : self.channels].clamp(0, 1), self.num_states)
