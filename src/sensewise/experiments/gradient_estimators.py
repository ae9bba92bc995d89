"""`gradient-estimators`: the cosines of Section 5 and Appendix A with the exact gradient of the expected loss.

All gradients are on the generator's weights, for the same images and budgets, of the entropy alone and of the whole
loss. The exact one flips every pixel of a few sampled masks. `ceiling` is the cosine of one half of those masks with
the other: no estimator can be expected to agree better than the reference does with itself.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import torch
from rich.progress import Progress
from torch import Generator, Tensor

from sensewise import masks
from sensewise.checkpoint import fingerprint, load_prior
from sensewise.data import Images, bundled_mnist
from sensewise.errors import ConfigError
from sensewise.estimators import exact_gradient, straight_through
from sensewise.experiments.mnist_one_shot import GENERATOR
from sensewise.experiments.results import Results, row
from sensewise.generator import Decoder, MaskGenerator, load_generator
from sensewise.generator_objective import (
    GeneratorLoss,
    Surrogate,
    density_penalty,
    disarm_gradient,
    entropy_loss,
    entropy_map,
    relaxed_entropy,
)
from sensewise.presets import load
from sensewise.priors import AbsorbingPrior
from sensewise.tokens import summary

PAPER = {"disarm": "0.94 to 0.99", "straight-through": "-0.97 to -0.73"}
SURROGATES: tuple[Surrogate, ...] = ("all", "all-raw")


@dataclass(frozen=True)
class Effort:
    """How much is averaged.

    Attributes:
        images: test digits, each with a budget of its own.
        masks: sampled masks an image, each with all its pixels flipped; at least 2.
        pairs: antithetic pairs an image, after which DisARM is compared.
        draws: straight-through masks an image.
        reach: of the local DisARM.
    """

    images: int = 32
    masks: int = 4
    pairs: tuple[int, ...] = (1, 16, 256)
    draws: int = 64
    reach: int = 4

    def __post_init__(self) -> None:
        if self.images < 1 or self.masks < 2 or self.draws < 1 or not self.pairs or min(self.pairs) < 1:
            raise ConfigError("images, draws and pairs must be at least 1, masks at least 2")


class Bench:
    """One generator, one batch: everything that the estimators share.

    Args:
        surrogate: "all" or "all-raw".
    """

    def __init__(
        self,
        prior: AbsorbingPrior,
        generator: MaskGenerator,
        images: Images,
        surrogate: Surrogate,
        effort: Effort,
        seed: int = 0,
    ) -> None:
        x, label = images.first(effort.images)[slice(None)]
        self.label = prior.check(x, label)
        self.prior, self.x, self.surrogate, self.effort = prior, x, surrogate, effort
        self.random = torch.Generator().manual_seed(seed)
        self.settings = GeneratorLoss()
        self.budget = self.settings.draw_budgets(len(x), self.random)
        self.t = prior.process.timestep_for(self.budget)
        self.weights = list(generator.requires_grad_(True).eval().parameters())
        self.logits = generator(summary(x, prior.num_states), label, self.budget)  # (B, K)
        self.loss = entropy_loss(prior, x, self.label, self.t, surrogate)
        penalty = self.settings.sparsity * density_penalty(self.logits, self.budget).mean()
        self.penalty = self._flat(torch.autograd.grad(penalty, self.weights, retain_graph=True, allow_unused=True))

    def _flat(self, gradients: Sequence[Tensor | None]) -> Tensor:
        pairs = zip(gradients, self.weights, strict=True)
        return torch.cat([torch.zeros_like(w).flatten() if g is None else g.flatten() for g, w in pairs])

    def on_weights(self, gradient: Tensor) -> Tensor:
        """A gradient for the logits `(B, K)` as one for the generator's weights, one long vector."""
        total = (self.logits * gradient).sum() / len(self.logits)
        return self._flat(torch.autograd.grad(total, self.weights, retain_graph=True, allow_unused=True))

    def flips(self) -> Iterator[Tensor]:
        """The exact gradient at one sampled mask after another, `(B, K)`."""
        fixed = self.logits.detach()
        for _ in range(self.effort.masks):
            yield exact_gradient(fixed, masks.bernoulli(fixed, self.random), self.loss)

    def disarm(self, generator: Generator, reach: int = 0) -> Tensor:
        """One pair an image, `(B, K)`."""
        loss = entropy_map(self.prior, self.x, self.label, self.t) if reach else self.loss
        size = self.prior.shape[1], self.prior.shape[2]
        u = torch.rand(self.logits.shape, generator=generator)
        return disarm_gradient(self.logits.detach(), loss, u, size, reach)[1]

    def straight_through(self, generator: Generator) -> Tensor:
        """One relaxed mask an image, `(B, K)`."""
        logits = self.logits.detach().requires_grad_(True)
        mask = straight_through(logits, masks.logistic((len(logits), logits.shape[1]), generator))
        value = relaxed_entropy(self.prior, self.x, self.label, self.t, self.surrogate, mask)
        return torch.autograd.grad(value.sum(), logits)[0]


def averages(draw: Callable[[Generator], Tensor], counts: Sequence[int], generator: Generator) -> Iterator[Tensor]:
    """The mean of the first n draws, for each n in rising `counts`."""
    total, drawn = torch.zeros(()), 0
    for count in counts:
        while drawn < count:
            total, drawn = total + draw(generator), drawn + 1
        yield total / drawn


def cosines(bench: Bench, columns: dict[str, Any], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Rows of one generator and one surrogate: each estimator against the exact gradient, one value a seed."""
    flips = [bench.on_weights(gradient) for gradient in bench.flips()]
    exact = torch.stack(flips).mean(0)
    half = len(flips) // 2
    estimates: dict[tuple[str, int], list[Tensor]] = {("ceiling", half): [torch.stack(flips[:half]).mean(0)]}
    other = torch.stack(flips[half:]).mean(0)
    pairs = sorted(bench.effort.pairs)
    makers: dict[str, tuple[Callable[[Generator], Tensor], Sequence[int]]] = {
        "disarm": (bench.disarm, pairs),
        "straight-through": (bench.straight_through, (bench.effort.draws,)),
    }
    if bench.surrogate == "all":
        makers["disarm-local"] = (lambda generator: bench.disarm(generator, bench.effort.reach), pairs)
    for name, (draw, counts) in makers.items():
        for seed in seeds:
            found = averages(draw, counts, torch.Generator().manual_seed(seed + 1))
            for count, mean in zip(counts, found, strict=True):
                estimates.setdefault((name, count), []).append(bench.on_weights(mean))
    density, budget = torch.sigmoid(bench.logits.detach()).mean().item(), round(bench.budget.mean().item(), 4)
    rows = []
    for part, penalty in (("entropy", torch.zeros_like(exact)), ("loss", bench.penalty)):
        for (name, count), vectors in estimates.items():
            target = other if name == "ceiling" else exact
            values = [torch.cosine_similarity(v + penalty, target + penalty, dim=0).item() for v in vectors]
            extra = {"part": part, "samples": count, "paper_range": PAPER.get(name), **columns}
            rows.append(row(name, 1, budget, density, "cosine", values, len(bench.x), None, **extra))
    return rows


def run(preset: str, seeds: Sequence[int], progress: Progress) -> Results:
    """The paper's decoder and ours before training, and the shipped generator."""
    prior = load_prior("mnist")
    trained = load_generator(GENERATOR, prior)
    effort = load(preset, "experiment.gradient-estimators", Effort)
    digits = bundled_mnist(effort.images)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        fresh = {name: MaskGenerator(prior.shape, prior.num_labels, name) for name in get_args(Decoder)}
    generators = {"untrained, paper's decoder": fresh["paper"], "untrained": fresh["full"], "trained": trained}
    results = Results("gradient-estimators", preset, "mnist")
    results.weights = {"prior": fingerprint(prior), "generator": fingerprint(trained)}
    bar = progress.add_task("gradients", total=len(generators) * len(SURROGATES))
    for name, generator in generators.items():
        for surrogate in SURROGATES:
            progress.update(bar, description=f"{name}, {surrogate}")
            bench = Bench(prior, generator, digits, surrogate, effort)
            results.rows += cosines(bench, {"generator": name, "surrogate": surrogate}, seeds)
            progress.advance(bar)
    return results
