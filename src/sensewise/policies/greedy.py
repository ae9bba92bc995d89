"""Greedy information gain: where the prior is most uncertain, given everything measured so far."""

import torch
from torch import Tensor

from sensewise import masks, predictions
from sensewise.errors import ConfigError
from sensewise.policies.base import Context, Outlook, Policy, Score
from sensewise.predictions import Prediction
from sensewise.priors.base import Prior
from sensewise.sensors.base import View
from sensewise.sensors.pixels import Pixels
from sensewise.sensors.readings import Readings


class Greedy(Policy):
    """The actions that a prior expects to learn most from.

    Args:
        prior: supplies the posterior.
        score: what a site is worth: `predictions.entropy`, the information gain of a noiseless reading in nats, or
            `predictions.variance`, which knows that levels are ordered. An action is worth the sum over
            what it measures.
        view: how the prior looks through the sensor; pixels as they are by default.
        reach: how far a pixel tells about its neighbours: scores are summed over a neighbourhood of that width, in
            pixels. 0 looks at the pixel alone.
        room: scores grow with this power of the distance to the nearest measured pixel. A reading in a wide hole tells
            about more pixels than one between close neighbours; without it greedy finishes what it has found and does
            not look elsewhere. 0 for no such weight.
    """

    prior: Prior

    def __init__(
        self,
        prior: Prior,
        score: Score = predictions.entropy,
        *,
        view: View | None = None,
        reach: float = 0.0,
        room: float = 0.0,
    ) -> None:
        if not isinstance(prior, Prior):
            raise ConfigError(f"a {type(prior).__name__} is not a prior: give one of load_prior, or your own Prior")
        if not callable(score):
            raise ConfigError(f"score {score!r} is not a function: give predictions.entropy or predictions.variance")
        if reach < 0 or room < 0:
            raise ConfigError(f"reach and room must be at least 0, got {reach} and {room}")
        self.prior, self.score, self.view, self.reach, self.room = prior, score, view or Pixels(), reach, room

    def in_place(self, alone: Tensor, mask: Tensor, grid: tuple[int, ...]) -> Tensor:
        """Scores of actions by themselves to scores that count what they say about others; `(B, K)` to the same."""
        shape, scores = masks.plane(grid), alone
        if self.room:
            layers = mask.view(len(mask), -1, shape[0] * shape[1])  # (B, R, H W): a pixel may be read R times
            distance = masks.room(layers.any(1), shape)
            if layers.shape[1] > 1:
                distance = distance.clamp(min=1)  # a pixel that is read again is no nearer than its neighbours
            scores = (scores.view(layers.shape) * (distance**self.room).unsqueeze(1)).flatten(1)
        if self.reach:
            scores = masks.around(scores, shape, self.reach).view(alone.shape)
        return scores

    def scores(self, observation: Tensor, mask: Tensor, context: Context) -> Tensor:
        return self.look(observation, mask, context).scores

    def look(self, observation: Tensor, mask: Tensor, context: Context) -> Outlook:
        def worth_and_expected(prediction: Prediction) -> Tensor:
            worth = [self.score(prediction)]  # (B, C, H, W)
            return torch.stack(worth if context.expects is None else [*worth, context.expects(prediction)], dim=1)

        y = self.view.tokens(observation, mask)
        found = self.prior.maps(worth_and_expected, y, context.side.label)  # (B, 1 or 2, C, H, W)
        alone = self.view.per_action(found[:, 0])  # (B, K)
        if alone.shape != mask.shape:
            raise ConfigError(
                f"{type(self.view).__name__} gives {alone.shape[1]} actions a score, and the sensor has "
                f"{mask.shape[1]}: give Greedy the view of this sensor, with view=..."
            )
        expected = None if context.expects is None else found[:, 1].flatten(1).sum(1)
        scores, offered = self.in_place(alone, mask, context.grid), self.view.offered(mask)
        if offered is not None:
            scores = scores.masked_fill(~offered, -torch.inf)
        return Outlook(scores, expected, self.prior.channels * y.shape[2] * y.shape[3])


def greedy_readings(prior: Prior, score: Score = predictions.variance, repeats: int = 1) -> Greedy:
    """How greedy does best with a prior over readings, with `choose.SPREAD_READINGS`.

    Args:
        repeats: how often a pixel may be read.
    """
    return Greedy(prior, score, view=Readings(repeats), reach=0.6, room=2.0)
