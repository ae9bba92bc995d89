"""A small prior decides, the full one is asked once, at the end."""

from sensewise import predictions
from sensewise.errors import ConfigError
from sensewise.policies.base import Score
from sensewise.policies.greedy import Greedy
from sensewise.policies.stops import Watched
from sensewise.priors.base import Prior


class Amortised(Watched):
    """Greedy by the scores of a small prior that was taught by the full one on the states that it visits itself.

    The full prior reconstructs, and is not asked before; only a stop wants to know what it expects after every step.

    Args:
        prior: the full one.
        guide: the small one (`sensewise train prior --stage guide`); takes the same tokens and labels.
        score: what a site is worth, as for `Greedy`.
        reach: how far a pixel tells about its neighbours, as for `Greedy`.
    """

    def __init__(self, prior: Prior, guide: Prior, score: Score = predictions.entropy, *, reach: float = 0.0) -> None:
        super().__init__(Greedy(guide, score, reach=reach), prior)
        if guide.takes != prior.takes:
            raise ConfigError(
                f"a guide has to take the same tokens and labels as its prior: {guide.takes} is not {prior.takes} "
                "(channels, states, labels, size)"
            )
