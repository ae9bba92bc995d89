"""What a run will take, said before it begins: minutes, and memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Cost:
    """What one step takes.

    Attributes:
        seconds: of one step.
        memory: bytes of weights, optimiser and what a backward pass needs, held at once; None if not counted.
    """

    seconds: float
    memory: int | None = None

    def sentence(self, steps: int) -> str:
        """For people, for so many steps; looks at held-out scenes come on top."""
        minutes = steps * self.seconds / 60
        time = f"{minutes / 60:.1f} hours" if minutes >= 90 else f"{max(1, round(minutes))} min"
        said = f"about {time} for {steps:,} steps of {self.seconds:.2g} s, beside looks at held-out data"
        return (
            said if self.memory is None else f"{said}; at least {self.memory / 1e6:,.0f} MB beside PyTorch and the data"
        )


@contextmanager
def kept_for_backward() -> Iterator[dict[int, int]]:
    """Bytes of what the graph keeps inside the block, by where it lies: most of the memory of a step."""
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        yield kept
