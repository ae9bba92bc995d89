"""Criteria that nobody optimised: functions of `(B, ...)` and `(B, ...)` to one value per image `(B,)`.

Token images have shape `(B, C, H, W)`, black is token 1, masks are `(B, H W)`; MR magnitudes have shape `(B, H, W)`. A
metric with nothing to count in an image (no digit pixel left hidden, say) is NaN there, and means over images skip it.
"""

import torch
from torch import Tensor

from sensewise.tokens import BLACK, site_mask

PSNR_CEILING = 100.0  # dB, for a reconstruction without any error


def _fraction(good: Tensor, of: Tensor) -> Tensor:
    """The fraction of `of` where `good` holds, per image; NaN where `of` is empty."""
    return (good & of).flatten(1).sum(1) / of.flatten(1).sum(1)


def _hidden(mask: Tensor, x: Tensor) -> Tensor:
    return ~site_mask(mask, (x.shape[1], x.shape[2], x.shape[3]))


def errors(x_hat: Tensor, x: Tensor) -> Tensor:
    """How many sites of the reconstruction are wrong."""
    return (x_hat != x).flatten(1).sum(1).float()


def exact(x_hat: Tensor, x: Tensor) -> Tensor:
    """1 where the whole image is right; its mean is the fraction of images reconstructed exactly."""
    return (x_hat == x).flatten(1).all(1).float()


def accuracy(x_hat: Tensor, x: Tensor) -> Tensor:
    """The fraction of all sites that are right. An all-black guess already reaches about 0.9 on MNIST."""
    return (x_hat == x).flatten(1).float().mean(1)


def foreground_recovery(x_hat: Tensor, x: Tensor) -> Tensor:
    """The fraction of sites that are not black in the target and right in the reconstruction."""
    return _fraction(x_hat == x, x != BLACK)


def informative(mask: Tensor, x: Tensor) -> Tensor:
    """The share of measured pixels that are not black (in any channel)."""
    return _fraction((x != BLACK).any(1).flatten(1), mask)


def hidden_accuracy(x_hat: Tensor, x: Tensor, mask: Tensor) -> Tensor:
    """The fraction of hidden sites that are right; biased against masks that measure what is hard."""
    return _fraction(x_hat == x, _hidden(mask, x))


def hidden_foreground_accuracy(x_hat: Tensor, x: Tensor, mask: Tensor) -> Tensor:
    """The fraction of hidden non-black sites that are right; biased in the same way."""
    return _fraction(x_hat == x, _hidden(mask, x) & (x != BLACK))


def psnr(values: Tensor, target: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB of intensities in [0, 1], per image, at most `PSNR_CEILING`."""
    mse = ((values - target) ** 2).flatten(1).mean(1)
    return (-10 * torch.log10(mse)).clamp(max=PSNR_CEILING)


def nmse(x_hat: Tensor, x: Tensor) -> Tensor:
    """`||x_hat - x||^2 / ||x||^2` per slice. No floor in the denominator: fastMRI slices have ||x||^2 near 4e-9."""
    error, energy = (x_hat - x).double().square().flatten(1).sum(1), x.double().square().flatten(1).sum(1)
    return (error / energy).float()


def peak_psnr(x_hat: Tensor, x: Tensor) -> Tensor:
    """PSNR in dB of magnitudes, the peak being the largest value of the slice's own target."""
    peak = x.flatten(1).amax(1).view(-1, 1, 1)
    return psnr(x_hat / peak, x / peak)


def ssim(x_hat: Tensor, x: Tensor) -> Tensor:
    """Structural similarity (Wang et al., 2004; torchmetrics) with the target's maximum as the range, per slice."""
    from torchmetrics.functional.image import structural_similarity_index_measure  # slow to import, rarely needed

    peak = x.flatten(1).amax(1).view(-1, 1, 1)
    pair = ((x_hat / peak).unsqueeze(1), (x / peak).unsqueeze(1))  # (B, 1, H, W)
    return structural_similarity_index_measure(*pair, data_range=1.0, reduction="none").view(-1)  # type: ignore
