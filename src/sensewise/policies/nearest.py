"""A mask that others have: the slices whose scouts look most alike say which of a few searched masks is taken.

The idea of Gautam et al., "Scan-adaptive MRI undersampling using neighbor-based optimization (SUNO)",
arXiv 2501.09799: masks are searched for the slices of a training set, and a new slice takes that of its nearest
neighbour, by the low frequencies that are measured first. `train.nearest` searches the masks.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sensewise.errors import DataError
from sensewise.policies.base import Context, Policy
from sensewise.policies.planned import of_budget


def features(scout: Tensor, size: int) -> Tensor:
    """What scouts `(B, n, n)` are compared by: their intensities in `size x size` cells, `(B, size size)`."""
    return F.adaptive_avg_pool2d(scout.unsqueeze(1), size).flatten(1)


def neighbours(of: Tensor, among: Tensor, count: int) -> Tensor:
    """The numbers of the `count` nearest of the features `(n, d)` to each of others `(B, d)`; `(B, count)`."""
    return torch.cdist(of, among).topk(min(count, len(among)), dim=1, largest=False).indices


class NearestRows(nn.Module):
    """A few masks of one budget, and what they are worth to slices that are known.

    Attributes:
        masks: True on the rows of each mask; the first one is the static mask for all slices; `(masks, rows)`.
        features: of the known slices, with shape `(slices, size size)`.
        worth: the log error of each known slice under each mask, less that under the first one; `(slices, masks)`.

    Args:
        rows: phase-encode rows.
        k: rows of the budget, the ACS block included.
        masks: how many.
        slices: how many are known.
        size: side of the features.
        nearest: how many known slices are asked.
    """

    masks: Tensor
    features: Tensor
    worth: Tensor

    def __init__(self, rows: int, k: int, masks: int, slices: int, size: int, nearest: int) -> None:
        super().__init__()
        self.rows, self.k, self.size, self.nearest = rows, k, size, nearest
        self.register_buffer("masks", torch.zeros(masks, rows, dtype=torch.bool))
        self.register_buffer("features", torch.zeros(slices, size * size))
        self.register_buffer("worth", torch.zeros(slices, masks))

    def expected(self, found: Tensor) -> Tensor:
        """What the masks are worth to the nearest of slices with these features `(B, size size)`; `(B, masks)`."""
        return self.worth[neighbours(found, self.features, self.nearest)].mean(1)

    def choose(self, found: Tensor) -> Tensor:
        """Which mask slices with these features take, `(B,)`: the static one unless another is better."""
        return self.expected(found).argmin(1)


class NearestMask(Policy):
    """The rows of the mask that suits the nearest known slices; the scout has to be in the side information.

    Args:
        models: one per budget.
    """

    def __init__(self, models: Iterable[NearestRows]) -> None:
        self.models = {model.k: model for model in models}

    @torch.inference_mode()
    def scores(self, observation: Tensor, mask: Tensor, context: Context) -> Tensor:
        model = of_budget(self.models, context.budget, mask.shape[1], "masks")
        if context.side.summary is None:
            raise DataError("nearest masks need a scout: give Side(summary=sensor.summary(acs))")
        return model.masks[model.choose(features(context.side.summary, model.size))].float()
