"""Hidden sites as a prior sees them: at the most probable token, or at the expected intensity."""

from torch import Tensor

from sensewise import predictions
from sensewise.priors.base import Prior
from sensewise.reconstruct.base import NOTHING, Reconstructor
from sensewise.sensors.base import Side


class Mode(Reconstructor):
    """The most probable token of every hidden site; tokens `(B, C, H, W)`."""

    def __init__(self, prior: Prior) -> None:
        self.prior = prior

    def __call__(self, observation: Tensor, mask: Tensor, side: Side = NOTHING) -> Tensor:
        return self.prior.maps(predictions.mode, observation, side.label)


class PosteriorMean(Reconstructor):
    """The expected intensity of every site, levels evenly spaced on [0, 1]; intensities `(B, C, H, W)`."""

    def __init__(self, prior: Prior) -> None:
        self.prior = prior

    def __call__(self, observation: Tensor, mask: Tensor, side: Side = NOTHING) -> Tensor:
        return self.prior.maps(predictions.mean, observation, side.label)
