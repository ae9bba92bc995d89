"""Reconstruction networks: of MR slices, and LOUPE's own of token images."""

import torch
from torch import Tensor, nn

from sensewise.networks.loupe import Loupe
from sensewise.reconstruct.base import NOTHING, Reconstructor
from sensewise.sensors.base import Side
from sensewise.tokens import MASK, dequantize


class UNetReconstructor(Reconstructor):
    """MR magnitudes drawn by a network from measured rows, `(B, H, W)`.

    Args:
        network: k-space `(B, H, W)` or `(B, coils, H, W)` and mask `(B, H)` to magnitudes.
        chunk: slices at a time, so that memory stays small for any batch.
    """

    def __init__(self, network: nn.Module, chunk: int = 32) -> None:
        self.network, self.chunk = network.eval(), chunk

    @torch.inference_mode()
    def __call__(self, observation: Tensor, mask: Tensor, side: Side = NOTHING) -> Tensor:
        parts = zip(torch.split(observation, self.chunk), torch.split(mask, self.chunk), strict=True)
        return torch.cat([self.network(y, m) for y, m in parts])


class LoupeReconstructor(Reconstructor):
    """LOUPE's own U-Net: intensities in [0, 1], exact where measured; `(B, C, H, W)`."""

    def __init__(self, loupe: Loupe, chunk: int = 128) -> None:
        self.loupe, self.chunk = loupe, chunk

    @torch.inference_mode()
    def __call__(self, observation: Tensor, mask: Tensor, side: Side = NOTHING) -> Tensor:
        parts = [self.loupe.intensities(y).clamp(0, 1) for y in torch.split(observation, self.chunk)]
        hidden = observation == MASK
        return torch.where(hidden, torch.cat(parts), dequantize(observation, self.loupe.num_states))
