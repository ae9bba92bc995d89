"""The acquisition loop: score, measure the best, score again, until the budget is spent.

`Acquisition` is the loop, as ask / tell over a batch. `acquire` runs it against a sensor; `session.Session` runs it for
one image against a real sensor, in another process or on another day. There is no second loop.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from sensewise import masks
from sensewise.errors import BudgetError, ConfigError, SessionError
from sensewise.policies import travel
from sensewise.policies.base import Choice, Context, Policy, Score, Start, Stop
from sensewise.policies.choose import TopK
from sensewise.sensors.base import Sensor, Side

NEVER = -1


@dataclass(frozen=True)
class Trajectory:
    """What happened in an acquisition.

    Attributes:
        observation: what was measured in all.
        step: when each action was taken: 0 = start, 1..R = greedy steps, -1 = never; int32 `(B, K)`.
        steps: `R`.
        stopped: True where a stop ended it before the budget was spent, `(B,)`; None where there was no stop.
        scores: the scores before each of the R steps, if they were asked for; `(B, K)` each.
        grid: how the actions lie to each other, such as `(H, W)`.
    """

    observation: Tensor
    step: Tensor
    steps: int
    scores: tuple[Tensor, ...] = ()
    stopped: Tensor | None = None
    grid: tuple[int, ...] = ()

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

    def path(self, scene: int) -> Tensor:
        """The actions of a scene in the order of a short path, step after step, int64 `(n,)`."""
        return torch.from_numpy(travel.path(self.step[scene].cpu().numpy(), self.grid))

    @property
    def travel(self) -> Tensor:
        """The length of each scene's path, in pixels, `(B,)`; found anew every time, in milliseconds."""
        paths = (travel.places(self.path(scene).numpy(), self.grid) for scene in range(len(self.step)))
        return torch.tensor([travel.length(points) for points in paths])


class Acquisition:
    """The loop as ask / tell: `ask` says what to measure next, `tell` takes what all measurements so far show.

    Args:
        policy: scores the actions.
        observation: what is seen before anything is measured, batch first.
        grid: how the K actions lie to each other, such as `(H, W)`.
        budget: a fraction or a count of the K actions.
        side: what is known beforehand.
        steps: `R`; what the start leaves of the budget is spread evenly over them.
        start: a first mask `(B, K)`, or what draws one; None starts from nothing.
        choose: which actions to take together in a step.
        stop: ends a scene before its budget is spent; None for never.
        generator: the source of all randomness; None means seed 0.
        keep_scores: store the scores of every step in the trajectory.
    """

    def __init__(
        self,
        policy: Policy,
        observation: Tensor,
        grid: tuple[int, ...],
        budget: float | int,
        *,
        side: Side | None = None,
        steps: int = 1,
        start: Tensor | Start | None = None,
        choose: Choice | None = None,
        stop: Stop | None = None,
        generator: Generator | None = None,
        keep_scores: bool = False,
    ) -> None:
        batch, num_actions = len(observation), math.prod(grid)
        self.policy, self.observation, self.steps, self.grid = policy, observation, steps, grid
        self.budget = masks.count(budget, num_actions)
        if len(grid) > 2 and grid[0] > self.budget:
            raise BudgetError(
                f"a pixel may be read {grid[0]} times, but the budget leaves {self.budget} readings in all: lower "
                "repeats, or raise the budget"
            )
        self.side, self.choose, self.stop = side or Side(), choose or TopK(), stop
        self.stopped = torch.zeros(batch, dtype=torch.bool, device=observation.device)
        self.generator = torch.Generator().manual_seed(0) if generator is None else generator
        self.keep_scores, self.kept_scores = keep_scores, []  # type: bool, list[Tensor]
        self.step = torch.full((batch, num_actions), NEVER, dtype=torch.int32, device=observation.device)
        self.pending: Tensor | None = None
        self.next_step = 1
        if start is not None:
            first = start(batch, grid, self.budget, self.generator) if isinstance(start, Start) else start
            self._check_start(first)
            if taken := int(first[0].sum()):  # a fifth of a very small budget is nothing
                self.next_step, self.pending = 0, first.to(observation.device)
            self.sizes = masks.step_sizes(self.budget - taken, steps)
        else:
            self.sizes = masks.step_sizes(self.budget, steps)

    def _check_start(self, first: Tensor) -> None:
        if first.dtype != torch.bool or first.shape != self.step.shape:
            raise BudgetError(
                f"a start mask is bool with shape {tuple(self.step.shape)}, got {first.dtype} with {tuple(first.shape)}"
            )
        taken = first.sum(1)
        if bool((taken != taken[0]).any()) or int(taken[0]) >= self.budget:
            raise BudgetError(
                f"a start must take the same number of actions for each image, fewer than the budget of {self.budget}"
            )

    @property
    def mask(self) -> Tensor:
        """True where measured so far, `(B, K)`."""
        return self.step != NEVER

    def ask(self) -> Tensor | None:
        """The actions to take now, `(B, K)` bool; the same again until `tell`; None when the acquisition has ended."""
        if self.pending is None and self.next_step <= self.steps:
            self.pending = self._choose() if self.stop is None else self._choose_or_stop(self.stop)
        return self.pending

    def _choose(self) -> Tensor:
        """The actions of the next step of every scene."""
        measured = self.mask
        context = self._context(self.side, self.observation)
        scores = self._checked(self.policy.scores(self.observation, measured, context), measured)
        if self.keep_scores:
            self.kept_scores.append(scores)
        return self.choose(scores.masked_fill(measured, -torch.inf), self.sizes[self.next_step - 1], context)

    def _choose_or_stop(self, stop: Stop) -> Tensor | None:
        """The actions of the next step, none in scenes that are good enough; None if all of them are."""
        going = (~self.stopped).nonzero()[:, 0]
        if not len(going):
            return None
        measured = self.mask[going]
        context = self._context(self.side[going], self.observation[going], stop.expects)
        outlook = self.policy.look(self.observation[going], measured, context)
        enough = stop(outlook, measured, context)
        self.stopped[going] = enough
        if bool(enough.all()):
            return None
        scores = self._checked(outlook.scores, measured).masked_fill(measured, -torch.inf)[~enough]
        chosen, left = torch.zeros_like(self.mask), going[~enough]
        context = self._context(self.side[left], self.observation[left])
        chosen[left] = self.choose(scores, self.sizes[self.next_step - 1], context)
        return chosen

    def _context(self, side: Side, observation: Tensor, expects: Score | None = None) -> Context:
        """What policy and choice may know of some scenes in the next step."""
        return Context(side, self.budget, self.generator, self.next_step, self.grid, expects, observation)

    def _checked(self, scores: Tensor, measured: Tensor) -> Tensor:
        """The scores of a policy; refuses those that do not rank every action."""
        name = type(self.policy).__name__
        if scores.shape != measured.shape or not scores.is_floating_point():
            raise ConfigError(
                f"{name} gave scores {scores.dtype} of shape {tuple(scores.shape)}: floating-point numbers of shape "
                f"{tuple(measured.shape)} are needed, one for each action"
            )
        if not scores.is_meta and bool(scores.isnan().any()):
            raise ConfigError(f"{name} gave a score that is not a number: every action needs one, higher is sooner")
        return scores

    def tell(self, observation: Tensor) -> None:
        """Take the observation of everything measured so far, what was asked last included."""
        if self.pending is None:
            raise SessionError("tell was called before ask: ask first, measure what it names, then tell")
        self.step = self.step.masked_fill(self.pending, self.next_step)
        self.observation, self.pending = observation, None
        self.next_step += 1

    def run(self, sensor: Sensor) -> Iterator[None]:
        """Measure with a sensor until the acquisition has ended; comes back after every step, for those who watch."""
        while (chosen := self.ask()) is not None:
            self.tell(sensor(self.mask | chosen))
            yield

    def trajectory(self) -> Trajectory:
        """What has happened so far."""
        stopped = None if self.stop is None else self.stopped.clone()
        return Trajectory(self.observation, self.step.clone(), self.steps, tuple(self.kept_scores), stopped, self.grid)


def begin(
    policy: Policy,
    sensor: Sensor,
    budget: float | int,
    *,
    side: Side | None = None,
    steps: int = 1,
    start: Tensor | Start | None = None,
    choose: Choice | None = None,
    stop: Stop | None = None,
    generator: Generator | None = None,
    keep_scores: bool = False,
) -> Acquisition:
    """The acquisition of all scenes of a sensor, before anything is measured; arguments as for `Acquisition`."""
    nothing = torch.zeros(sensor.batch, sensor.num_actions, dtype=torch.bool, device=sensor.device)
    return Acquisition(
        policy,
        sensor(nothing),
        sensor.grid,
        budget,
        side=side,
        steps=steps,
        start=start,
        choose=choose,
        stop=stop,
        generator=generator,
        keep_scores=keep_scores,
    )


def acquire(
    policy: Policy,
    sensor: Sensor,
    budget: float | int,
    *,
    side: Side | None = None,
    steps: int = 1,
    start: Tensor | Start | None = None,
    choose: Choice | None = None,
    stop: Stop | None = None,
    generator: Generator | None = None,
    keep_scores: bool = False,
) -> Trajectory:
    """Measure a whole batch until the budget is spent or a stop ends it; arguments as for `Acquisition`."""
    loop = begin(
        policy,
        sensor,
        budget,
        side=side,
        steps=steps,
        start=start,
        choose=choose,
        stop=stop,
        generator=generator,
        keep_scores=keep_scores,
    )
    for _ in loop.run(sensor):
        pass
    return loop.trajectory()
