"""`gradient-estimators`: the cosines of Section 5 and Appendix A with the exact gradient of the expected loss.

All gradients are on the designer's weights, for the same images and budgets, of the entropy alone and of the whole
loss. The exact one flips every pixel of a few sampled masks. `ceiling` is the cosine of one half of those masks with
the other: no estimator can be expected to agree better than the reference does with itself. The paper gives ranges,
0.94 to 0.99 for DisARM and -0.97 to -0.73 for straight-through.

A straight-through gradient depends on how the network sees a mask between 0 and 1. Ours sees indicators of the states;
the paper's sees one number per token, on which a relaxed white pixel passes "black". So the same is measured with a
small prior that sees numbers (column `prior`: scalar) and, where it has been trained, with the paper's network
(paper-conv); and designers are trained by straight-through against the scalar prior at the paper's learning rates.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from typing import get_args

import torch
from torch import Generator, Tensor, nn

from sensewise import masks, presets
from sensewise.data.scenes import Scenes
from sensewise.errors import CheckpointError, ConfigError
from sensewise.estimators import exact_gradient, straight_through
from sensewise.evaluate.experiment import Experiment, Setup
from sensewise.evaluate.journal import Value, digest_of
from sensewise.evaluate.method import Method
from sensewise.evaluate.results import Results
from sensewise.evaluate.rows import Row, summarise
from sensewise.evaluate.task import pixel_task
from sensewise.files import identity
from sensewise.networks.decoders import Decoder, MaskDesigner
from sensewise.paper import mnist_one_shot, models, scenes
from sensewise.policies.one_shot import OneShot
from sensewise.policies.simple import Random
from sensewise.priors.absorbing import AbsorbingPrior
from sensewise.report import metrics
from sensewise.report.figures import one_shot
from sensewise.report.section import Picture, Section
from sensewise.report.table import table
from sensewise.tokens import summary
from sensewise.train.designer import (
    DesignerLoss,
    Surrogate,
    density_penalty,
    disarm_gradient,
    entropy_loss,
    entropy_map,
    relaxed_entropy,
)

PAPER_RANGES = {"disarm": (0.94, 0.99), "straight-through": (-0.97, -0.73)}
"""The cosines of Section 5, before and after training."""
SURROGATES: tuple[Surrogate, ...] = ("all", "all-raw")
SCALAR_PRIORS = {"scalar": 1, "paper-conv": 8}  # and by how much fewer images are measured: it is that much slower
LEARNING_RATES = ("3e-4", "1e-4", "3e-5")  # of the paper's straight-through trainings


@dataclass(frozen=True)
class GradientSettings:
    """How much is averaged.

    Attributes:
        images: test digits, each with a budget of its own.
        masks: sampled masks per image, each with all its pixels flipped; at least 2.
        pairs: antithetic pairs per image, after which DisARM is compared.
        draws: straight-through masks per image.
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


class Gradients:
    """One designer, one batch, one surrogate: everything that the estimators share.

    Args:
        surrogate: "all" or "all-raw".
    """

    def __init__(
        self,
        prior: AbsorbingPrior,
        designer: MaskDesigner,
        images: Scenes,
        surrogate: Surrogate,
        settings: GradientSettings,
        seed: int = 0,
    ) -> None:
        x, label = images.first(settings.images)[slice(None)]
        self.label = prior.check(x, label)
        self.prior, self.x, self.surrogate, self.settings = prior, x, surrogate, settings
        self.generator = torch.Generator().manual_seed(seed)
        loss = DesignerLoss()
        self.budget = loss.draw_budgets(len(x), self.generator)
        self.t = prior.process.timestep_for(self.budget)
        self.weights = list(designer.requires_grad_(True).eval().parameters())
        self.logits = designer(summary(x, prior.num_states), label, self.budget)  # (B, K)
        self.loss = entropy_loss(prior, x, self.label, self.t, surrogate)
        penalty = loss.sparsity * density_penalty(self.logits, self.budget).mean()
        self.penalty = self._flat(torch.autograd.grad(penalty, self.weights, retain_graph=True, allow_unused=True))

    def _flat(self, gradients: Sequence[Tensor | None]) -> Tensor:
        pairs = zip(gradients, self.weights, strict=True)
        return torch.cat([torch.zeros_like(w).flatten() if g is None else g.flatten() for g, w in pairs])

    def on_weights(self, gradient: Tensor) -> Tensor:
        """A gradient for the logits `(B, K)` as one for the designer's weights, one long vector."""
        total = (self.logits * gradient).sum() / len(self.logits)
        return self._flat(torch.autograd.grad(total, self.weights, retain_graph=True, allow_unused=True))

    def flips(self) -> Iterator[Tensor]:
        """The exact gradient at one sampled mask after another, `(B, K)`."""
        fixed = self.logits.detach()
        for _ in range(self.settings.masks):
            yield exact_gradient(fixed, masks.bernoulli(fixed, self.generator), self.loss)

    def disarm(self, generator: Generator, reach: int = 0) -> Tensor:
        """One pair per image, `(B, K)`."""
        loss = entropy_map(self.prior, self.x, self.label, self.t) if reach else self.loss
        size = self.prior.shape[1], self.prior.shape[2]
        u = torch.rand(self.logits.shape, generator=generator)
        return disarm_gradient(self.logits.detach(), loss, u, size, reach)[1]

    def local_disarm(self, generator: Generator) -> Tensor:
        """The same with each pixel judged by its neighbourhood."""
        return self.disarm(generator, self.settings.reach)

    def straight_through(self, generator: Generator) -> Tensor:
        """One relaxed mask per image, `(B, K)`."""
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


def cosines(gradients: Gradients, seeds: Sequence[int]) -> Value:
    """Every estimator against the exact gradient: "PART METHOD SAMPLES SEED" to a cosine, beside density and budget."""
    flips = [gradients.on_weights(gradient) for gradient in gradients.flips()]
    exact, half = torch.stack(flips).mean(0), len(flips) // 2
    other = torch.stack(flips[half:]).mean(0)
    estimates: dict[tuple[str, int, int], Tensor] = {("ceiling", half, 0): torch.stack(flips[:half]).mean(0)}
    pairs, draws = sorted(gradients.settings.pairs), [gradients.settings.draws]
    makers = [("disarm", gradients.disarm, pairs), ("straight-through", gradients.straight_through, draws)]
    if gradients.surrogate == "all":
        makers.append(("disarm-local", gradients.local_disarm, pairs))
    for name, draw, counts in makers:
        for seed in seeds:
            found = averages(draw, counts, torch.Generator().manual_seed(seed + 1))
            for count, mean in zip(counts, found, strict=True):
                estimates[name, count, seed] = gradients.on_weights(mean)
    density = torch.sigmoid(gradients.logits.detach()).mean().item()
    values = {"density": density, "budget": round(gradients.budget.mean().item(), 4)}
    for part, penalty in (("entropy", torch.zeros_like(exact)), ("loss", gradients.penalty)):
        for (name, count, seed), estimate in estimates.items():
            target = other if name == "ceiling" else exact
            cosine = torch.cosine_similarity(estimate + penalty, target + penalty, dim=0).item()
            values[f"{part} {name} {count} {seed}"] = cosine
    return values


def rows_of(values: Value, images: int, generator: str, surrogate: str, prior: str | None = None) -> list[Row]:
    """Rows of one designer and one surrogate, mean and spread over seeds; `prior` where it is not the shipped one."""
    lines: dict[tuple[str, str, int], list[float]] = {}
    for name, value in values.items():
        if name not in ("density", "budget"):
            part, method, count, _ = name.split()
            lines.setdefault((part, method, int(count)), []).append(value)
    rows = []
    for (part, method, samples), found in lines.items():
        mean, sd = summarise(found)
        rows.append(
            Row(
                dataset="mnist",
                method=method,
                steps=1,
                budget=values["budget"],
                density=round(values["density"], 6),
                metric="cosine",
                mean=mean,
                sd=sd,
                images=images,
                seeds=len(found),
                part=part,
                samples=samples,
                generator=generator,
                surrogate=surrogate,
                prior=prior,
            )
        )
    return rows


def measure(
    setup: Setup,
    prior: AbsorbingPrior,
    designers: dict[str, MaskDesigner],
    images: Scenes,
    settings: GradientSettings,
    name_of_prior: str | None = None,
) -> list[Row]:
    """Rows of every designer and both surrogates; each pair of them is one measurement of the journal."""
    pairs = list(product(designers, SURROGATES))
    rows: list[Row] = []
    for name, surrogate in setup.progress.track(pairs, description="gradients"):
        designer = designers[name]
        used = [asdict(settings), list(setup.seeds), *map(identity, (prior, designer, images.values))]
        make = partial(_cosines, prior, designer, images, surrogate, settings, setup.seeds)
        values = setup.journal.recall(f"{name}, {surrogate} {digest_of(used)}", make)
        rows += [] if values is None else rows_of(values, len(images), name, surrogate, name_of_prior)
    return rows


def _cosines(
    prior: AbsorbingPrior,
    designer: MaskDesigner,
    images: Scenes,
    surrogate: Surrogate,
    settings: GradientSettings,
    seeds: Sequence[int],
) -> Value:
    return cosines(Gradients(prior, designer, images, surrogate, settings), seeds)


def run(setup: Setup) -> Results:
    """The paper's decoder and ours before training, and the trained designer."""
    prior = models.prior(setup.preset, "mnist")
    trained = models.designer(setup.preset, "mnist", prior)
    trained.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]  # laid out as fresh ones are
    settings = presets.load(setup.preset, "experiment.gradient-estimators", GradientSettings)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        fresh = {name: MaskDesigner(prior.shape, prior.num_labels, name) for name in get_args(Decoder)}
    designers = {"untrained, paper's decoder": fresh["paper"], "untrained": fresh["full"], "trained": trained}
    used: dict[str, nn.Module] = {"prior": prior, "generator": trained}
    notes: list[str] = []
    rows = measure(setup, prior, designers, scenes.digits(settings.images), settings)
    for name, share in SCALAR_PRIORS.items():
        try:
            other = models.scalar_prior(setup.preset, name)
        except CheckpointError as error:
            notes.append(f"The prior {name} was left out: {error}")
            continue
        used[name] = other
        fewer = replace(settings, images=max(1, settings.images // share))
        rows += measure(setup, other, designers, scenes.digits(fewer.images), fewer, name)
        if name == "scalar":
            found = _trained_by_straight_through(setup.preset, other, notes)
            used |= found
            rows += trained_rows(setup, other, found, scenes.digits())
    return Results("gradient-estimators", setup.preset, "mnist", rows, models.fingerprints(**used), notes)


def _trained_by_straight_through(preset: str, prior: AbsorbingPrior, notes: list[str]) -> dict[str, MaskDesigner]:
    """The designers that there are, by method; a note says which are left out."""
    found = {}
    for rate in LEARNING_RATES:
        try:
            found[f"one-shot-{rate}"] = models.designer(preset, "mnist", prior, f"straight-through-{rate}")
        except CheckpointError as error:
            notes.append(f"Straight-through at a learning rate of {rate} was left out: {error}")
    return found


def trained_rows(
    setup: Setup, prior: AbsorbingPrior, designers: Mapping[str, MaskDesigner], images: Scenes
) -> list[Row]:
    """The objective that straight-through reached against the scalar prior, and that of random masks."""
    methods = [Method("random", Random()), *(Method(name, OneShot(made)) for name, made in designers.items())]
    task = pixel_task(images, prior, ("entropy-raw", "errors"), prior="scalar")
    return setup.evaluate(task, methods, mnist_one_shot.BUDGETS) if designers else []


PART_NAMES = {"entropy": "of the entropy alone", "loss": "of the whole loss"}
PRIOR_NAMES = {
    None: "",
    "scalar": ", prior that sees tokens as numbers",
    "paper-conv": ", the paper's network",
}


def _designer(row: Row) -> str:
    return str(row.generator)


def section(results: Results) -> Section:
    """The cosines of Section 5 and Appendix A."""
    tables = []
    every = metrics.pick(results.rows, metric="cosine")
    for prior, surrogate, part in product(PRIOR_NAMES, dict.fromkeys(row.surrogate for row in every), PART_NAMES):
        if rows := metrics.pick(every, surrogate=surrogate, part=part, prior=prior):
            caption = f"Cosine with the exact gradient {PART_NAMES[part]}, surrogate “{surrogate}”{PRIOR_NAMES[prior]}"
            tables.append(table(rows, caption, "cosine", line=one_shot.estimator_name, column=_designer))
    if objective := metrics.pick(results.rows, metric="entropy-raw"):
        caption = "Raw entropy that straight-through reached against the prior that sees numbers, by learning rate"
        tables.append(table(objective, caption, "entropy-raw"))
    paragraphs = [
        "All gradients are with respect to the generator's weights. The exact one flips every pixel of sampled masks, "
        "one at a time; “exact, one half against the other” says how well that reference is known. The number after an "
        "estimator is how many pairs or masks it averages per image. The paper reports 0.94 to 0.99 for DisARM and "
        "-0.97 to -0.73 for straight-through Gumbel-Softmax. “all” counts observed pixels as certain; “all-raw” is "
        "the paper's form.",
        *results.notes,
    ]
    drawn = one_shot.cosines(metrics.pick(every, part="entropy", prior=None), PAPER_RANGES)
    caption = "Agreement with the exact gradient of the entropy; behind the bars, the ranges that the paper gives."
    figures = [Picture("gradient-cosines.png", drawn, caption)]
    return Section("Gradient estimators", paragraphs, tables, figures, results)


EXPERIMENT = Experiment("gradient-estimators", run, section)
