"""One image and a real sensor: ask which pixels to read, tell what was read, look at the result at any time."""

import json
import operator
import warnings
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor

from sensewise import predictions
from sensewise.errors import ConfigError, SensewiseError, SessionError
from sensewise.files import identity, read_tensors, write_tensors
from sensewise.information import per_pixel
from sensewise.loop import NEVER, Acquisition
from sensewise.policies import travel
from sensewise.policies.base import Choice, Policy, Start, Stop
from sensewise.policies.starts import AuditedStart
from sensewise.priors.audit import Fit, audit_fit
from sensewise.priors.base import Prior
from sensewise.reconstruct.prior import Mode, PosteriorMean
from sensewise.sensors.base import Side
from sensewise.tokens import quantize


class Session:
    """The loop of `acquire` for one image that nobody has yet.

    Args:
        policy: scores the pixels.
        shape: `(C, H, W)` of the image.
        budget: a fraction or a count of the pixels.
        steps: how many rounds of ask / tell after the start.
        label: the class, if it is known.
        summary: a coarse first look `(1, 1, 8, 8)`, for policies that need one.
        start: a first probe, or None.
        choose: which pixels to read together.
        stop: ends the session before the budget is spent; None for never.
        audit: the fraction of the budget that is read at random places first, to find out whether the prior fits.
        prior: reconstructs; the policy's own by default.
        seed: of everything random.
    """

    def __init__(
        self,
        policy: Policy,
        shape: tuple[int, int, int],
        budget: float | int,
        *,
        steps: int = 16,
        label: int | None = None,
        summary: Tensor | None = None,
        start: Start | None = None,
        choose: Choice | None = None,
        stop: Stop | None = None,
        audit: float = 0.0,
        prior: Prior | None = None,
        seed: int = 0,
    ) -> None:
        known = prior or policy.prior
        if known is None:
            raise ConfigError("this policy has no prior of its own: say which one reconstructs, with prior=...")
        self.prior, self.shape = known, shape
        if not 0 <= audit < 1:
            raise ConfigError(f"audit is a fraction of the budget, at least 0 and below 1, got {audit:g}")
        nothing, labels = known.blank((shape[1], shape[2])), known.known_label(label)
        if shape[0] != known.channels:
            raise ConfigError(f"this prior takes images of {known.channels} channels, not of {shape[0]}")
        known.check(nothing, labels)
        generator = torch.Generator().manual_seed(seed)
        first = AuditedStart(start, audit) if audit else start
        self._loop = Acquisition(
            policy,
            nothing,
            shape[1:],
            budget,
            side=Side(label=labels, summary=summary),
            steps=steps,
            start=first,
            choose=choose,
            stop=stop,
            generator=generator,
        )
        self._path = np.empty(0, dtype=np.int64)  # pixels in the order they are read, those asked for included
        self._audit = first.audit if isinstance(first, AuditedStart) else torch.zeros(1, shape[1] * shape[2]).bool()
        settings = {"budget": self._loop.budget, "steps": steps, "label": labels, "seed": seed, "shape": shape}
        self._identity = identity([policy, known, start, choose, stop, audit, summary, settings])

    def ask(self) -> np.ndarray | None:
        """Rows and columns of the pixels to read now, int64 `(n, 2)`; None when the budget is spent.

        They come in the order of a short path from the last pixel read.
        """
        chosen = self._loop.ask()
        return None if chosen is None else travel.places(self._in_order(chosen), self.shape[1:])

    def _in_order(self, chosen: Tensor) -> np.ndarray:
        """The pixels `(1, K)` asked for now, by number and in the order of `ask`."""
        read = int(self._loop.mask.sum())
        if len(self._path) == read:
            pixels = chosen[0].nonzero()[:, 0].numpy()
            self._path = np.concatenate([self._path, travel.onward(self._path, pixels, self.shape[1:])])
        return self._path[read:]

    def tell(
        self, values: np.ndarray | Tensor | list[int] | list[float], sigma: float | np.ndarray | None = None
    ) -> None:
        """What was read, in the order of `ask`: `(n,)`, or `(n, C)` for several channels.

        Args:
            values: whole numbers are tokens 1..N, floating-point numbers are intensities in [0, 1].
            sigma: the standard deviation of the readings, one number or one each, for priors that know noise.
        """
        loop, (height, width) = self._loop, self.shape[1:]
        if loop.pending is None:
            raise SessionError("tell was called before ask: ask first, read the pixels it names, then tell")
        pixels = self._in_order(loop.pending)
        read = self._numbers(values, len(pixels))
        if loop.observation.is_floating_point():
            told = self._readings(read, sigma).T  # (2 C, n)
        elif sigma is None:
            told = self._tokens(read).T  # (C, n)
        else:
            raise SessionError(
                "this prior takes readings without noise: leave sigma out, or take a prior such as any-grey"
            )
        observation = loop.observation.clone().view(len(told), height * width)
        observation[:, pixels] = told
        loop.tell(observation.view(1, len(told), height, width))

    def _numbers(self, values: np.ndarray | Tensor | list[int] | list[float], count: int) -> np.ndarray:
        """Readings as an array `(n, C)`."""
        try:
            read = np.asarray(values)
        except (TypeError, ValueError) as error:
            raise SessionError(f"the readings are not an array of numbers: {error}") from error
        if read.dtype.kind not in "biufc":
            raise SessionError(f"the readings are not an array of numbers, but of {read.dtype}")
        channels = self.shape[0]
        wanted = (count,) if channels == 1 else (count, channels)
        if tuple(read.shape) not in {wanted, (count, channels)}:
            raise SessionError(
                f"ask named {count} pixels: tell needs readings of shape {wanted}, got {tuple(read.shape)}"
            )
        if read.dtype.kind in "bc":
            states = self.prior.num_states
            raise SessionError(f"readings must be tokens 1..{states} or intensities in [0, 1], got {read.dtype}")
        return read.reshape(count, channels)

    def _readings(self, read: np.ndarray, sigma: float | np.ndarray | None) -> Tensor:
        """Readings `(n, C)` as intensities beside their noise, `(n, 2 C)`; whole numbers are tokens."""
        if read.dtype.kind != "f":
            read = (self._tokens(read).numpy() - 1) / (self.prior.num_states - 1)
        try:
            noise = np.broadcast_to(np.asarray(0.0 if sigma is None else sigma, dtype=np.float64), (len(read),))
        except (TypeError, ValueError) as error:
            raise SessionError(f"sigma must be one number, or one for each of the {len(read)} readings") from error
        if not np.isfinite(read).all():
            raise SessionError("a reading is not a number: read the pixel again, or stop here")
        if not (np.isfinite(noise) & (noise >= 0)).all():
            raise SessionError("sigma must be a number that is not negative, or one for each reading")
        outside = (noise[:, None] == 0) & ((read < 0) | (read > 1))
        if outside.any():
            warnings.warn(f"{int(outside.sum())} readings outside [0, 1] were clipped: scale them first", stacklevel=3)
            read = np.where(outside, read.clip(0, 1), read)
        packed = np.concatenate([read, np.repeat(noise[:, None], read.shape[1], axis=1)], axis=1)
        return torch.from_numpy(packed.astype(np.float32))

    def _tokens(self, read: np.ndarray) -> Tensor:
        """Readings `(n, C)` as tokens."""
        states = self.prior.num_states
        low, high = read.min().item(), read.max().item()
        if read.dtype.kind == "f":
            if not 0 <= low <= high <= 1:
                raise SessionError(f"intensities must lie in [0, 1], got {low:g} to {high:g}")
            return quantize(torch.from_numpy(read.astype(np.float32)), states)
        if not 1 <= low <= high <= states:
            raise SessionError(
                f"readings must be tokens 1..{states}, got {low}..{high}; give intensities as floating-point numbers"
            )
        return torch.from_numpy(read.astype(np.int64))

    @property
    def mask(self) -> Tensor:
        """True where a pixel has been read, `(H, W)`."""
        return self._loop.mask.view(self.shape[1:])

    @property
    def travel(self) -> float:
        """The length of the path through the pixels read or asked for so far, in pixels."""
        return travel.length(travel.places(self._path, self.shape[1:]))

    @property
    def observation(self) -> Tensor:
        """What was read so far: tokens, 0 where hidden, `(C, H, W)`, or readings `(2 C, H, W)`."""
        return self._loop.observation[0]

    @property
    def reconstruction(self) -> Tensor:
        """The most probable image given what has been read, tokens `(C, H, W)`."""
        return Mode(self.prior)(self._loop.observation, self._loop.mask, self._loop.side)[0]

    @property
    def mean(self) -> Tensor:
        """The expected image given what has been read, intensities in [0, 1] `(C, H, W)`."""
        return PosteriorMean(self.prior)(self._loop.observation, self._loop.mask, self._loop.side)[0]

    @property
    def entropy(self) -> Tensor:
        """The uncertainty that is left at each pixel, nats `(H, W)`."""
        sites = self.prior.maps(predictions.entropy, self._loop.observation, self._loop.side.label)
        return per_pixel(sites).view(self.shape[1:])

    @property
    def variance(self) -> Tensor:
        """The variance of the intensity that is left at each site, `(C, H, W)`."""
        return self.prior.maps(predictions.variance, self._loop.observation, self._loop.side.label)[0]

    @property
    def expected_psnr(self) -> float:
        """What the prior expects the PSNR of `mean` to be, in dB; needs no truth."""
        return float(-10 * torch.log10(self.variance.mean().clamp(min=1e-10)))

    @property
    def stopped(self) -> bool:
        """Whether a stop ended the session before its budget was spent."""
        return bool(self._loop.stopped[0])

    @property
    def fit(self) -> Fit | None:
        """How well the prior predicts the audit pixels that have been read; None before, or without any."""
        return audit_fit(self.prior, self._loop.observation, self._audit & self._loop.mask, self._loop.side.label)

    def save(self, path: str | Path) -> None:
        """Write the session to a file, to be continued with `restore`."""
        loop = self._loop
        tensors = {"observation": loop.observation, "step": loop.step, "generator": loop.generator.get_state()}
        tensors["path"] = torch.from_numpy(self._path)
        if loop.pending is not None:
            tensors["pending"] = loop.pending
        about = {"identity": self._identity, "next_step": loop.next_step}
        write_tensors(Path(path), tensors, {"session": json.dumps(about)})

    def restore(self, path: str | Path) -> Self:
        """Go on where a saved session stopped; this one has to be made in the same way as that one was."""
        tensors, metadata = read_tensors(Path(path))
        if "session" not in metadata:
            raise SessionError(f"{path} is not a saved session")
        try:
            about = json.loads(metadata["session"])
            if about["identity"] != json.loads(json.dumps(self._identity)):
                raise SessionError(
                    f"{path} was saved with another policy, prior or other settings: make this session in the same way"
                )
            self._restore(tensors, operator.index(about["next_step"]))
        except SensewiseError:
            raise
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise SessionError(f"{path} is not a session that can be continued: {error!r}") from error
        return self

    def _restore(self, tensors: dict[str, Tensor], next_step: int) -> None:
        """Go to a saved state; refuses one that no session with these settings can be in."""
        loop = self._loop
        observation, step, pending = tensors["observation"], tensors["step"], tensors.get("pending")
        for found, like in ((observation, loop.observation), (step, loop.step), (pending, loop.mask)):
            if found is not None and (found.dtype, found.shape) != (like.dtype, like.shape):
                raise ValueError(f"{found.dtype} {tuple(found.shape)} instead of {like.dtype} {tuple(like.shape)}")
        self.prior.check(observation, None)
        rounds = loop.sizes if loop.pending is None else [int(loop.pending.sum()), *loop.sizes]
        done, measured = next_step - loop.next_step, step != NEVER
        seen = self.prior.seen(observation).flatten(2)  # (1, C, K)
        if not torch.equal(seen, measured.unsqueeze(1).expand_as(seen)):
            raise ValueError("what was measured is not what was seen")
        if not 0 <= done <= len(rounds) or not NEVER <= int(step.min()) <= int(step.max()) < next_step:
            raise ValueError(f"step {next_step} does not come next")
        if int(measured.sum()) != sum(rounds[:done]) or (next_step == 0 and pending is None):
            raise ValueError(f"{int(measured.sum())} pixels are measured before step {next_step}")
        if pending is not None and ((pending & measured).any() or [int(pending.sum())] != rounds[done : done + 1]):
            raise ValueError(f"{int(pending.sum())} pixels are asked for in step {next_step}")
        path = self._checked_path(tensors["path"], measured, pending)
        loop.generator.set_state(tensors["generator"])  # refuses what is not a state
        loop.observation, loop.step, loop.pending = observation, step, pending
        loop.next_step, self._path = next_step, path

    @staticmethod
    def _checked_path(path: Tensor, measured: Tensor, pending: Tensor | None) -> np.ndarray:
        """A saved path; refuses one that does not go through what was measured, then through what is asked for."""
        read = measured[0].nonzero()[:, 0]
        asked = read[:0] if pending is None or len(path) == len(read) else pending[0].nonzero()[:, 0]
        if path.dtype != torch.int64 or path.dim() != 1 or len(path) != len(read) + len(asked):
            raise ValueError(f"a path of {path.dtype} {tuple(path.shape)} for {len(read) + len(asked)} pixels")
        if not torch.equal(path[: len(read)].sort()[0], read) or not torch.equal(path[len(read) :].sort()[0], asked):
            raise ValueError("the path does not go through the pixels that were read")
        return path.numpy()
