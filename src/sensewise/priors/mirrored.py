"""A prior that is asked about the mirror image too."""

import math

import torch
from torch import Tensor

from sensewise.errors import DataError
from sensewise.predictions import Categorical, Prediction
from sensewise.priors.base import Prior


class MirroredPrior(Prior):
    """The mean of what another prior says about an image and about its mirror image, in two passes instead of one.

    For images whose mirror image is as likely: photographs, not digits.

    Args:
        prior: to be asked twice; its predictions are categorical.
    """

    def __init__(self, prior: Prior) -> None:
        super().__init__()
        self.prior = prior
        self.channels, self.size = prior.channels, prior.size
        self.num_states, self.num_labels = prior.num_states, prior.num_labels

    def predict(self, y: Tensor, label: Tensor, t: Tensor | None) -> Categorical:
        mirrored = _log_probs(self.prior.predict(y.flip(-1), label, t)).flip(-2)  # (B, C, H, W, N)
        own = _log_probs(self.prior.predict(y, label, t))
        return Categorical(torch.logaddexp(own, mirrored) - math.log(2))


def _log_probs(prediction: Prediction) -> Tensor:
    if not isinstance(prediction, Categorical):
        raise DataError("only categorical predictions can be mirrored: this prior gives another kind")
    return prediction.log_probs
