"""A policy of one's own: whatever is farthest from everything measured so far, on any grid of actions."""

import torch
from torch import Tensor

from sensewise.policies.base import Context, Policy


class FarthestFirst(Policy):
    """Scores are distances to the nearest action taken; before the first one, closeness to the middle."""

    def scores(self, observation: Tensor, mask: Tensor, context: Context) -> Tensor:
        sides = [torch.arange(side, dtype=torch.float32, device=mask.device) for side in context.grid]
        place = torch.stack(torch.meshgrid(*sides, indexing="ij"), dim=-1).flatten(0, -2)  # (K, 1 or 2)
        distance = torch.cdist(place, place).masked_fill(~mask.unsqueeze(1), torch.inf).amin(2)  # (B, K)
        from_middle = (place - place.mean(0)).norm(dim=1)
        return torch.where(mask.any(1, keepdim=True), distance, from_middle.max() - from_middle).nan_to_num(posinf=0.0)
