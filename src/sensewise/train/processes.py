"""How a run is carried out: on which device, by how many processes. They share batches, agree, and notice a loss.

Nothing here knows what is computed. Processes are Lightning Fabric's; a team of one needs none.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal, TypeVar, get_args

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from rich.console import Console
from torch import Tensor

from sensewise.errors import ConfigError, ProcessError, SensewiseError

Device = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["32-true", "bf16-mixed"]
STRATEGIES = ("auto", "ddp")
PATIENCE = timedelta(days=1)  # how long one process waits for another that is still alive
T = TypeVar("T")


@dataclass(frozen=True)
class Execution:
    """How a run is carried out, as opposed to what is trained.

    Attributes:
        resume: go on from the last checkpoint of the run folder.
        max_minutes: stop and save after this time, though not before one step or look.
        device: where tensors live; "auto" takes a GPU where there is one.
        devices: processes on each machine.
        num_nodes: machines.
        strategy: how Fabric spreads a step over processes: "ddp".
        precision: Fabric's, "32-true" or "bf16-mixed".
        compile: let PyTorch compile the network, which needs a C++ compiler.
        console: where progress is shown; None for standard error.
        on_log: called with the run folder after every new line of `log.jsonl`, in the first process.
    """

    resume: bool = False
    max_minutes: float | None = None
    device: Device = "auto"
    devices: int = 1
    num_nodes: int = 1
    strategy: str = "auto"
    precision: Precision = "32-true"
    compile: bool = False
    console: Console | None = None
    on_log: Callable[[Path], None] | None = None


def accelerator(device: Device, devices: int) -> str:
    """Fabric's name of a device; "auto" takes CUDA, or Apple's GPU for a single process, or else the CPU."""
    if device not in get_args(Device):
        raise ConfigError(f"device {device!r} is not known: choose one of {', '.join(get_args(Device))}")
    cuda, mps = torch.cuda.device_count(), torch.backends.mps.is_available()
    if device == "auto":
        return "cuda" if cuda >= devices else "mps" if mps and devices == 1 else "cpu"
    if device == "cuda" and cuda < devices:
        raise ConfigError(f"{devices} CUDA devices are needed, {cuda} are here: choose --device cpu or fewer --devices")
    if device == "mps" and not (mps and devices == 1):
        raise ConfigError("device mps needs a Mac with its GPU and a single process: choose --device cpu")
    return device


class Team:
    """The processes that share the work; a single one without Fabric.

    Args:
        fabric: launched, or None for a process by itself on the CPU.
    """

    def __init__(self, fabric: Fabric | None = None) -> None:
        self.fabric = fabric

    @property
    def size(self) -> int:
        """How many processes there are."""
        return 1 if self.fabric is None else self.fabric.world_size

    @property
    def rank(self) -> int:
        """The number of this one, from 0."""
        return 0 if self.fabric is None else self.fabric.global_rank

    @property
    def first(self) -> bool:
        """Whether this process is the one that reads and writes."""
        return self.rank == 0

    @property
    def device(self) -> torch.device:
        """Where this process computes."""
        return torch.device("cpu") if self.fabric is None else self.fabric.device

    def autocast(self) -> AbstractContextManager[None]:
        """The context in which networks are evaluated at the precision that was asked for."""
        return nullcontext() if self.fabric is None else self.fabric.autocast()

    def share(self, batch: Tensor) -> Tensor:
        """This process's rows of a batch that every process has drawn whole, so that all see the same randomness."""
        if len(batch) % self.size:
            raise ConfigError(f"a batch of {len(batch)} cannot be shared evenly by {self.size} processes")
        return self.part(batch)

    def part(self, batch: Tensor) -> Tensor:
        """The same where nothing demands equal shares."""
        return batch if self.size == 1 else batch[self.rank :: self.size]

    def gather(self, part: Tensor, total: int) -> Tensor:
        """The opposite of `part`: all `total` rows, from what each process has of them."""
        if self.size == 1:
            return part
        whole = torch.zeros(total, *part.shape[1:], dtype=part.dtype, device=part.device)
        whole[self.rank :: self.size] = part
        return self.sum(whole)

    def sum(self, value: Tensor) -> Tensor:
        """The sum of every process's value."""
        if self.fabric is None or self.size == 1:
            return value
        total = self.fabric.all_reduce(value, reduce_op="sum")
        assert isinstance(total, Tensor)
        return total

    def any(self, flag: bool) -> bool:
        """Whether any process says so."""
        return bool(self.sum(torch.tensor(float(flag))))

    def broadcast(self, value: T) -> T:
        """The first process's value, in every process."""
        return value if self.fabric is None or self.size == 1 else self.fabric.broadcast(value)

    def wait(self) -> None:
        """Wait until every process is here."""
        if self.fabric is not None:
            self.fabric.barrier()

    def first_only(self, action: Callable[[], None]) -> None:
        """Run `action` in the first process; what it refuses, every process refuses."""
        refusal: SensewiseError | None = None
        if self.first:
            try:
                action()
            except SensewiseError as error:
                refusal = error
        refusal = self.broadcast(refusal)
        if refusal is not None:
            raise refusal

    @contextmanager
    def lost_processes(self, folder: Path) -> Iterator[None]:
        """Say in one sentence that another process is gone, instead of what the network layer says about it."""
        try:
            yield
        except RuntimeError as error:
            if self.size == 1 or isinstance(error, SensewiseError) or "gloo" not in str(error).lower():
                raise
            raise ProcessError(
                f"another process of this run is gone (process {self.rank} noticed it): what was saved is in "
                f"{folder}; go on with --resume"
            ) from error


def launch(
    *,
    device: Device = "auto",
    devices: int = 1,
    num_nodes: int = 1,
    strategy: str = "auto",
    precision: Precision = "32-true",
) -> Team:
    """Start the further processes, if there are to be any; under torchrun or SLURM they are there already and join."""
    if devices < 1 or num_nodes < 1:
        raise ConfigError(f"devices and num-nodes must be at least 1, got {devices} and {num_nodes}")
    if strategy not in STRATEGIES:
        why = ": every network here fits into one process" if strategy == "fsdp" else ""
        raise ConfigError(f"strategy {strategy!r} is not possible{why}; choose one of {', '.join(STRATEGIES)}")
    if precision not in get_args(Precision):
        raise ConfigError(f"precision {precision!r} is not known: choose one of {', '.join(get_args(Precision))}")
    several = devices * num_nodes > 1
    fabric = Fabric(
        accelerator=accelerator(device, devices),
        devices=devices,
        num_nodes=num_nodes,
        strategy=DDPStrategy(timeout=PATIENCE) if several else "auto",
        precision=precision,
    )
    fabric.launch()
    return Team(fabric)
