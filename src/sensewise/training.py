"""One fit loop for everything that is trained here, on Lightning Fabric.

All randomness of step n comes from a generator seeded with (seed, n), so a run that was killed and resumed takes
exactly the steps that an undisturbed run takes. A run folder holds

    config.json           what the model is and how it is trained
    checkpoint.safetensors    everything needed to go on: weights, their average, optimiser, trajectories
    log.jsonl, loss.png   how it went
    weights.safetensors   the averaged weights, once the run is complete
"""

import copy
import json
import math
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypedDict, Unpack

import torch
from lightning_fabric import Fabric
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Generator, Tensor, nn

from sensewise.checkpoint import (
    append_json,
    atomic,
    load_weights,
    locked,
    read_json,
    read_tensors,
    save_run,
    write_json,
    write_tensors,
)
from sensewise.errors import CheckpointError, ConfigError
from sensewise.figures.style import save
from sensewise.figures.training import training_curves
from sensewise.optimizers import Kind, build_optimizer
from sensewise.processes import first_only, launch, lost_processes


class Objective(ABC):
    """What is trained: a model, a loss for each step, and how well it does on held-out images."""

    model: nn.Module
    forward_methods: tuple[str, ...] = ()  # of the model, called besides `forward`
    fabric: Fabric | None = None  # the processes that share the work, from the moment that `fit` begins

    @abstractmethod
    def loss(self, model: Any, step: int, generator: Generator) -> Tensor:
        """The loss of one step; `model` is `self.model`, wrapped for the devices in use."""

    @abstractmethod
    def validate(self, model: Any) -> dict[str, float]:
        """Named numbers on held-out images."""

    def share(self, batch: Tensor) -> Tensor:
        """This process's rows of a batch that every process has drawn whole, so that all see the same randomness."""
        if self.fabric is None or self.fabric.world_size == 1:
            return batch
        processes = self.fabric.world_size
        if len(batch) % processes:
            raise ConfigError(f"a batch of {len(batch)} cannot be shared evenly by {processes} processes")
        return batch[self.fabric.global_rank :: processes]

    def gather(self, part: Tensor) -> Tensor:
        """The opposite of `share`: the whole batch, from what each process has of it."""
        if self.fabric is None or self.fabric.world_size == 1:
            return part
        processes = self.fabric.world_size
        whole = torch.zeros(len(part) * processes, *part.shape[1:], dtype=part.dtype)
        whole[self.fabric.global_rank :: processes] = part
        gathered = self.fabric.all_reduce(whole, reduce_op="sum")
        assert isinstance(gathered, Tensor)
        return gathered

    def state(self) -> dict[str, Tensor]:
        """What the objective itself carries from step to step."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what `state` gave; nothing by default."""
        return

    def compile(self) -> None:
        """Fuse what the model computes into fewer loops: faster after a minute or two, the same up to rounding."""
        self.model.compile()

    def settled(self) -> bool:
        """Whether the run may end before its last step; asked after every look at the held-out images."""
        return False


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
        validate_every: steps between two looks at the held-out images.
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


class How(TypedDict, total=False):
    """How a run is carried out, as opposed to what is trained.

    Attributes:
        resume: go on from the last checkpoint of the run folder.
        max_minutes: stop and save after this time.
        console: where progress is shown.
        devices: processes on each machine.
        num_nodes: machines.
        strategy: how Fabric spreads a step over processes: "ddp".
        precision: Fabric's, such as "32-true" or "bf16-mixed".
        compile: let PyTorch compile the network, which needs a C++ compiler.
    """

    resume: bool
    max_minutes: float | None
    console: Console | None
    devices: int
    num_nodes: int
    strategy: str
    precision: str
    compile: bool


def step_generator(seed: int, step: int) -> Generator:
    """The source of all randomness of one step."""
    return torch.Generator().manual_seed((seed * 1_000_003 + step) % 2**63)


def learning_rate(settings: FitSettings, step: int) -> float:
    """Linear warm-up, then cosine decay to a hundredth."""
    rise = min(1.0, (step + 1) / max(1, settings.warmup))
    fall = 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * step / settings.steps))
    return settings.learning_rate * rise * fall


def begin_run(folder: Path, config: dict[str, Any], resume: bool) -> None:
    """Claim a run folder: a new run overwrites nothing, a resumed one has the settings that it began with."""
    path = folder / "config.json"
    if not resume:
        if path.exists():
            raise ConfigError(f"{folder} holds a run already: continue it with --resume, or choose another folder")
        write_json(path, config)
        return
    old = read_json(path)
    found = {key: value for key, value in old.items() if key != "trained"} if isinstance(old, dict) else {}
    changed = [key for key in {*found, *config} if found.get(key) != config.get(key)]
    if changed:
        raise CheckpointError(
            f"{folder} is a run with other settings ({', '.join(sorted(changed))}): it cannot be resumed"
        )


def trim_log(path: Path, step: int) -> None:
    """Drop what was logged after the checkpoint: those steps are taken again."""
    if path.exists():
        kept = [line for line in path.read_text().splitlines(keepends=True) if _logged_step(line) <= step]
        with atomic(path) as temporary:
            temporary.write_text("".join(kept))


class Run:
    """A training run in a folder: the state of `fit` and how it is saved and taken up again."""

    def __init__(self, objective: Objective, settings: FitSettings, config: dict[str, Any], folder: Path) -> None:
        self.objective, self.settings, self.config, self.folder = objective, settings, config, folder
        self.optimizer = build_optimizer(
            objective.model, settings.optimizer, settings.learning_rate, settings.weight_decay
        )
        self.average = copy.deepcopy(objective.model).requires_grad_(False).eval()
        self.step, self.seconds = 0, 0.0
        self.logged: dict[str, float] = {}

    @property
    def _checkpoint(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    def begin(self, resume: bool) -> None:
        """Take up the run in this folder, or make sure that a new one overwrites nothing."""
        begin_run(self.folder, self.config, resume)
        if not resume:
            return
        if self._checkpoint.exists():
            self._load()
        trim_log(self.folder / "log.jsonl", self.step)

    def follow(self, resume: bool) -> None:
        """Take up the run as one of the further processes, which write nothing."""
        if resume and self._checkpoint.exists():
            self._load()

    def save(self) -> None:
        tensors = {f"model.{name}": t for name, t in self.objective.model.state_dict().items()}
        tensors |= {f"average.{name}": t for name, t in self.average.state_dict().items()}
        tensors |= {f"objective.{name}": t for name, t in self.objective.state().items()}
        for number, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{key}": value for key, value in state.items()}
        write_tensors(self._checkpoint, tensors, {"step": str(self.step), "seconds": str(self.seconds)})

    def _load(self) -> None:
        tensors, metadata = read_tensors(self._checkpoint)

        def part(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}

        load_weights(self.objective.model, part("model."), self._checkpoint)
        load_weights(self.average, part("average."), self._checkpoint)
        self.objective.load_state(part("objective."))
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in part("optimizer.").items():
            number, key = name.split(".")
            state.setdefault(int(number), {})[key] = tensor
        parameters = (parameter for group in self.optimizer.param_groups for parameter in group["params"])
        for position, parameter in enumerate(parameters):
            for key, tensor in state.get(position, {}).items():
                if key != "step":  # the fused step goes by memory position: moments must be laid out like their weights
                    state[position][key] = torch.empty_like(parameter, requires_grad=False).copy_(tensor)
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        self.step, self.seconds = int(metadata["step"]), float(metadata["seconds"])

    def log(self, **values: float) -> None:
        """Add a line to the log and draw the curves anew."""
        self.logged = values
        path = self.folder / "log.jsonl"
        append_json(path, {"step": self.step, "seconds": round(self.seconds, 1), **values})
        save(training_curves([json.loads(line) for line in path.read_text().splitlines()]), self.folder / "loss.png")

    def finish(self) -> None:
        """The averaged weights, ready for `load_prior`."""
        validation = {name: round(value, 4) for name, value in self.logged.items() if name != "loss"}
        minutes = round(self.seconds / 60, 1)
        trained = {"steps": self.step, "minutes": minutes, "validation": validation}
        save_run(self.folder, self.config | {"trained": trained}, self.average)


def _logged_step(line: str) -> int:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return 2**62  # a line cut short by a kill


@contextmanager
def stop_signal() -> Iterator[threading.Event]:
    """An event that Ctrl-C or a polite kill sets, so that a step is never cut in half; a second one stops at once."""
    stop = threading.Event()

    def ask_to_stop(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, ask_to_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _update_average(average: nn.Module, model: nn.Module, decay: float, step: int) -> None:
    weight = 1 - min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), weight)
    for kept, current in zip(average.buffers(), model.buffers(), strict=True):
        kept.copy_(current)  # running statistics are averages already


def fit(objective: Objective, settings: FitSettings, config: dict[str, Any], folder: Path, **how: Unpack[How]) -> bool:
    """Train until the last step, until the time is up, or until Ctrl-C or a polite kill; then save.

    With several processes each computes the gradient of its share of every batch; the first alone reads and writes the
    run folder, apart from the checkpoint that all of them resume from.

    Args:
        config: written to `config.json`; has to describe the model so that it can be built again.
        folder: of the run.
        how: see `How`.

    Returns:
        True if the run is complete.
    """
    fabric = launch(how)
    objective.fabric = fabric
    run = Run(objective, settings, config, folder)
    with ExitStack() as held:

        def begin() -> None:
            held.enter_context(locked(folder / ".lock"))
            run.begin(how.get("resume", False))

        first_only(fabric, begin)
        if not fabric.is_global_zero:
            run.follow(how.get("resume", False))
        if how.get("compile"):
            objective.compile()
        with lost_processes(fabric, folder):
            return _fit(run, fabric, how.get("max_minutes"), how.get("console"))


def _fit(run: Run, fabric: Fabric, max_minutes: float | None, console: Console | None) -> bool:
    objective, settings, folder = run.objective, run.settings, run.folder
    console = (console or Console(stderr=True)) if fabric.is_global_zero else Console(quiet=True)
    model, optimizer = fabric.setup(objective.model, run.optimizer)
    for name in objective.forward_methods:
        model.mark_forward_method(name)
    begun = saved = tick = time.monotonic()
    running: list[float] = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with stop_signal() as stop, Progress(*columns, console=console) as progress:
        bar = progress.add_task(folder.name, total=settings.steps, completed=run.step)
        settled = objective.settled()
        while run.step < settings.steps and not settled:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(settings, run.step)
            loss = objective.loss(model, run.step, step_generator(settings.seed, run.step))
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=settings.clip, error_if_nonfinite=True)
            optimizer.step()
            optimizer.zero_grad()
            _update_average(run.average, objective.model, settings.average, run.step)
            run.step += 1
            running.append(loss.item())
            now = time.monotonic()
            run.seconds += now - tick
            tick = now
            progress.update(bar, completed=run.step, description=f"{folder.name} loss {running[-1]:.4f}")
            time_is_up = stop.is_set() or (max_minutes is not None and now - begun > 60 * max_minutes)
            if fabric.world_size > 1:  # all stop after the same step, whoever was asked to
                time_is_up = bool(fabric.all_reduce(torch.tensor(float(time_is_up)), reduce_op="sum"))
            looks = run.step % settings.validate_every == 0 or run.step == settings.steps
            if looks and fabric.is_global_zero:
                values = {"loss": sum(running) / len(running), **objective.validate(run.average)}
                left = (settings.steps - run.step) * run.seconds / run.step / 60
                run.log(**values)
                shown = " ".join(f"{name} {value:.4g}" for name, value in values.items())
                console.print(f"step {run.step}/{settings.steps} {shown} ({left:.0f} min left)", soft_wrap=True)
                running.clear()
                tick = time.monotonic()
            if looks:  # only the first process has looked
                settled = fabric.broadcast(objective.settled())
            ends = settled or run.step == settings.steps
            due = time_is_up or now - saved > 60 * settings.save_minutes or ends
            if fabric.is_global_zero and due:
                run.save()
                saved = tick = time.monotonic()
            if time_is_up:
                break
    complete = settled or run.step >= settings.steps
    if complete and fabric.is_global_zero:
        run.finish()
    console.print(f"{run.step} of {settings.steps} steps, {run.seconds / 60:.1f} minutes", soft_wrap=True)
    fabric.barrier()  # nobody leaves before everything is written
    return complete
