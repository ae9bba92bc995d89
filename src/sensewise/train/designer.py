r"""Train the one-shot mask designer: DisARM on the prior's entropy, a closed form for the budget.

The loss of a mask is $\mathcal{H} + \lambda (\bar X - s)^2$. Its first part is only known by asking the prior, so its
gradient is estimated from the values of antithetic pairs of masks; both masks of all pairs are one batch. The expected
second part is known exactly for independent pixels,
$\mathbb{E}[(\bar X - s)^2] = (\bar p - s)^2 + \frac{1}{K^2} \sum_i p_i (1 - p_i)$, and needs no estimate.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from sensewise import information, masks, predictions
from sensewise.data.scenes import Scenes
from sensewise.errors import ConfigError, DataError
from sensewise.estimators import Loss, antithetic_pair, disarm, straight_through
from sensewise.metrics import errors, foreground_recovery, psnr
from sensewise.networks.conv import PaperConv
from sensewise.networks.decoders import Decoder, MaskDesigner
from sensewise.networks.unet import UNet
from sensewise.predictions import Prediction
from sensewise.priors.absorbing import AbsorbingPrior
from sensewise.tokens import UNKNOWN, dequantize, observe, site_mask, summary
from sensewise.train.gradient import FitSettings, Objective
from sensewise.train.recipe import GradientRecipe, answered_by

Surrogate = Literal["all", "all-raw", "observed", "variance"]
Estimator = Literal["disarm", "straight-through"]
Penalty = Literal["expected", "sampled"]
BUDGETS = (0.1, 0.3, 0.5, 0.7)
MEASURES = {"all": predictions.entropy, "variance": predictions.variance}  # of predictions, certain where observed
LOCAL = (*MEASURES, "all-raw")  # surrogates that are a sum over pixels


@dataclass(frozen=True)
class DesignerLoss:
    """What a mask costs.

    Attributes:
        surrogate: the mean entropy over "all" pixels with observed ones certain; over all pixels as the network says it
            ("all-raw", the paper's form); over the "observed" pixels alone, which degenerates; or, for ordered
            levels, the mean "variance" of the intensity over all pixels, which is what the posterior mean gets wrong.
        estimator: of the gradient.
        sparsity: $\\lambda$, the weight of the squared distance from the budget.
        penalty: that distance as its "expected" value, which is a closed form, or as that of each "sampled" mask, whose
            gradient is estimated with the rest of the loss: the paper's form, the same on average and noisier.
        min_budget: the smallest budget $s$ of a training image.
        max_budget: the largest.
        budget_power: budgets are `min + (max - min) u ** budget_power`, u uniform; above 1 there are more small ones.
        reach: 0 lets the entropy of the whole image decide on every pixel: the unbiased DisARM. Above 0, a pixel is
            judged by the entropy within `reach` pixels of it: what lies further away is mostly noise, so the
            variance falls by an order of magnitude for a small bias (for every surrogate but "observed").
        relative: divide the loss of each image by the entropy that a random mask of its budget leaves, so that large
            budgets, which leave little, are learned as well. The divisor depends on the budget alone.
        temperature: of the straight-through estimator.
    """

    surrogate: Surrogate = "all"
    estimator: Estimator = "disarm"
    sparsity: float = 10.0
    min_budget: float = 0.05
    max_budget: float = 0.95
    budget_power: float = 1.0
    reach: int = 0
    relative: bool = False
    temperature: float = 1.0
    penalty: Penalty = "expected"

    def __post_init__(self) -> None:
        if self.sparsity < 0:
            raise ConfigError(f"sparsity (lambda) must be at least 0, got {self.sparsity}")
        if not 0 < self.min_budget <= self.max_budget < 1:
            raise ConfigError(
                f"0 < min_budget <= max_budget < 1 is needed, got {self.min_budget} and {self.max_budget}"
            )
        if self.reach < 0 or (self.reach and self.surrogate not in LOCAL):
            raise ConfigError(f"reach must be at least 0, and 0 for surrogate {self.surrogate!r}, got {self.reach}")
        if self.reach and self.penalty == "sampled":
            raise ConfigError("a sampled penalty belongs to the whole mask: set reach to 0, or penalty to expected")
        for name in ("budget_power", "temperature"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be above 0, got {getattr(self, name)}")

    def draw_budgets(self, batch: int, generator: Generator) -> Tensor:
        """Budgets, with shape `(B,)`."""
        u = torch.rand(batch, generator=generator) ** self.budget_power
        return self.min_budget + (self.max_budget - self.min_budget) * u


def density_penalty(logits: Tensor, budget: Tensor) -> Tensor:
    r"""$\mathbb{E}[(\bar X - s)^2]$ for independent pixels; logits `(B, K)` and budgets `(B,)` to `(B,)`."""
    p = torch.sigmoid(logits)
    return (p.mean(1) - budget) ** 2 + (p * (1 - p)).sum(1) / logits.shape[1] ** 2


def entropy_loss(prior: AbsorbingPrior, x: Tensor, label: Tensor, t: Tensor, surrogate: Surrogate) -> Loss:
    """The surrogate as a function of masks: what the prior still does not know of images `x` at timesteps `t`."""

    @torch.no_grad()
    def loss(mask: Tensor, index: Tensor) -> Tensor:
        sites = _sites(prior, observe(x[index], mask), label[index], t[index], surrogate)
        return information.observed_pixels(sites, mask) if surrogate == "observed" else information.whole_image(sites)

    return loss


def _sites(prior: AbsorbingPrior, y: Tensor, label: Tensor, t: Tensor, surrogate: Surrogate) -> Tensor:
    """What a surrogate averages, `(B, C, H, W)`: of observations `y`, or raw where the surrogate says so."""
    if surrogate in MEASURES:
        return MEASURES[surrogate](prior(y, label, t))
    return prior.predict(y, label, t).entropy()


def with_penalty(loss: Loss, budget: Tensor, sparsity: float) -> Loss:
    """The loss of a mask and the squared distance of its own density from its image's budget."""

    def penalised(mask: Tensor, index: Tensor) -> Tensor:
        return loss(mask, index) + sparsity * (mask.float().mean(1) - budget[index]) ** 2

    return penalised


def entropy_map(prior: AbsorbingPrior, x: Tensor, label: Tensor, t: Tensor, surrogate: Surrogate = "all") -> Loss:
    """A surrogate of `LOCAL` pixel by pixel: masks and images to `(M, K)`, which add up to `entropy_loss`."""

    @torch.no_grad()
    def loss(mask: Tensor, index: Tensor) -> Tensor:
        sites = _sites(prior, observe(x[index], mask), label[index], t[index], surrogate)
        return information.per_pixel(sites) / x[0].numel()

    return loss


def within_reach(pixels: Tensor, size: tuple[int, int], reach: int) -> Tensor:
    """For each pixel the sum over the square of pixels at most `reach` away; `(M, K)` to `(M, K)`."""
    side = 2 * reach + 1
    image = pixels.view(-1, 1, *size)  # (M, 1, H, W)
    return F.avg_pool2d(image, side, stride=1, padding=reach, divisor_override=1).flatten(1)


def relaxed_entropy(
    prior: AbsorbingPrior, x: Tensor, label: Tensor, t: Tensor, surrogate: Surrogate, mask: Tensor
) -> Tensor:
    """The same surrogate for a relaxed mask `(B, K)` in [0, 1], with a gradient through the prior's network; `(B,)`.

    A pixel kept to a fraction m shows the network m of its own state and 1 - m of the mask state.
    """
    kept = site_mask(mask, prior.shape)  # (B, C, H, W)
    states = F.one_hot(x - 1, prior.num_states).movedim(-1, 2) * kept.unsqueeze(2)
    states = torch.cat([1 - kept.unsqueeze(2), states], dim=2)  # (B, C, N + 1, H, W)
    survival = prior.process.survival(t) if prior.time_input else torch.zeros(len(x), device=x.device)
    labels = torch.where(label == UNKNOWN, prior.num_labels or 0, label)
    site_entropy = information.entropy(prior.network(states, labels, survival).log_softmax(-1))  # (B, C, H, W)
    if surrogate == "all":
        return (site_entropy * (1 - kept)).mean(dim=(1, 2, 3))
    if surrogate == "all-raw":
        return site_entropy.mean(dim=(1, 2, 3))
    return (site_entropy * kept).sum(dim=(1, 2, 3)) / kept.sum(dim=(1, 2, 3)).clamp(min=1)


def disarm_gradient(
    logits: Tensor, loss: Loss, u: Tensor, size: tuple[int, int] | None = None, reach: int = 0
) -> tuple[Tensor, Tensor]:
    """One antithetic pair per image, both masks in one batch.

    Args:
        logits: log-odds of keeping, with shape `(B, K)`.
        loss: of masks and the images they belong to, `(M,)`; with a `reach`, pixel by pixel `(M, K)`.
        u: uniform noise, with shape `(B, K)`.
        size: `(H, W)`, for a `reach`.
        reach: how far a pixel's influence is counted; 0 for the whole image.

    Returns:
        The mean loss of each pair `(B,)`, and the estimate of the gradient `(B, K)`.
    """
    batch = len(logits)
    index = torch.arange(batch, device=logits.device).repeat(2)
    both = loss(torch.cat(antithetic_pair(logits, u)), index)  # (2 B,) or (2 B, K)
    total = both.sum(1) if both.dim() == 2 else both
    if reach and size is not None:
        both = within_reach(both, size, reach)
    return (total[:batch] + total[batch:]) / 2, disarm(logits, u, both[:batch], both[batch:])


def _mode_entropy_mean(prediction: Prediction) -> Tensor:
    """All of them in one pass of the prior, `(B, 3, C, H, W)`."""
    return torch.stack([prediction.mode().float(), prediction.entropy(), prediction.mean()], 1)


class DesignerObjective(Objective):
    """Entropy and budget of the designer's masks on training images.

    Args:
        designer: what is trained.
        prior: scores the masks; frozen.
        scenes: images to learn from.
        held_out: images to judge by, at most 512 of them.
        settings: what a mask costs.
        batch_size: images per step; each costs two passes of the prior.
    """

    model: MaskDesigner

    def __init__(
        self,
        designer: MaskDesigner,
        prior: AbsorbingPrior,
        scenes: Scenes,
        held_out: Scenes,
        settings: DesignerLoss,
        batch_size: int,
    ) -> None:
        if designer.shape != scenes.shape or prior.shape != scenes.shape:
            raise DataError(
                f"designer {designer.shape}, prior {prior.shape} and images {scenes.shape} need the same shape"
            )
        if designer.num_labels not in (None, scenes.num_labels) or prior.num_labels != scenes.num_labels:
            raise DataError(
                f"designer, prior and images need the same labels, got {designer.num_labels}, {prior.num_labels} "
                f"and {scenes.num_labels}"
            )
        if settings.estimator == "straight-through" and not isinstance(prior.network, UNet | PaperConv):
            raise ConfigError("straight-through needs a prior whose network takes relaxed states: a unet or paper-conv")
        if settings.estimator == "straight-through" and settings.surrogate == "variance":
            raise ConfigError("straight-through goes with the entropy surrogates, not with the variance")
        self.model, self.prior = designer, prior.eval().requires_grad_(False)
        self.frozen = (self.prior,)
        self.scenes, self.held_out, self.settings = scenes, held_out.first(512), settings
        self.batch_size, self.size = batch_size, (prior.shape[1], prior.shape[2])
        self.random_values: dict[str, float] | None = None

    @cached_property
    def reference(self) -> Tensor:
        """What random masks leave of the surrogate at budgets 0, 0.05, ..., 1 on held-out images, `(21,)`."""
        x, label = self._known(self.held_out, slice(0, 128))
        measured_by: Surrogate = "variance" if self.settings.surrogate == "variance" else "all"
        found = []
        for s in torch.linspace(0, 1, 21):
            t = self.prior.process.timestep_for(s).expand(len(x)).to(self.device)
            mask = torch.rand(len(x), x[0, 0].numel(), generator=torch.Generator().manual_seed(0)) < s
            left = entropy_loss(self.prior, x, label, t, measured_by)(
                mask.to(self.device), torch.arange(len(x), device=self.device)
            )
            found.append(left.mean())
        lowest = (found[0].double() * 1e-3).float() if self.device.type != "mps" else found[0] * 1e-3
        return torch.stack(found).maximum(lowest)

    def _known(self, scenes: Scenes, index: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Some images and their labels, `UNKNOWN` for images without any."""
        x, label = self.draw(scenes, index)
        return x, torch.full((len(x),), UNKNOWN, device=x.device) if label is None else label

    def weight(self, budget: Tensor) -> Tensor:
        """What the loss of an image is multiplied by, `(B,)`."""
        if not self.settings.relative:
            return torch.ones_like(budget)
        place = budget * (len(self.reference) - 1)
        left = place.long().clamp(max=len(self.reference) - 2)
        logs = self.reference.log()
        return torch.lerp(logs[left], logs[left + 1], place - left).neg().exp()

    def loss(self, model: MaskDesigner, step: int, generator: Generator) -> Tensor:
        index = torch.randint(len(self.scenes), (self.batch_size,), generator=generator)
        budget = self.settings.draw_budgets(self.batch_size, generator)
        u = torch.rand(self.batch_size, self.size[0] * self.size[1], generator=generator)
        x, label = self._known(self.scenes, self.team.share(index))
        budget, u = self.team.share(budget).to(self.device), self.team.share(u).to(self.device)
        t = self.prior.process.timestep_for(budget)
        logits = model(summary(x, self.prior.num_states), label if self.model.num_labels else None, budget)
        cost = self._cost(logits, x, label, t, budget, u)
        if self.settings.penalty == "expected":
            cost = cost + self.settings.sparsity * density_penalty(logits, budget)
        return (self.weight(budget) * cost).mean()

    def _cost(self, logits: Tensor, x: Tensor, label: Tensor, t: Tensor, budget: Tensor, u: Tensor) -> Tensor:
        """What the prior does not know under the masks of `u`, with the estimated gradient; `(B,)`.

        A sampled penalty is part of it.
        """
        settings = self.settings
        weight = settings.sparsity if settings.penalty == "sampled" else 0.0
        if settings.estimator == "straight-through":
            mask = straight_through(logits, masks.logistic_from(u), settings.temperature)
            entropy = relaxed_entropy(self.prior, x, label, t, settings.surrogate, mask)
            return entropy + weight * (mask.mean(1) - budget) ** 2
        ask = entropy_map if settings.reach else entropy_loss
        loss = ask(self.prior, x, label, t, settings.surrogate)
        if weight:
            loss = with_penalty(loss, budget, weight)
        value, gradient = disarm_gradient(logits.detach(), loss, u, self.size, settings.reach)
        linear = (logits * gradient).sum(1)
        return value + linear - linear.detach()  # the value of the loss, the gradient of the estimate

    def validate(self, model: MaskDesigner) -> dict[str, float]:
        """Masks on budget at fixed budgets: how well they do, and the density of a plain Bernoulli draw.

        That is entropy, errors and recovery, and the PSNR of the posterior mean where levels are ordered.
        """
        x, label = self.draw(self.held_out, slice(None))
        seen = summary(x, self.prior.num_states)
        values: dict[str, float] = {}
        for s in BUDGETS:
            noise = torch.Generator().manual_seed(0)
            with torch.inference_mode():
                logits = model.keep_logits(seen, label, torch.full((len(x),), s, device=self.device)).cpu()
            mask = masks.sample_on_budget(logits, masks.count(s, logits.shape[1]), noise)
            values |= self._judge(mask, x, label, str(s))
            values[f"bernoulli_density_{s}"] = masks.bernoulli(logits, noise).float().mean().item()
        if self.random_values is None:
            self.random_values = {}
            for s in BUDGETS:
                drawn = masks.random(len(x), logits.shape[1], masks.count(s, logits.shape[1]), noise)
                self.random_values |= self._judge(drawn, x, label, f"{s}_random")
        return values | self.random_values

    def _judge(self, mask: Tensor, x: Tensor, label: Tensor | None, name: str) -> dict[str, float]:
        y = observe(x, mask.to(self.device))
        found = self.prior.in_chunks(_mode_entropy_mean, y, label)
        x_hat = found[:, 0].long()
        values = {
            f"entropy_{name}": found[:, 1].mean().item(),
            f"errors_{name}": errors(x_hat, x).mean().item(),
            f"recovery_{name}": foreground_recovery(x_hat, x).nanmean().item(),
        }
        if self.settings.surrogate == "variance" or self.prior.num_states > 2:
            values[f"psnr_{name}"] = psnr(found[:, 2], dequantize(x, self.prior.num_states)).mean().item()
        return values


@dataclass(frozen=True)
class DesignerSettings:
    """Everything that `sensewise train generator` needs to know.

    Attributes:
        batch_size: images per step.
        decoder: "paper" (bilinear from 16 x 16) or "full" (full resolution).
        labels: whether the designer sees the label; the prior does in any case.
    """

    batch_size: int = 64
    decoder: Decoder = "full"
    loss: DesignerLoss = field(default_factory=DesignerLoss)
    fit: FitSettings = field(default_factory=FitSettings)
    labels: bool = True

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {self.batch_size}")


@dataclass(frozen=True)
class DesignerRecipe(GradientRecipe):
    """How a mask designer is trained against a frozen prior."""

    settings: DesignerSettings
    scenes: Scenes
    held_out: Scenes
    prior: AbsorbingPrior

    kind = "generator"
    elsewhere = ("decoder", "labels")

    def model(self) -> dict[str, Any]:
        return {
            "shape": list(self.scenes.shape),
            "num_labels": self.scenes.num_labels if self.settings.labels else None,
            "decoder": self.settings.decoder,
        }

    def about(self) -> dict[str, Any]:
        return answered_by(self.prior, "prior")

    def objective(self, model: MaskDesigner) -> DesignerObjective:
        settings = self.settings
        return DesignerObjective(model, self.prior, self.scenes, self.held_out, settings.loss, settings.batch_size)
