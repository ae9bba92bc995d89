"""Arrays for the figures of pixel acquisition: what each strategy measured on a few images, and one image's story."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from sensewise.acquire import acquire
from sensewise.data import Images
from sensewise.experiments.evaluation import Strategy, known_side, spend
from sensewise.information import entropy, per_pixel
from sensewise.metrics import psnr
from sensewise.policies import Greedy
from sensewise.priors import Prior
from sensewise.reconstruct import Argmax, PosteriorMean
from sensewise.sensors import PixelSensor, Side
from sensewise.tokens import dequantize, observe, quantize

Arrays = dict[str, np.ndarray]


def example_arrays(
    prior: Prior, images: Images, strategies: Iterable[Strategy], budget: float, seed: int, place: str = "example"
) -> Arrays:
    """`PLACE/METHOD/STEPS/observation` and `.../reconstruction`, tokens `(n, C, H, W)`, beside `PLACE/target`.

    With more than two levels also `.../mean`, the posterior mean's intensities, and `.../psnr` of each image.
    """
    x, label = images[slice(None)]
    side = known_side(x, label, images.num_states)
    arrays = {f"{place}/target": small(x), f"{place}/budget": np.array(budget)}
    for strategy in strategies:
        taken = spend(strategy, x, side, budget, seed)
        name = f"{place}/{strategy.method}/{strategy.steps}"
        arrays[f"{name}/observation"] = small(taken.observation)
        rebuild = strategy.reconstructor or PosteriorMean(prior)
        mean = rebuild(taken.observation, taken.mask, side)
        if strategy.reconstructor is None:
            x_hat = Argmax(prior)(taken.observation, taken.mask, side)
        else:
            x_hat = quantize(mean, images.num_states)
        arrays[f"{name}/reconstruction"] = small(x_hat)
        if images.num_states > 2:
            arrays[f"{name}/mean"] = mean.half().numpy()
            arrays[f"{name}/psnr"] = psnr(mean, dequantize(x, images.num_states)).numpy()
    return arrays


def story_arrays(prior: Prior, x: Tensor, label: Tensor | None, budget: float | int, steps: int) -> Arrays:
    """One image `(1, C, H, W)` acquired greedily: `story/entropy`, `story/observation`, `story/reconstruction`.

    Each has R + 1 entries: before the first step and after each of the R steps.
    """
    taken = acquire(Greedy(prior), PixelSensor(x), budget, side=Side(label=label), steps=steps)
    y = torch.cat([observe(x, taken.mask_after(r)) for r in range(steps + 1)])  # (R + 1, C, H, W)
    labels = None if label is None else label.expand(len(y))
    heat = prior.read(lambda log_probs: per_pixel(entropy(log_probs)), y, labels)
    return {
        "story/target": small(x[0]),
        "story/entropy": heat.view(-1, *x.shape[2:]).half().numpy(),
        "story/observation": small(y),
        "story/reconstruction": small(prior.read(lambda log_probs: log_probs.argmax(-1) + 1, y, labels)),
    }


def small(tokens: Tensor) -> np.ndarray:
    """Tokens as bytes."""
    return tokens.to(torch.uint8).numpy()
