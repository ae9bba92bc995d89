"""Whether a prior fits a picture: pixels at random places, compared with what it said about them.

A policy reads where its prior expects to be wrong, so its own readings do not tell what the prior overlooks. Pixels at
random places do: hidden again, they have to be about as wrong as predicted, and how far chance alone can go is known,
because a prediction is a distribution.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sensewise.predictions import Categorical
from sensewise.priors.base import Prior
from sensewise.tokens import MASK, dequantize, quantize, unpack

PIXELS = 12  # of an audit, at least
SHARE = 0.02  # of the budget, at least
RARE = 0.01  # a fit is refused below, and was for at most 1% of validation images (lab notes)
NEGLIGIBLE = 1e-4  # an error of one hundredth of the range is no misfit, whatever was expected
DRAWS = 3999


@dataclass(frozen=True)
class Fit:
    """How well a prior predicts pixels that were chosen at random, from all the others.

    Attributes:
        pixels: how many were looked at.
        error: their mean squared error.
        expected: what the prior expected it to be.
        p: how often its own predictions, come true, would be as far off as what was read.
    """

    pixels: int
    error: float
    expected: float
    p: float

    @property
    def ratio(self) -> float:
        """How many times larger the error is than expected: near 1 for a prior that fits."""
        return self.error / max(self.expected, 1e-9)

    @property
    def fits(self) -> bool:
        """False if the prior does not know pictures like this one: its choices and its certainty mean little."""
        return self.p >= RARE or self.error < NEGLIGIBLE


def audit_share(budget: int) -> float:
    """The part of a budget that an audit takes: 2%, or 12 pixels where that is more, but never above a fourth."""
    return min(0.25, max(SHARE, PIXELS / budget))


def audit_fit(prior: Prior, observation: Tensor, audit: Tensor, label: Tensor | None) -> Fit | None:
    """Hide some pixels `(1, K)` of one image again, and compare what the prior makes of them with what was read."""
    if not bool(audit.any()):
        return None
    height, width = observation.shape[2:]
    places = audit.view(1, 1, height, width)
    hidden = torch.where(places, prior.blank((height, width)).to(observation.device), observation)
    sites = _one_channel_each(places, prior.channels)
    values, noise = _read(observation, prior.num_states)
    tables, parts = [], []
    with torch.inference_mode():
        for (rows, columns), prediction in prior.tiles(hidden, prior.check(hidden, label)):
            here = sites[..., rows, columns]
            tables.append(prediction.reading(here, noise[..., rows, columns]).log_probs)
            parts.append(values[..., rows, columns][here])
    expected, read = Categorical(torch.cat(tables, dim=3)), torch.cat(parts)
    found = quantize(read.clamp(0, 1), prior.num_states)
    off = read - expected.mean().flatten()
    p = chance(expected, found, _costs(expected), torch.Generator().manual_seed(0))
    return Fit(int(audit.sum()), float(off.square().mean()), float(expected.variance().mean()), p)


def _one_channel_each(places: Tensor, channels: int) -> Tensor:
    """Sites `(1, C, H, W)` of pixels `(1, 1, H, W)`: the colours of one pixel go together, so one of them counts."""
    turn = (places.flatten().cumsum(0) % channels).view(places.shape)
    return places & (turn == torch.arange(channels, device=places.device).view(1, -1, 1, 1))


def _read(observation: Tensor, num_states: int) -> tuple[Tensor, Tensor]:
    """Intensities and noise of what was read, `(1, C, H, W)` each; any number where nothing was."""
    if observation.is_floating_point():
        return unpack(observation)[:2]
    values = dequantize(observation.clamp(min=MASK + 1), num_states)
    return values, torch.zeros_like(values)


def _costs(expected: Categorical) -> Tensor:
    """How bad each level would be, `(K, N)`: its surprise if there are two of them, else its squared distance."""
    if expected.num_states == 2:
        return -expected.log_probs[0, 0, 0].clamp(min=-30)
    levels = torch.linspace(0, 1, expected.num_states, device=expected.log_probs.device)
    return (levels - expected.mean()[0, 0, 0].unsqueeze(1)).square()


def chance(expected: Categorical, found: Tensor, costs: Tensor, generator: torch.Generator) -> float:
    """How often readings drawn from a table cost as much as those that were found; exact for any number of them.

    Args:
        expected: with shape `(1, 1, 1, K, N)`.
        found: tokens 1..N, with shape `(K,)`.
        costs: of each level, with shape `(K, N)`.
    """
    table = expected.log_probs[0, 0, 0].exp().to(generator.device)
    drawn = torch.multinomial(table, DRAWS, replacement=True, generator=generator).to(costs.device)  # (K, n)
    cost, by_chance = costs.gather(1, (found - 1).unsqueeze(1)).sum(), costs.gather(1, drawn).sum(0)
    return (1 + int((by_chance >= cost * (1 - 1e-6)).sum())) / (DRAWS + 1)
