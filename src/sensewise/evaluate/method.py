"""Methods: named ways to spend a budget, compared in one table."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Generator

from sensewise import hub, masks, predictions
from sensewise.channels import Channel
from sensewise.errors import ConfigError
from sensewise.files import from_text, identity
from sensewise.loop import NEVER, Acquisition, Trajectory, begin
from sensewise.networks.base import MaskNetwork
from sensewise.policies.amortised import Amortised
from sensewise.policies.base import Choice, Policy, Start, Stop
from sensewise.policies.choose import SPREAD_READINGS, SPREAD_VARIANCE, Spread, TopK
from sensewise.policies.greedy import Greedy, greedy_readings
from sensewise.policies.simple import Random, VariableDensity
from sensewise.policies.starts import GridProbe, RandomProbe
from sensewise.predictions import VarianceReduction
from sensewise.priors.base import Prior
from sensewise.sensors.base import Sensor, Side
from sensewise.sensors.readings import NOISELESS, Readings


class Contender(ABC):
    """Base of everything that spends a budget under a name.

    Attributes:
        name: its name in results.
        steps: `R` in results.
        columns: further columns of its rows; the paper's values stand only in rows without them.
    """

    name: str
    steps: int
    columns: Mapping[str, Any]

    @abstractmethod
    def is_random(self, start: Start | None) -> bool:
        """Whether the seed changes anything, with the start of a task."""

    @abstractmethod
    def describe(self) -> Any:
        """Everything that its masks depend on, as JSON: settings and the fingerprints of weights."""

    @abstractmethod
    def spend(
        self, sensor: Sensor, budget: float, *, side: Side, start: Start | None, generator: Generator
    ) -> Trajectory:
        """Measure all scenes of a sensor; `start` is the task's."""


@dataclass(frozen=True)
class Method(Contender):
    """A policy and how its scores are used.

    Attributes:
        policy: scores the actions.
        steps: at most so many; fewer where the budget leaves fewer actions.
        start: what is measured first; None for the start of the task.
        choose: which actions are taken together.
        stop: ends a scene before its budget is spent; None for never.
    """

    name: str
    policy: Policy
    steps: int = 1
    start: Start | None = None
    choose: Choice = field(default_factory=TopK)
    columns: Mapping[str, Any] = field(default_factory=dict)
    stop: Stop | None = None

    def is_random(self, start: Start | None = None) -> bool:
        first = self.start or start
        return self.policy.random or (first is not None and first.random)

    def describe(self) -> Any:
        parts = (self.policy, self.start, self.choose, self.columns, self.stop)
        return [self.name, self.steps, *map(identity, parts)]

    def begin(
        self,
        sensor: Sensor,
        budget: float,
        *,
        side: Side,
        start: Start | None,
        generator: Generator,
        stop: Stop | None = None,
        keep_scores: bool = False,
    ) -> Acquisition:
        """The acquisition of all scenes of a sensor, before anything is measured; `start` is the task's."""
        first, count = self.start or start, masks.count(budget, sensor.num_actions)
        begun = 0 if first is None else int(first(1, sensor.grid, count, torch.Generator()).sum())
        return begin(
            self.policy,
            sensor,
            budget,
            side=side,
            steps=max(1, min(self.steps, count - begun)),
            start=first,
            choose=self.choose,
            stop=stop or self.stop,
            generator=generator,
            keep_scores=keep_scores,
        )

    def spend(
        self,
        sensor: Sensor,
        budget: float,
        *,
        side: Side,
        start: Start | None,
        generator: Generator,
        keep_scores: bool = False,
    ) -> Trajectory:
        loop = self.begin(sensor, budget, side=side, start=start, generator=generator, keep_scores=keep_scores)
        for _ in loop.run(sensor):
            pass
        return loop.trajectory()


@dataclass(frozen=True)
class PlainDraw(Contender):
    """A mask network without the exact budget: independent draws, with the density that they happen to have.

    Attributes:
        network: side information to log-odds of taking each action.
    """

    name: str
    network: MaskNetwork
    columns: Mapping[str, Any] = field(default_factory=dict)
    steps: int = 1

    def is_random(self, start: Start | None = None) -> bool:
        return True

    def describe(self) -> Any:
        return [self.name, identity(self.network), identity(self.columns)]

    @torch.inference_mode()
    def spend(
        self, sensor: Sensor, budget: float, *, side: Side, start: Start | None, generator: Generator
    ) -> Trajectory:
        asked = torch.full((sensor.batch,), budget, device=sensor.device)
        logits = self.network.keep_logits(side.summary, side.label, asked)
        mask = masks.bernoulli(logits, generator)
        return Trajectory(sensor(mask), torch.where(mask, 1, NEVER).int(), 1, grid=sensor.grid)


PIXEL_METHODS = {
    "greedy": "Greedy information gain",
    "spread-greedy": "Greedy, pixels spread out",
    "variance-greedy": "Greedy variance",
    "spread-variance-greedy": "Greedy variance, pixels spread out",
    "probe-greedy": "Random probe, then greedy",
    "grid-greedy": "Grid probe, then greedy",
    "random": "Random",
    "variable-density": "Variable density",
}
"""Names and titles of the ways to spend a budget of pixels that need no further model."""


def pixel_methods(prior: Prior, steps: int) -> dict[str, Method]:
    """Every method of `PIXEL_METHODS` for a prior, in `steps` steps."""
    greedy, variance = Greedy(prior), Greedy(prior, predictions.variance)
    found = [
        Method("greedy", greedy, steps),
        spread_entropy("spread-greedy", prior, steps),
        Method("variance-greedy", variance, steps),
        spread_variance("spread-variance-greedy", prior, steps),
        Method("probe-greedy", greedy, steps, start=RandomProbe()),
        Method("grid-greedy", greedy, steps, start=GridProbe()),
        Method("random", Random(), steps),
        Method("variable-density", VariableDensity(), steps),
    ]
    return {method.name: method for method in found}


AMORTISED = {"amortised": "Small prior decides"}
"""The method that needs a small prior beside the full one; for the same images, `hub.load_guide` finds it."""


def amortised(prior: Prior, guide: Prior, steps: int) -> Method:
    """A small prior decides as the full one would, which is asked once, at the end."""
    like = spread_out(prior, steps)
    assert isinstance(like.policy, Greedy)
    policy = Amortised(prior, guide, like.policy.score, reach=like.policy.reach)
    return replace(like, name="amortised", policy=policy)


def spread_out(prior: Prior, steps: int) -> Method:
    """The best way to spend pixels: entropy for two levels, variance for ordered ones, kept apart within a step."""
    return pixel_methods(prior, steps)["spread-greedy" if prior.num_states == 2 else "spread-variance-greedy"]


def spread_entropy(name: str, prior: Prior, steps: int) -> Method:
    """Greedy entropy, the pixels of a step spread out."""
    return Method(name, Greedy(prior), steps, choose=Spread())


def spread_variance(name: str, prior: Prior, steps: int) -> Method:
    """Greedy variance with the neighbourhood that a pixel tells about, the pixels of a step spread out."""
    return Method(name, Greedy(prior, predictions.variance, reach=0.6), steps, choose=SPREAD_VARIANCE)


def reading_methods(prior: Prior, steps: int, channel: Channel = NOISELESS, repeats: int = 1) -> dict[str, Method]:
    """The ways to spend a budget of readings, for a prior over them, by name; the first is the best.

    Args:
        steps: `R`.
        channel: the noise of a reading.
        repeats: how often a pixel may be read.
    """
    score = predictions.variance if channel == NOISELESS else VarianceReduction(channel)
    found = [
        Method("spread-variance-greedy", greedy_readings(prior, score, repeats), steps, choose=SPREAD_READINGS),
        Method("variance-greedy", Greedy(prior, score, view=Readings(repeats)), steps),
        Method("random", Random(), steps),
        Method("variable-density", VariableDensity(), steps),
    ]
    return {method.name: method for method in found}


def method_from_text(text: str, prior: Prior, steps: int) -> Method:
    """A method by name: one of `PIXEL_METHODS`, `amortised`, or `module:Name` for a policy or a method of your own.

    Args:
        prior: given to a policy class that takes one.
        steps: `R`, for everything but a `Method`.
    """
    if text in AMORTISED:
        return amortised(prior, hub.load_guide(prior), steps)
    if ":" not in text:
        known = pixel_methods(prior, steps)
        if text not in known:
            names = ", ".join([*known, *AMORTISED])
            raise ConfigError(f"no policy {text!r}: choose one of {names}, or give module:Class")
        return known[text]
    found = from_text(text)
    if inspect.isclass(found) and issubclass(found, Policy):
        found = found(*([prior] if inspect.signature(found).parameters else []))
    if isinstance(found, Policy):
        return Method(text.partition(":")[2], found, steps)
    if isinstance(found, Method):
        return found
    raise ConfigError(f"{text} is neither a Policy nor a Method")
