"""The paper's network for CIFAR-10: a diffusion transformer with rotary positions, adaLN and SwiGLU.

With its full size (dim 1024, 5 layers, 16 heads, patch 2) it has 107 M weights and is made for a GPU; any smaller size
is the same code.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sensewise.networks.encodings import ENCODINGS
from sensewise.networks.unet import Condition


def rotary(x: Tensor) -> Tensor:
    """Turn pairs of features `(B, heads, L, D)` by angles that grow with the position: products see distances only.

    Su et al., "RoFormer: enhanced transformer with rotary position embedding", 2021.
    """
    length, size = x.shape[-2:]
    rates = 10000.0 ** (-torch.arange(0, size, 2, device=x.device) / size)
    angles = torch.arange(length, device=x.device)[:, None] * rates  # (L, D / 2)
    even, odd = x[..., ::2], x[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


def _modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return x * (1 + scale[:, None]) + shift[:, None]


class Layer(nn.Module):
    """Attention, then a gated feed-forward part, both steered by the condition and absent at the start (adaLN-zero)."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        hidden = 256 * -(-8 * dim // 3 // 256) if dim >= 256 else 3 * dim
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(dim, elementwise_affine=False) for _ in range(2))
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.join = nn.Linear(dim, dim, bias=False)
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.rise = nn.Linear(dim, hidden, bias=False)
        self.fall = nn.Linear(hidden, dim, bias=False)
        self.steer = nn.Linear(dim, 6 * dim)
        nn.init.zeros_(self.steer.weight)
        nn.init.zeros_(self.steer.bias)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        shift_a, scale_a, gate_a, shift_f, scale_f, gate_f = self.steer(condition).chunk(6, dim=1)
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(_modulate(self.norms[0](x), shift_a, scale_a)).chunk(3, dim=-1)
        )  # (B, heads, L, D)
        seen = F.scaled_dot_product_attention(rotary(q), rotary(k), v).transpose(1, 2).flatten(-2)
        x = x + gate_a[:, None] * self.join(seen)
        h = _modulate(self.norms[1](x), shift_f, scale_f)
        return x + gate_f[:, None] * self.fall(F.silu(self.gate(h)) * self.rise(h))


class DiT(nn.Module):
    """Two 5x5 convolutions, patches as tokens, transformer layers.

    Args:
        channels: image channels `C`.
        num_states: data states `N`.
        num_labels: classes, or None; the index `num_labels` means "unknown".
        dim: width of a token, divisible by twice the heads.
        layers: transformer layers.
        heads: of the attention.
        patch: side of a patch.
        encoding: "one-hot", or "ordinal" where the states are ordered levels.
    """

    def __init__(
        self,
        channels: int,
        num_states: int,
        num_labels: int | None,
        dim: int = 1024,
        layers: int = 5,
        heads: int = 16,
        patch: int = 2,
        encoding: str = "one-hot",
    ) -> None:
        super().__init__()
        if min(dim, layers, heads, patch) < 1 or dim % (2 * heads):
            raise ValueError(f"dim must be a multiple of twice the heads, got {dim=}, {heads=}, {layers=}, {patch=}")
        if encoding not in ENCODINGS:
            raise ValueError(f"encoding {encoding!r} is not known: {', '.join(ENCODINGS)}")
        self.encoding, self.patch, self.multiple = ENCODINGS[encoding](channels, num_states), patch, patch
        half, groups = dim // 2, min(32, dim // 2)
        self.condition = Condition(num_labels, dim)
        self.stem = nn.Sequential(
            nn.Conv2d(self.encoding.inputs, half, 5, padding=2),
            nn.SiLU(),
            nn.GroupNorm(groups, half),
            nn.Conv2d(half, half, 5, padding=2),
            nn.SiLU(),
            nn.GroupNorm(groups, half),
        )
        self.embed = nn.Linear(half * patch**2, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim, elementwise_affine=False)
        self.steer = nn.Linear(dim, 2 * dim)
        self.head = nn.Linear(dim, self.encoding.outputs * patch**2)
        for layer in (self.steer, self.head):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, y: Tensor, label: Tensor, survival: Tensor) -> Tensor:
        condition = self.condition(label, survival)  # (B, dim)
        features = self.encoding.encode(y)  # (B, inputs, H, W)
        patches = F.pixel_unshuffle(self.stem(features), self.patch)  # (B, dim / 2 * patch^2, H / patch, W / patch)
        height, width = patches.shape[-2:]
        x = self.embed(patches.flatten(2).transpose(1, 2))  # (B, L, dim)
        for layer in self.layers:
            x = layer(x, condition)
        x = self.head(_modulate(self.norm(x), *self.steer(condition).chunk(2, dim=1)))
        raw = F.pixel_shuffle(x.transpose(1, 2).unflatten(2, (height, width)), self.patch)  # (B, outputs, H, W)
        return self.encoding.logits(raw, features)
