"""Readings that may be wrong: how a prior over them is taught, and how well it knows what it does not know."""

import torch
from torch import Generator, Tensor

from sensewise import masks
from sensewise.channels import BitFlip, combine_flips
from sensewise.loop import acquire
from sensewise.metrics import errors
from sensewise.policies.choose import Spread
from sensewise.policies.greedy import Greedy
from sensewise.predictions import InformationGain, Prediction
from sensewise.priors.base import Prior
from sensewise.sensors.base import Side
from sensewise.sensors.readings import Readings, ReadingSensor
from sensewise.tokens import dequantize, pack

REPEATS = 3  # readings of a site, at most
JUDGED = (0.0, 0.05, 0.1)  # probabilities of a flip
BUDGET, STEPS = 0.1, 16


def misread(x: Tensor, sites: Tensor, level: Tensor, chance: Tensor, repeated: Tensor, generator: Generator) -> Tensor:
    """Readings of images of two states, some of them wrong.

    Args:
        x: true tokens, with shape `(B, 1, H, W)`.
        sites: True where a site was read, same shape.
        level: the probability of a flip, with shape `(B,)`.
        chance: uniform numbers that decide on each first reading, with shape `(B, 1, H, W)`.
        repeated: True where sites of an image were read up to `REPEATS` times, with shape `(B,)`.

    Returns:
        Readings, with shape `(B, 2, H, W)`.
    """
    p, truth = level.view(-1, 1, 1, 1), dequantize(x, 2)
    more = torch.rand((REPEATS - 1, *x.shape), generator=generator).to(x.device)
    flipped = torch.cat([chance.unsqueeze(0), more]) < p  # (R, B, 1, H, W)
    times = torch.randint(1, REPEATS + 1, x.shape, generator=generator).to(x.device)
    times = torch.where(repeated.view(-1, 1, 1, 1), times, 1)
    taken = sites & (torch.arange(REPEATS, device=x.device).view(-1, 1, 1, 1, 1) < times)
    values, wrong = combine_flips(torch.where(flipped, 1 - truth, truth), taken, p)
    return pack(values, wrong)


def _mode_and_errors(prediction: Prediction) -> Tensor:
    return torch.stack([prediction.mode().float(), prediction.expected_errors()], dim=1)


def noisy_errors(prior: Prior, x: Tensor, label: Tensor | None) -> dict[str, float]:
    """True and expected errors per image after greedy acquisition in 16 steps, at each of `JUDGED`."""
    values, side = {}, Side(label=label)
    steps = min(STEPS, masks.count(BUDGET, x[0, 0].numel()))
    for p in JUDGED:
        channel = BitFlip(p)
        policy = Greedy(prior, InformationGain(channel), view=Readings())
        taken = acquire(
            policy, ReadingSensor(dequantize(x, 2), channel), BUDGET, side=side, steps=steps, choose=Spread()
        )
        mode, expected = prior.in_chunks(_mode_and_errors, taken.observation, label).unbind(1)
        values[f"errors_{p:g}"] = errors(mode.long(), x).mean().item()
        values[f"expected_{p:g}"] = expected.sum((1, 2, 3)).mean().item()
    return values
