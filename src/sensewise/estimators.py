r"""Gradients of an expected loss with respect to the log-odds of independent binary decisions.

A mask $X$ keeps pixel $i$ with probability $p_i = \sigma(\phi_i)$, independently. Its loss $\mathcal{L}(X)$ is only
known by evaluating it, so the gradient of $\mathbb{E}[\mathcal{L}(X)]$ has to be estimated from loss values.
Exactly, it is

$$\frac{\partial}{\partial \phi_i} \mathbb{E}[\mathcal{L}]
  = p_i (1 - p_i)\, \mathbb{E}\left[\mathcal{L}(X_i{=}1) - \mathcal{L}(X_i{=}0)\right].$$

`disarm` is an unbiased estimate of it from one antithetic pair; `exact_gradient` flips one pixel of a sampled mask at a
time; `straight_through` is the usual relaxation, which is biased. Pure functions: no network, no prior, no image.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]
"""Masks `(M, K)` and the image each of them belongs to `(M,)` in, losses `(M,)` out."""


def antithetic_pair(logits: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    r"""Two draws of the same distribution that disagree as often as they can.

    $b = \mathbb{1}[u > 1 - \sigma(\phi)]$ and $\tilde b = \mathbb{1}[u < \sigma(\phi)]$.

    Args:
        logits: log-odds of keeping, with shape `(B, K)`.
        u: uniform numbers, with shape `(B, K)`.

    Returns:
        Two masks, bool `(B, K)`.
    """
    return u > torch.sigmoid(-logits), u < torch.sigmoid(logits)


def disarm(logits: Tensor, u: Tensor, loss: Tensor, antithetic_loss: Tensor) -> Tensor:
    r"""An unbiased gradient from the losses of one antithetic pair.

    $\frac12 (\mathcal{L}(b) - \mathcal{L}(\tilde b)) (-1)^{\tilde b}\, \mathbb{1}[b \ne \tilde b]\, \sigma(|\phi|)$:
    Dong, Mnih and Tucker, "DisARM: an antithetic gradient estimator for binary latent variables", 2020.

    Args:
        logits: log-odds of keeping, with shape `(B, K)`.
        u: the uniform numbers that made the pair, with shape `(B, K)`.
        loss: of the first mask of each pair, with shape `(B,)`, or `(B, K)` if each pixel has a loss of its own.
        antithetic_loss: of the second mask, same shape.

    Returns:
        The estimate for each log-odds, with shape `(B, K)`.
    """
    b, b_tilde = antithetic_pair(logits, u)
    difference = 0.5 * (loss - antithetic_loss)
    difference = difference[:, None] if difference.dim() == 1 else difference  # (B, 1) or (B, K)
    sign = b.to(logits.dtype) - b_tilde.to(logits.dtype)  # (-1)^b~ where the two disagree, else 0
    return difference * sign * torch.sigmoid(logits.abs())


def straight_through(logits: Tensor, noise: Tensor, temperature: float = 1.0) -> Tensor:
    r"""A hard mask with a soft gradient: binary Gumbel-Softmax, straight through.

    Forward $\mathbb{1}[\phi + \epsilon > 0]$ with logistic noise $\epsilon$, backward the derivative of
    $\sigma((\phi + \epsilon) / \tau)$. Biased: it trusts the loss at values of the mask between 0 and 1.
    Jang, Gu and Poole, "Categorical reparameterization with Gumbel-Softmax", 2017.

    Args:
        logits: log-odds of keeping, with shape `(B, K)`.
        noise: standard logistic noise, with shape `(B, K)`.
        temperature: of the soft mask.

    Returns:
        0 or 1 as floats, with shape `(B, K)`.
    """
    soft = torch.sigmoid((logits + noise) / temperature)
    hard = (logits + noise > 0).to(soft.dtype)
    return hard + (soft - soft.detach())


@torch.no_grad()
def exact_gradient(logits: Tensor, mask: Tensor, loss: Loss, chunk: int = 256) -> Tensor:
    r"""$p_i (1 - p_i) (\mathcal{L}(X_i{=}1) - \mathcal{L}(X_i{=}0))$ at a sampled mask, one flipped pixel at a time.

    Its mean over masks is the exact gradient; it costs `K + 1` evaluations a mask.

    Args:
        logits: log-odds of keeping, with shape `(B, K)`.
        mask: a draw of the masks, bool `(B, K)`.
        loss: of masks and the images they belong to.
        chunk: masks evaluated at once.

    Returns:
        The gradient at these masks, with shape `(B, K)`.
    """
    batch, num_actions = logits.shape
    flips = torch.eye(num_actions, dtype=torch.bool, device=mask.device)
    base = loss(mask, torch.arange(batch, device=mask.device))  # (B,)
    rows = []
    for b in range(batch):
        flipped = mask[b] ^ flips  # (K, K): row i has pixel i flipped
        parts = [loss(part, torch.full((len(part),), b, device=mask.device)) for part in torch.split(flipped, chunk)]
        rows.append(torch.cat(parts) - base[b])
    change = torch.stack(rows) * torch.where(mask, -1.0, 1.0)  # (B, K): kept minus dropped
    p = torch.sigmoid(logits)
    return p * (1 - p) * change
