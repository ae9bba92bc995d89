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
    """

    prior: Prior

    def __init__(
        self, prior: Prior, score: Score = predictions.entropy, *, view: View | None = None, reach: float = 0.0
    ) -> None:
        if not callable(score):
            raise ConfigError(f"score {score!r} is not a function: give predictions.entropy or predictions.variance")
        if reach < 0:
            raise ConfigError(f"reach must be at least 0, got {reach}")
        self.prior, self.score, self.view, self.reach = prior, score, view or Pixels(), reach

    def worth(self, prediction: Prediction) -> Tensor:
        """The scores of a prediction, before neighbours count; `(B, K)`."""
        return self.view.per_action(self.score(prediction))

    def around(self, alone: Tensor, grid: tuple[int, ...]) -> Tensor:
        """Scores of actions by themselves, 0 where measured, to scores that count what they say about others."""
        height, width = (*grid, 1)[:2]
        return masks.around(alone, (height, width), self.reach) if self.reach else alone

    def scores(self, observation: Tensor, mask: Tensor, context: Context) -> Tensor:
        return self.look(observation, mask, context).scores

    def look(self, observation: Tensor, mask: Tensor, context: Context) -> Outlook:
        def worth_and_expected(prediction: Prediction) -> Tensor:
            worth = self.worth(prediction)  # (B, K)
            if context.expects is None:
                return worth
            return torch.cat([worth, context.expects(prediction).flatten(1).sum(1, keepdim=True)], dim=1)

        y = self.view.tokens(observation, mask)
        found = self.prior.in_chunks(worth_and_expected, y, context.side.label)
        alone, expected = found[:, : mask.shape[1]], None if context.expects is None else found[:, -1]
        scores, offered = self.around(alone, context.grid), self.view.offered(mask)
        if offered is not None:
            scores = scores.masked_fill(~offered, -torch.inf)
        return Outlook(scores, expected, y[0].numel())
