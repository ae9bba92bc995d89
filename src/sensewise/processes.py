"""Several processes on Lightning Fabric: how they are started, agree, and notice that one of them is gone."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy

from sensewise.errors import ConfigError, ProcessError, SensewiseError

STRATEGIES = ("auto", "ddp")
PATIENCE = timedelta(days=1)  # how long one process waits for another that is still alive
PRECISIONS = ("32-true", "bf16-mixed")


def launch(how: Mapping[str, Any]) -> Fabric:
    """Fabric with the devices, machines, strategy and precision of `how`; starts the further processes.

    Under torchrun or SLURM the processes are there already and join.
    """
    devices, num_nodes = how.get("devices", 1), how.get("num_nodes", 1)
    strategy, precision = how.get("strategy", "auto"), how.get("precision", "32-true")
    if devices < 1 or num_nodes < 1:
        raise ConfigError(f"devices and num-nodes must be at least 1, got {devices} and {num_nodes}")
    if strategy not in STRATEGIES:
        why = ": it needs GPUs, and every network here fits into one process" if strategy == "fsdp" else ""
        raise ConfigError(f"strategy {strategy!r} is not possible{why}; choose one of {', '.join(STRATEGIES)}")
    if precision not in PRECISIONS:
        raise ConfigError(f"precision {precision!r} is not known: choose one of {', '.join(PRECISIONS)}")
    several = devices * num_nodes > 1
    fabric = Fabric(
        accelerator="cpu",
        devices=devices,
        num_nodes=num_nodes,
        strategy=DDPStrategy(timeout=PATIENCE) if several else "auto",
        precision=precision,
    )
    fabric.launch()
    return fabric


def first_only(fabric: Fabric, action: Callable[[], None]) -> None:
    """Run `action` in the first process; what it refuses, every process refuses."""
    refusal: SensewiseError | None = None
    if fabric.is_global_zero:
        try:
            action()
        except SensewiseError as error:
            refusal = error
    if fabric.world_size > 1:
        refusal = fabric.broadcast(refusal)
    if refusal is not None:
        raise refusal


@contextmanager
def lost_processes(fabric: Fabric, folder: Path) -> Iterator[None]:
    """Say in one sentence that another process is gone, instead of what the network layer says about it."""
    try:
        yield
    except RuntimeError as error:
        if fabric.world_size == 1 or isinstance(error, SensewiseError) or "gloo" not in str(error).lower():
            raise
        raise ProcessError(
            f"another process of this run is gone (process {fabric.global_rank} noticed it): what was saved is in "
            f"{folder}; go on with --resume"
        ) from error
