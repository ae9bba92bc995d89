"""Training by gradients: an objective says what is minimised, `Training` takes the steps on Lightning Fabric."""

import copy
import math
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from sensewise import hub
from sensewise.data.scenes import Scenes
from sensewise.errors import CheckpointError, ConfigError
from sensewise.train.cost import Cost, kept_for_backward
from sensewise.train.fit import Job, step_generator
from sensewise.train.optim import Kind, build_optimizer
from sensewise.train.processes import Team


class Objective(ABC):
    """What is trained: a model, a loss for each step, and how well it does on held-out scenes.

    Random draws come from the step's generator on the CPU and then go to `device`, as batches do.

    Attributes:
        model: what is trained.
        frozen: models that the loss asks.
        forward_methods: methods of the model that the loss calls besides `forward`.
        rates: names of weights that learn faster or slower than the others, and by what factor.
        team: the processes that share the work, from `begin` on.
        device: where everything is computed.
    """

    model: nn.Module
    frozen: tuple[nn.Module, ...] = ()
    forward_methods: tuple[str, ...] = ()
    rates: Mapping[str, float] = {}
    team: Team = Team()
    device: torch.device = torch.device("cpu")

    @abstractmethod
    def loss(self, model: Any, step: int, generator: Generator) -> Tensor:
        """The loss of one step; `model` is `self.model`, wrapped for the devices in use."""

    @abstractmethod
    def validate(self, model: Any) -> dict[str, float]:
        """Named numbers on held-out scenes."""

    def to(self, device: torch.device) -> None:
        """Move everything that the loss needs, apart from the model and the data."""
        self.device = device
        for module in self.frozen:
            module.to(device)

    def draw(self, scenes: Scenes, index: Tensor | slice) -> tuple[Tensor, Tensor | None]:
        """Some scenes and their labels, on the device."""
        at = index.to(scenes.values.device) if isinstance(index, Tensor) else index
        values, labels = scenes[at]
        return values.to(self.device), None if labels is None else labels.to(self.device)

    def state(self) -> dict[str, Tensor]:
        """What the objective itself carries from step to step."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave; nothing by default."""
        return

    def compile(self) -> None:
        """Fuse what the model computes into fewer loops: faster after a minute or two, the same up to rounding."""
        self.model.compile()

    def settled(self) -> bool:
        """Whether the run may end before its last step; asked after every look at the held-out scenes."""
        return False

    def export(self, folder: Path, card: Mapping[str, Any], average: nn.Module) -> None:
        """Write what was trained, with its card: the averaged weights."""
        hub.save(folder, card, average)


@dataclass(frozen=True)
class FitSettings:
    """How long and how fast.

    Attributes:
        steps: optimiser steps in all.
        learning_rate: at its highest, after the warm-up.
        warmup: steps of linear rise; then cosine decay to a hundredth.
        optimizer: "adamw", or "muon" for the kernels inside the network.
        weight_decay: of either.
        clip: largest norm of the gradient.
        average: decay of the exponential moving average of the weights; 0 for none.
        seed: of everything random.
        validate_every: steps between two looks at the held-out scenes.
        save_minutes: minutes between two checkpoints.
    """

    steps: int = 1000
    learning_rate: float = 1e-3
    warmup: int = 200
    optimizer: Kind = "adamw"
    weight_decay: float = 0.01
    clip: float = 0.1
    average: float = 0.999
    seed: int = 0
    validate_every: int = 1000
    save_minutes: float = 2.0

    def __post_init__(self) -> None:
        for name in ("steps", "learning_rate", "clip", "validate_every"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be above 0, got {getattr(self, name)}")
        if not 0 <= self.average < 1:
            raise ConfigError(f"average must be at least 0 and below 1, got {self.average}")


def learning_rate(settings: FitSettings, step: int) -> float:
    """Linear warm-up, then cosine decay to a hundredth."""
    rise = min(1.0, (step + 1) / max(1, settings.warmup))
    fall = 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * step / settings.steps))
    return settings.learning_rate * rise * fall


class Interrupted(Exception):
    """A look was cut short."""


@contextmanager
def interruptible(over: Callable[[], bool]) -> Iterator[None]:
    """Every network asks `over` before it computes: what is inside the block ends between two batches."""

    def ask(_module: nn.Module, _arguments: Any) -> None:
        if over():
            raise Interrupted

    hook = nn.modules.module.register_module_forward_pre_hook(ask)
    try:
        yield
    finally:
        hook.remove()


class Training(Job):
    """Optimiser steps on an objective; with several processes each has the gradient of its share of a batch.

    Args:
        objective: what is minimised.
        settings: how long and how fast.
    """

    def __init__(self, objective: Objective, settings: FitSettings) -> None:
        self.objective, self.settings = objective, settings
        self.steps, self.save_minutes = settings.steps, settings.save_minutes
        self.optimizer = build_optimizer(
            objective.model, settings.optimizer, settings.learning_rate, settings.weight_decay, objective.rates
        )
        self.average = copy.deepcopy(objective.model).requires_grad_(False).eval()
        self.losses = torch.zeros(2, dtype=torch.float64)  # since the last look: their sum, how many
        self.compiled = False

    def begin(self, team: Team, *, compiled: bool) -> None:
        super().begin(team, compiled=compiled)
        assert team.fabric is not None
        self.fabric = team.fabric
        self.objective.team = team
        self.objective.to(team.device)
        self.average.to(team.device)
        self.compiled = compiled
        if compiled:
            self.objective.compile()
        self.model, self.stepper = self.fabric.setup(self.objective.model, self.optimizer)
        for name in self.objective.forward_methods:
            self.model.mark_forward_method(name)

    def cost(self) -> Cost:
        """Some steps are taken and taken back: the first, slower than the others, for memory, the rest for time."""
        before = {name: tensor.clone() for name, tensor in self.state().items()}
        memory = None
        with torch.random.fork_rng(devices=()):
            if self.compiled:
                self.advance(0)  # what the graph keeps cannot be counted there
            else:
                with kept_for_backward() as kept:
                    self.advance(0)
                weights = sum(parameter.nbytes for parameter in self.objective.model.parameters())
                memory = sum(kept.values()) + weights + sum(tensor.nbytes for tensor in self.state().values())
            seconds: list[float] = []
            while self.team.broadcast(not seconds or (sum(seconds) < 1 and len(seconds) < 9)):  # all take as many
                begun = time.monotonic()
                self.advance(0)
                seconds.append(time.monotonic() - begun)
        self.load_state(before, Path())
        return Cost(statistics.median(seconds), memory)

    def advance(self, step: int) -> dict[str, float]:
        for group in self.stepper.param_groups:
            group["lr"] = learning_rate(self.settings, step) * group.get("rate", 1.0)
        with self.team.autocast():
            loss = self.objective.loss(self.model, step, step_generator(self.settings.seed, step))
        self.fabric.backward(loss)
        self.fabric.clip_gradients(self.model, self.stepper, max_norm=self.settings.clip, error_if_nonfinite=True)
        with self.team.autocast():  # Muon multiplies matrices too
            self.stepper.step()
        self.stepper.zero_grad()
        update_average(self.average, self.objective.model, self.settings.average, step)
        value = loss.item()
        self.losses += torch.tensor([value, 1.0], dtype=torch.float64)
        return {"loss": value}

    def looks_at(self, step: int) -> bool:
        return step % self.settings.validate_every == 0 or step == self.steps

    def look(self, over: Callable[[], bool]) -> dict[str, float] | None:
        if not self.team.first:
            return {}
        before = {name: tensor.clone() for name, tensor in self.objective.state().items()}
        try:
            with interruptible(over):
                values = self.objective.validate(self.average)
        except Interrupted:
            self.objective.load_state(before)
            return None
        total, count = self.losses.tolist()
        self.losses.zero_()
        return {"loss": total / count, **values}

    def settled(self) -> bool:
        return self.objective.settled()

    def state(self) -> dict[str, Tensor]:
        tensors = {f"model.{name}": t for name, t in self.objective.model.state_dict().items()}
        tensors |= {f"average.{name}": t for name, t in self.average.state_dict().items()}
        tensors |= {f"objective.{name}": t for name, t in self.objective.state().items()}
        for number, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{key}": value for key, value in state.items()}
        return tensors | {"losses": self.losses}

    def load_state(self, state: Mapping[str, Tensor], path: Path) -> None:
        def part(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): t for name, t in state.items() if name.startswith(prefix)}

        hub.load_weights(self.objective.model, part("model."), path)
        hub.load_weights(self.average, part("average."), path)
        self.objective.load_state(part("objective."))
        self._load_optimizer(part("optimizer."), path)
        self.losses = state.get("losses", self.losses)

    def _load_optimizer(self, tensors: Mapping[str, Tensor], path: Path) -> None:
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            number, key = name.split(".")
            state.setdefault(int(number), {})[key] = tensor
        parameters = (parameter for group in self.optimizer.param_groups for parameter in group["params"])
        for position, parameter in enumerate(parameters):
            for key, tensor in state.get(position, {}).items():
                if key != "step" and (tensor.shape != parameter.shape or not bool(tensor.isfinite().all())):
                    raise CheckpointError(f"{path} is damaged or of another run: {key} of weight {position} is wrong")
                if key != "step":  # the fused step goes by memory position: moments must be laid out like their weights
                    state[position][key] = torch.empty_like(parameter, requires_grad=False).copy_(tensor)
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})

    def export(self, folder: Path, card: Mapping[str, Any]) -> None:
        self.objective.export(folder, card, self.average)


def update_average(average: nn.Module, model: nn.Module, decay: float, step: int) -> None:
    """Move averaged weights towards the present ones, faster in the first steps."""
    weight = 1 - min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), weight)
    for kept, current in zip(average.buffers(), model.buffers(), strict=True):
        kept.copy_(current)  # running statistics are averages already
