"""What the commands share: consoles, options, checks."""

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from sensewise.errors import ConfigError, DataError

out = Console()
err = Console(stderr=True)

Seed = Annotated[int, typer.Option(help="Seed of everything random.", min=0)]


def known_dataset(name: str) -> str:
    from sensewise.data import LOAD

    if name not in LOAD:
        raise DataError(f"no data set {name!r}: choose one of {', '.join(LOAD)}")
    return name


Dataset = Annotated[str, typer.Option(help="mnist or cifar10", callback=known_dataset)]
DataFolder = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Your own data set, or the folder of the data sets. Default: SENSEWISE_DATA, else the user's cache.",
    ),
]

Preset = Annotated[str, typer.Option(help="cpu, paper, or the path of a TOML file.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint of the run folder.")]
MaxMinutes = Annotated[float | None, typer.Option(help="Stop and save after so many minutes.", min=0)]
Devices = Annotated[int, typer.Option(help="Processes on this machine that share the work.", min=1)]
NumNodes = Annotated[int, typer.Option(help="Machines that share the work, under torchrun or SLURM.", min=1)]
_HOW: dict[str, tuple[Any, Any]] = {
    "resume": (Resume, False),
    "max_minutes": (MaxMinutes, None),
    "devices": (Devices, 1),
    "num_nodes": (NumNodes, 1),
    "strategy": (Annotated[str, typer.Option(help="How Fabric spreads a step over processes: ddp.")], "auto"),
    "precision": (Annotated[str, typer.Option(help="Fabric's: 32-true or bf16-mixed.")], "32-true"),
    "compile": (
        Annotated[
            bool,
            typer.Option(
                "--compile", help="Compile the network first: two minutes, then about two thirds of the time per step."
            ),
        ],
        False,
    ),
}


def training_command(command: Callable[..., None]) -> Callable[..., None]:
    """Replace `**how` of a command by the options that every training has."""
    signature = inspect.signature(command)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _HOW.items()
    ]
    command.__annotations__ = {p.name: p.annotation for p in own}  # `How` itself is not imported at run time
    command.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
    return command


def is_first() -> bool:
    """Whether this process is the one that talks, among those that work together."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"))


def progress_bar() -> Progress:
    return Progress(
        TextColumn("{task.description}", justify="left"),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=err,
        transient=True,
        disable=not is_first(),
    )


def parse_budget(text: str) -> float | int:
    """A fraction or a count from the command line."""
    try:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    except ValueError:
        raise ConfigError(
            f"budget {text!r} is not a number: give a fraction such as 0.1, or a count of pixels"
        ) from None


def ensure_writable(folder: Path) -> None:
    """Fail before the work, not after it, if the results could not be written."""
    from sensewise.checkpoint import write_text

    probe = folder / ".write-test"
    write_text(probe, "")
    probe.unlink()


def say_complete(target: Path, complete: bool) -> None:
    """How a training ended."""
    if not is_first():
        return
    state = "complete" if complete else "stopped early; continue with --resume"
    out.print(f"{target}: {state}", soft_wrap=True, markup=False)
