"""The acquisition loop: score, measure the best, score again, until the budget is spent.

`Acquisition` is the loop, as ask / tell over a batch. `acquire` runs it against a sensor; `Session` runs it for one
image against a real sensor, in another process or on another day. There is no second loop.
"""

import json
import operator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Generator, Tensor

from sensewise import masks
from sensewise.checkpoint import fingerprint, read_tensors, write_tensors
from sensewise.errors import BudgetError, ConfigError, SensewiseError, SessionError
from sensewise.information import entropy, per_pixel
from sensewise.policies import Greedy, Policy, Score, SpreadGreedy, Start, grid_probe, random_probe
from sensewise.priors import Prior
from sensewise.reconstruct import Argmax
from sensewise.sensors import Sensor, Side
from sensewise.tokens import MASK

NEVER = -1


@dataclass(frozen=True)
class Trajectory:
    """What happened in an acquisition.

    Attributes:
        observation: what was measured in all.
        step: when each action was taken: 0 = start, 1..R = greedy steps, -1 = never; int16 `(B, K)`.
        steps: `R`.
        scores: the scores before each of the R steps, if they were asked for; `(B, K)` each.
    """

    observation: Tensor
    step: Tensor
    steps: int
    scores: tuple[Tensor, ...] = ()

    @property
    def mask(self) -> Tensor:
        """True where measured, `(B, K)`."""
        return self.step != NEVER

    def mask_after(self, step: int) -> Tensor:
        """True where measured up to and including `step`, `(B, K)`."""
        return self.mask & (self.step <= step)

    @property
    def density(self) -> Tensor:
        """The realised fraction of actions, `(B,)`."""
        return self.mask.float().mean(1)


class Acquisition:
    """The loop as ask / tell: `ask` says what to measure next, `tell` takes what all measurements so far show.

    Args:
        policy: scores the actions.
        observation: what is seen before anything is measured, batch first.
        num_actions: `K`.
        budget: a fraction or a count of the K actions.
        side: what is known beforehand.
        steps: `R`; what the start leaves of the budget is spread evenly over them.
        start: a first mask `(B, K)`, or a function that draws one; None starts from nothing.
        generator: the source of all randomness; None means seed 0.
        keep_scores: store the scores of every step in the trajectory.
    """

    def __init__(
        self,
        policy: Policy,
        observation: Tensor,
        num_actions: int,
        budget: float | int,
        *,
        side: Side | None = None,
        steps: int = 1,
        start: Tensor | Start | None = None,
        generator: Generator | None = None,
        keep_scores: bool = False,
    ) -> None:
        batch, k = len(observation), masks.count(budget, num_actions)
        self.policy, self.observation, self.steps = policy, observation, steps
        self.side = replace(side or Side(), budget=k / num_actions)
        self.generator = torch.Generator().manual_seed(0) if generator is None else generator
        self.keep_scores, self.kept_scores = keep_scores, []  # type: bool, list[Tensor]
        self.step = torch.full((batch, num_actions), NEVER, dtype=torch.int16)
        self.pending: Tensor | None = None
        self.next_step = 1
        if start is not None:
            first = start(batch, k, self.generator) if callable(start) else start
            self._check_start(first, k)
            if taken := int(first[0].sum()):  # a fifth of a very small budget is nothing
                self.next_step, self.pending = 0, first
            self.sizes = masks.step_sizes(k - taken, steps)
        else:
            self.sizes = masks.step_sizes(k, steps)

    def _check_start(self, first: Tensor, k: int) -> None:
        if first.dtype != torch.bool or first.shape != self.step.shape:
            raise BudgetError(
                f"a start mask is bool with shape {tuple(self.step.shape)}, got {first.dtype} with {tuple(first.shape)}"
            )
        taken = first.sum(1)
        if bool((taken != taken[0]).any()) or int(taken[0]) >= k:
            raise BudgetError(
                f"a start must take the same number of actions for each image, fewer than the budget of {k}"
            )

    @property
    def mask(self) -> Tensor:
        """True where measured so far, `(B, K)`."""
        return self.step != NEVER

    def ask(self) -> Tensor | None:
        """The actions to take now, `(B, K)` bool; the same again until `tell`; None when the budget is spent."""
        if self.pending is None and self.next_step <= self.steps:
            measured = self.mask
            scores = self.policy.scores(self.observation, measured, self.side, self.generator)
            if self.keep_scores:
                self.kept_scores.append(scores)
            open_scores = scores.masked_fill(measured, -torch.inf)
            self.pending = self.policy.choose(open_scores, self.sizes[self.next_step - 1])
        return self.pending

    def tell(self, observation: Tensor) -> None:
        """Take the observation of everything measured so far, what was asked last included."""
        if self.pending is None:
            raise SessionError("tell was called before ask: ask first, measure what it names, then tell")
        self.step[self.pending] = self.next_step
        self.observation, self.pending = observation, None
        self.next_step += 1

    def trajectory(self) -> Trajectory:
        """What has happened so far."""
        return Trajectory(self.observation, self.step.clone(), self.steps, tuple(self.kept_scores))


def acquire(
    policy: Policy,
    sensor: Sensor,
    budget: float | int,
    *,
    side: Side | None = None,
    steps: int = 1,
    start: Tensor | Start | None = None,
    generator: Generator | None = None,
    keep_scores: bool = False,
) -> Trajectory:
    """Measure a whole batch until the budget is spent; arguments as for `Acquisition`."""
    nothing = torch.zeros(sensor.batch, sensor.num_actions, dtype=torch.bool)
    loop = Acquisition(
        policy,
        sensor(nothing),
        sensor.num_actions,
        budget,
        side=side,
        steps=steps,
        start=start,
        generator=generator,
        keep_scores=keep_scores,
    )
    while (chosen := loop.ask()) is not None:
        loop.tell(sensor(loop.mask | chosen))
    return loop.trajectory()


class Session:
    """One image and a real sensor: ask which pixels to read, tell what was read, look at the result at any time.

    Args:
        prior: supplies the posterior.
        budget: a fraction or a count of the pixels.
        steps: how many rounds of ask / tell after the probe.
        label: the class, if it is known.
        score: "entropy" or "variance".
        start: None, "random" or "grid": a first probe of 20% of the budget.
        spread: keep the pixels of one step apart (`SpreadGreedy`).
        seed: of the probe.
    """

    def __init__(
        self,
        prior: Prior,
        budget: float | int,
        *,
        steps: int = 16,
        label: int | None = None,
        score: Score = "entropy",
        start: str | None = None,
        spread: bool = False,
        seed: int = 0,
    ) -> None:
        channels, height, width = prior.shape
        probes = {None: None, "random": random_probe(height * width), "grid": grid_probe((height, width))}
        if start not in probes:
            raise ConfigError(f"start {start!r} is not known: choose None, 'random' or 'grid'")
        self.prior = prior
        nothing, labels = torch.full((1, channels, height, width), MASK), prior.known_label(label)
        number = None if labels is None else int(labels)
        self.settings = {
            "budget": budget,
            "steps": steps,
            "label": number,
            "score": score,
            "start": start,
            "spread": spread,
            "seed": seed,
        }
        self._loop = Acquisition(
            (SpreadGreedy if spread else Greedy)(prior, score),
            nothing,
            height * width,
            budget,
            side=Side(label=labels),
            steps=steps,
            start=probes[start],
            generator=torch.Generator().manual_seed(seed),
        )

    def ask(self) -> np.ndarray | None:
        """Rows and columns of the pixels to read now, int64 `(n, 2)` in raster order; None when the budget is spent."""
        chosen = self._loop.ask()
        if chosen is None:
            return None
        return np.stack(np.divmod(chosen[0].nonzero()[:, 0].numpy(), self.prior.shape[2]), axis=1)

    def tell(self, values: np.ndarray | Tensor | list[int]) -> None:
        """The tokens 1..N that were read, in the order of `ask`: `(n,)`, or `(n, C)` for several channels.

        Intensities become tokens with `sensewise.quantize`.
        """
        loop, (channels, height, width) = self._loop, self.prior.shape
        if loop.pending is None:
            raise SessionError("tell was called before ask: ask first, read the pixels it names, then tell")
        pixels = loop.pending[0].nonzero()[:, 0]
        try:
            read = torch.as_tensor(np.asarray(values))
        except (TypeError, ValueError) as error:
            raise SessionError(f"the readings are not an array of numbers: {error}") from error
        wanted = (len(pixels),) if channels == 1 else (len(pixels), channels)
        if tuple(read.shape) not in {wanted, (len(pixels), channels)}:
            raise SessionError(
                f"ask named {len(pixels)} pixels: tell needs readings of shape {wanted}, got {tuple(read.shape)}"
            )
        if read.is_floating_point() or read.is_complex() or read.dtype == torch.bool:
            raise SessionError("readings must be whole tokens; turn intensities into tokens with sensewise.quantize")
        read = read.long()
        if not 1 <= int(read.min()) <= int(read.max()) <= self.prior.num_states:
            raise SessionError(
                f"readings must be tokens 1..{self.prior.num_states}, got {int(read.min())}..{int(read.max())}; "
                "turn intensities into tokens with sensewise.quantize"
            )
        observation = loop.observation.clone().view(channels, height * width)
        observation[:, pixels] = read.view(len(pixels), channels).T
        loop.tell(observation.view(1, channels, height, width))

    @property
    def mask(self) -> Tensor:
        """True where a pixel has been read, `(H, W)`."""
        return self._loop.mask.view(self.prior.shape[1:])

    @property
    def observation(self) -> Tensor:
        """The tokens read so far, 0 where hidden, `(C, H, W)`."""
        return self._loop.observation[0]

    @property
    def reconstruction(self) -> Tensor:
        """The most probable image given what has been read, tokens `(C, H, W)`."""
        loop = self._loop
        return Argmax(self.prior)(loop.observation, loop.mask, loop.side)[0]

    @property
    def entropy(self) -> Tensor:
        """The uncertainty that is left at each pixel, nats `(H, W)`."""
        loop = self._loop
        pixels = self.prior.read(lambda log_probs: per_pixel(entropy(log_probs)), loop.observation, loop.side.label)
        return pixels.view(self.prior.shape[1:])

    def save(self, path: str | Path) -> None:
        """Write the session to a file, to be continued with `Session.resume`."""
        loop = self._loop
        tensors = {"observation": loop.observation, "step": loop.step, "generator": loop.generator.get_state()}
        if loop.pending is not None:
            tensors["pending"] = loop.pending
        settings = {**self.settings, "next_step": loop.next_step, "prior": fingerprint(self.prior)}
        write_tensors(Path(path), tensors, {"session": json.dumps(settings)})

    @classmethod
    def resume(cls, path: str | Path, prior: Prior) -> Self:
        """Continue a saved session with the same prior."""
        tensors, metadata = read_tensors(Path(path))
        if "session" not in metadata:
            raise SessionError(f"{path} is not a saved session")
        try:
            settings = json.loads(metadata["session"])
            weights, next_step, budget = (settings.pop(name) for name in ("prior", "next_step", "budget"))
            if weights != fingerprint(prior):
                raise SessionError(f"{path} was saved with another prior: load that one, or start a new session")
            session = cls(prior, budget, **settings)
            session._restore(tensors, operator.index(next_step))
        except SensewiseError:
            raise
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise SessionError(f"{path} is not a session that can be continued: {error!r}") from error
        return session

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
        loop.observation, loop.step, loop.pending = observation, step, pending
        loop.generator.set_state(tensors["generator"])
        loop.next_step = next_step
