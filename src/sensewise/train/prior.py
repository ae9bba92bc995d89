"""Train a prior over token images, from fresh weights or from those of another run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn

from sensewise import hub, information, masks
from sensewise.data.scenes import Scenes
from sensewise.errors import CheckpointError, ConfigError
from sensewise.loop import acquire
from sensewise.metrics import errors, psnr
from sensewise.policies.choose import TopK
from sensewise.policies.greedy import Greedy
from sensewise.predictions import Prediction
from sensewise.priors.absorbing import AbsorbingPrior
from sensewise.priors.base import Prior
from sensewise.priors.flips import FlipPrior
from sensewise.reconstruct.prior import Mode, PosteriorMean
from sensewise.sensors.base import Side
from sensewise.sensors.pixels import PixelSensor
from sensewise.tokens import BLACK, MASK, UNKNOWN, dequantize, observe, site_mask
from sensewise.train.curriculum import SCORES, SPREADS, Curriculum, Rollouts, noise_levels, random_masks
from sensewise.train.flips import misread, noisy_errors
from sensewise.train.gradient import FitSettings, Objective
from sensewise.train.recipe import GradientRecipe

VALIDATION_IMAGES = 512
CHUNK = 64  # images of a pass in validation
REPEATED = 0.5  # of the images with random masks and noise: the fraction whose sites are read several times
FLOOR_NATS = 5.0  # what an image counts at least, where losses are relative


@dataclass(frozen=True)
class NetworkSettings:
    """Which network, and how large: `dim`, `layers` and `heads` are the transformer's, the other sizes the U-Net's."""

    name: Literal["unet", "paper-conv", "dit"] = "unet"
    widths: tuple[int, ...] = (32, 64, 128)
    blocks: tuple[int, ...] = (1, 2, 2)
    patch: int = 2
    embedding: int = 128
    encoding: Literal["one-hot", "ordinal", "scalar", "noisy"] = "one-hot"
    fine: int = 0
    fine_blocks: int = 2
    dim: int = 1024
    layers: int = 5
    heads: int = 16

    def options(self) -> dict[str, Any]:
        """What the network of this name takes."""
        names = {
            "paper-conv": (),
            "dit": ("dim", "layers", "heads", "patch", "encoding"),
            "unet": ("widths", "blocks", "patch", "embedding", "encoding"),
        }[self.name]
        if self.fine and self.name == "unet":
            names = (*names, "fine", "fine_blocks")
        values = {name: getattr(self, name) for name in names}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


@dataclass(frozen=True)
class PriorSettings:
    """Everything that `sensewise train prior` needs to know.

    Attributes:
        teacher: the prior whose predictions are learned, by name or folder, or several whose mean is (`train.taught`);
            None for the images.
        reuse: how many steps learn from one answer of the teacher.
        init: the model whose weights it starts from, by name or folder; None for fresh ones.
    """

    batch_size: int = 64
    time_input: bool = True
    network: NetworkSettings = field(default_factory=NetworkSettings)
    curriculum: Curriculum = field(default_factory=Curriculum)
    fit: FitSettings = field(default_factory=FitSettings)
    teacher: str | tuple[str, ...] | None = None
    reuse: int = 1
    init: str | None = None

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.reuse < 1:
            raise ConfigError(f"batch_size and reuse must be at least 1, got {self.batch_size} and {self.reuse}")


class PriorObjective(Objective):
    """Cross-entropy of the hidden sites, on the masks of a curriculum.

    Args:
        prior: what is trained.
        scenes: images to learn from.
        held_out: images to judge by, on fixed masks.
        curriculum: how masks are drawn.
        batch_size: over all processes.
    """

    model: AbsorbingPrior | FlipPrior
    forward_methods = ("predict",)

    def __init__(
        self,
        prior: AbsorbingPrior | FlipPrior,
        scenes: Scenes,
        held_out: Scenes,
        curriculum: Curriculum,
        batch_size: int,
    ) -> None:
        if isinstance(prior, FlipPrior) is not bool(curriculum.noise):
            raise ConfigError('noise of a curriculum and the encoding "noisy" of a network belong together: set both')
        if curriculum.noise and (scenes.shape[0], scenes.num_states) != (1, 2):
            raise ConfigError(f"flips are for grey images of two levels, and {scenes.name} has others: set noise to 0")
        self.model, self.scenes, self.held_out = prior, scenes, held_out
        self.curriculum, self.batch_size = curriculum, batch_size
        grid = (scenes.shape[1], scenes.shape[2])
        self.num_actions = grid[0] * grid[1]
        self.rollouts = Rollouts(round(batch_size * curriculum.on_policy), grid, curriculum)

    def state(self) -> dict[str, Tensor]:
        return self.rollouts.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.rollouts.load_state(state)

    def _batch(self, generator: Generator) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
        """Images, labels, observed sites `(B, C, H, W)` and drawn timesteps, the greedy trajectories first."""
        c, rollouts = self.curriculum, self.rollouts
        rolled = len(rollouts.index)
        fresh = torch.randint(len(self.scenes), (self.batch_size,), generator=generator)
        rollouts.restart_finished(fresh[:rolled], generator)
        x, label = self.draw(self.scenes, torch.cat([rollouts.index, fresh[rolled:]]))  # (B, C, H, W), (B,)
        known = torch.rand(self.batch_size - rolled, generator=generator) >= c.unknown_label
        flipped = torch.rand(self.batch_size - rolled, generator=generator) < c.flip
        flipped = torch.cat([rollouts.flipped, flipped]).to(self.device)
        x = torch.where(flipped.view(-1, 1, 1, 1), x.flip(-1), x)
        if label is not None:
            label = torch.where(torch.cat([rollouts.known, known]).to(self.device), label, UNKNOWN)
        shape = (x.shape[1], x.shape[2], x.shape[3])
        count = self.num_actions if c.survival_power else self.num_actions * shape[0]
        drawn, t = random_masks(len(known), count, c.survival_power, generator)
        fresh_sites = site_mask(drawn, shape) if c.survival_power else drawn.view(-1, *shape)
        sites = torch.cat([site_mask(rollouts.mask, shape).to(self.device), fresh_sites.to(self.device)])
        return x, label, sites, None if t is None or rolled else t.to(self.device)

    def loss(self, model: Prior, step: int, generator: Generator) -> Tensor:
        x, label, sites, t = self._batch(generator)
        noisy = self.curriculum.noise > 0
        y = torch.where(sites, x, MASK)
        if noisy:
            y = self._misread(x, sites, generator)
        x, y, sites = self.team.share(x), self.team.share(y), self.team.share(sites)
        label, t = (None if drawn is None else self.team.share(drawn) for drawn in (label, t))
        prediction = model.predict(*self._shown(y, self.model.check(y, label), t, generator))
        prediction = prediction.given(y) if noisy else prediction
        self.move_on(prediction)
        nats = prediction.cross_entropy(x, ~sites)
        if self.curriculum.observed_weight:
            nats = nats + self.curriculum.observed_weight * prediction.cross_entropy(x, sites)
        return self.mean(nats, prediction, x[0].numel())

    def move_on(self, prediction: Prediction) -> None:
        """Let the greedy trajectories take their next step, as a prediction of this batch says."""
        if rolled := len(self.rollouts.index):
            with torch.no_grad():
                scores = information.per_pixel(SCORES[self.curriculum.score](prediction))
            self.rollouts.advance(self.team.gather(scores, self.batch_size)[:rolled])

    def mean(self, nats: Tensor, prediction: Prediction, sites: int) -> Tensor:
        """The loss from what each image costs, `(B,)`, relative to what a prediction expects if that is asked for."""
        if self.curriculum.relative:
            with torch.no_grad():
                expected = information.whole_image(prediction.entropy()) * sites
            return 0.1 * (nats / (expected + FLOOR_NATS)).mean()
        return nats.mean() / sites

    def _misread(self, x: Tensor, sites: Tensor, generator: Generator) -> Tensor:
        """Readings; greedy trajectories keep the flips that they met."""
        rolled, shape = len(self.rollouts.index), x[:, :1].shape
        fresh = len(x) - rolled
        levels = noise_levels(fresh, self.curriculum.noise, generator)
        chance = torch.rand(fresh, self.num_actions, generator=generator)
        repeated = torch.rand(fresh, generator=generator) < REPEATED
        return misread(
            x,
            sites,
            torch.cat([self.rollouts.level, levels]).to(self.device),
            torch.cat([self.rollouts.chance, chance]).view(shape).to(self.device),
            torch.cat([torch.zeros(rolled, dtype=torch.bool), repeated]).to(self.device),
            generator,
        )

    def _shown(
        self, y: Tensor, label: Tensor, t: Tensor | None, generator: Generator
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """What the network is asked: tokens, labels and timesteps, with `shared_zero` of the images without black."""
        if not self.curriculum.shared_zero:
            return y, label, t
        shared = torch.rand(self.batch_size, generator=generator) < self.curriculum.shared_zero
        shared = self.team.share(shared).to(self.device).view(-1, 1, 1, 1)
        density = (y != MASK).flatten(1).float().mean(1)  # of the true observation, as without a mask state
        return torch.where(shared & (y == BLACK), MASK, y), label, self.model.process.timestep_for(density)

    def compile(self) -> None:
        self.model.network.compile()  # `predict` calls the network; the prior's own `forward` is for inference

    def validate(self, model: Prior) -> dict[str, float]:
        """On fixed masks: nats per image of random masks, then how well greedy acquisition in 16 steps does.

        That is errors per image for unordered states (score "entropy"), PSNR in dB for ordered levels ("variance").
        With noise, true and expected errors at several levels of it.
        """
        x, label = self.draw(self.held_out, slice(0, VALIDATION_IMAGES))
        if self.curriculum.noise:
            return noisy_errors(model, x, label)
        side, values = Side(label=label), {}
        ordered, spread = self.curriculum.score == "variance", bool(self.curriculum.spread)
        budgets = (0.1, 0.3, 0.5) if ordered else (0.05, 0.1, 0.2)
        for budget in budgets:
            k = masks.count(budget, self.num_actions)
            mask = masks.random(len(x), self.num_actions, k, torch.Generator().manual_seed(0)).to(self.device)
            y = observe(x, mask)
            values[f"random_nats_{budget}"] = nats_per_image(model, x, label, y)
            if ordered:
                values[f"random_psnr_{budget}"] = mean_psnr(model, x, y, mask, side)
        choose, reach = SPREADS[self.curriculum.score] if spread else (TopK(), 0.0)
        policy = Greedy(model, SCORES[self.curriculum.score], reach=reach)
        for budget in budgets:
            steps = min(16, masks.count(budget, self.num_actions))
            taken = acquire(policy, PixelSensor(x), budget, side=side, steps=steps, choose=choose)
            for name, judge in self.judges(model).items():
                if ordered:
                    values[f"{name}_psnr_{budget}"] = mean_psnr(judge, x, taken.observation, taken.mask, side)
                else:
                    x_hat = Mode(judge)(taken.observation, taken.mask, side)
                    values[f"{name}_errors_{budget}"] = errors(x_hat, x).mean().item()
        return values

    def judges(self, model: Prior) -> dict[str, Prior]:
        """Who makes a picture of what greedy acquisition has measured, by the name of its numbers."""
        return {"greedy": model}


@torch.inference_mode()
def nats_per_image(prior: Prior, x: Tensor, label: Tensor | None, y: Tensor) -> float:
    """The mean over images of $-\\log p$ of all hidden sites of `x` given the observations `y`."""
    parts = zip(*(torch.split(tensor, CHUNK) for tensor in (x, y, prior.check(y, label))), strict=True)
    return (
        torch.cat([prior(seen, known).cross_entropy(true, seen == MASK) for true, seen, known in parts]).mean().item()
    )


def mean_psnr(prior: Prior, x: Tensor, y: Tensor, mask: Tensor, side: Side) -> float:
    """The mean over images of the posterior mean's PSNR, in dB."""
    return psnr(PosteriorMean(prior)(y, mask, side), dequantize(x, prior.num_states)).mean().item()


@dataclass(frozen=True)
class PriorRecipe(GradientRecipe):
    """How a prior is trained.

    Attributes:
        settings: of the training.
        scenes: images to learn from.
        held_out: images to judge by.
        init: the model whose weights it starts from, whatever the settings say; None for fresh ones. It may have fewer
            blocks than this one and no fine level: those begin by changing nothing.
        preset: whose runs `init` is looked for in.
        mask_state: whether "unobserved" has a state of its own; None where that is no question.
    """

    settings: PriorSettings
    scenes: Scenes
    held_out: Scenes
    init: str | Path | None = None
    preset: str | Path = hub.SHIPPED
    mask_state: bool | None = None

    kind = "prior"
    elsewhere = ("network", "time_input", "init")

    def model(self) -> dict[str, Any]:
        network = self.settings.network
        own = {} if self.mask_state is None else {"mask_state": self.mask_state}
        return {
            "shape": list(self.scenes.shape),
            "num_states": self.scenes.num_states,
            "num_labels": self.scenes.num_labels,
            "time_input": self.settings.time_input,
            "network": network.name,
            **network.options(),
            **own,
        }

    def about(self) -> dict[str, Any]:
        return {"init": None if self.init is None else Path(self.init).name}

    def initialise(self, model: nn.Module) -> None:
        if self.init is None:
            return
        start, config = hub.load(self.init, "prior", self.preset)
        ours = {**self.model(), "mask_state": None}
        if self.settings.curriculum.noise:
            ours["encoding"] = config["model"].get("encoding")  # a prior of readings starts from one of tokens
        if not can_grow({**config["model"], "mask_state": None}, ours):
            raise CheckpointError(f"{self.init} holds a model of another size or data set than this preset asks for")
        own = model.state_dict()
        model.load_state_dict({**own, **{name: _widened(t, own[name].shape) for name, t in start.state_dict().items()}})

    def objective(self, model: AbsorbingPrior | FlipPrior) -> PriorObjective:
        return PriorObjective(model, self.scenes, self.held_out, self.settings.curriculum, self.settings.batch_size)


def can_grow(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a model of the sizes `now` can begin by saying what one of the sizes `before` says."""
    grows = {"blocks", "fine", "fine_blocks"}
    if any(before.get(name) != now.get(name) for name in {*before, *now} - grows):
        return False
    blocks, more = before.get("blocks", ()), now.get("blocks", ())
    if len(blocks) != len(more) or any(a > b for a, b in zip(blocks, more, strict=True)):
        return False
    return not before.get("fine") or (
        before["fine"] == now.get("fine") and before["fine_blocks"] <= now.get("fine_blocks", 0)
    )


def _widened(weights: Tensor, shape: torch.Size) -> Tensor:
    """Weights with zeros for inputs that are new: the model says what it said before."""
    if weights.shape == shape:
        return weights
    wider = weights.new_zeros(shape)
    wider[:, : weights.shape[1]] = weights
    return wider
