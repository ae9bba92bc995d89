"""What every network that designs whole masks is."""

from abc import ABC, abstractmethod

from torch import Tensor, nn


class MaskNetwork(nn.Module, ABC):
    """Side information in, the log-odds of taking each action out, before anything is measured."""

    @abstractmethod
    def keep_logits(self, summary: Tensor | None, label: Tensor | None, budget: Tensor) -> Tensor:
        """Log-odds `(B, K)`.

        Args:
            summary: a coarse first look, batch first, or None.
            label: classes `(B,)`, -1 where not known, or None.
            budget: the fraction of actions to be taken, with shape `(B,)`.
        """
