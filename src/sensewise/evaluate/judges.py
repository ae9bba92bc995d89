"""Judges: what was measured and the truth in, one value per metric and scene out.

A judge names its metrics, so that tables and journals know them before anything runs. Token images have shape
`(B, C, H, W)`; what of them was measured is read off the observation (token 0 is hidden), so a judge serves pixels and
scan lines alike.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sensewise import metrics
from sensewise.errors import ConfigError
from sensewise.kspace import acs_rows, magnitude, mirrored_pairs
from sensewise.predictions import Prediction
from sensewise.priors.base import Prior
from sensewise.reconstruct.base import Reconstructor
from sensewise.sensors.base import Side, View
from sensewise.sensors.pixels import Pixels
from sensewise.tokens import MASK, dequantize, quantize


class Judge(ABC):
    """Base of every judge.

    Attributes:
        metrics: names of what it gives.
    """

    metrics: tuple[str, ...]

    @abstractmethod
    def __call__(self, observation: Tensor, mask: Tensor, side: Side, truth: Tensor) -> dict[str, Tensor]:
        """One value per metric and scene, `(B,)` each; NaN where there is nothing to count.

        Args:
            observation: what was measured.
            mask: True where measured, with shape `(B, K)`.
            side: what was known beforehand.
            truth: the scenes' values.
        """


@dataclass(frozen=True)
class Rebuilt:
    """A reconstruction of token images.

    Attributes:
        tokens: 1..N, with shape `(B, C, H, W)`.
        mean: intensities in [0, 1], same shape.
        entropy: nats per site, same shape, 0 where observed; NaN from a reconstructor that knows no probabilities.
        raw_entropy: the same with observed sites as the network predicts them, which is what the paper averages.
        seen: True where a pixel was measured, with shape `(B, H W)`.
    """

    tokens: Tensor
    mean: Tensor
    entropy: Tensor
    raw_entropy: Tensor
    seen: Tensor


TokenMetric = Callable[[Rebuilt, Tensor, int], Tensor]
"""A reconstruction, the true tokens and N to one value per image."""


def _errors(found: Rebuilt, x: Tensor, _levels: int) -> Tensor:
    return metrics.errors(found.tokens, x)


def _exact(found: Rebuilt, x: Tensor, _levels: int) -> Tensor:
    return metrics.exact(found.tokens, x)


def _accuracy(found: Rebuilt, x: Tensor, _levels: int) -> Tensor:
    return metrics.accuracy(found.tokens, x)


def _foreground_recovery(found: Rebuilt, x: Tensor, _levels: int) -> Tensor:
    return metrics.foreground_recovery(found.tokens, x)


def _informative(found: Rebuilt, x: Tensor, _levels: int) -> Tensor:
    return metrics.informative(found.seen, x)


def _hidden_accuracy(found: Rebuilt, x: Tensor, _levels: int) -> Tensor:
    return metrics.hidden_accuracy(found.tokens, x, found.seen)


def _hidden_foreground_accuracy(found: Rebuilt, x: Tensor, _levels: int) -> Tensor:
    return metrics.hidden_foreground_accuracy(found.tokens, x, found.seen)


def _entropy(found: Rebuilt, _x: Tensor, _levels: int) -> Tensor:
    return found.entropy.mean(dim=(1, 2, 3))


def _entropy_raw(found: Rebuilt, _x: Tensor, _levels: int) -> Tensor:
    return found.raw_entropy.mean(dim=(1, 2, 3))


def _psnr(found: Rebuilt, x: Tensor, levels: int) -> Tensor:
    return metrics.psnr(found.mean, dequantize(x, levels))


TOKEN_METRICS: dict[str, TokenMetric] = {
    "errors": _errors,
    "exact": _exact,
    "accuracy": _accuracy,
    "foreground-recovery": _foreground_recovery,
    "informative": _informative,
    "hidden-accuracy": _hidden_accuracy,
    "hidden-foreground-accuracy": _hidden_foreground_accuracy,
    "nonblack-recovery": _foreground_recovery,  # its name for photographs
    "entropy": _entropy,
    "entropy-raw": _entropy_raw,
    "psnr": _psnr,
}
SLICE_METRICS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "nmse": metrics.nmse,
    "psnr": metrics.peak_psnr,
    "ssim": metrics.ssim,
}


def _known(names: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in known:
            raise ConfigError(f"no metric {name!r}: choose from {', '.join(known)}")
    return tuple(names)


class TokenJudge(Judge):
    """Base of the judges of token images: they differ in how the image is rebuilt.

    Attributes:
        levels: `N`.
    """

    levels: int

    @abstractmethod
    def rebuild(self, observation: Tensor, mask: Tensor, side: Side) -> Rebuilt:
        """The reconstruction of every image; arguments as for a reconstructor."""

    def __call__(self, observation: Tensor, mask: Tensor, side: Side, truth: Tensor) -> dict[str, Tensor]:
        found = self.rebuild(observation, mask, side)
        return {name: TOKEN_METRICS[name](found, truth, self.levels) for name in self.metrics}


class PriorJudge(TokenJudge):
    """Hidden sites as a prior sees them, every metric from one pass.

    Args:
        prior: reconstructs.
        metrics: keys of `TOKEN_METRICS`.
        view: how it looks through the sensor.
    """

    def __init__(self, prior: Prior, metrics: Sequence[str], view: View | None = None) -> None:
        self.prior, self.view, self.levels = prior, view or Pixels(), prior.num_states
        self.metrics = _known(metrics, tuple(TOKEN_METRICS))

    def rebuild(self, observation: Tensor, mask: Tensor, side: Side) -> Rebuilt:
        y = self.view.tokens(observation, mask)
        found = self._with_raw(y, side.label) if "entropy-raw" in self.metrics else self._certain(y, side.label)
        tokens, entropy, mean, raw_entropy = found.unbind(1)
        return Rebuilt(tokens=tokens.long(), mean=mean, entropy=entropy, raw_entropy=raw_entropy, seen=_seen(y))

    def _certain(self, y: Tensor, label: Tensor | None) -> Tensor:
        """Mode, entropy, mean, and NaN for the raw entropy that is not asked for, `(B, 4, C, H, W)`."""
        found = self.prior.in_chunks(_everything, y, label)
        return torch.cat([found, torch.full_like(found[:, :1], torch.nan)], dim=1)

    @torch.inference_mode()
    def _with_raw(self, y: Tensor, label: Tensor | None) -> Tensor:
        """Mode, entropy, mean and raw entropy from the same pass, `(B, 4, C, H, W)`."""
        rows = []
        labels = self.prior.check(y, label)
        for part, known in zip(torch.split(y, CHUNK), torch.split(labels, CHUNK), strict=True):
            raw = self.prior.predict(part, known, None)
            rows.append(torch.cat([_everything(raw.given(part)), raw.entropy().unsqueeze(1)], dim=1))
        return torch.cat(rows)


CHUNK = 64  # images of a pass


def _everything(prediction: Prediction) -> Tensor:
    """Mode, entropy and mean, `(B, 3, C, H, W)`."""
    return torch.stack([prediction.mode().float(), prediction.entropy(), prediction.mean()], dim=1)


def _seen(y: Tensor) -> Tensor:
    return (y != MASK).any(1).flatten(1)


class IntensityJudge(TokenJudge):
    """Token images rebuilt as intensities by any reconstructor; their nearest levels are its tokens.

    Args:
        reconstruct: tokens to intensities in [0, 1].
        levels: `N`.
        metrics: keys of `TOKEN_METRICS`; there is no entropy, so it is NaN.
    """

    def __init__(self, reconstruct: Reconstructor, levels: int, metrics: Sequence[str]) -> None:
        self.reconstruct, self.levels = reconstruct, levels
        self.metrics = _known(metrics, tuple(TOKEN_METRICS))

    def rebuild(self, observation: Tensor, mask: Tensor, side: Side) -> Rebuilt:
        mean = self.reconstruct(observation, mask, side)
        nothing = torch.full_like(mean, torch.nan)
        tokens = quantize(mean, self.levels)
        return Rebuilt(tokens=tokens, mean=mean, entropy=nothing, raw_entropy=nothing, seen=_seen(observation))


class MagnitudeJudge(Judge):
    """MR slices: the magnitudes that a reconstructor draws against those of the fully sampled k-space.

    Args:
        reconstruct: measured rows to magnitudes `(B, H, W)`.
        metrics: keys of `SLICE_METRICS`.
    """

    def __init__(self, reconstruct: Reconstructor, metrics: Sequence[str] = tuple(SLICE_METRICS)) -> None:
        self.reconstruct = reconstruct
        self.metrics = _known(metrics, tuple(SLICE_METRICS))

    def __call__(self, observation: Tensor, mask: Tensor, side: Side, truth: Tensor) -> dict[str, Tensor]:
        x_hat, x = self.reconstruct(observation, mask, side), magnitude(truth)
        return {name: SLICE_METRICS[name](x_hat, x) for name in self.metrics}


class RowsJudge(Judge):
    """What the rows of a mask say by themselves: mirrored pairs beside the ACS block, and how many masks there are.

    Args:
        acs: rows of the ACS block.
    """

    metrics = ("mirrored-pairs", "different-masks")

    def __init__(self, acs: int) -> None:
        self.acs = acs

    def __call__(self, observation: Tensor, mask: Tensor, side: Side, truth: Tensor) -> dict[str, Tensor]:
        free = ~acs_rows(mask.shape[1], self.acs).to(mask.device)
        different = len({tuple(rows) for rows in mask.tolist()})
        return {
            "mirrored-pairs": mirrored_pairs(mask & free).float(),
            "different-masks": torch.full((len(mask),), float(different)),
        }
