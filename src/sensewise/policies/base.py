"""What policies, choices and starts are, and what they may know.

Random masks, learned one-shot masks and greedy information gain differ only in their scores. A choice takes the best
`n` of them, with or without an eye on how the actions of one step lie to each other.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from torch import Generator, Tensor

from sensewise.errors import ConfigError
from sensewise.predictions import Prediction
from sensewise.priors.base import Prior
from sensewise.sensors.base import Side

Score = Callable[[Prediction], Tensor]
"""A number per site of a prediction, `(B, C, H, W)`: `predictions.entropy`, `predictions.variance`, ..."""


@dataclass(frozen=True)
class Context:
    """What a policy may know besides what has been measured; complete, so nothing falls back silently.

    Attributes:
        side: what was known beforehand.
        budget: how many actions may be taken in all.
        generator: the source of all randomness.
        step: the number of this step, from 1.
        grid: how the actions lie to each other, such as `(H, W)`.
        expects: what a stop wants to know of the prediction, added up over each scene; None for nothing.
        observation: what has been measured so far, for a choice, which is told nothing else of it; None where nobody
            measures.
    """

    side: Side
    budget: int
    generator: Generator
    step: int
    grid: tuple[int, ...]
    expects: Score | None = None
    observation: Tensor | None = None

    @property
    def fraction(self) -> float:
        """The budget as a fraction of the actions."""
        return self.budget / math.prod(self.grid)


@dataclass(frozen=True)
class Outlook:
    """What a policy sees before a step.

    Attributes:
        scores: of the actions, with shape `(B, K)`.
        expected: what `Context.expects` adds up to, with shape `(B,)`; None where it was not asked for.
        sites: how many sites that is of each scene.
    """

    scores: Tensor
    expected: Tensor | None = None
    sites: int = 0


class Policy(ABC):
    """Base of every policy.

    Attributes:
        random: whether the seed changes anything.
        prior: what it believes in, if anything; a session reconstructs with it.
    """

    random: bool = False
    prior: Prior | None = None

    @abstractmethod
    def scores(self, observation: Tensor, mask: Tensor, context: Context) -> Tensor:
        """Finite scores, higher = sooner; what actions already taken score does not matter.

        Args:
            observation: what has been measured so far.
            mask: True where measured, with shape `(B, K)`.
            context: everything else that it may know.

        Returns:
            Scores, with shape `(B, K)`.
        """

    def look(self, observation: Tensor, mask: Tensor, context: Context) -> Outlook:
        """The scores, and what a stop wants to know, from one pass; arguments as for `scores`."""
        if context.expects is not None:
            raise ConfigError(f"{type(self).__name__} has no prior to expect anything: a stop needs a greedy policy")
        return Outlook(self.scores(observation, mask, context))


class Stop(ABC):
    """Base of every rule that ends an acquisition before its budget is spent.

    Attributes:
        expects: what it has to know of the prediction, added up over each scene; None for the scores alone.
    """

    expects: Score | None = None

    @abstractmethod
    def __call__(self, outlook: Outlook, mask: Tensor, context: Context) -> Tensor:
        """True where a scene is good enough, `(B,)`; asked before every step."""


class Choice(ABC):
    """Base of every way to choose the actions of one step."""

    @abstractmethod
    def __call__(self, scores: Tensor, n: int | Tensor, context: Context) -> Tensor:
        """The `n` actions to take now, bool `(B, K)`.

        Args:
            scores: with shape `(B, K)`, -inf where an action has been taken.
            n: how many; one number, or one per scene with shape `(B,)`.
            context: as for a policy.
        """


class Start(ABC):
    """Base of every first mask.

    Attributes:
        random: whether the seed changes anything.
    """

    random: bool = False

    @abstractmethod
    def __call__(self, batch: int, grid: tuple[int, ...], budget: int, generator: Generator) -> Tensor:
        """A mask `(B, K)` with the same number of ones for each scene, fewer than `budget`."""
