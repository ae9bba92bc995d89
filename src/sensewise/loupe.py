r"""LOUPE: one learned probability for every action, trained together with a reconstruction network, budget by budget.

Its mask layers (Bahadir, Wang, Dalca and Sabuncu, "Deep-learning-based optimization of the under-sampling pattern in
MRI", 2020), here for actions of any shape, such as pixels `(H, W)` or k-space rows `(R,)`:

$$p = \sigma(5 w), \qquad \hat p = \begin{cases} \frac{s}{\bar p}\, p & \bar p \ge s \\
  1 - \frac{1 - s}{1 - \bar p} (1 - p) & \text{else} \end{cases}, \qquad m = \sigma(12 (\hat p - u)),$$

with $u$ uniform and drawn anew for every image. Side information plays no part: every image gets the same map.
"""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from sensewise import masks
from sensewise.checkpoint import load_run, model_part
from sensewise.data.images import Images
from sensewise.errors import CheckpointError, ConfigError
from sensewise.metrics import errors
from sensewise.networks import UNet
from sensewise.reconstruct import Reconstructor
from sensewise.sensors import Side
from sensewise.tokens import MASK, dequantize, observe, quantize, site_mask
from sensewise.training import Objective

PROBABILITY_SLOPE, THRESHOLD_SLOPE = 5.0, 12.0
MARGIN = 0.01  # fresh probabilities are uniform between this and one minus this


def rescale(probs: Tensor, budget: float) -> Tensor:
    """Probabilities of any shape moved so that their mean is the budget, and none leaves [0, 1]."""
    mean = probs.mean()
    if bool(mean >= budget):
        return probs * (budget / mean)
    return 1 - (1 - probs) * ((1 - budget) / (1 - mean))


def relaxed_mask(probs: Tensor, u: Tensor, slope: float = THRESHOLD_SLOPE) -> Tensor:
    """A soft threshold of the probabilities at uniform numbers: nearly 0 or 1, with a gradient; shape of `u`."""
    return torch.sigmoid(slope * (probs - u))


class ProbabilityMap(nn.Module):
    """Learned probabilities of the actions, rescaled to the budget.

    Args:
        shape: of the actions, such as `(H, W)` or `(R,)`.
        budget: the fraction of actions to be taken.
        slope: how fast a probability follows its weight.
    """

    def __init__(self, shape: tuple[int, ...], budget: float, slope: float = PROBABILITY_SLOPE) -> None:
        super().__init__()
        if not 0 < budget < 1:
            raise ConfigError(f"a LOUPE budget is a fraction between 0 and 1, got {budget}")
        self.budget, self.slope = budget, slope
        start = torch.rand(shape) * (1 - 2 * MARGIN) + MARGIN
        self.weight = nn.Parameter(torch.logit(start) / slope)

    def forward(self) -> Tensor:
        """Probabilities with mean `budget`, in the shape of the actions."""
        return rescale(torch.sigmoid(self.slope * self.weight), self.budget)


class Loupe(nn.Module):
    """LOUPE for pixels: a probability map and a U-Net of its own that reconstructs what the masks show.

    Args:
        shape: `(C, H, W)`.
        num_states: data states `N`.
        budget: the fraction of pixels.
        widths: channels of the U-Net at each resolution.
        blocks: residual blocks of the U-Net at each resolution.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        num_states: int,
        budget: float,
        widths: tuple[int, ...] = (32, 64, 128),
        blocks: tuple[int, ...] = (1, 1, 1),
    ) -> None:
        super().__init__()
        self.shape, self.num_states = shape, num_states
        self.map = ProbabilityMap(shape[1:], budget)
        self.network = UNet(shape[0], num_states, None, widths, blocks)

    def intensities(self, y: Tensor) -> Tensor:
        """The U-Net's prediction from tokens `(B, C, H, W)` or relaxed states: intensities `(B, C, H, W)`.

        They are linear in the network's last layer and not held within [0, 1]: under a mean absolute error a softmax
        that has once settled on the most frequent level has no gradient left.
        """
        nothing, levels = torch.zeros(len(y)), torch.linspace(0, 1, self.num_states)
        return (self.network(y, nothing.long(), nothing) * levels).sum(-1)

    def forward(self, x: Tensor, u: Tensor) -> Tensor:
        """Intensities after relaxed masks.

        Args:
            x: tokens, with shape `(B, C, H, W)`.
            u: uniform numbers, with shape `(B, H, W)`.

        Returns:
            Intensities, with shape `(B, C, H, W)`.
        """
        kept = site_mask(relaxed_mask(self.map(), u), self.shape)  # (B, C, H, W)
        shown = F.one_hot(x - 1, self.num_states).movedim(-1, 2) * kept.unsqueeze(2)
        states = torch.cat([1 - kept.unsqueeze(2), shown], dim=2)  # (B, C, N + 1, H, W)
        return self.intensities(states)

    @torch.inference_mode()
    def keep_logits(self, side: Side, batch: int) -> Tensor:
        """What the policy `OneShot` asks for: the log-odds of the learned map, the same for every image; `(B, K)`."""
        return torch.logit(self.map().flatten(), eps=1e-6).expand(batch, -1)


class LoupeReconstructor(Reconstructor):
    """LOUPE's own U-Net: intensities in [0, 1], exact where measured; `(B, C, H, W)`."""

    def __init__(self, loupe: Loupe, chunk: int = 128) -> None:
        self.loupe, self.chunk = loupe, chunk

    @torch.inference_mode()
    def __call__(self, observation: Tensor, mask: Tensor, side: Side) -> Tensor:
        parts = [self.loupe.intensities(y).clamp(0, 1) for y in torch.split(observation, self.chunk)]
        hidden = observation == MASK
        return torch.where(hidden, torch.cat(parts), dequantize(observation, self.loupe.num_states))


class LoupeObjective(Objective):
    """The mean absolute error of the reconstruction from relaxed masks.

    Args:
        loupe: what is trained.
        train: images to learn from.
        validation: images to judge by.
        batch_size: images a step.
        held_out: how many validation images to judge by.
    """

    model: Loupe

    def __init__(self, loupe: Loupe, train: Images, validation: Images, batch_size: int, held_out: int = 512) -> None:
        self.model, self.train, self.held_out, self.batch_size = loupe, train, validation.first(held_out), batch_size

    def loss(self, model: Loupe, step: int, generator: Generator) -> Tensor:
        index = torch.randint(len(self.train), (self.batch_size,), generator=generator)
        x, _ = self.train[index]
        u = torch.rand(len(x), *self.train.shape[1:], generator=generator)
        x, u = self.share(x), self.share(u)
        target = dequantize(x, self.train.num_states)
        return (model(x, u) - target).abs().mean()

    def validate(self, model: Loupe) -> dict[str, float]:
        """Errors per image under its own U-Net, with the top-k mask and with sampled ones; how much is undecided."""
        x, _ = self.held_out[slice(None)]
        logits = model.keep_logits(Side(), len(x))
        k = masks.count(model.map.budget, logits.shape[1])
        drawn = {
            "topk": masks.top_k(logits, k),
            "sampled": masks.sample_on_budget(logits, k, torch.Generator().manual_seed(0)),
        }
        rebuild, levels = LoupeReconstructor(model), model.num_states
        found = {name: quantize(rebuild(observe(x, mask), mask, Side()), levels) for name, mask in drawn.items()}
        values = {f"errors_{name}": errors(x_hat, x).mean().item() for name, x_hat in found.items()}
        p = torch.sigmoid(logits[0])
        return values | {"undecided": ((p > 0.1) & (p < 0.9)).float().mean().item()}


def build_loupe(config: dict[str, Any]) -> Loupe:
    """A LOUPE with fresh weights from the `model` part of a config."""
    with model_part(config, "loupe") as model:
        channels, height, width = model["shape"]
        widths, blocks = tuple(model["widths"]), tuple(model["blocks"])
        return Loupe((channels, height, width), model["num_states"], model["budget"], widths, blocks)


def load_loupe(name_or_run: str | Path, shape: tuple[int, int, int], budget: float) -> Loupe:
    """A trained LOUPE for images of `shape` and one budget: a bundled name, or a run folder."""
    loupe, _ = load_run(name_or_run, build_loupe)
    if loupe.shape != shape or loupe.map.budget != budget:
        raise CheckpointError(
            f"{name_or_run}: this LOUPE is for images of shape {loupe.shape} and budget {loupe.map.budget:g}, "
            f"not for {shape} and {budget:g}"
        )
    return loupe
