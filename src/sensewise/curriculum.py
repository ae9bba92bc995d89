"""What a prior is trained on: random masks, and the masks of its own greedy policy.

A greedy policy shows a prior observations that random masks almost never produce. So the second stage trains on the
policy's own trajectories: the forward pass that trains the prior at step r also gives the entropies that choose the
pixels of step r + 1, and costs nothing extra. Random masks stay in the mix, so that their quality does not fall.
"""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from sensewise import information, masks
from sensewise.acquire import acquire
from sensewise.data.images import Images
from sensewise.diffusion import AbsorbingProcess, cross_entropy
from sensewise.errors import ConfigError
from sensewise.metrics import errors, psnr
from sensewise.policies import Greedy, Score, SpreadGreedy, spread_variance
from sensewise.priors import UNKNOWN, AbsorbingPrior, Prior
from sensewise.reconstruct import Argmax, PosteriorMean
from sensewise.sensors import PixelSensor, Side
from sensewise.tokens import MASK, dequantize, observe, site_mask
from sensewise.training import Objective

VALIDATION_IMAGES = 512
FLOOR_NATS = 5.0  # what an image counts at least, where losses are relative


@dataclass(frozen=True)
class Curriculum:
    """How observations are drawn for training.

    Attributes:
        survival_power: random masks keep a fraction `u ** survival_power` of the pixels, u uniform; 3 puts half of
            them below one pixel in eight. 0 draws the timestep uniformly instead, as the paper does.
        unknown_label: the fraction of images shown without their label.
        flip: the fraction of images mirrored left to right.
        on_policy: the fraction of a batch that follows the greedy policy.
        max_budget: the largest budget of a greedy trajectory.
        budget_power: its budgets are `max_budget u ** budget_power`, u uniform.
        min_steps: the fewest steps of a trajectory.
        max_steps: the most steps of a trajectory.
        probe: the fraction of trajectories that start from a random probe of 20% of their budget.
        spread: the fraction of trajectories whose pixels keep their distance, as `policies.spread_variance` does it.
        score: what the policy follows, "entropy" or "variance".
        observed_weight: weight of the loss on observed sites; small, so that raw predictions there mean something.
        relative: divide each image's loss by the nats that the prior expects it to cost, so that the last steps of an
            acquisition, where little is left to learn, count as much as the first. The weight depends on the
            observation alone, so the loss is still minimised by the true posterior.
    """

    survival_power: float = 3.0
    unknown_label: float = 0.1
    flip: float = 0.0
    on_policy: float = 0.0
    max_budget: float = 0.4
    budget_power: float = 2.0
    min_steps: int = 4
    max_steps: int = 32
    probe: float = 0.25
    spread: float = 0.0
    score: Score = "entropy"
    observed_weight: float = 0.01
    relative: bool = False

    def __post_init__(self) -> None:
        if self.survival_power < 0:
            raise ConfigError(f"survival_power must be at least 0, got {self.survival_power}")
        for name in ("unknown_label", "flip", "on_policy", "probe", "spread"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} must lie between 0 and 1, got {getattr(self, name)}")
        if self.spread and self.score != "variance":
            raise ConfigError(f"spread trajectories follow the variance, not the {self.score}: set score to variance")
        if not 0 < self.max_budget < 1 or self.budget_power <= 0:
            raise ConfigError(
                f"max_budget must lie between 0 and 1 and budget_power above 0, got {self.max_budget} and "
                f"{self.budget_power}"
            )
        if not 1 <= self.min_steps <= self.max_steps:
            raise ConfigError(f"1 <= min_steps <= max_steps is needed, got {self.min_steps} and {self.max_steps}")


def random_masks(batch: int, num_actions: int, power: float, generator: Generator) -> Tensor:
    """Independent pixels, each image with its own survival: `u ** power`, or that of a uniform timestep for power 0."""
    survival = torch.rand(batch, 1, generator=generator)
    if power > 0:
        survival = survival**power
    else:
        process = AbsorbingProcess()
        survival = process.survival((survival * process.timesteps).long() + 1)
    return torch.rand(batch, num_actions, generator=generator) < survival


class Rollouts:
    """Greedy trajectories under way, one image each: after every training step each of them moves on by one step.

    Args:
        policy: how the spread ones pick, or None if there are none.
    """

    def __init__(self, batch: int, num_actions: int, curriculum: Curriculum, policy: SpreadGreedy | None) -> None:
        self.curriculum, self.policy = curriculum, policy
        self.index = torch.zeros(batch, dtype=torch.int64)
        self.known = torch.ones(batch, dtype=torch.bool)
        self.flipped = torch.zeros(batch, dtype=torch.bool)
        self.spread = torch.zeros(batch, dtype=torch.bool)
        self.mask = torch.zeros(batch, num_actions, dtype=torch.bool)
        self.per_step = torch.zeros(batch, dtype=torch.int64)
        self.left = torch.full((batch,), -1)  # steps still to take; below 0: finished, to be replaced

    def state(self) -> dict[str, Tensor]:
        names = ("index", "known", "flipped", "spread", "mask", "per_step", "left")
        return {name: getattr(self, name) for name in names}

    def load_state(self, state: dict[str, Tensor]) -> None:
        for name in self.state():
            setattr(self, name, state[name])

    def restart_finished(self, fresh: Tensor, generator: Generator) -> None:
        """Replace finished trajectories by new ones on the images `fresh` `(B,)`."""
        c, (batch, num_actions) = self.curriculum, self.mask.shape
        ended = self.left < 0
        share = c.max_budget * torch.rand(batch, generator=generator) ** c.budget_power
        total = (share * num_actions).long() + c.min_steps
        span = torch.tensor([c.min_steps, c.max_steps]).log()
        drawn = torch.rand(batch, generator=generator) * (span[1] - span[0]) + span[0]
        steps = torch.minimum(drawn.exp().round().long(), total)
        probe_share = torch.where(torch.rand(batch, generator=generator) < c.probe, 0.2, 0.0)
        noise = torch.rand(batch, num_actions, generator=generator)
        known = torch.rand(batch, generator=generator) >= c.unknown_label
        flipped = torch.rand(batch, generator=generator) < c.flip
        spread = torch.rand(batch, generator=generator) < c.spread if c.spread else torch.zeros_like(flipped)
        probe = masks.lowest(noise, (probe_share * total).long())
        self.index = torch.where(ended, fresh, self.index)
        self.known = torch.where(ended, known, self.known)
        self.flipped = torch.where(ended, flipped, self.flipped)
        self.spread = torch.where(ended, spread, self.spread)
        self.mask = torch.where(ended[:, None], probe, self.mask)
        self.per_step = torch.where(ended, (total / steps).ceil().long(), self.per_step)
        self.left = torch.where(ended, steps, self.left)

    def advance(self, scores: Tensor) -> None:
        """Measure the pixels of highest score, `(B, K)`, that are not measured yet."""
        if self.policy is not None:
            around = self.policy.score_around(scores.masked_fill(self.mask, 0.0))
            scores = torch.where(self.spread[:, None], around, scores).masked_fill(self.mask, -torch.inf)
            chosen = self.policy.choose(scores, self.per_step, self.policy.damping * self.spread.float())
        else:
            chosen = masks.lowest(-scores.masked_fill(self.mask, -torch.inf), self.per_step)
        self.mask = self.mask | chosen
        self.left = self.left - 1


class PriorObjective(Objective):
    """Cross-entropy of the hidden sites, on the masks of a curriculum.

    Args:
        prior: what is trained.
        train: images to learn from.
        validation: images to judge by, on fixed masks.
        curriculum: how masks are drawn.
        batch_size: over all processes.
    """

    model: AbsorbingPrior
    forward_methods = ("predict",)

    def __init__(
        self, prior: AbsorbingPrior, train: Images, validation: Images, curriculum: Curriculum, batch_size: int
    ) -> None:
        self.model = prior
        self.train, self.validation, self.curriculum = train, validation, curriculum
        self.batch_size = batch_size
        self.num_actions = prior.shape[1] * prior.shape[2]
        policy = spread_variance(prior) if curriculum.spread else None
        self.rollouts = Rollouts(round(batch_size * curriculum.on_policy), self.num_actions, curriculum, policy)

    def state(self) -> dict[str, Tensor]:
        return self.rollouts.state()

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.rollouts.load_state(state)

    def loss(self, model: Prior, step: int, generator: Generator) -> Tensor:
        rolled = len(self.rollouts.index)
        fresh = torch.randint(len(self.train), (self.batch_size,), generator=generator)
        self.rollouts.restart_finished(fresh[:rolled], generator)
        index = torch.cat([self.rollouts.index, fresh[rolled:]])
        x, label = self.train[index]  # (B, C, H, W), (B,)
        known = torch.rand(len(index) - rolled, generator=generator) >= self.curriculum.unknown_label
        flipped = torch.rand(len(index) - rolled, generator=generator) < self.curriculum.flip
        flipped = torch.cat([self.rollouts.flipped, flipped])
        x = torch.where(flipped.view(-1, 1, 1, 1), x.flip(-1), x)
        if label is not None:
            label = torch.where(torch.cat([self.rollouts.known, known]), label, UNKNOWN)
        drawn = random_masks(len(known), self.num_actions, self.curriculum.survival_power, generator)
        mask = torch.cat([self.rollouts.mask, drawn])
        x, mask, label = self.share(x), self.share(mask), None if label is None else self.share(label)
        y = observe(x, mask)
        log_probs = model.predict(y, model.check(y, label), None)
        if rolled:
            self.rollouts.advance(self.gather(self._scores(log_probs.detach()))[:rolled])
        hidden = ~site_mask(mask, self.model.shape)
        nats = cross_entropy(log_probs, x, hidden)
        if self.curriculum.observed_weight:
            nats = nats + self.curriculum.observed_weight * cross_entropy(log_probs, x, ~hidden)
        if self.curriculum.relative:
            expected = information.whole_image(log_probs.detach()) * x[0].numel()
            return 0.1 * (nats / (expected + FLOOR_NATS)).mean()
        return nats.mean() / x[0].numel()

    def _scores(self, log_probs: Tensor) -> Tensor:
        measure = information.entropy if self.curriculum.score == "entropy" else information.variance
        return information.per_pixel(measure(log_probs))

    def compile(self) -> None:
        self.model.network.compile()  # `predict` calls the network; the prior's own `forward` is for inference

    def validate(self, model: Prior) -> dict[str, float]:
        """On fixed masks: nats per image of random masks, then how well greedy acquisition in 16 steps does.

        That is errors per image for unordered states (score "entropy"), PSNR in dB for ordered levels ("variance").
        """
        x, label = self.validation[slice(0, VALIDATION_IMAGES)]
        values = {}
        ordered = self.curriculum.score == "variance"
        for budget in (0.1, 0.3, 0.5) if ordered else (0.05, 0.1, 0.2):
            k = masks.count(budget, self.num_actions)
            mask = masks.random(len(x), self.num_actions, k, torch.Generator().manual_seed(0))
            values[f"random_nats_{budget}"] = self._nats(model, x, label, mask)
            if ordered:
                values[f"random_psnr_{budget}"] = self._psnr(model, x, label, observe(x, mask))
        side = Side(label=label)
        for budget in (0.1, 0.3, 0.5) if ordered else (0.05, 0.1, 0.2):
            policy = spread_variance(model) if self.curriculum.spread else Greedy(model, self.curriculum.score)
            taken = acquire(policy, PixelSensor(x), budget, side=side, steps=16)
            if ordered:
                values[f"greedy_psnr_{budget}"] = self._psnr(model, x, label, taken.observation)
            else:
                x_hat = Argmax(model)(taken.observation, taken.mask, side)
                values[f"greedy_errors_{budget}"] = errors(x_hat, x).mean().item()
        return values

    def _nats(self, model: Prior, x: Tensor, label: Tensor | None, mask: Tensor) -> float:
        y = observe(x, mask)
        return cross_entropy(model.read(lambda log_probs: log_probs, y, label), x, y == MASK).mean().item()

    def _psnr(self, model: Prior, x: Tensor, label: Tensor | None, y: Tensor) -> float:
        mean = PosteriorMean(model)(y, torch.empty(0), Side(label=label))
        return psnr(mean, dequantize(x, model.num_states)).mean().item()
