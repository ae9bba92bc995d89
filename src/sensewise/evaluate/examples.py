"""Arrays for the figures: what each method measured of a few images, and what was made of it."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from sensewise.errors import ConfigError
from sensewise.evaluate.evaluate import spend
from sensewise.evaluate.judges import TokenJudge
from sensewise.evaluate.method import Contender
from sensewise.evaluate.results import Arrays
from sensewise.evaluate.task import Task
from sensewise.metrics import psnr
from sensewise.tokens import dequantize

EXAMPLES = 3  # images in a figure


def example_arrays(
    task: Task, methods: Iterable[Contender], budget: float, seed: int, place: str = "example"
) -> Arrays:
    """`PLACE/METHOD/STEPS/observation` and `.../reconstruction`, tokens `(n, C, H, W)`, beside `PLACE/target`.

    With more than two levels also `.../mean`, the expected intensities, and `.../psnr` of each image.
    """
    few, (judge, *_) = task.first(EXAMPLES), task.judges.values()
    if not isinstance(judge, TokenJudge):
        raise ConfigError("examples are drawn of token images: the task needs a judge of those")
    x = few.values
    arrays = {f"{place}/target": small(x), f"{place}/budget": np.array(budget)}
    for method in methods:
        taken = spend(few, method, budget, seed)
        found = judge.rebuild(taken.observation, taken.mask, few.side)
        name = f"{place}/{method.name}/{method.steps}"
        arrays[f"{name}/observation"] = small(taken.observation)
        arrays[f"{name}/reconstruction"] = small(found.tokens)
        if judge.levels > 2:
            arrays[f"{name}/mean"] = found.mean.half().cpu().numpy()
            arrays[f"{name}/psnr"] = psnr(found.mean, dequantize(x, judge.levels)).cpu().numpy()
    return arrays


def small(tokens: Tensor) -> np.ndarray:
    """Tokens as bytes."""
    return tokens.to(torch.uint8).cpu().numpy()
