"""Which actions to take together."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sensewise import information, masks
from sensewise.errors import BudgetError, ConfigError
from sensewise.policies import travel
from sensewise.policies.base import Choice, Context
from sensewise.policies.known import KnownImages


def _check(scores: Tensor) -> None:
    """Refuse what has no highest."""
    if not scores.is_meta and bool(torch.isnan(scores).any()):
        raise BudgetError("a score is not a number: the policy or its prior is broken")


def _pixels(scores: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The highest score of each pixel, and which of its readings has it: one of them may be next; `(B, H W)` each."""
    best, reading = scores.view(len(scores), -1, shape[0] * shape[1]).max(1)  # of (B, R, H W)
    return best, reading


def _actions(pixels: Tensor, reading: Tensor, scores: Tensor) -> Tensor:
    """Chosen pixels `(B, H W)` as chosen actions, bool like `scores` `(B, K)`."""
    found = torch.zeros_like(scores, dtype=torch.bool).view(len(scores), -1, pixels.shape[1])  # (B, R, H W)
    return found.scatter_(1, reading.unsqueeze(1), pixels.unsqueeze(1)).flatten(1)


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
        _check(scores)
        shape = masks.plane(context.grid)
        best, reading = _pixels(scores, shape)
        weighed = self.travel > 0 and not scores.is_meta
        wanted = self._candidates(best, n) if weighed else n
        chosen = masks.spread_top_k(best, wanted, shape, self.damping, self.width(best, wanted))
        if weighed:
            chosen = self._without_detours(chosen, best, n, shape)
        return _actions(chosen, reading, scores)

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


Pick = Callable[[Tensor, Tensor, Tensor, slice], Tensor]
"""Which pixels of a shortlist to take, bool `(B, S)`: from their scores and their numbers, `(B, S)` each, those that
TopK would take, bool `(B, H W)`, and which scenes these are."""
SHORTLIST, SHORTEST = 5, 48  # so many of the highest scores for each pick, and so many at least, are looked at
TOGETHER = 2**20  # numbers that are looked at together


def _from_shortlist(
    scores: Tensor, n: int | Tensor, context: Context, pick: Pick, numbers: Callable[[int], int]
) -> Tensor:
    """Actions chosen among those of the highest scores, a few scenes at a time, bool `(B, K)`.

    Args:
        scores: as for a choice, and so are `n` and `context`.
        pick: chooses.
        numbers: how many it looks at for one scene with a shortlist of so many pixels.
    """
    _check(scores)
    best, reading = _pixels(scores, masks.plane(context.grid))
    highest = TopK()(best, n, context) & ~best.isneginf()
    most = best.shape[1] if best.is_meta else int(highest.sum(1).amax())
    size = min(best.shape[1], max(SHORTLIST * most, SHORTEST))
    chunk, chosen = max(1, TOGETHER // max(1, numbers(size))), torch.zeros_like(highest)
    for first in range(0, len(best), chunk):
        part = slice(first, first + chunk)
        short, place = best[part].topk(size, dim=1)  # (B, S)
        chosen[part] = chosen[part].scatter(1, place, pick(short, place, highest[part], part))
    return _actions(chosen, reading, scores)


@dataclass(frozen=True)
class Joint(Choice):
    r"""High scores that do not repeat each other.

    A step's actions are picked one by one, each by what the picks before it leave of its score: its share of the
    variance in a Gaussian (`masks.joint_top_k`). Close pixels are alike in any image; what else pixels have to do with
    each other is seen in images that the scene may look like. Together, the correlation is

    $$\rho_{ij} = (1 - \tau)\, e^{-|i - j| / \ell} + \tau\, \rho_{ij}(\text{known images}).$$

    That is an approximation by pairs: its picks can tell less together than the highest scores do. No further pass of
    the prior.

    Attributes:
        known: images that the scene may look like; None for the distance alone, on any grid.
        trust: $\tau$, what they count against the distance, from 0 to 1.
        reach: $\ell$, in pixels.
        noise: variance of the intensity that no other pixel of the known images explains.
    """

    known: KnownImages | None = None
    trust: float = 0.4
    reach: float = 2.0
    noise: float = 0.025

    def __post_init__(self) -> None:
        if not 0 <= self.trust <= 1 or not self.reach > 0 or not self.noise >= 0:
            raise ConfigError(
                f"0 <= trust <= 1, reach > 0 and noise >= 0 are needed, got {self.trust}, {self.reach} and {self.noise}"
            )

    def __call__(self, scores: Tensor, n: int | Tensor, context: Context) -> Tensor:
        def pick(short: Tensor, place: Tensor, highest: Tensor, part: slice) -> Tensor:
            correlation = self.closeness(place, masks.plane(context.grid))
            if self.known is not None:
                values, weights = self.known.like(context, part, place)
                correlation = torch.lerp(correlation, self.likeness(values, weights), self.trust)
            return masks.joint_top_k(short, highest.sum(1), correlation)

        return _from_shortlist(scores, n, context, pick, self._numbers)

    def _numbers(self, size: int) -> int:
        return size * max(size, 0 if self.known is None else self.known.near)

    def closeness(self, place: Tensor, shape: tuple[int, int]) -> Tensor:
        r"""$e^{-|i - j| / \ell}$ of pixels `(B, S)`, given by their numbers in raster order; `(B, S, S)`."""
        where = torch.stack([place // shape[1], place % shape[1]], dim=2).float()  # (B, S, 2)
        return torch.exp(-torch.cdist(where, where) / self.reach)

    def likeness(self, values: Tensor, weights: Tensor) -> Tensor:
        """The correlation of pixels in weighted images, 1 of each with itself; `(B, S, S)`.

        Args:
            values: intensities, with shape `(B, M, S, C)`.
            weights: of the images, with shape `(B, M)`.
        """
        share = weights[:, :, None, None]
        centred = (values - (share * values).sum(1, keepdim=True)) * share.sqrt()
        flat = centred.transpose(2, 3).flatten(1, 2)  # (B, M C, S)
        covariance = flat.transpose(1, 2) @ flat  # (B, S, S)
        scale = (covariance.diagonal(dim1=1, dim2=2) + self.noise).clamp(min=1e-12).rsqrt()  # (B, S)
        found = covariance * scale.unsqueeze(2) * scale.unsqueeze(1)
        found.diagonal(dim1=1, dim2=2).fill_(1.0)
        return found


@dataclass(frozen=True)
class Counted(Choice):
    """The pixels that tell most together where known images are all that can be.

    Each is the one of highest entropy given those before it, counted in the images that agree with what has been
    measured; the highest scores are taken instead where they tell more together. Exact on a list of images, and of no
    use where a scene is like none of them: `Joint` is for data.

    Attributes:
        known: the images.
    """

    known: KnownImages

    def __call__(self, scores: Tensor, n: int | Tensor, context: Context) -> Tensor:
        def pick(short: Tensor, place: Tensor, highest: Tensor, part: slice) -> Tensor:
            values, weights = self.known.like(context, part, place)
            return counted_top_k(short, highest.sum(1), values, weights, highest.gather(1, place))

        return _from_shortlist(scores, n, context, pick, self._numbers)

    def _numbers(self, size: int) -> int:
        return size * self.known.near**2


def counted_top_k(scores: Tensor, n: Tensor, values: Tensor, weights: Tensor, highest: Tensor) -> Tensor:
    """The pixel of highest entropy, then that of highest entropy given it, and so on, counted in weighted images.

    Args:
        scores: which of equal pixels comes first, -inf for what may not be picked, with shape `(B, S)`, falling.
        n: how many, with shape `(B,)`.
        values: intensities in the images, with shape `(B, M, S, C)`.
        weights: of the images, with shape `(B, M)`.
        highest: taken instead where they tell more together, bool `(B, S)`.
    """
    at_site = values.transpose(1, 2)  # (B, S, M, C)
    alike = (at_site.unsqueeze(3) == at_site.unsqueeze(2)).all(4)  # (B, S, M, M)
    together = torch.ones_like(alike[:, 0])  # (B, M, M): which images agree in all picks
    offered, chosen = ~scores.isneginf(), torch.zeros_like(highest)
    row = torch.arange(len(scores), device=scores.device)
    for picked in range(scores.shape[1] if scores.is_meta else int(n.max())):
        told = information.joint_entropy(alike & together.unsqueeze(1), weights.unsqueeze(1))  # (B, S)
        best, pick = torch.where(offered, told, -torch.inf).max(1)  # (B,)
        taken = (best > -torch.inf) & (n > picked)
        chosen[row, pick] |= taken
        together = torch.where(taken[:, None, None], together & alike[row, pick], together)
        offered[row, pick] = False
    plain = (alike | ~highest[:, :, None, None]).all(1)  # (B, M, M)
    more = information.joint_entropy(plain, weights) > information.joint_entropy(together, weights)
    return torch.where(more.unsqueeze(1), highest, chosen)


SPREAD_VARIANCE = Spread(damping=0.8, sigma=4.0, spacing=0.8)
"""How variance-greedy does best on photographs, with a reach of 0.6; found on validation images of CIFAR-10."""
SPREAD_READINGS = Spread(damping=0.9, sigma=16.0, spacing=0.8)
"""The same for priors over readings, with a reach of 0.6 and a room of 2: first picks of large pictures keep far apart.
Found on validation pictures (docs/lab-notes.md)."""
JOINT_VARIANCE = Joint(reach=4.0)
"""How variance-greedy, with a reach of 0.6, chooses on photographs; found on validation images of CIFAR-10."""
