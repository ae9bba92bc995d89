r"""How uncertain a prediction is, in nats.

For noiseless measurements the information gain of pixel $i$ is its own entropy,
$I(C; Y_i \mid y) = H(C_i \mid y)$, so entropy maps are all that greedy acquisition needs (paper, Section 4.3). The sum
of the entropies bounds the joint conditional entropy from above; its mean over sites is the surrogate that the
one-shot generator is trained on (Section 4.1).
"""

import torch
from torch import Tensor


def entropy(log_probs: Tensor) -> Tensor:
    r"""$H_i = -\sum_k p_i(k) \log p_i(k)$ for log-probabilities `(..., N)`; exactly 0 where a site is certain."""
    finite = log_probs.clamp(min=torch.finfo(log_probs.dtype).min)  # what is impossible counts 0, not 0 times infinity
    return 0 - (log_probs.exp() * finite).sum(-1)  # 0, and not -0, where a site is certain


def variance(log_probs: Tensor) -> Tensor:
    """The variance of the intensity, with the `N` levels evenly spaced on [0, 1]; `(..., N)` to `(...)`."""
    levels = torch.linspace(0, 1, log_probs.shape[-1], device=log_probs.device)
    probs = log_probs.exp()
    mean, square = (probs * levels).sum(-1), (probs * levels**2).sum(-1)  # half the time of squared differences
    return (square - mean**2).clamp(min=0)


def mutual_information(log_probs: Tensor, outcomes: Tensor) -> Tensor:
    r"""$I(C_i; Y_i) = H(Y_i) - \sum_k p_i(k)\, H(Y_i \mid C_i = k)$ of noisy readings; `(..., N)` to `(...)`.

    Args:
        log_probs: of the states.
        outcomes: the probability of each outcome for each state, with shape `(N, M)`.
    """
    probs = log_probs.exp()
    given_state = torch.special.entr(outcomes).sum(-1)  # (N,)
    return (torch.special.entr(probs @ outcomes).sum(-1) - probs @ given_state).clamp(min=0)


def joint_entropy(alike: Tensor, weights: Tensor) -> Tensor:
    r"""$-\sum_a w_a \log \sum_b w_b [x_a = x_b]$: the entropy of some sites together, counted in weighted samples.

    Args:
        alike: True where two samples agree in all of these sites, with shape `(..., M, M)`.
        weights: of the samples, with sum 1, with shape `(..., M)`.

    Returns:
        Nats, with shape `(...)`.
    """
    share = torch.where(alike, weights.unsqueeze(-2), 0.0).sum(-1)  # (..., M)
    return -torch.xlogy(weights, share).sum(-1)


def per_pixel(sites: Tensor) -> Tensor:
    """Values per site `(B, C, H, W)` to values per pixel `(B, H W)`: the channels of one pixel are one action."""
    return sites.sum(dim=1).flatten(1)


def whole_image(sites: Tensor) -> Tensor:
    r"""$\mathcal{H}_{\mathrm{all}}$, the mean over every site of entropies `(B, C, H, W)`, with shape `(B,)`."""
    return sites.mean(dim=(1, 2, 3))


def observed_pixels(sites: Tensor, mask: Tensor) -> Tensor:
    """The mean entropy over the observed sites only: the degenerate surrogate, kept to show that it degenerates.

    Args:
        sites: entropies of raw predictions, *not* made certain at observed sites, with shape `(B, C, H, W)`.
        mask: True where observed, with shape `(B, H W)`.

    Returns:
        One value per image, 0 for an empty mask, with shape `(B,)`.
    """
    pixels = per_pixel(sites)  # (B, K)
    return torch.where(mask, pixels, 0.0).sum(1) / (sites.shape[1] * mask.sum(1)).clamp(min=1)
