"""Record an acquisition: spend a budget on one image and keep what the prior believed after every step."""

import torch
from torch import Tensor

from sensewise.errors import ConfigError
from sensewise.experiments.evaluation import Strategy, spend
from sensewise.figures.film import Film
from sensewise.information import entropy, per_pixel
from sensewise.policies import (
    Greedy,
    Random,
    SpreadGreedy,
    VariableDensity,
    grid_probe,
    random_probe,
    spread_variance,
)
from sensewise.priors import Prior
from sensewise.sensors import Side
from sensewise.tokens import observe

STRATEGIES = {
    "greedy": "Greedy information gain",
    "spread-greedy": "Greedy, pixels spread out",
    "variance-greedy": "Greedy variance",
    "spread-variance-greedy": "Greedy variance, pixels spread out",
    "probe-greedy": "Random probe, then greedy",
    "grid-greedy": "Grid probe, then greedy",
    "random": "Random",
    "variable-density": "Variable density",
}
"""Names and titles of every way to spend a budget on one image."""


def strategies(prior: Prior, steps: int) -> dict[str, Strategy]:
    """Every strategy of `STRATEGIES` for a prior, in `steps` steps."""
    _, height, width = prior.shape
    greedy = Greedy(prior)
    found = [
        Strategy("greedy", greedy, steps, random=False, passes=steps + 1),
        Strategy("spread-greedy", SpreadGreedy(prior), steps, random=False, passes=steps + 1),
        Strategy("variance-greedy", Greedy(prior, "variance"), steps, random=False, passes=steps + 1),
        Strategy("spread-variance-greedy", spread_variance(prior), steps, random=False, passes=steps + 1),
        Strategy("probe-greedy", greedy, steps, random_probe(height * width), passes=steps + 1),
        Strategy("grid-greedy", greedy, steps, grid_probe((height, width)), passes=steps + 1),
        Strategy("random", Random(), steps),
        Strategy("variable-density", VariableDensity((height, width)), steps),
    ]
    return {strategy.method: strategy for strategy in found}


class Memory(Prior):
    """A prior that remembers its predictions for single images, so that nothing is predicted twice."""

    def __init__(self, prior: Prior) -> None:
        super().__init__()
        self.prior = prior
        self.shape, self.num_states, self.num_labels = prior.shape, prior.num_states, prior.num_labels
        self.known: dict[bytes, Tensor] = {}

    def predict(self, y: Tensor, label: Tensor, t: Tensor | None) -> Tensor:
        if len(y) > 1 or t is not None:
            return self.prior.predict(y, label, t)
        key = y.numpy().tobytes() + label.numpy().tobytes()
        if key not in self.known:
            self.known[key] = self.prior.predict(y, label, None)
        return self.known[key]


def record(
    prior: Prior, method: str, x: Tensor, label: Tensor | None, budget: float | int, *, steps: int = 16, seed: int = 0
) -> Film:
    """Acquire one image and look at it before the first step and after each of the R steps.

    Args:
        method: a key of `STRATEGIES`.
        x: the true tokens, with shape `(1, C, H, W)`.
        label: with shape `(1,)`, or None where it is not known.
        budget: a fraction or a count of the pixels.
    """
    prior.check(x, label)
    memory = Memory(prior)
    found = strategies(memory, steps)
    if method not in found:
        raise ConfigError(f"no policy {method!r}: choose one of {', '.join(found)}")
    taken = spend(found[method], x, Side(label=label), budget, seed)
    frames = [observe(x, taken.mask_after(r)) for r in range(steps + 1)]
    if memory.known:  # a greedy policy has looked at all of them but the last
        log_probs = torch.cat([memory.read(lambda found: found, y, label) for y in frames])
    else:
        log_probs = prior.read(
            lambda found: found, torch.cat(frames), None if label is None else label.expand(steps + 1)
        )
    return Film(
        target=x[0].to(torch.uint8).numpy(),
        step=taken.step[0].view(prior.shape[1:]).numpy(),
        probs=log_probs.exp().numpy(),  # (R + 1, C, H, W, N)
        entropy=per_pixel(entropy(log_probs)).view(-1, *prior.shape[1:]).numpy(),
    )
