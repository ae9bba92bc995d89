"""Several priors as one."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sensewise.errors import ConfigError
from sensewise.predictions import Categorical
from sensewise.priors.absorbing import AbsorbingPrior
from sensewise.priors.base import Prior
from sensewise.priors.engines import EngineName


class MeanPrior(Prior):
    """The mean of what several priors say about the same image: better than each of them, at the price of all.

    Args:
        priors: at least one; they take the same tokens and labels.
    """

    def __init__(self, priors: Sequence[AbsorbingPrior]) -> None:
        super().__init__()
        if not priors or len({prior.takes for prior in priors}) > 1:
            raise ConfigError("a mean needs at least one prior, and all of them must take the same tokens and labels")
        self.priors = nn.ModuleList(priors)
        self.channels, self.num_states, self.num_labels, self.size = priors[0].takes
        self.engine: EngineName = priors[0].engine

    def predict(self, y: Tensor, label: Tensor, t: Tensor | None) -> Categorical:
        found = []
        for prior in self.priors.children():
            assert isinstance(prior, AbsorbingPrior)
            found.append(prior.predict(y, label, t).log_probs)  # (B, C, H, W, N)
        return Categorical(torch.stack(found).logsumexp(0) - math.log(len(found)))
