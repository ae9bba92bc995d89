"""A prior over images of a few states whose readings may be wrong: flipped bits, and readings that were repeated."""

import math

import torch
from torch import Tensor, nn

from sensewise.diffusion import AbsorbingProcess
from sensewise.errors import DataError
from sensewise.predictions import Categorical, reading_log_likelihood
from sensewise.priors.absorbing import ask
from sensewise.priors.base import NoisyPrior
from sensewise.tokens import MASK, UNKNOWN, unpack

TRUST = (0.58, -0.73)  # to begin with: in a reading without noise, and how it changes per bit, as measured (lab notes)


class FlipPrior(NoisyPrior):
    """A network that takes readings `(B, 2 C, H, W)` (see `tokens.pack`), each with its probability of being wrong.

    What is said of a site is multiplied by the likelihood of its own reading (see `Categorical.given`), so a noiseless
    reading makes it certain. But the network sees that reading too, and believes in it already. So the likelihood is
    counted to the power of `trust` only, which is learned: a line in the entropy of a reading, in bits.

    Args:
        network: with the encoding "noisy"; readings, labels (`num_labels` = unknown) and survival to logits.
        channels: `C`.
        num_states: data states `N`.
        num_labels: classes, or None.
        size: `(H, W)` that it is for, or None for any.
    """

    def __init__(
        self,
        network: nn.Module,
        channels: int,
        num_states: int,
        num_labels: int | None,
        *,
        size: tuple[int, int] | None = None,
        timesteps: int = 1000,
    ) -> None:
        super().__init__()
        self.network = network
        self.channels, self.num_states, self.num_labels, self.size = channels, num_states, num_labels, size
        self.process = AbsorbingProcess(timesteps)
        self.trust = nn.Parameter(torch.tensor(TRUST))

    def predict(self, y: Tensor, label: Tensor, t: Tensor | None) -> Categorical:
        times = self.process.timestep_for(self.seen(y).flatten(1).float().mean(1)) if t is None else t
        label = torch.where(label == UNKNOWN, self.num_labels or 0, label)
        # the noise of padded pixels does not matter: nothing was read there
        found = ask(self.network, y, label, self.process.survival(times), torch.nan)
        values, wrong, seen = unpack(y)
        noisy = (seen & (wrong > 0)).unsqueeze(-1)
        bits = (torch.special.entr(wrong) + torch.special.entr(1 - wrong)) / math.log(2)
        power = self.trust[0] + self.trust[1] * bits.unsqueeze(-1) - 1  # `given` counts the likelihood once more
        likelihood = reading_log_likelihood(values, wrong, self.num_states)
        return Categorical((found.log_probs + torch.where(noisy, power * likelihood, 0.0)).log_softmax(-1))

    def check(self, y: Tensor, label: Tensor | None) -> Tensor:
        """As for every prior; refuses tokens, and noise that is no probability."""
        sides = ("H", "W") if self.size is None else self.size
        fits = y.dim() == 4 and y.shape[1] == 2 * self.channels and self.size in (None, tuple(y.shape[2:]))
        if not fits or not y.is_floating_point():
            wanted = ", ".join(map(str, ("B", 2 * self.channels, *sides)))
            raise DataError(
                f"this prior takes readings of shape ({wanted}), intensities and the probability that each is wrong, "
                f"got {y.dtype} with shape {tuple(y.shape)}: sensewise.tokens.pack makes them"
            )
        wrong = y[:, self.channels :]
        if not y.is_meta and not bool(((wrong >= 0) & (wrong <= 0.5)).all()):
            raise DataError("the probability that a reading is wrong must be a number from 0 to 0.5")
        return super().check(torch.full(y[:, : self.channels].shape, MASK, device=y.device), label)
