"""The exact posterior of a list of images: the oracle of the tests."""

import torch
import torch.nn.functional as F
from torch import Tensor

from sensewise.predictions import Categorical
from sensewise.priors.base import Prior
from sensewise.tokens import MASK, UNKNOWN


class EmpiricalPrior(Prior):
    """The exact posterior of the uniform distribution over a list of images, by counting: the oracle of the tests.

    An observation that agrees with no image of the list leaves every state equally likely.

    Args:
        images: tokens 1..N, with shape `(M, C, H, W)`.
        num_states: data states `N`.
        labels: with shape `(M,)`, or None.
    """

    images: Tensor
    labels: Tensor
    states: Tensor

    def __init__(self, images: Tensor, num_states: int, labels: Tensor | None = None) -> None:
        super().__init__()
        self.channels, self.size = images.shape[1], (images.shape[2], images.shape[3])
        self.num_states = num_states
        self.num_labels = None if labels is None else int(labels.max()) + 1
        self.register_buffer("images", images)
        self.register_buffer("labels", torch.full((len(images),), UNKNOWN) if labels is None else labels)
        self.register_buffer("states", F.one_hot(images.flatten(1) - 1, num_states).flatten(1).double())  # (M, D N)

    def predict(self, y: Tensor, label: Tensor, t: Tensor | None) -> Categorical:
        seen = F.one_hot(y.flatten(1), self.num_states + 1)[..., 1:].flatten(1).double()  # (B, D N)
        agrees = seen @ self.states.T == (y != MASK).flatten(1).sum(1, keepdim=True)  # (B, M)
        agrees &= (label[:, None] == self.labels) | (label[:, None] == UNKNOWN)
        counts = (agrees.double() @ self.states).view(*y.shape, self.num_states)  # (B, C, H, W, N)
        total = agrees.sum(1).view(-1, 1, 1, 1, 1)
        probs = torch.where(total > 0, counts / total, 1 / self.num_states)
        return Categorical(probs.log().float())
