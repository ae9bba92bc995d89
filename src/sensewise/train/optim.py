"""Optimisers: AdamW, and Muon for the kernels inside a network (docs/lab-notes.md has what it gains)."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

Kind = Literal["adamw", "muon"]
EDGES = ("stem", "head")  # modules whose kernels AdamW keeps: they read pixels and write logits
MOMENTUM = 0.95
QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan et al., "Muon", 2024: steepest at 0, ends between 0.7 and 1.2
ROUNDS = 5


def build_optimizer(
    model: nn.Module, kind: Kind, learning_rate: float, weight_decay: float, rates: Mapping[str, float] | None = None
) -> torch.optim.Optimizer:
    """The optimiser of all weights of a model.

    Args:
        rates: names of weights, and by what their learning rate is multiplied (AdamW alone); the others have 1.
    """
    options: Any = {"lr": learning_rate, "betas": (0.9, 0.99), "weight_decay": weight_decay, "fused": True}
    if kind == "adamw":
        groups: dict[float, list[nn.Parameter]] = {1.0: []}
        for name, parameter in model.named_parameters():
            groups.setdefault((rates or {}).get(name, 1.0), []).append(parameter)
        return torch.optim.AdamW([{"params": group, "rate": rate} for rate, group in groups.items()], **options)
    inner = [p for name, p in model.named_parameters() if p.dim() == 4 and not set(EDGES) & set(name.split("."))]
    chosen = set(map(id, inner))
    return Muon(inner, [p for p in model.parameters() if id(p) not in chosen], **options)


class Muon(torch.optim.AdamW):
    """AdamW for `others`; for `kernels` momentum whose matrix is made orthogonal before each step.

    Every direction of a kernel then moves equally far, where the gradient's largest few would lead. A step is as large
    as one of AdamW with the same learning rate usually is (Liu et al., "Muon is scalable for LLM training", 2025).

    Args:
        kernels: of convolutions, each taken as a matrix with one row per output channel.
        others: everything else.
        options: of AdamW.
    """

    def __init__(self, kernels: Iterable[nn.Parameter], others: Iterable[nn.Parameter], **options: Any) -> None:
        super().__init__([{"params": list(others)}], **options)
        self.kernels = list(kernels)
        self.add_param_group({"params": self.kernels})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        groups = self.param_groups
        self.param_groups = groups[:1]
        try:
            loss = super().step(closure)
        finally:
            self.param_groups = groups
        self._step_kernels(groups[1]["lr"], groups[1]["weight_decay"])
        return loss

    def _step_kernels(self, rate: float, decay: float) -> None:
        moves: dict[tuple[int, int], list[tuple[nn.Parameter, Tensor]]] = defaultdict(list)
        for kernel in self.kernels:
            if kernel.grad is None:
                continue
            state = self.state[kernel]
            if not state:
                state |= {"step": torch.zeros(()), "momentum": torch.zeros_like(kernel)}
            state["step"] += 1
            momentum = state["momentum"].lerp_(kernel.grad, 1 - MOMENTUM)
            move = kernel.grad.lerp(momentum, MOMENTUM).reshape(len(kernel), -1)
            moves[move.shape[0], move.shape[1]].append((kernel, move))
        for shape, pairs in moves.items():  # kernels of one shape in one batch
            steps = orthogonal(torch.stack([move for _, move in pairs])) * (0.2 * max(shape) ** 0.5)
            for (kernel, _), step in zip(pairs, steps, strict=True):
                kernel.mul_(1 - rate * decay).sub_(step.view(kernel.shape), alpha=rate)


def orthogonal(matrices: Tensor) -> Tensor:
    """Nearly the closest matrices `(B, m, n)` with orthogonal rows or columns, by Newton-Schulz iterations.

    Singular values end between 0.5 and 1.3, apart from those that were far smaller than the largest.
    """
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    kind = x.device.type
    if torch.is_autocast_enabled(kind):  # converted once, not before every product
        x = x.to(torch.get_autocast_dtype(kind))
    a, b, c = QUINTIC
    with torch.autocast(kind, enabled=False):
        for _ in range(ROUNDS):
            gram = x @ x.mT
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)
