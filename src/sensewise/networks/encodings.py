"""How tokens enter a network and how its outputs become logits. Stateless: all weights are the network's."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from sensewise.networks.push_pull import push_pull
from sensewise.tokens import MASK, quantize, unpack


class Encoding(ABC):
    """Base of every encoding.

    Attributes:
        inputs: feature channels of a pixel.
        outputs: raw output channels of a pixel.
    """

    inputs: int
    outputs: int

    def __init__(self, channels: int, num_states: int) -> None:
        self.channels, self.num_states = channels, num_states

    @abstractmethod
    def encode(self, y: Tensor) -> Tensor:
        """Tokens `(B, C, H, W)` to features `(B, inputs, H, W)`."""

    @abstractmethod
    def logits(self, raw: Tensor, features: Tensor) -> Tensor:
        """Raw outputs `(B, outputs, H, W)` and the features to logits `(B, C, H, W, N)`."""


class OneHot(Encoding):
    """One input a state, one output a data state: nothing is assumed about the states."""

    def __init__(self, channels: int, num_states: int) -> None:
        super().__init__(channels, num_states)
        self.inputs, self.outputs = channels * (num_states + 1), channels * num_states

    def encode(self, y: Tensor) -> Tensor:
        if y.is_floating_point():  # relaxed indicators (B, C, N + 1, H, W): what a straight-through gradient needs
            return y.flatten(1, 2)
        states = torch.arange(MASK, self.num_states + 1, device=y.device).view(1, 1, -1, 1, 1)
        return (y.unsqueeze(2) == states).float().flatten(1, 2)  # (B, C (N + 1), H, W)

    def logits(self, raw: Tensor, features: Tensor) -> Tensor:
        batch, _, height, width = raw.shape
        return raw.view(batch, self.channels, self.num_states, height, width).movedim(2, -1)  # (B, C, H, W, N)


class Ordinal(Encoding):
    r"""States are ordered levels: intensities in, a discrete Gaussian around an interpolation out.

    The input holds the observed intensities, the mask and a push-pull interpolation $g$ of what is observed. A site's
    logits are $r_k - \left(\frac{v_k - \mu}{2 b}\right)^2$ with $\mu = g + \delta$, levels $v_k$, and the raw outputs
    $\delta, \log b, r_k$, b in units of a level. With all of them zero the prediction is centred on the interpolation.
    """

    def __init__(self, channels: int, num_states: int) -> None:
        super().__init__(channels, num_states)
        self.inputs, self.outputs = 3 * channels, channels * (num_states + 2)

    def encode(self, y: Tensor) -> Tensor:
        seen = (y != MASK).float()
        values = torch.where(y == MASK, 0.0, 2 * (y.float() - 1) / (self.num_states - 1) - 1)
        return torch.cat([values, seen, push_pull(values, seen)], dim=1)  # (B, 3 C, H, W)

    def logits(self, raw: Tensor, features: Tensor) -> Tensor:
        batch, _, height, width = raw.shape
        raw = raw.view(batch, self.channels, self.num_states + 2, height, width)
        shift, log_scale, free = raw[:, :, :1], raw[:, :, 1:2], raw[:, :, 2:]
        centre = features[:, -self.channels :].unsqueeze(2) + shift  # (B, C, 1, H, W)
        levels = torch.linspace(-1, 1, self.num_states, device=raw.device).view(-1, 1, 1)
        rate = torch.exp(-log_scale.clamp(-6, 4)) * ((self.num_states - 1) / 4)  # b = one level, at the start
        return (free - ((levels - centre) * rate).square()).movedim(2, -1)  # (B, C, H, W, N)


class Scalar(OneHot):
    """One number a channel, as the paper's convolutional network sees a token: 0 (hidden), 1..N, scaled to [-1, 1].

    Hidden lies at one end of the scale, so a relaxed white pixel passes "black" on its way from hidden to white.
    """

    def __init__(self, channels: int, num_states: int) -> None:
        super().__init__(channels, num_states)
        self.inputs = channels

    def encode(self, y: Tensor) -> Tensor:
        return scalars(y, self.num_states)


class Noisy(OneHot):
    r"""Readings that may be wrong: how probable each state makes the reading, and the entropy of that.

    A noiseless reading looks as to `OneHot`, with a further 0; $p$ is the probability that a reading names another
    state.
    """

    def __init__(self, channels: int, num_states: int) -> None:
        super().__init__(channels, num_states)
        self.inputs = channels * (num_states + 2)

    def encode(self, y: Tensor) -> Tensor:
        """Readings `(B, 2 C, H, W)` (see `tokens.pack`), or tokens `(B, C, H, W)`, to features."""
        if not y.is_floating_point():
            return torch.cat([super().encode(y), torch.zeros(y.shape, device=y.device)], dim=1)
        values, wrong, seen = unpack(y)
        hits = super().encode(torch.where(seen, quantize(values, self.num_states), MASK))  # (B, C (N + 1), H, W)
        hits = hits.view(len(y), self.channels, self.num_states + 1, *y.shape[2:])
        p = wrong.unsqueeze(2)
        soft = torch.where(hits == 1, 1 - p, p / (self.num_states - 1))
        hidden = hits[:, :, :1]
        soft = torch.cat([hidden, torch.where(hidden == 1, 0.0, soft[:, :, 1:])], dim=2)
        unsure = torch.special.entr(soft[:, :, 1:]).sum(2)  # (B, C, H, W)
        return torch.cat([soft.flatten(1, 2), unsure], dim=1)


ENCODINGS: dict[str, type[Encoding]] = {"one-hot": OneHot, "ordinal": Ordinal, "scalar": Scalar, "noisy": Noisy}


def scalars(y: Tensor, num_states: int) -> Tensor:
    """Tokens `(B, C, H, W)`, or relaxed indicators `(B, C, N + 1, H, W)`, to numbers in [-1, 1]; hidden is -1."""
    if y.is_floating_point():
        states = torch.arange(num_states + 1, device=y.device, dtype=y.dtype).view(1, 1, -1, 1, 1)
        y = (y * states).sum(2)  # (1 - m) * 0 + m * token
    return 2 * y.float() / num_states - 1
