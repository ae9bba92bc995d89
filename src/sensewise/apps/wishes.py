"""What a user may ask of an acquisition of pixels, in words: noise, a stop, a promise, a reconstruction."""

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from sensewise import hub, predictions
from sensewise.channels import Channel, Gaussian, Poisson
from sensewise.errors import ConfigError
from sensewise.policies.base import Stop
from sensewise.policies.stops import ExpectedErrors, ExpectedPSNR, Gain
from sensewise.priors.base import Prior
from sensewise.reconstruct.interpolate import Interpolation, inverse_distance, linear
from sensewise.reconstruct.prior import PosteriorMean
from sensewise.sensors.base import Side
from sensewise.tokens import dequantize

ROUNDS = 16  # of joint sampling
FILLS = {"linear": linear, "inverse-distance": inverse_distance}
OF_A_PRIOR = ("mean", "mode", "sample")
NOT_REACHED = "the stop was not reached before the budget was spent: raise the budget, or ask for less"
STOP = re.compile(r"(?P<kind>[a-z]+):(?P<level>[^ ]+)( with (?P<percent>[^ ]+)%)?")


def parse_noise(text: str | None) -> Channel:
    """`0.05` for Gaussian noise of that standard deviation, `poisson:200` for counts of that dose, None for none."""
    kind, _, number = (text or "0").rpartition(":")
    value = _number(number)
    if kind in ("", "gaussian") and value == value:
        return Gaussian(value)
    if kind == "poisson" and value == value:
        return Poisson(value)
    raise ConfigError(f"noise {text!r} is not known: give a standard deviation such as 0.05, or poisson:DOSE")


def _number(text: str) -> float:
    """NaN for what is none."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def parse_stop(text: str | None, name: str, levels: int) -> Stop | None:
    """When a picture is good enough; None for never.

    Args:
        text: `psnr:30`, an expected PSNR in dB, or `errors:3`, so many expected errors, for two levels; either of them
            `with 90%` as a promise; `gain:1e-4`, when no pixel is worth more.
        name: of the prior, whose card says what it can promise.
        levels: of the prior.
    """
    if text is None:
        return None
    good = "errors" if levels == 2 else "psnr"
    found = STOP.fullmatch(text)
    level = _number(found["level"]) if found else float("nan")
    if (
        not found
        or level != level
        or found["kind"] not in (good, "gain")
        or (found["percent"] and found["kind"] != good)
    ):
        example = "errors:3 (expected errors)" if levels == 2 else "psnr:30 (an expected PSNR in dB)"
        raise ConfigError(
            f"stop {text!r} is not known to a prior of {levels} levels: give {example}, "
            f"'{good}:{3 if levels == 2 else 30} with 90%' (a promise) or gain:0.0001"
        )
    if found["kind"] == "gain":
        return Gain(level)
    factor = 1.0 if found["percent"] is None else _promise(name, level, _number(found["percent"]) / 100)
    return ExpectedErrors(level, factor) if levels == 2 else ExpectedPSNR(level, factor)


def _promise(name: str, level: float, probability: float) -> float:
    """The factor in a prior's card with which a level is promised."""
    card = hub.calibration(name)
    if abs(card.probability - probability) > 1e-6:
        raise ConfigError(
            f"{name} can promise with {card.probability:.0%}, as its card says: ask for that, or run `sensewise "
            f"calibrate {name}` with another --probability"
        )
    if not level > 0:
        raise ConfigError(f"a promise needs a level above 0, got {level:g}")
    return card.factor(level)


@dataclass(frozen=True)
class Wanted:
    """A reconstruction by name.

    Attributes:
        name: mean, mode, sample, linear or inverse-distance.
        prior: predicts; also what an interpolation is expected to get wrong.
    """

    name: str
    prior: Prior

    def __post_init__(self) -> None:
        known = [*OF_A_PRIOR, *(FILLS if self.prior.size is None else ())]
        if self.name not in known:
            raise ConfigError(f"no reconstruction {self.name!r} of these pictures: choose one of {', '.join(known)}")

    def __call__(self, observation: Tensor, mask: Tensor, side: Side, generator: torch.Generator) -> Tensor:
        """Intensities `(B, C, H, W)`."""
        if self.name in FILLS:
            return Interpolation(FILLS[self.name])(observation, mask, side)
        if self.name == "mean":
            return PosteriorMean(self.prior)(observation, mask, side).clamp(0, 1)
        if self.name == "mode":
            tokens = self.prior.in_chunks(predictions.mode, observation, side.label)
        else:
            tokens = self.prior.sample(observation, side.label, generator, steps=ROUNDS)[0]
        return dequantize(tokens, self.prior.num_states)
