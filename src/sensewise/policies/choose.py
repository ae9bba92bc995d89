"""Which actions to take together."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sensewise import masks
from sensewise.errors import BudgetError, ConfigError
from sensewise.policies import travel
from sensewise.policies.base import Choice, Context


@dataclass(frozen=True)
class TopK(Choice):
    """The highest scores."""

    def __call__(self, scores: Tensor, n: int | Tensor, context: Context) -> Tensor:
        return masks.top_k(scores, n) if isinstance(n, int) else masks.bottom_k(-scores, n)


@dataclass(frozen=True)
class Spread(Choice):
    """High scores that keep their distance.

    The highest scores lie side by side and say nearly the same, so a step's actions are picked one by one, each pick
    damping the scores around it. No further pass of the prior: on digits, 16 steps do the work of some 50.

    Attributes:
        damping: how much of its score an action loses right beside a pick, at least 0 and below 1.
        sigma: width of the damped neighbourhood, in pixels.
        spacing: above 0, the width is this times the mean distance between measured pixels after the step instead, and
            `sigma` its upper limit: the first picks keep far apart, later ones fill in between.
        travel: how much a short path counts: `1 + travel` times as many actions are picked, and those dropped again
            that are worth least for the detour they take. 0 looks at the scores alone.
    """

    damping: float = 0.5
    sigma: float = 1.0
    spacing: float = 0.0
    travel: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.damping < 1 or self.sigma <= 0 or self.spacing < 0 or not 0 <= self.travel < math.inf:
            raise ConfigError(
                "0 <= damping < 1, sigma > 0, spacing >= 0 and travel >= 0 are needed, got "
                f"{self.damping}, {self.sigma}, {self.spacing} and {self.travel}"
            )

    def width(self, scores: Tensor, n: int | Tensor) -> float | Tensor:
        """The width of the damped neighbourhood for scores `(B, K)`: one number, or one per scene `(B,)`."""
        if not self.spacing:
            return self.sigma
        measured = scores.isneginf().sum(1) + n
        return (self.spacing * (scores.shape[1] / measured.clamp(min=1)).sqrt()).clamp(max=self.sigma)

    def __call__(self, scores: Tensor, n: int | Tensor, context: Context) -> Tensor:
        if not scores.is_meta and bool(torch.isnan(scores).any()):
            raise BudgetError("a score is not a number: the policy or its prior is broken")
        shape = masks.plane(context.grid)
        layers = scores.view(len(scores), -1, shape[0] * shape[1])  # (B, R, H W): of a pixel's readings one may be next
        best, reading = layers.max(1)  # (B, H W)
        weighed = self.travel > 0 and not scores.is_meta
        wanted = self._candidates(best, n) if weighed else n
        chosen = masks.spread_top_k(best, wanted, shape, self.damping, self.width(best, wanted))
        if weighed:
            chosen = self._without_detours(chosen, best, n, shape)
        found = torch.zeros_like(layers, dtype=torch.bool)
        return found.scatter_(1, reading.unsqueeze(1), chosen.unsqueeze(1)).flatten(1)

    def _candidates(self, scores: Tensor, n: int | Tensor) -> Tensor:
        """How many actions to pick of each scene before some are dropped, `(B,)`."""
        offered = (~scores.isneginf()).sum(1)
        return ((1 + self.travel) * torch.as_tensor(n, device=scores.device)).round().long().minimum(offered)

    @staticmethod
    def _without_detours(chosen: Tensor, scores: Tensor, n: int | Tensor, grid: tuple[int, int]) -> Tensor:
        """`n` of the actions chosen, `(B, K)`."""
        kept = torch.zeros_like(chosen)
        for scene, count in enumerate(torch.as_tensor(n).expand(len(chosen)).tolist()):
            actions = chosen[scene].nonzero()[:, 0].cpu().numpy()
            actions = travel.onward(actions[:0], actions, grid)
            worth = scores[scene, actions].double().cpu().numpy()
            staying = travel.drop_detours(travel.places(actions, grid), worth - min(worth.min(), 0.0), count)
            kept[scene, actions[staying]] = True
        return kept


SPREAD_VARIANCE = Spread(damping=0.8, sigma=4.0, spacing=0.8)
"""How variance-greedy does best on photographs, with a reach of 0.6; found on validation images of CIFAR-10."""
SPREAD_READINGS = Spread(damping=0.9, sigma=16.0, spacing=0.8)
"""The same for priors over readings, with a reach of 0.6 and a room of 2: first picks of large pictures keep far apart.
Found on validation pictures (docs/lab-notes.md)."""
