"""One image and a real sensor: ask which pixels to read, tell what was read, look at the result at any time."""

import json
import operator
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
from sensewise.policies.base import Choice, Policy, Start
from sensewise.priors.base import Prior
from sensewise.reconstruct.prior import Mode, PosteriorMean
from sensewise.sensors.base import Side
from sensewise.tokens import MASK, quantize


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
        prior: Prior | None = None,
        seed: int = 0,
    ) -> None:
        known = prior or policy.prior
        if known is None:
            raise ConfigError("this policy has no prior of its own: say which one reconstructs, with prior=...")
        self.prior, self.shape = known, shape
        nothing, labels = torch.full((1, *shape), MASK), known.known_label(label)
        known.check(nothing, labels)
        self._loop = Acquisition(
            policy,
            nothing,
            shape[1:],
            budget,
            side=Side(label=labels, summary=summary),
            steps=steps,
            start=start,
            choose=choose,
            generator=torch.Generator().manual_seed(seed),
        )
        settings = {"budget": self._loop.budget, "steps": steps, "label": labels, "seed": seed, "shape": shape}
        self._identity = identity([policy, known, start, choose, summary, settings])

    def ask(self) -> np.ndarray | None:
        """Rows and columns of the pixels to read now, int64 `(n, 2)` in raster order; None when the budget is spent."""
        chosen = self._loop.ask()
        if chosen is None:
            return None
        return np.stack(np.divmod(chosen[0].nonzero()[:, 0].numpy(), self.shape[2]), axis=1)

    def tell(self, values: np.ndarray | Tensor | list[int] | list[float]) -> None:
        """What was read, in the order of `ask`: `(n,)`, or `(n, C)` for several channels.

        Whole numbers are tokens 1..N, floating-point numbers are intensities in [0, 1].
        """
        loop, (channels, height, width) = self._loop, self.shape
        if loop.pending is None:
            raise SessionError("tell was called before ask: ask first, read the pixels it names, then tell")
        pixels = loop.pending[0].nonzero()[:, 0]
        read = self._tokens(values, len(pixels))
        observation = loop.observation.clone().view(channels, height * width)
        observation[:, pixels] = read.view(len(pixels), channels).T
        loop.tell(observation.view(1, channels, height, width))

    def _tokens(self, values: np.ndarray | Tensor | list[int] | list[float], count: int) -> Tensor:
        """Readings as tokens, with shape `(n,)` or `(n, C)`."""
        try:
            read = np.asarray(values)
        except (TypeError, ValueError) as error:
            raise SessionError(f"the readings are not an array of numbers: {error}") from error
        if read.dtype.kind not in "biufc":
            raise SessionError(f"the readings are not an array of numbers, but of {read.dtype}")
        channels, states = self.shape[0], self.prior.num_states
        wanted = (count,) if channels == 1 else (count, channels)
        if tuple(read.shape) not in {wanted, (count, channels)}:
            raise SessionError(
                f"ask named {count} pixels: tell needs readings of shape {wanted}, got {tuple(read.shape)}"
            )
        if read.dtype.kind in "bc":
            raise SessionError(f"readings must be tokens 1..{states} or intensities in [0, 1], got {read.dtype}")
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
    def observation(self) -> Tensor:
        """The tokens read so far, 0 where hidden, `(C, H, W)`."""
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
        sites = self.prior.in_chunks(predictions.entropy, self._loop.observation, self._loop.side.label)
        return per_pixel(sites).view(self.shape[1:])

    def save(self, path: str | Path) -> None:
        """Write the session to a file, to be continued with `restore`."""
        loop = self._loop
        tensors = {"observation": loop.observation, "step": loop.step, "generator": loop.generator.get_state()}
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
        seen = (observation != MASK).flatten(2)  # (1, C, K)
        if not torch.equal(seen, measured.unsqueeze(1).expand_as(seen)):
            raise ValueError("what was measured is not what was seen")
        if not 0 <= done <= len(rounds) or not NEVER <= int(step.min()) <= int(step.max()) < next_step:
            raise ValueError(f"step {next_step} does not come next")
        if int(measured.sum()) != sum(rounds[:done]) or (next_step == 0 and pending is None):
            raise ValueError(f"{int(measured.sum())} pixels are measured before step {next_step}")
        if pending is not None and ((pending & measured).any() or [int(pending.sum())] != rounds[done : done + 1]):
            raise ValueError(f"{int(pending.sum())} pixels are asked for in step {next_step}")
        loop.generator.set_state(tensors["generator"])  # refuses what is not a state
        loop.observation, loop.step, loop.pending = observation, step, pending
        loop.next_step = next_step
