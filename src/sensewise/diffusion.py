r"""The absorbing process: every site keeps its value with probability $S_t$, else it is in the mask state.

The cosine schedule is $\bar\alpha(t) = \cos\left(\frac{t/T + 0.008}{1.008} \frac{\pi}{2}\right)$ with
$\beta_t = \min(1 - \bar\alpha(t) / \bar\alpha(t-1),\ 0.999)$, so that the survival is
$S_t = \prod_{u \le t} (1 - \beta_u)$. A mask that keeps a fraction $s$ of the pixels looks like an image corrupted to
the step where $S_t = s$; `timestep_for(s)` is that step (paper, Section 4.1).

Austin et al., "Structured denoising diffusion models in discrete state-spaces", 2021.
"""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from sensewise.tokens import MASK


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
        return self.survival_curve[t].float()

    def timestep_for(self, s: float | Tensor) -> Tensor:
        """The step whose survival is nearest to `s`, int64 with the shape of `s`."""
        s = torch.as_tensor(s, dtype=torch.float64)
        rising = self.survival_curve.flip(0)
        above = torch.searchsorted(rising, s.contiguous()).clamp(1, self.timesteps)
        nearer_below = (s - rising[above - 1]) < (rising[above] - s)
        return self.timesteps - torch.where(nearer_below, above - 1, above)

    def corrupt(self, x: Tensor, t: Tensor, generator: Generator) -> Tensor:
        """A draw of $x_t$ given $x_0$: each site of image `b` survives with probability $S_{t_b}$.

        Args:
            x: tokens, with shape `(B, C, H, W)`.
            t: steps, with shape `(B,)`.
        """
        survives = torch.rand(x.shape, generator=generator) < self.survival(t).view(-1, 1, 1, 1)
        return torch.where(survives, x, MASK)

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


def cross_entropy(log_probs: Tensor, x: Tensor, hidden: Tensor) -> Tensor:
    """$-\\log p(x_i \\mid y)$ summed over the hidden sites of each image, in nats.

    Args:
        log_probs: predictions, with shape `(B, C, H, W, N)`.
        x: true tokens 1..N, with shape `(B, C, H, W)`.
        hidden: True where the site was not observed, with shape `(B, C, H, W)`.

    Returns:
        One value per image, with shape `(B,)`.
    """
    picked = log_probs.gather(-1, (x - 1).unsqueeze(-1)).squeeze(-1)  # (B, C, H, W)
    return -torch.where(hidden, picked, 0.0).sum(dim=(1, 2, 3))


def variational_bound(process: AbsorbingProcess, log_probs: Tensor, x: Tensor, y: Tensor, t: Tensor) -> Tensor:
    r"""One term of the bound on $-\log p(x)$, scaled so that its mean over uniform $t \in 1..T$ is the whole bound.

    A hidden site is revealed on the way from $t$ to $t - 1$ with probability
    $w_t = (S_{t-1} - S_t) / (1 - S_t)$, so the term is $T w_t$ times the cross-entropy of the hidden sites.

    Args:
        log_probs: the prediction from `y`, with shape `(B, C, H, W, N)`.
        x: true tokens, with shape `(B, C, H, W)`.
        y: a draw of `process.corrupt(x, t)`.
        t: steps in 1..T, with shape `(B,)`.

    Returns:
        Nats per image, with shape `(B,)`.
    """
    before, after = process.survival_curve[t - 1], process.survival_curve[t]
    weight = (before - after) / (1 - after)
    return process.timesteps * weight.float() * cross_entropy(log_probs, x, y == MASK)


@torch.inference_mode()
def sample(
    prior: Callable[[Tensor, Tensor | None], Tensor],
    y: Tensor,
    label: Tensor | None,
    generator: Generator,
    *,
    steps: int = 64,
    samples: int = 1,
) -> Tensor:
    """Joint samples of the hidden sites given `y`: the reverse process, with what is observed kept.

    From the survival of `y` to 1 in `steps` rounds; in each, every hidden site is revealed with the probability of
    the reverse step and takes a value drawn from the prior's prediction. The last round reveals all that is left.

    Args:
        prior: tokens and labels in, log-probabilities `(B, C, H, W, N)` out.
        y: observation, with shape `(B, C, H, W)`.
        label: class labels `(B,)` or None.
        samples: how many images for each observation.

    Returns:
        Tokens without hidden sites, with shape `(samples, B, C, H, W)`.
    """
    x = y.repeat(samples, 1, 1, 1)  # (samples B, C, H, W)
    labels = None if label is None else label.repeat(samples)
    start = (y != MASK).double().mean().item()
    survival = torch.linspace(start, 1.0, steps + 1, dtype=torch.float64)
    for r in range(steps):
        hidden = x == MASK
        if not bool(hidden.any()):
            break
        reveal = (survival[r + 1] - survival[r]) / (1 - survival[r]) if r < steps - 1 else 1.0
        chosen = hidden & (torch.rand(x.shape, generator=generator) < reveal)
        log_probs = prior(x, labels)  # (samples B, C, H, W, N)
        noise = -torch.log(torch.empty(log_probs.shape).exponential_(generator=generator))
        x = torch.where(chosen, (log_probs + noise).argmax(-1) + 1, x)
    return x.view(samples, *y.shape)
