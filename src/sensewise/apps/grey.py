"""`sensewise acquire PICTURE` with a prior for pictures of any size: at its own size, with noise, until it is good."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sensewise import hub, predictions
from sensewise.apps.subject import Settings, Subject
from sensewise.channels import Channel, Gaussian, Poisson
from sensewise.data.any_picture import GreyPicture
from sensewise.errors import ConfigError
from sensewise.files import write_json
from sensewise.loop import Trajectory, acquire
from sensewise.metrics import psnr
from sensewise.policies.base import Choice, Policy, Stop
from sensewise.policies.choose import SPREAD_VARIANCE, TopK
from sensewise.policies.greedy import Greedy
from sensewise.policies.simple import Random, VariableDensity
from sensewise.policies.starts import AuditedStart
from sensewise.policies.stops import ExpectedPSNR, Gain
from sensewise.predictions import VarianceReduction
from sensewise.priors.readings import ReadingPrior
from sensewise.report.figures import grey as figures
from sensewise.report.figures.style import save
from sensewise.sensors.base import Side
from sensewise.sensors.readings import Readings, ReadingSensor
from sensewise.session import Fit, audit_fit

STEPS = 32
AUDIT = 0.02  # of the budget, at random places: whether the prior fits


def parse_noise(text: str | None) -> Channel:
    """`0.05` for Gaussian noise of that standard deviation, `poisson:200` for counts of that dose, None for none."""
    kind, _, number = (text or "0").rpartition(":")
    try:
        value = float(number)
    except ValueError:
        value = float("nan")
    if kind in ("", "gaussian") and value == value:
        return Gaussian(value)
    if kind == "poisson" and value == value:
        return Poisson(value)
    raise ConfigError(f"noise {text!r} is not known: give a standard deviation such as 0.05, or poisson:DOSE")


def parse_stop(text: str | None) -> Stop | None:
    """`psnr:30`: stop when the expected PSNR is above; `gain:1e-4`: when no pixel is worth more; None for never."""
    if text is None:
        return None
    kind, _, number = text.partition(":")
    try:
        value = float(number)
    except ValueError:
        value = float("nan")
    if kind == "psnr" and value == value:
        return ExpectedPSNR(value)
    if kind == "gain" and value == value:
        return Gain(value)
    raise ConfigError(f"stop {text!r} is not known: give psnr:30 (an expected PSNR in dB) or gain:0.0001")


@dataclass(frozen=True)
class AnyPicture(Subject):
    """A grey picture at its own size.

    Attributes:
        picture: the truth.
        prior: reconstructs, and guides the policies that need a prior.
        name: of the prior.
    """

    picture: GreyPicture
    prior: ReadingPrior
    name: str

    def acquire(self, settings: Settings, folder: Path) -> str:
        channel, stop = parse_noise(settings.noise), parse_stop(settings.stop)
        policy, choose = self._policy(settings.policy or "spread-variance-greedy", channel)
        image = torch.from_numpy(self.picture.values)[None, None]  # (1, 1, H, W)
        generator = settings.generator()
        audited = AuditedStart(None, AUDIT)
        taken = acquire(
            policy,
            ReadingSensor(image, channel, generator=generator),
            0.1 if settings.budget is None else settings.budget,
            steps=STEPS if settings.steps is None else settings.steps,
            start=audited,
            choose=choose,
            stop=stop,
            generator=generator,
        )
        with torch.inference_mode():
            found = self.prior(taken.observation)
            mean, variance = found.mean().clamp(0, 1), found.variance()
        fit = audit_fit(self.prior, taken.observation, audited.audit, Side())
        assert fit is not None
        self._write(folder, taken, mean[0, 0].numpy(), variance[0, 0].sqrt().numpy())
        numbers: dict[str, Any] = {
            "measured": int(taken.mask.sum()),
            "density": float(taken.density),
            "steps": int(taken.step.max()),
            "stopped": bool(taken.stopped.all()) if taken.stopped is not None else None,
            "psnr": round(float(psnr(mean, image)), 3),
            "expected_psnr": round(float(-10 * torch.log10(variance.mean().clamp(min=1e-10))), 3),
            "audit": {"pixels": fit.pixels, "error": fit.error, "expected": fit.expected, "fits": fit.fits},
            "prior": self.name,
            "low": self.picture.low,
            "high": self.picture.high,
        }
        write_json(folder / "acquisition.json", numbers)
        return self._sentence(numbers, taken, fit, stop)

    def _policy(self, name: str, channel: Channel) -> tuple[Policy, Choice]:
        score = predictions.variance if channel == Gaussian(0.0) else VarianceReduction(channel)
        known: dict[str, tuple[Policy, Choice]] = {
            "spread-variance-greedy": (Greedy(self.prior, score, view=Readings(), reach=0.6), SPREAD_VARIANCE),
            "variance-greedy": (Greedy(self.prior, score, view=Readings()), TopK()),
            "random": (Random(), TopK()),
            "variable-density": (VariableDensity(), TopK()),
        }
        if name not in known:
            raise ConfigError(f"no policy {name!r} for pictures of any size: choose one of {', '.join(known)}")
        return known[name]

    def _write(self, folder: Path, taken: Trajectory, mean: np.ndarray, deviation: np.ndarray) -> None:
        """Arrays and pictures, all at the picture's own size."""
        mask = taken.mask.view(mean.shape).numpy()
        hub.save_array(folder / "mask.npy", mask)
        hub.save_array(folder / "reconstruction.npy", mean)
        hub.save_array(folder / "uncertainty.npy", deviation)
        save(figures.png(mask.astype(float)), folder / "mask.png")
        save(figures.png(mean), folder / "reconstruction.png")
        save(figures.png(deviation / max(float(deviation.max()), 1e-9)), folder / "uncertainty.png")
        save(figures.overview(self.picture.values, mask, mean, deviation), folder / "acquisition.png")

    def _sentence(self, numbers: dict[str, Any], taken: Trajectory, fit: Fit, stop: Stop | None) -> str:
        height, width = self.picture.values.shape
        lines = [
            f"{height} x {width}, {self.picture.kind} -> {height} x {width}, {self.prior.num_states} levels, prior "
            f"{self.name}: {numbers['measured']} pixels ({float(taken.density):.1%}) measured in {numbers['steps']} "
            f"steps, {numbers['psnr']:.1f} dB ({numbers['expected_psnr']:.1f} expected)"
        ]
        if stop is not None and not numbers["stopped"]:
            lines.append("the stop was not reached before the budget was spent: raise the budget, or ask for less")
        if not fit.fits:
            lines.append(
                f"the prior does not fit this picture: {fit.pixels} pixels at random places were {fit.ratio:.0f} times "
                "as wrong as it expected, so do not trust what it expects"
            )
        return "\n".join(lines)
