"""A prior as one ONNX file, for machines without PyTorch: tokens and labels in, probabilities and entropies out."""

import json
from pathlib import Path

import torch
from torch import Tensor, nn

from sensewise.files import fingerprint
from sensewise.information import per_pixel
from sensewise.priors.absorbing import AbsorbingPrior
from sensewise.priors.engines import to_onnx
from sensewise.tokens import MASK, UNKNOWN


class Exported(nn.Module):
    """What the file computes: `Prior.forward` without its checks, and the scores of `Greedy`."""

    curve: Tensor

    def __init__(self, prior: AbsorbingPrior) -> None:
        super().__init__()
        self.prior = prior
        self.register_buffer("curve", prior.process.survival_curve)

    def forward(self, tokens: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens `(B, C, H, W)` and labels `(B,)`, both int64, to probabilities `(B, C, H, W, N)` and nats `(B, K)`."""
        states = torch.arange(1, self.prior.num_states + 1, device=tokens.device)
        observed = (tokens.unsqueeze(-1) == states).float()
        density = (tokens != MASK).flatten(1).double().mean(1)
        nearest = (self.curve - density[:, None]).abs().argmin(1)  # timestep_for, whose search has no ONNX operator
        predicted = self.prior.predict(tokens, label, nearest).log_probs
        hidden = (tokens == MASK).unsqueeze(-1)
        probabilities = torch.where(hidden, predicted.exp(), observed)
        # not entropy(): special.entr has no ONNX operator; p log p is 0 where p underflows
        nats = torch.where(hidden, -(predicted.exp() * predicted.clamp(min=-80)), 0.0).sum(-1)
        return probabilities, per_pixel(nats)


def export_onnx(prior: AbsorbingPrior, path: Path) -> Path:
    """Write a prior as ONNX with a free batch size; inputs `tokens` and `label` (-1: unknown), both int64.

    Outputs `probabilities` `(B, C, H, W, N)` and `entropy` `(B, K)`, which is what greedy acquisition measures next.
    """
    inputs = {"tokens": torch.zeros(2, *prior.shape, dtype=torch.int64), "label": torch.full((2,), UNKNOWN)}
    about = {"shape": prior.shape, "num_states": prior.num_states, "num_labels": prior.num_labels}
    metadata = {"sensewise": json.dumps({**about, "prior": fingerprint(prior)})}
    return to_onnx(Exported(prior), inputs, ["probabilities", "entropy"], path, metadata)
