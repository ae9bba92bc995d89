"""Whole masks at once, from side information alone."""

import torch
from torch import Tensor

from sensewise import masks
from sensewise.networks.base import MaskNetwork
from sensewise.policies.base import Context, Policy


class OneShot(Policy):
    """The masks of a trained network, or of LOUPE's learned map: the same scores before and after measuring.

    Args:
        network: side information to log-odds of taking each action.
        sampled: add logistic noise, so that the top k are a draw of the learned masks, moved onto the budget; without
            it they are the k most probable actions.
    """

    def __init__(self, network: MaskNetwork, *, sampled: bool = True) -> None:
        self.network, self.sampled = network, sampled
        self.random = sampled

    @torch.inference_mode()
    def scores(self, observation: Tensor, mask: Tensor, context: Context) -> Tensor:
        budget = torch.full((len(mask),), context.fraction, device=mask.device)
        logits = self.network.keep_logits(context.side.summary, context.side.label, budget)
        if not self.sampled:
            return logits
        return logits + masks.logistic((mask.shape[0], mask.shape[1]), context.generator).to(mask.device)
