"""A trained prior: a network, and the absorbing process that it was trained on."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sensewise.diffusion import AbsorbingProcess
from sensewise.errors import ConfigError
from sensewise.predictions import Categorical
from sensewise.priors.base import Prior
from sensewise.priors.engines import EngineName, Network, OnnxNetwork, RoundedNetwork, fastest
from sensewise.tokens import BLACK, MASK, UNKNOWN


class AbsorbingPrior(Prior):
    """A network trained on an absorbing process (a discrete diffusion model with a mask state).

    Images whose sides are not multiples of `network.multiple` are padded with hidden pixels for the network.

    Args:
        network: maps tokens, labels (`num_labels` = unknown) and survival to logits `(B, C, H, W, N)`.
        channels: `C`.
        num_states: data states `N`.
        num_labels: classes, or None.
        size: `(H, W)` that it is for, or None for any.
        time_input: give the network the survival of the timestep; without it, the network sees 0 always.
        mask_state: whether "unobserved" has a state of its own; without it the network cannot tell an observed black
            pixel from an unobserved one (the control of Appendix E of the paper).

    Attributes:
        engine: what computes the network, "torch", "onnx" or "bfloat16".
    """

    engine: EngineName = "torch"

    def __init__(
        self,
        network: nn.Module,
        channels: int,
        num_states: int,
        num_labels: int | None,
        *,
        size: tuple[int, int] | None = None,
        time_input: bool = True,
        mask_state: bool = True,
        timesteps: int = 1000,
    ) -> None:
        super().__init__()
        self.network = network
        self.channels, self.num_states, self.num_labels, self.size = channels, num_states, num_labels, size
        self.time_input, self.mask_state = time_input, mask_state
        self.process = AbsorbingProcess(timesteps)
        self._network: Network | None = None  # another engine than PyTorch

    def run_with(self, engine: EngineName) -> None:
        """Compute the network, as it is now, with another engine; "fastest" takes the best one that is installed."""
        chosen = fastest() if engine == "fastest" else engine
        if chosen not in ("torch", "onnx", "bfloat16"):
            raise ConfigError(f"engine {engine!r} is not known: torch, onnx, bfloat16, fastest")
        rounded = RoundedNetwork(self.network) if chosen == "bfloat16" else None
        self._network = OnnxNetwork(self.network, self._padded()) if chosen == "onnx" else rounded
        self.engine = chosen

    def _padded(self) -> tuple[int, int, int]:
        """The shape that the network sees."""
        (channels, *sides), multiple = self.shape, int(self.network.multiple)  # type: ignore[arg-type]
        height, width = (side + -side % multiple for side in sides)
        return channels, height, width

    def extra_repr(self) -> str:
        return f"engine={self.engine}"

    def predict(self, y: Tensor, label: Tensor, t: Tensor | None) -> Categorical:
        if not self.time_input:
            survival = torch.zeros(len(y), device=y.device)
        elif t is None:
            density = (y != MASK).flatten(1).float().mean(1)
            survival = self.process.survival(self.process.timestep_for(density))
        else:
            survival = self.process.survival(t)
        label = torch.where(label == UNKNOWN, self.num_labels or 0, label)
        seen = y if self.mask_state else torch.where(y == BLACK, MASK, y)
        return ask(self.network, seen, label, survival, MASK, self._network)


def ask(
    network: nn.Module, y: Tensor, label: Tensor, survival: Tensor, hidden: float, engine: Network | None = None
) -> Categorical:
    """What a network says of observations `(B, ..., H, W)` of any size; `hidden` pads them to its multiples.

    Args:
        engine: computes the network in its place; None for PyTorch.
    """
    height, width = y.shape[-2:]
    multiple = int(network.multiple)  # type: ignore[arg-type]
    down, right = -height % multiple, -width % multiple
    if down or right:
        y = F.pad(y, (0, right, 0, down), value=hidden)
    logits = (engine or network)(y, label, survival)[:, :, :height, :width]  # (B, C, H, W, N)
    by_state = logits.movedim(-1, 2)  # (B, C, N, H, W): contiguous in most networks
    return Categorical(F.log_softmax(by_state, dim=2).movedim(2, -1))


def prior_options(model: Mapping[str, Any]) -> dict[str, Any]:
    """What `AbsorbingPrior` takes besides its network, from the `model` part of a config; refuses what cannot be."""
    channels, height, width = model["shape"]
    if not all(isinstance(n, int) and n >= 1 for n in (channels, height, width, model["num_states"])):
        raise ValueError("shape and num_states must be whole numbers above 0")
    return {
        "channels": channels,
        "num_states": model["num_states"],
        "num_labels": model["num_labels"],
        "size": (height, width),
        "time_input": model.get("time_input", True),
        "mask_state": model.get("mask_state", True),
    }
