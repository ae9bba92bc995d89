r"""How the one-shot generator is trained: DisARM on the prior's entropy, a closed form for the budget.

The loss of a mask is $\mathcal{H} + \lambda (\bar X - s)^2$. Its first part is only known by asking the prior, so its
gradient is estimated from the values of antithetic pairs of masks; both masks of all pairs are one batch. The expected
second part is known exactly for independent pixels,
$\mathbb{E}[(\bar X - s)^2] = (\bar p - s)^2 + \frac{1}{K^2} \sum_i p_i (1 - p_i)$, and needs no estimate.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from sensewise import information, masks
from sensewise.data.images import Images
from sensewise.errors import ConfigError, DataError
from sensewise.estimators import Loss, antithetic_pair, disarm, straight_through
from sensewise.generator import MaskGenerator
from sensewise.metrics import errors, foreground_recovery, psnr
from sensewise.networks import UNet
from sensewise.priors import UNKNOWN, AbsorbingPrior
from sensewise.reconstruct import PosteriorMean
from sensewise.sensors import Side
from sensewise.tokens import dequantize, observe, site_mask, summary
from sensewise.training import Objective

Surrogate = Literal["all", "all-raw", "observed", "variance"]
Estimator = Literal["disarm", "straight-through"]
BUDGETS = (0.1, 0.3, 0.5, 0.7)
MEASURES = {"all": information.entropy, "variance": information.variance}  # surrogates that are a sum over pixels


@dataclass(frozen=True)
class GeneratorLoss:
    """What a mask costs.

    Attributes:
        surrogate: the mean entropy over "all" pixels with observed ones certain; over all pixels as the network says it
            ("all-raw", the paper's form); over the "observed" pixels alone, which degenerates; or, for ordered
            levels, the mean "variance" of the intensity over all pixels, which is what the posterior mean gets wrong.
        estimator: of the gradient.
        sparsity: $\\lambda$, the weight of the squared distance from the budget.
        min_budget: the smallest budget $s$ of a training image.
        max_budget: the largest.
        budget_power: budgets are `min + (max - min) u ** budget_power`, u uniform; above 1 there are more small ones.
        reach: 0 lets the entropy of the whole image decide on every pixel: the unbiased DisARM. Above 0, a pixel is
            judged by the entropy within `reach` pixels of it: what lies further away is mostly noise, so the
            variance falls by an order of magnitude for a small bias (for the surrogates "all" and "variance").
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

    def __post_init__(self) -> None:
        if self.sparsity < 0:
            raise ConfigError(f"sparsity (lambda) must be at least 0, got {self.sparsity}")
        if not 0 < self.min_budget <= self.max_budget < 1:
            raise ConfigError(
                f"0 < min_budget <= max_budget < 1 is needed, got {self.min_budget} and {self.max_budget}"
            )
        if self.reach < 0 or (self.reach and self.surrogate not in MEASURES):
            raise ConfigError(f"reach must be at least 0, and 0 for surrogate {self.surrogate!r}, got {self.reach}")
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
        y = observe(x[index], mask)
        if surrogate in MEASURES:
            return MEASURES[surrogate](prior(y, label[index], t[index])).mean(dim=(1, 2, 3))
        raw = prior.predict(y, label[index], t[index])
        return information.whole_image(raw) if surrogate == "all-raw" else information.observed_pixels(raw, mask)

    return loss


def entropy_map(prior: AbsorbingPrior, x: Tensor, label: Tensor, t: Tensor, surrogate: Surrogate = "all") -> Loss:
    """A surrogate of `MEASURES` pixel by pixel: masks and images to `(M, K)`, which add up to `entropy_loss`."""

    @torch.no_grad()
    def loss(mask: Tensor, index: Tensor) -> Tensor:
        sites = MEASURES[surrogate](prior(observe(x[index], mask), label[index], t[index]))
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
    survival = prior.process.survival(t) if prior.time_input else torch.zeros(len(x))
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
    both = loss(torch.cat(antithetic_pair(logits, u)), torch.arange(batch).repeat(2))  # (2 B,) or (2 B, K)
    total = both.sum(1) if both.dim() == 2 else both
    if reach and size is not None:
        both = within_reach(both, size, reach)
    return (total[:batch] + total[batch:]) / 2, disarm(logits, u, both[:batch], both[batch:])


class GeneratorObjective(Objective):
    """Entropy and budget of the generator's masks on training images.

    Args:
        generator: what is trained.
        prior: scores the masks; frozen.
        train: images to learn from.
        validation: images to judge by.
        settings: what a mask costs.
        batch_size: images a step; each costs two passes of the prior.
        held_out: how many validation images to judge by.
    """

    model: MaskGenerator

    def __init__(
        self,
        generator: MaskGenerator,
        prior: AbsorbingPrior,
        train: Images,
        validation: Images,
        settings: GeneratorLoss,
        batch_size: int,
        held_out: int = 512,
    ) -> None:
        if generator.shape != train.shape or prior.shape != train.shape:
            raise DataError(
                f"generator {generator.shape}, prior {prior.shape} and images {train.shape} need the same shape"
            )
        if generator.num_labels != train.num_labels or prior.num_labels != train.num_labels:
            raise DataError(
                f"generator, prior and images need the same labels, got {generator.num_labels}, {prior.num_labels} "
                f"and {train.num_labels}"
            )
        if settings.estimator == "straight-through" and not isinstance(prior.network, UNet):
            raise ConfigError("straight-through needs a prior whose network takes relaxed states: a unet")
        if settings.estimator == "straight-through" and settings.surrogate == "variance":
            raise ConfigError("straight-through goes with the entropy surrogates, not with the variance")
        self.model, self.prior = generator, prior.eval().requires_grad_(False)
        self.train, self.held_out, self.settings = train, validation.first(held_out), settings
        self.batch_size = batch_size
        self.random_values: dict[str, float] | None = None
        self.reference = self._reference() if settings.relative else None

    def _reference(self) -> Tensor:
        """What random masks leave of the surrogate at budgets 0, 0.05, ..., 1 on held-out images, `(21,)`."""
        x, label = self._known(*self.held_out.first(128)[slice(None)])
        found = []
        for s in torch.linspace(0, 1, 21):
            t = self.prior.process.timestep_for(s).expand(len(x))
            mask = torch.rand(len(x), x[0, 0].numel(), generator=torch.Generator().manual_seed(0)) < s
            left = entropy_loss(self.prior, x, label, t, self._summed)(mask, torch.arange(len(x)))
            found.append(left.mean())
        return torch.stack(found).clamp(min=found[0].item() * 1e-3)

    @property
    def _summed(self) -> Surrogate:
        """What random masks are measured by: the variance where it is the surrogate, else the entropy."""
        return "variance" if self.settings.surrogate == "variance" else "all"

    def _known(self, x: Tensor, label: Tensor | None) -> tuple[Tensor, Tensor]:
        return x, torch.full((len(x),), UNKNOWN) if label is None else label

    def weight(self, budget: Tensor) -> Tensor:
        """What the loss of an image is multiplied by, `(B,)`."""
        if self.reference is None:
            return torch.ones_like(budget)
        place = budget * (len(self.reference) - 1)
        left = place.long().clamp(max=len(self.reference) - 2)
        logs = self.reference.log()
        return torch.lerp(logs[left], logs[left + 1], place - left).neg().exp()

    def loss(self, model: MaskGenerator, step: int, generator: Generator) -> Tensor:
        index = torch.randint(len(self.train), (self.batch_size,), generator=generator)
        x, label = self._known(*self.train[index])
        budget = self.settings.draw_budgets(self.batch_size, generator)
        u = torch.rand(self.batch_size, x[0, 0].numel(), generator=generator)
        x, label, budget, u = self.share(x), self.share(label), self.share(budget), self.share(u)
        t = self.prior.process.timestep_for(budget)
        logits = model(summary(x, self.prior.num_states), label if self.train.num_labels else None, budget)
        weight = self.weight(budget)
        settings = self.settings
        if settings.estimator == "disarm":
            loss = (
                entropy_map(self.prior, x, label, t, settings.surrogate)
                if settings.reach
                else entropy_loss(self.prior, x, label, t, settings.surrogate)
            )
            size = self.prior.shape[1], self.prior.shape[2]
            value, gradient = disarm_gradient(logits.detach(), loss, u, size, settings.reach)
            linear = (logits * gradient).sum(1)
            entropy = value + linear - linear.detach()  # the value of the loss, the gradient of the estimate
        else:
            mask = straight_through(logits, masks.logistic_from(u), settings.temperature)
            entropy = relaxed_entropy(self.prior, x, label, t, settings.surrogate, mask)
        return (weight * (entropy + settings.sparsity * density_penalty(logits, budget))).mean()

    def validate(self, model: MaskGenerator) -> dict[str, float]:
        """Masks on budget at fixed budgets: how well they do, and the density of a plain Bernoulli draw.

        That is entropy, errors and recovery, and the PSNR of the posterior mean where the surrogate is the variance.
        """
        x, label = self.held_out[slice(None)]
        seen = summary(x, self.prior.num_states)
        values: dict[str, float] = {}
        for s in BUDGETS:
            noise = torch.Generator().manual_seed(0)
            with torch.inference_mode():
                logits = model(seen, label, torch.full((len(x),), s))
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
        y = observe(x, mask)
        read = self.prior.read(
            lambda log_probs: torch.stack([log_probs.argmax(-1) + 1.0, information.entropy(log_probs)], 1), y, label
        )
        x_hat = read[:, 0].long()
        found = {
            f"entropy_{name}": read[:, 1].mean().item(),
            f"errors_{name}": errors(x_hat, x).mean().item(),
            f"recovery_{name}": foreground_recovery(x_hat, x).nanmean().item(),
        }
        if self.settings.surrogate == "variance":
            mean = PosteriorMean(self.prior)(y, mask, Side(label=label))
            found[f"psnr_{name}"] = psnr(mean, dequantize(x, self.prior.num_states)).mean().item()
        return found
