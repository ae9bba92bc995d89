"""How tokens enter a network and how its outputs become logits. Stateless: all weights are the network's."""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor

from sensewise.tokens import MASK


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


ENCODINGS: dict[str, type[Encoding]] = {"one-hot": OneHot, "ordinal": Ordinal, "scalar": Scalar}


def scalars(y: Tensor, num_states: int) -> Tensor:
    """Tokens `(B, C, H, W)`, or relaxed indicators `(B, C, N + 1, H, W)`, to numbers in [-1, 1]; hidden is -1."""
    if y.is_floating_point():
        states = torch.arange(num_states + 1, device=y.device, dtype=y.dtype).view(1, 1, -1, 1, 1)
        y = (y * states).sum(2)  # (1 - m) * 0 + m * token
    return 2 * y.float() / num_states - 1


def push_pull(values: Tensor, seen: Tensor) -> Tensor:
    """Fill the holes of an image from coarser and coarser averages of what is seen.

    Gortler et al., "The lumigraph", 1996.

    Args:
        values: intensities times `seen`, with shape `(B, C, H, W)`.
        seen: confidence from 0 (a hole) to 1, same shape.

    Returns:
        The filled image, same shape; 0 everywhere if nothing is seen.
    """
    if min(values.shape[-2:]) == 1 or any(side % 2 for side in values.shape[-2:]):
        mean = values.sum((-2, -1), keepdim=True) / seen.sum((-2, -1), keepdim=True).clamp(min=1e-6)
        return values + (1 - seen) * mean
    share = F.avg_pool2d(seen, 2)
    trust = (4 * share).clamp(max=1)  # one seen pixel of four is enough to believe in the cell
    coarse = push_pull(F.avg_pool2d(values, 2) / share.clamp(min=1e-6) * trust, trust)
    smooth = F.interpolate(coarse, scale_factor=2.0, mode="bilinear", align_corners=False)
    return values + (1 - seen) * smooth
