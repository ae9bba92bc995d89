"""The acquisition loop: score, measure the best, score again, until the budget is spent.

`Acquisition` is the loop, as ask / tell over a batch. `acquire` runs it against a sensor; `session.Session` runs it for
one image against a real sensor, in another process or on another day. There is no second loop.
"""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from sensewise import masks
from sensewise.errors import BudgetError, SessionError
from sensewise.policies.base import Choice, Context, Policy, Start
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
        grid: how the K actions lie to each other, such as `(H, W)`.
        budget: a fraction or a count of the K actions.
        side: what is known beforehand.
        steps: `R`; what the start leaves of the budget is spread evenly over them.
        start: a first mask `(B, K)`, or what draws one; None starts from nothing.
        choose: which actions to take together in a step.
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
        generator: Generator | None = None,
        keep_scores: bool = False,
    ) -> None:
        batch, num_actions = len(observation), math.prod(grid)
        self.policy, self.observation, self.steps, self.grid = policy, observation, steps, grid
        self.budget = masks.count(budget, num_actions)
        self.side, self.choose = side or Side(), choose or TopK()
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
        """The actions to take now, `(B, K)` bool; the same again until `tell`; None when the budget is spent."""
        if self.pending is None and self.next_step <= self.steps:
            measured = self.mask
            context = Context(self.side, self.budget, self.generator, self.next_step, self.grid)
            scores = self.policy.scores(self.observation, measured, context)
            if self.keep_scores:
                self.kept_scores.append(scores)
            open_scores = scores.masked_fill(measured, -torch.inf)
            self.pending = self.choose(open_scores, self.sizes[self.next_step - 1], context)
        return self.pending

    def tell(self, observation: Tensor) -> None:
        """Take the observation of everything measured so far, what was asked last included."""
        if self.pending is None:
            raise SessionError("tell was called before ask: ask first, measure what it names, then tell")
        self.step = self.step.masked_fill(self.pending, self.next_step)
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
    choose: Choice | None = None,
    generator: Generator | None = None,
    keep_scores: bool = False,
) -> Trajectory:
    """Measure a whole batch until the budget is spent; arguments as for `Acquisition`."""
    nothing = torch.zeros(sensor.batch, sensor.num_actions, dtype=torch.bool, device=sensor.device)
    loop = Acquisition(
        policy,
        sensor(nothing),
        sensor.grid,
        budget,
        side=side,
        steps=steps,
        start=start,
        choose=choose,
        generator=generator,
        keep_scores=keep_scores,
    )
    while (chosen := loop.ask()) is not None:
        loop.tell(sensor(loop.mask | chosen))
    return loop.trajectory()
