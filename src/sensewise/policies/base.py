"""What policies, choices and starts are, and what they may know.

Random masks, learned one-shot masks and greedy information gain differ only in their scores. A choice takes the best
`n` of them, with or without an eye on how the actions of one step lie to each other.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Generator, Tensor

from sensewise.priors.base import Prior
from sensewise.sensors.base import Side


@dataclass(frozen=True)
class Context:
    """What a policy may know besides what has been measured; complete, so nothing falls back silently.

    Attributes:
        side: what was known beforehand.
        budget: how many actions may be taken in all.
        generator: the source of all randomness.
        step: the number of this step, from 1.
        grid: how the actions lie to each other, such as `(H, W)`.
    """

    side: Side
    budget: int
    generator: Generator
    step: int
    grid: tuple[int, ...]

    @property
    def fraction(self) -> float:
        """The budget as a fraction of the actions."""
        return self.budget / math.prod(self.grid)


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
