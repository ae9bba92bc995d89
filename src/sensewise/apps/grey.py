"""`sensewise acquire PICTURE` with a prior for pictures of any size: at its own size, with noise, until it is good."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sensewise import hub, masks
from sensewise.apps.subject import Settings, Subject
from sensewise.apps.wishes import NOT_REACHED, ROUNDS, Wanted, parse_noise, parse_stop
from sensewise.channels import Channel
from sensewise.data.any_picture import GreyPicture
from sensewise.errors import ConfigError
from sensewise.evaluate.method import Method, method_from_text, reading_methods
from sensewise.files import write_json
from sensewise.loop import Trajectory, acquire
from sensewise.metrics import psnr
from sensewise.policies.base import Stop
from sensewise.policies.starts import AuditedStart
from sensewise.priors.audit import Fit, audit_fit, audit_share
from sensewise.priors.readings import ReadingPrior
from sensewise.report.figures import grey as figures
from sensewise.report.figures.style import save
from sensewise.sensors.base import Side
from sensewise.sensors.readings import ReadingSensor

STEPS = 32


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
        channel, stop = parse_noise(settings.noise), parse_stop(settings.stop, self.name, self.prior.num_states)
        rebuild = Wanted(settings.reconstructor or "mean", self.prior)
        method = self._method(settings, channel)
        image = torch.from_numpy(self.picture.values)[None, None]  # (1, 1, H, W)
        generator = settings.generator()
        budget = masks.count(0.1 if settings.budget is None else settings.budget, image.numel())
        audited = AuditedStart(None, audit_share(budget))
        taken = acquire(
            method.policy,
            ReadingSensor(image, channel, generator=generator),
            budget,
            steps=method.steps,
            start=audited,
            choose=method.choose,
            stop=stop,
            generator=generator,
        )
        both = self.prior.maps(lambda found: torch.stack((found.mean(), found.variance()), 1), taken.observation, None)
        mean, variance = both[:, 0].clamp(0, 1), both[:, 1]
        shown = rebuild(taken.observation, taken.mask, Side(), generator)  # (1, 1, H, W)
        error = (variance + (shown - mean).square()).mean()  # that is expected of it: least for the mean
        fit = audit_fit(self.prior, taken.observation, audited.audit, None)
        assert fit is not None
        self._write(folder, taken, shown[0, 0].numpy(), variance[0, 0].sqrt().numpy())
        if settings.samples:
            drawn = self.prior.sample(taken.observation, None, generator, steps=ROUNDS, samples=settings.samples)
            possible = (drawn[:, 0, 0].numpy() - 1) / (self.prior.num_states - 1)  # (samples, H, W)
            save(figures.png(np.concatenate(possible, axis=1)), folder / "samples.png")
        numbers: dict[str, Any] = {
            "measured": int(taken.mask.sum()),
            "density": float(taken.density),
            "steps": int(taken.step.max()),
            "stopped": bool(taken.stopped.all()) if taken.stopped is not None else None,
            "psnr": round(float(psnr(shown, image)), 3),
            "expected_psnr": round(float(-10 * torch.log10(error.clamp(min=1e-10))), 3),
            "audit": {**vars(fit), "fits": fit.fits},
            "prior": self.name,
            "reconstructor": rebuild.name,
            "stop": settings.stop,
            "low": self.picture.low,
            "high": self.picture.high,
        }
        write_json(folder / "acquisition.json", numbers)
        return self._sentence(numbers, taken, fit, stop)

    def _method(self, settings: Settings, channel: Channel) -> Method:
        if settings.label is not None:
            raise ConfigError(f"prior {self.name} takes no labels: leave --label out")
        known = reading_methods(self.prior, STEPS if settings.steps is None else settings.steps, channel)
        name = settings.policy or next(iter(known))
        if ":" in name:
            return method_from_text(name, self.prior, STEPS if settings.steps is None else settings.steps)
        if name not in known:
            raise ConfigError(
                f"no policy {name!r} for pictures of any size: choose one of {', '.join(known)}, or give module:Class"
            )
        return known[name]

    def _write(self, folder: Path, taken: Trajectory, shown: np.ndarray, deviation: np.ndarray) -> None:
        """Arrays and pictures, all at the picture's own size."""
        mask = taken.mask.view(shown.shape).numpy()
        hub.save_array(folder / "mask.npy", mask)
        hub.save_array(folder / "reconstruction.npy", shown)
        hub.save_array(folder / "uncertainty.npy", deviation)
        save(figures.png(mask.astype(float)), folder / "mask.png")
        save(figures.png(shown), folder / "reconstruction.png")
        save(figures.png(deviation / max(float(deviation.max()), 1e-9)), folder / "uncertainty.png")
        save(figures.overview(self.picture.values, mask, shown, deviation), folder / "acquisition.png")

    def _sentence(self, numbers: dict[str, Any], taken: Trajectory, fit: Fit, stop: Stop | None) -> str:
        height, width = self.picture.values.shape
        lines = [
            f"{height} x {width}, {self.picture.kind} -> {height} x {width}, {self.prior.num_states} levels, prior "
            f"{self.name}: {numbers['measured']} pixels ({float(taken.density):.1%}) measured in {numbers['steps']} "
            f"steps, {numbers['psnr']:.1f} dB ({numbers['expected_psnr']:.1f} expected)"
        ]
        if stop is not None and not numbers["stopped"]:
            lines.append(NOT_REACHED)
        if not fit.fits:
            lines.append(
                f"the prior does not fit this picture: {fit.pixels} pixels at random places were {fit.ratio:.1f} "
                f"times as wrong as it expected (by chance in one of {1 / fit.p:,.0f} pictures): do not trust what it "
                "expects"
            )
        return "\n".join(lines)
