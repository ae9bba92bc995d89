r"""The absorbing process: every site keeps its value with probability $S_t$, else it is in the mask state.

The cosine schedule is $\bar\alpha(t) = \cos\left(\frac{t/T + 0.008}{1.008} \frac{\pi}{2}\right)$ with
$\beta_t = \min(1 - \bar\alpha(t) / \bar\alpha(t-1),\ 0.999)$, so that the survival is
$S_t = \prod_{u \le t} (1 - \beta_u)$. A mask that keeps a fraction $s$ of the pixels looks like an image corrupted to
the step where $S_t = s$; `timestep_for(s)` is that step (paper, Section 4.1).

Austin et al., "Structured denoising diffusion models in discrete state-spaces", 2021.
"""

import math

import torch
from torch import Generator, Tensor

from sensewise.tokens import MASK


def crossing(curve: Tensor, s: float) -> float:
    """When a falling survival curve `(T + 1,)` passes `s`, between two steps."""
    after = int((curve < s).nonzero()[0])
    above, below = curve[after - 1].item(), curve[after].item()
    return after - 1 + (above - s) / (above - below)


class AbsorbingProcess:
    """The forward process with `T` steps and the cosine schedule."""

    def __init__(self, timesteps: int = 1000) -> None:
        t = torch.arange(timesteps + 1, dtype=torch.float64)
        alpha_bar = torch.cos((t / timesteps + 0.008) / 1.008 * math.pi / 2)
        beta = (1 - alpha_bar[1:] / alpha_bar[:-1]).clamp(max=0.999)
        self.timesteps = timesteps
        self.survival_curve = torch.cat([torch.ones(1, dtype=torch.float64), (1 - beta).cumprod(0)])  # (T + 1,)

    def survival(self, t: Tensor) -> Tensor:
        """$S_t$, the probability that a site is not yet absorbed, for whole steps `t` in 0..T; same shape."""
        return self.survival_curve.float().to(t.device)[t]

    def timestep_for(self, s: float | Tensor) -> Tensor:
        """The step whose survival is nearest to `s`, int64 with the shape of `s`."""
        s = torch.as_tensor(s)
        exact = torch.float32 if s.device.type == "mps" else torch.float64  # that device has no doubles
        s, rising = s.to(exact), self.survival_curve.flip(0).to(s.device, exact)
        above = torch.searchsorted(rising, s.contiguous()).clamp(1, self.timesteps)
        nearer_below = (s - rising[above - 1]) < (rising[above] - s)
        return self.timesteps - torch.where(nearer_below, above - 1, above)

    def corrupt(self, x: Tensor, t: Tensor, generator: Generator) -> Tensor:
        """A draw of $x_t$ given $x_0$: each site of image `b` survives with probability $S_{t_b}$.

        Args:
            x: tokens, with shape `(B, C, H, W)`.
            t: steps, with shape `(B,)`.
        """
        noise = torch.rand(x.shape, generator=generator, device=generator.device).to(x.device)
        return torch.where(noise < self.survival(t).view(-1, 1, 1, 1), x, MASK)

    def survival_monte_carlo(self, batches: list[Tensor], generator: Generator, every: int = 10) -> Tensor:
        """The survival curve measured as the paper does it: corrupt images, count what is left, interpolate.

        Args:
            batches: token images (the paper takes 20 training batches).
            every: measure at every tenth step; the steps between are interpolated linearly.

        Returns:
            The estimate of $S_t$ for t = 0..T, with shape `(T + 1,)`.
        """
        knots = torch.arange(0, self.timesteps + 1, every)
        kept = torch.zeros(len(knots), dtype=torch.float64)
        for x in batches:
            for i, t in enumerate(knots):
                kept[i] += (self.corrupt(x, t.expand(len(x)), generator) == x).double().mean()
        kept /= len(batches)
        t = torch.arange(self.timesteps + 1)
        left = (t // every).clamp(max=len(knots) - 2)
        weight = (t - knots[left]).double() / every
        return torch.lerp(kept[left], kept[left + 1], weight)
