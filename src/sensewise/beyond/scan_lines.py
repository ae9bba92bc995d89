r"""Whole lines of a picture, chosen by the entropy of posterior samples: how zea chooses the lines of an ultrasound.

Particles $x_1 \dots x_P$ of the posterior make a mixture of Gaussians at each pixel, whose entropy is about
$-\frac1P \sum_i \log \frac1P \sum_j e^{-(x_i - x_j)^2 / 2 \sigma^2}$; a line is worth the sum over its pixels (Nolan et
al., "Active diffusion subsampling", 2024). Lines are taken one at a time.
"""

import torch
from torch import Tensor

from sensewise.policies.base import Context, Policy
from sensewise.predictions import Prediction
from sensewise.priors.base import Prior
from sensewise.sensors.base import Sensor
from sensewise.tokens import dequantize, pack

PARTICLES, SIGMA = 16, 0.5


class ColumnSensor(Sensor):
    """Noiseless readings of whole columns; observations are readings `(B, 2, H, W)`.

    Args:
        image: intensities in [0, 1], with shape `(B, 1, H, W)`.
    """

    def __init__(self, image: Tensor) -> None:
        self._image = image
        self.batch, self.grid, self.device = len(image), (image.shape[3],), image.device

    def reveal(self, mask: Tensor) -> Tensor:
        values = torch.where(mask[:, None, None, :], self._image, torch.nan)
        return pack(values, torch.zeros_like(values))


class LineEntropy(Policy):
    """Columns by the entropy of particles drawn from a prior's prediction.

    Args:
        prior: over readings.
        particles: how many are drawn.
        sigma: width of the Gaussian around each of them.
    """

    random = True
    prior: Prior

    def __init__(self, prior: Prior, particles: int = PARTICLES, sigma: float = SIGMA) -> None:
        self.prior, self.particles, self.sigma = prior, particles, sigma

    def scores(self, observation: Tensor, mask: Tensor, context: Context) -> Tensor:
        def draw(prediction: Prediction) -> Tensor:
            tokens = prediction.sample(self.particles, context.generator)  # (P, B, 1, H, W)
            return dequantize(tokens, prediction.num_states).movedim(0, 1)

        drawn = self.prior.in_chunks(draw, observation, None)  # (B, P, 1, H, W)
        return particle_entropy(drawn[:, :, 0], self.sigma).sum(1)


def particle_entropy(particles: Tensor, sigma: float) -> Tensor:
    """The entropy of a mixture of Gaussians around particles `(B, P, H, W)`, up to a constant; `(B, H, W)`."""
    total = torch.zeros_like(particles[:, 0])
    for own in particles.unbind(1):
        near = torch.exp(-(particles - own.unsqueeze(1)).square() / (2 * sigma**2)).mean(1)
        total -= near.log() / particles.shape[1]
    return total
