r"""Train a prior over readings of pictures of any size: from empty masks, on its own picks and on random masks.

Of every batch a part follows trajectories: the pass that trains the network at one step also gives the variances that
pick the pixels of the next. The rest are random masks. Some pictures are read with noise.

The loss of a picture is the mean nats of its hidden pixels (and of noisy ones), plus

$$ a \log E + c\, (\log V + E / V), \qquad V = \overline{\mathrm{var}}_i, \quad E = \overline{(x_i - m_i)^2}. $$

PSNR is the logarithm of E, whatever a picture's contrast, and V is what a stopping rule goes by. The second term is a
proper score (Dawid and Sebastiani, 1999) in which E is held constant, so that only the widths follow it. A squared
distance between the logarithms would make V the *geometric* mean of E: far too low where a small thing may or may not
be there, and greedy would not look again.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn

from sensewise import hub, masks
from sensewise.data.crops import Pictures
from sensewise.errors import CheckpointError, ConfigError
from sensewise.loop import acquire
from sensewise.metrics import psnr
from sensewise.policies.base import Context
from sensewise.policies.choose import SPREAD_READINGS
from sensewise.policies.greedy import greedy_readings
from sensewise.predictions import Prediction
from sensewise.priors.readings import ReadingPrior
from sensewise.sensors.base import Side
from sensewise.sensors.readings import ReadingSensor
from sensewise.tokens import pack, quantize
from sensewise.train.gradient import FitSettings, Objective
from sensewise.train.recipe import GradientRecipe

FLOOR = (0.5 / 255) ** 2  # errors below half a level do not count
SURPRISE = 100.0  # times the expected error: more does not count
OUTLIER = math.log(1e-4 / 256)  # the least that a pixel's level counts, so that one hopeless pixel does not rule a step
QUIETEST, LOUDEST = 0.004, 0.16  # noise of a reading
LOOKS = {"random": (0.02, 0.1), "spread": (0.02, 0.1)}  # budgets of validation
STEPS, CHUNK = 16, 8  # of an acquisition in validation; pictures at a time


@dataclass(frozen=True)
class AnySizeSettings:
    """How large the network is; see `networks.any_size.AnySize`."""

    widths: tuple[int, ...] = (32, 64, 128, 160)
    blocks: tuple[int, ...] = (1, 2, 2, 2)
    patch: int = 2
    components: int = 4
    embedding: int = 64


@dataclass(frozen=True)
class ReadingPriorSettings:
    """Everything that `sensewise train prior` needs to know for pictures of any size.

    Attributes:
        heights: of the crops, one for each size.
        widths: likewise.
        batches: crops of a step, likewise.
        shares: how often a step takes this size, likewise.
        on_policy: the fraction of a batch that follows the prior's own picks.
        noisy: the fraction of pictures that are read with noise.
        max_budget: the largest budget of a trajectory.
        budget_power: its budgets are `max_budget u ** budget_power`, u uniform.
        min_steps: the fewest steps of a trajectory.
        max_steps: the most steps of a trajectory.
        survival_power: random masks keep a fraction `u ** survival_power` of the pixels.
        score_weight: a, of the logarithm of the error.
        calibration_weight: c, of the score of the expected error.
        validation_pictures: at most so many are looked at.
        init: the model whose weights it starts from, by name or folder; None for fresh ones.
    """

    heights: tuple[int, ...] = (64, 96, 128, 38)
    widths: tuple[int, ...] = (64, 96, 128, 53)
    batches: tuple[int, ...] = (16, 7, 4, 24)
    shares: tuple[float, ...] = (0.7, 0.1, 0.12, 0.08)
    on_policy: float = 0.6
    noisy: float = 0.35
    max_budget: float = 0.5
    budget_power: float = 2.0
    min_steps: int = 4
    max_steps: int = 32
    survival_power: float = 3.0
    score_weight: float = 0.5
    calibration_weight: float = 0.2
    validation_pictures: int = 40
    network: AnySizeSettings = field(default_factory=AnySizeSettings)
    fit: FitSettings = field(default_factory=FitSettings)
    init: str | None = None

    def __post_init__(self) -> None:
        sizes = (self.heights, self.widths, self.batches, self.shares)
        if not self.heights or len({len(size) for size in sizes}) > 1:
            raise ConfigError("heights, widths, batches and shares need one entry for each size of crops")
        if min(*self.heights, *self.widths) < 16 or min(self.batches) < 1 or min(self.shares) <= 0:
            raise ConfigError("crops have sides of at least 16, batches at least 1, and shares are above 0")
        for name in ("on_policy", "noisy"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} must lie between 0 and 1, got {getattr(self, name)}")
        if not 0 < self.max_budget < 1 or not 1 <= self.min_steps <= self.max_steps:
            raise ConfigError("0 < max_budget < 1 and 1 <= min_steps <= max_steps are needed")


class Pool:
    """Pictures of one size under way: trajectories that move on by one step each time, then random masks.

    Args:
        grid: `(H, W)`.
        batch: pictures.
        settings: how they are drawn.
    """

    NAMES = ("picture", "noise", "sigma", "seen", "per_step", "left")

    def __init__(self, grid: tuple[int, int], batch: int, settings: ReadingPriorSettings) -> None:
        self.grid, self.batch, self.settings = grid, batch, settings
        self.rolled = round(batch * settings.on_policy)
        self.picture = torch.zeros(batch, 1, *grid)
        self.noise = torch.zeros(batch, 1, *grid)  # standard normal, fixed for a picture
        self.sigma = torch.zeros(batch, 1, 1, 1)
        self.seen = torch.zeros(batch, grid[0] * grid[1], dtype=torch.bool)
        self.per_step = torch.zeros(self.rolled, dtype=torch.int64)
        self.left = torch.full((self.rolled,), -1)  # steps still to take; below 0: finished, to be replaced

    def state(self) -> dict[str, Tensor]:
        """All that is under way."""
        return {name: getattr(self, name) for name in self.NAMES}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""
        for name in self.NAMES:
            setattr(self, name, state[name])

    def refill(self, pictures: Pictures, generator: Generator) -> None:
        """New pictures where a trajectory has ended, and for all random masks."""
        c, (batch, pixels) = self.settings, self.seen.shape
        fresh = torch.cat([self.left < 0, torch.ones(batch - self.rolled, dtype=torch.bool)])
        rng = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
        self.picture[fresh] = torch.from_numpy(pictures.crops(int(fresh.sum()), self.grid, rng))
        self.noise = torch.where(
            fresh.view(-1, 1, 1, 1), torch.randn(self.noise.shape, generator=generator), self.noise
        )
        draw = torch.rand(5, batch, generator=generator)
        loud = torch.lerp(torch.tensor(math.log(QUIETEST)), torch.tensor(math.log(LOUDEST)), draw[0]).exp()
        sigma = torch.where(draw[1] < c.noisy, loud, 0.0)
        self.sigma = torch.where(fresh, sigma, self.sigma[:, 0, 0, 0]).view(-1, 1, 1, 1)
        survival = draw[2].pow(c.survival_power).index_fill(0, torch.arange(self.rolled), 0.0)  # trajectories: none
        drawn = torch.rand(batch, pixels, generator=generator) < survival[:, None]
        self.seen = torch.where(fresh[:, None], drawn, self.seen)
        share = c.max_budget * draw[3, : self.rolled] ** c.budget_power
        total = (share * pixels).long() + c.min_steps
        span = torch.tensor([c.min_steps, c.max_steps]).log()
        steps = torch.minimum(torch.lerp(span[0], span[1], draw[4, : self.rolled]).exp().round().long(), total)
        ended = fresh[: self.rolled]
        self.per_step = torch.where(ended, (total / steps).ceil().long(), self.per_step)
        self.left = torch.where(ended, steps, self.left)

    def readings(self) -> Tensor:
        """What has been read, `(B, 2, H, W)`."""
        read = self.picture + self.sigma * self.noise
        seen = self.seen.view(read.shape)
        return pack(torch.where(seen, read, torch.nan), self.sigma.expand_as(read))

    def advance(self, prior: ReadingPrior, variance: Tensor) -> None:
        """Read the pixels that the trajectories pick next, from the variances `(rolled, H W)` of the pass just made."""
        if self.rolled:
            seen = self.seen[: self.rolled]
            scores = greedy_readings(prior).in_place(variance, seen, self.grid).masked_fill(seen, -torch.inf)
            context = Context(Side(), seen.shape[1], torch.Generator(), 1, self.grid)
            self.seen[: self.rolled] |= SPREAD_READINGS(scores, self.per_step, context)
            self.left = self.left - 1


def picture_loss(prediction: Prediction, picture: Tensor, wanted: Tensor, levels: int, a: float, c: float) -> Tensor:
    """The loss of every picture, `(B,)`.

    Args:
        picture: intensities, with shape `(B, 1, H, W)`.
        wanted: True where the loss counts, same shape.
        levels: that nats are counted in.
        a: weight of the logarithm of the error.
        c: weight of the score of the expected error.
    """
    count = wanted.flatten(1).sum(1).clamp(min=1)

    def mean(values: Tensor) -> Tensor:
        return torch.where(wanted, values, 0.0).flatten(1).sum(1) / count

    log_prob = prediction.log_prob(quantize(picture, levels))
    nats = -mean(torch.logaddexp(log_prob, torch.full_like(log_prob, OUTLIER)))
    error = mean((prediction.mean() - picture).square()) + FLOOR
    expected = mean(prediction.variance()) + FLOOR
    surprise = (error.detach() / expected).clamp(max=SURPRISE)
    return nats + a * error.log() + c * (expected.log() + surprise)


class ReadingPriorObjective(Objective):
    """Nats, error and calibration on trajectories from nothing and on random masks.

    Args:
        prior: what is trained.
        pictures: to learn from.
        held_out: to judge by, whole.
        settings: how masks are drawn and losses weighed.
    """

    model: ReadingPrior

    def __init__(
        self, prior: ReadingPrior, pictures: Pictures, held_out: Pictures, settings: ReadingPriorSettings
    ) -> None:
        self.model, self.pictures, self.settings = prior, pictures, settings
        whole = torch.from_numpy(held_out.whole())
        few = torch.linspace(0, len(whole) - 1, min(len(whole), settings.validation_pictures)).long()
        self.held_out = whole[few]
        sizes = zip(settings.heights, settings.widths, settings.batches, strict=True)
        self.pools = [Pool((height, width), batch, settings) for height, width, batch in sizes]

    def state(self) -> dict[str, Tensor]:
        return {f"{i}.{name}": value for i, pool in enumerate(self.pools) for name, value in pool.state().items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        for i, pool in enumerate(self.pools):
            pool.load_state({name: state[f"{i}.{name}"] for name in pool.NAMES})

    def loss(self, model: ReadingPrior, step: int, generator: Generator) -> Tensor:
        shares = torch.tensor(self.settings.shares)
        pool = self.pools[int(torch.multinomial(shares, 1, generator=generator))]
        pool.refill(self.pictures, generator)
        y, picture = (self.team.share(part).to(self.device) for part in (pool.readings(), pool.picture))
        prediction = model(y)
        wanted = ~((y[:, 1:] == 0) & ~y[:, :1].isnan())  # a reading without noise says nothing about the prior
        weights = self.settings.score_weight, self.settings.calibration_weight
        losses = picture_loss(prediction, picture, wanted, self.model.num_states, *weights)
        variance = self.team.gather(prediction.variance().detach().flatten(1).float(), pool.batch)
        pool.advance(self.model, variance[: pool.rolled].cpu())
        return losses.mean()

    def compile(self) -> None:
        self.model.network.compile()

    @torch.inference_mode()
    def validate(self, model: ReadingPrior) -> dict[str, float]:
        """PSNR in dB of random masks and of spread picks; how much more was expected, on average and as r.m.s."""
        values: dict[str, float] = {}
        pixels = self.held_out[0].numel()
        for way, budgets in LOOKS.items():
            for budget in budgets:
                true, expected = [], []
                generator, count = torch.Generator().manual_seed(0), masks.count(budget, pixels)
                for picture in torch.split(self.held_out, CHUNK):
                    sensor = ReadingSensor(picture.to(self.device))
                    if way == "random":
                        y = sensor(masks.random(len(picture), pixels, count, generator).to(self.device))
                    else:
                        policy, steps = greedy_readings(model), min(STEPS, count)
                        y = acquire(policy, sensor, budget, steps=steps, choose=SPREAD_READINGS).observation
                    found = model(y)
                    true.append(psnr(found.mean(), picture.to(self.device)))
                    expected.append(-10 * found.variance().flatten(1).mean(1).clamp(min=1e-10).log10())
                gap = torch.cat(expected) - torch.cat(true)
                values[f"{way}_psnr_{budget}"] = torch.cat(true).mean().item()
                values[f"{way}_gap_{budget}"] = gap.mean().item()
                values[f"{way}_rms_{budget}"] = gap.square().mean().sqrt().item()
        return values


@dataclass(frozen=True)
class ReadingPriorRecipe(GradientRecipe):
    """How a prior over readings is trained.

    Attributes:
        settings: of the training.
        scenes: pictures to learn from.
        held_out: pictures to judge by.
        init: the model whose weights it starts from, whatever the settings say; None for fresh ones.
        preset: whose runs `init` is looked for in.
    """

    settings: ReadingPriorSettings
    scenes: Pictures
    held_out: Pictures
    init: str | Path | None = None
    preset: str | Path = hub.SHIPPED

    kind = "prior"
    elsewhere = ("network",)

    def model(self) -> dict[str, Any]:
        sizes = asdict(self.settings.network).items()
        own = {name: list(value) if isinstance(value, tuple) else value for name, value in sizes}
        return {"network": hub.ANY_SIZE, "num_states": 256, **own}

    def about(self) -> dict[str, Any]:
        return {"init": None if self.init is None else Path(self.init).name}

    def initialise(self, model: nn.Module) -> None:
        if self.init is None:
            return
        start, config = hub.load(self.init, "prior", self.preset)
        if config["model"] != self.model():
            raise CheckpointError(f"{self.init} holds a model of another size or kind than this preset asks for")
        model.load_state_dict(start.state_dict())

    def objective(self, model: ReadingPrior) -> ReadingPriorObjective:
        return ReadingPriorObjective(model, self.scenes, self.held_out, self.settings)
