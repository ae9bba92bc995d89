r"""LOUPE: one learned probability for every action, trained together with a reconstruction network, budget by budget.

Its mask layers (Bahadir, Wang, Dalca and Sabuncu, "Deep-learning-based optimization of the under-sampling pattern in
MRI", 2020), here for actions of any shape, such as pixels `(H, W)` or k-space rows `(R,)`:

$$p = \sigma(5 w), \qquad \hat p = \begin{cases} \frac{s}{\bar p}\, p & \bar p \ge s \\
  1 - \frac{1 - s}{1 - \bar p} (1 - p) & \text{else} \end{cases}, \qquad m = \sigma(12 (\hat p - u)),$$

with $u$ uniform and drawn anew for every image. Side information plays no part: every image gets the same map.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sensewise.errors import ConfigError
from sensewise.kspace import acs_rows, relaxed_rows, to_kspace
from sensewise.networks.base import MaskNetwork
from sensewise.networks.recon import PaperUNet
from sensewise.networks.unet import UNet
from sensewise.tokens import site_mask

PROBABILITY_SLOPE, THRESHOLD_SLOPE = 5.0, 12.0
MARGIN = 0.01  # fresh probabilities are uniform between this and one minus this


def rescale(probs: Tensor, budget: float) -> Tensor:
    """Probabilities of any shape moved so that their mean is the budget, and none leaves [0, 1]."""
    mean = probs.mean()
    lowered, raised = probs * (budget / mean), 1 - (1 - probs) * ((1 - budget) / (1 - mean))
    return torch.where(mean >= budget, lowered, raised)


def relaxed_mask(probs: Tensor, u: Tensor, slope: float = THRESHOLD_SLOPE, *, hard: bool = False) -> Tensor:
    """A soft threshold of the probabilities at uniform numbers: nearly 0 or 1, with a gradient; shape of `u`.

    Args:
        hard: exactly 0 or 1, with the gradient of the soft threshold. A network without noise reads a pixel off a
            weight of a thousandth as well, so soft masks tell it more than was measured.
    """
    soft = torch.sigmoid(slope * (probs - u))
    return (probs > u).to(soft.dtype) + (soft - soft.detach()) if hard else soft


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


class Loupe(MaskNetwork):
    """LOUPE for pixels: a probability map and a U-Net of its own that reconstructs what the masks show.

    Args:
        shape: `(C, H, W)`.
        num_states: data states `N`.
        budget: the fraction of pixels.
        widths: channels of the U-Net at each resolution.
        blocks: residual blocks of the U-Net at each resolution.
        hard: show the U-Net masks of 0 and 1 in training, see `relaxed_mask`.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        num_states: int,
        budget: float,
        widths: tuple[int, ...] = (32, 64, 128),
        blocks: tuple[int, ...] = (1, 1, 1),
        hard: bool = False,
    ) -> None:
        super().__init__()
        self.shape, self.num_states, self.hard = shape, num_states, hard
        self.map = ProbabilityMap(shape[1:], budget)
        self.network = UNet(shape[0], num_states, None, widths, blocks)

    def intensities(self, y: Tensor) -> Tensor:
        """The U-Net's prediction from tokens `(B, C, H, W)` or relaxed states: intensities `(B, C, H, W)`.

        They are linear in the network's last layer and not held within [0, 1]: under a mean absolute error a softmax
        that has once settled on the most frequent level has no gradient left.
        """
        nothing, levels = torch.zeros(len(y), device=y.device), torch.linspace(0, 1, self.num_states, device=y.device)
        return (self.network(y, nothing.long(), nothing) * levels).sum(-1)

    def forward(self, x: Tensor, u: Tensor) -> Tensor:
        """Intensities after relaxed masks.

        Args:
            x: tokens, with shape `(B, C, H, W)`.
            u: uniform numbers, with shape `(B, H, W)`.

        Returns:
            Intensities, with shape `(B, C, H, W)`.
        """
        kept = site_mask(relaxed_mask(self.map(), u, hard=self.hard), self.shape)  # (B, C, H, W)
        shown = F.one_hot(x - 1, self.num_states).movedim(-1, 2) * kept.unsqueeze(2)
        states = torch.cat([1 - kept.unsqueeze(2), shown], dim=2)  # (B, C, N + 1, H, W)
        return self.intensities(states)

    def keep_logits(self, summary: Tensor | None, label: Tensor | None, budget: Tensor) -> Tensor:
        """The log-odds of the learned map, the same for every image; `(B, K)`."""
        return torch.logit(self.map().flatten(), eps=1e-6).expand(len(budget), -1)


class LoupeRows(nn.Module):
    """LOUPE for rows of k-space: the ACS block is always measured, in training as in use; the other rows are learned.

    Args:
        rows: of k-space.
        budget: the fraction of rows, the ACS block included.
        base: channels of the U-Net at full resolution.
        acs: rows of the ACS block; 0 for none.
    """

    free: Tensor

    def __init__(self, rows: int, budget: float, base: int, acs: int = 0) -> None:
        super().__init__()
        free = ~acs_rows(rows, acs) if acs else torch.ones(rows, dtype=torch.bool)
        self.register_buffer("free", free, persistent=False)
        self.map = ProbabilityMap((rows - acs,), (budget * rows - acs) / (rows - acs))
        self.network = PaperUNet(base)

    def probs(self) -> Tensor:
        """The probability of every row, 1 in the ACS block; `(rows,)`."""
        learned = self.map()
        return torch.ones(self.free.shape, device=learned.device).masked_scatter(self.free, learned)

    def forward(self, image: Tensor, noise: Tensor) -> Tensor:
        """Reconstructions of magnitudes `(B, H, W)` from rows drawn with uniform noise `(B, H)`."""
        weights = torch.where(self.free, relaxed_mask(self.probs(), noise), 1.0)
        return self.network(relaxed_rows(to_kspace(image.to(torch.complex64)), weights), weights)
