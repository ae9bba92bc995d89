"""What a prior is trained on: random masks, and the masks of its own greedy policy.

A greedy policy shows a prior observations that random masks almost never produce. So the second stage trains on the
policy's own trajectories: the forward pass that trains the prior at step r also gives the scores that choose the
pixels of step r + 1, and costs nothing extra. Random masks stay in the mix, so that their quality does not fall.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor

from sensewise import masks, predictions
from sensewise.diffusion import AbsorbingProcess
from sensewise.errors import ConfigError
from sensewise.policies.base import Score
from sensewise.policies.choose import SPREAD_VARIANCE, Spread

SCORES: dict[str, Score] = {"entropy": predictions.entropy, "variance": predictions.variance}
SPREADS: dict[str, tuple[Spread, float]] = {"entropy": (Spread(), 0.0), "variance": (SPREAD_VARIANCE, 0.6)}
"""How the pixels of a step keep their distance, and the reach of the policy that goes with it, by score."""


@dataclass(frozen=True)
class Curriculum:
    """How observations are drawn for training.

    Attributes:
        survival_power: random masks keep a fraction `u ** survival_power` of the pixels, u uniform; 3 puts half of
            them below one pixel in eight. 0 is the paper's way: the timestep is drawn uniformly and given to the
            network, and every site survives on its own, not all channels of a pixel together.
        unknown_label: the fraction of images shown without their label.
        flip: the fraction of images mirrored left to right.
        on_policy: the fraction of a batch that follows the greedy policy.
        max_budget: the largest budget of a greedy trajectory.
        budget_power: its budgets are `max_budget u ** budget_power`, u uniform.
        min_steps: the fewest steps of a trajectory.
        max_steps: the most steps of a trajectory.
        probe: the fraction of trajectories that start from a random probe of 20% of their budget.
        spread: the fraction of trajectories whose pixels keep their distance, as `SPREADS` has it for their score.
        score: what the policy follows, "entropy" or "variance".
        observed_weight: weight of the loss on observed sites; small, so that raw predictions there mean something. With
            noise it is what the prior makes of a reading that counts, and a prior that copied its readings has to
            unlearn that: large.
        relative: divide each image's loss by the nats that the prior expects it to cost, so that the last steps of an
            acquisition, where little is left to learn, count as much as the first. The weight depends on the
            observation alone, so the loss is still minimised by the true posterior.
        shared_zero: the fraction of images whose observed black pixels are shown as unobserved, as a prior without a
            mask state sees them.
        noise: above 0, readings are flipped with a probability of up to this, the same in all of an image, and the
            prior is given that probability; a sixth of the images are read without noise.
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
    score: Literal["entropy", "variance"] = "entropy"
    observed_weight: float = 0.01
    relative: bool = False
    shared_zero: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.survival_power < 0:
            raise ConfigError(f"survival_power must be at least 0, got {self.survival_power}")
        for name in ("unknown_label", "flip", "on_policy", "probe", "spread", "shared_zero"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} must lie between 0 and 1, got {getattr(self, name)}")
        if not 0 < self.max_budget < 1 or self.budget_power <= 0:
            raise ConfigError(
                f"max_budget must lie between 0 and 1 and budget_power above 0, got {self.max_budget} and "
                f"{self.budget_power}"
            )
        if not 0 <= self.noise < 0.5:
            raise ConfigError(f"noise must be at least 0 and below 0.5, got {self.noise}")
        if not 1 <= self.min_steps <= self.max_steps:
            raise ConfigError(f"1 <= min_steps <= max_steps is needed, got {self.min_steps} and {self.max_steps}")


def random_masks(batch: int, count: int, power: float, generator: Generator) -> tuple[Tensor, Tensor | None]:
    """What is kept of images, independently, each with its own survival: `u ** power`, or that of a uniform timestep.

    Args:
        count: pixels or sites of an image.
        power: 0 for a uniform timestep.

    Returns:
        Masks, bool `(B, count)`, and the timesteps `(B,)`, if they were drawn.
    """
    survival = torch.rand(batch, 1, generator=generator)
    t = None
    if power > 0:
        survival = survival**power
    else:
        process = AbsorbingProcess()
        t = (survival * process.timesteps).long() + 1
        survival = process.survival(t)
    return torch.rand(batch, count, generator=generator) < survival, None if t is None else t[:, 0]


def noise_levels(batch: int, most: float, generator: Generator) -> Tensor:
    """The probability of a flip in each image, `(B,)`: 0 in a sixth of them, elsewhere uniform up to `most`."""
    return (most * (1.2 * torch.rand(batch, generator=generator) - 0.2)).clamp(min=0)


class Rollouts:
    """Greedy trajectories under way, one image each: after every training step each of them moves on by one step.

    What was drawn stays on the CPU; the masks follow the device of the scores.

    Args:
        batch: trajectories, `B`.
        grid: `(H, W)`.
        curriculum: how they are drawn.
    """

    def __init__(self, batch: int, grid: tuple[int, int], curriculum: Curriculum) -> None:
        self.grid, self.curriculum = grid, curriculum
        self.index = torch.zeros(batch, dtype=torch.int64)
        self.known = torch.ones(batch, dtype=torch.bool)
        self.flipped = torch.zeros(batch, dtype=torch.bool)
        self.spread = torch.zeros(batch, dtype=torch.bool)
        self.mask = torch.zeros(batch, grid[0] * grid[1], dtype=torch.bool)
        self.per_step = torch.zeros(batch, dtype=torch.int64)
        self.left = torch.full((batch,), -1)  # steps still to take; below 0: finished, to be replaced
        self.level = torch.zeros(batch)  # how probable a flip is, where readings are noisy
        self.chance = torch.zeros(
            batch, grid[0] * grid[1] if curriculum.noise else 0
        )  # a site below its level is flipped

    def state(self) -> dict[str, Tensor]:
        """All that a trajectory is."""
        names = ["index", "known", "flipped", "spread", "mask", "per_step", "left"]
        names += ["level", "chance"] if self.curriculum.noise else []
        return {name: getattr(self, name) for name in names}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""
        for name in self.state():
            setattr(self, name, state[name])

    def restart_finished(self, fresh: Tensor, generator: Generator) -> None:
        """Replace finished trajectories by new ones on the images `fresh` `(B,)`."""
        c = self.curriculum
        batch, num_actions = self.mask.shape
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
        probe = masks.bottom_k(noise, (probe_share * total).long())
        self.index = torch.where(ended, fresh, self.index)
        self.known = torch.where(ended, known, self.known)
        self.flipped = torch.where(ended, flipped, self.flipped)
        self.spread = torch.where(ended, spread, self.spread)
        device = self.mask.device
        self.mask = torch.where(ended[:, None].to(device), probe.to(device), self.mask)
        self.per_step = torch.where(ended, (total / steps).ceil().long(), self.per_step)
        self.left = torch.where(ended, steps, self.left)
        if c.noise:
            self.level = torch.where(ended, noise_levels(batch, c.noise, generator), self.level)
            chance = torch.rand(self.chance.shape, generator=generator)
            self.chance = torch.where(ended[:, None], chance, self.chance)

    def advance(self, scores: Tensor) -> None:
        """Measure the pixels of highest score, `(B, K)`, that are not measured yet."""
        mask, per_step = self.mask.to(scores.device), self.per_step.to(scores.device)
        if self.curriculum.spread:
            spread, (choice, reach) = self.spread.to(scores.device), SPREADS[self.curriculum.score]
            if reach:
                around = masks.around(scores.masked_fill(mask, 0.0), self.grid, reach)
                scores = torch.where(spread[:, None], around, scores)
            scores = scores.masked_fill(mask, -torch.inf)
            damping, width = choice.damping * spread.float(), choice.width(scores, per_step)
            chosen = masks.spread_top_k(scores, self.per_step, self.grid, damping, width)
        else:
            chosen = masks.bottom_k(-scores.masked_fill(mask, -torch.inf), per_step)
        self.mask = mask | chosen
        self.left = self.left - 1
