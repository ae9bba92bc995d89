"""Judges of readings: what a prior makes of them, and what it expects to get wrong; and a view that ignores noise."""

import torch
from torch import Tensor

from sensewise import metrics
from sensewise.evaluate.judges import Judge
from sensewise.predictions import Prediction
from sensewise.priors.base import Prior
from sensewise.reconstruct.base import Reconstructor
from sensewise.sensors.base import Side, View
from sensewise.sensors.readings import Readings
from sensewise.tokens import MASK, pack, quantize, unpack


class Trusting(Readings):
    """Every reading is taken for the truth.

    Args:
        levels: `N` of a prior over tokens; None for a prior over readings, which is told that there is no noise.
    """

    def __init__(self, levels: int | None = None) -> None:
        super().__init__()
        self.levels = levels

    def tokens(self, observation: Tensor, mask: Tensor) -> Tensor:
        values, _, seen = unpack(observation)
        if self.levels is None:
            return pack(torch.where(seen, values, torch.nan), torch.zeros_like(values))
        return torch.where(seen, quantize(values, self.levels), MASK)


def _states(prediction: Prediction) -> Tensor:
    return torch.stack([prediction.mode().float(), prediction.expected_errors()], dim=1)


def _intensities(prediction: Prediction) -> Tensor:
    return torch.stack([prediction.mean().clamp(0, 1), prediction.variance()], dim=1)


def picture_metrics(found: Tensor, truth: Tensor) -> dict[str, Tensor]:
    """PSNR and SSIM of intensities `(B, 1, H, W)`, one value per picture."""
    return {"psnr": metrics.psnr(found, truth), "ssim": metrics.ssim(found[:, 0], truth[:, 0])}


class StateJudge(Judge):
    """Wrong sites of token images, and how many of them the prior expected.

    Args:
        prior: reconstructs by its most probable states.
        view: how it looks at readings.
    """

    metrics = ("errors", "exact", "expected-errors")

    def __init__(self, prior: Prior, view: View) -> None:
        self.prior, self.view = prior, view

    def __call__(self, observation: Tensor, mask: Tensor, side: Side, truth: Tensor) -> dict[str, Tensor]:
        found = self.prior.in_chunks(_states, self.view.tokens(observation, mask), side.label)
        x_hat, expected = found[:, 0].long(), found[:, 1]
        return {
            "errors": metrics.errors(x_hat, truth),
            "exact": metrics.exact(x_hat, truth),
            "expected-errors": expected.flatten(1).sum(1),
        }


class PictureJudge(Judge):
    """PSNR and SSIM of a prior's posterior mean, and the PSNR that it expects.

    Args:
        prior: over readings.
        view: how it looks at them.
    """

    metrics = ("psnr", "ssim", "expected-psnr")

    def __init__(self, prior: Prior, view: View) -> None:
        self.prior, self.view = prior, view

    def __call__(self, observation: Tensor, mask: Tensor, side: Side, truth: Tensor) -> dict[str, Tensor]:
        found = self.prior.maps(_intensities, self.view.tokens(observation, mask), None)
        expected = -10 * found[:, 1].flatten(1).mean(1).clamp(min=1e-10).log10()
        return {**picture_metrics(found[:, 0], truth), "expected-psnr": expected}


class InterpolationJudge(Judge):
    """PSNR and SSIM of a reconstructor that knows no probabilities."""

    metrics = ("psnr", "ssim")

    def __init__(self, reconstruct: Reconstructor) -> None:
        self.reconstruct = reconstruct

    def __call__(self, observation: Tensor, mask: Tensor, side: Side, truth: Tensor) -> dict[str, Tensor]:
        return picture_metrics(self.reconstruct(observation, mask, side), truth)
