"""What the commands share: consoles, options, checks. Nothing heavy is imported here, so that `--help` is quick."""

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from sensewise.errors import ConfigError, OutputError

if TYPE_CHECKING:
    from rich.progress import Progress

out = Console()
err = Console(stderr=True)

LARGEST_SEED = 2**64 - 1  # what a torch.Generator takes

Seed = Annotated[int, typer.Option(help="Seed of everything random.", min=0, max=LARGEST_SEED)]
Seeds = Annotated[int, typer.Option(help="How many seeds, from 0 on.", min=1)]
Preset = Annotated[str, typer.Option(help="cpu, paper, or the path of a TOML file.")]
Results = Annotated[Path, typer.Option(help="Where EXPERIMENT.json goes.")]
DataFolder = Annotated[
    Path | None,
    typer.Option("--data", help="Folder of the data sets. Default: SENSEWISE_DATA, else the user's cache."),
]
Workers = Annotated[
    int, typer.Option("--workers", "--devices", help="Processes on this machine that share the work.", min=1)
]
Cluster = Annotated[
    str | None, typer.Option(help="Address of a Dask scheduler whose workers measure, such as tcp://host:8786.")
]
Engine = Literal["torch", "bfloat16"]
ComputedBy = Annotated[
    Engine,
    typer.Option(
        "--engine",
        help="What computes priors over images; bfloat16 is rounded, and quicker where the processor has instructions "
        "for it.",
    ),
]
Devices = Annotated[int, typer.Option(help="Processes on this machine that share the work.", min=1)]
NumNodes = Annotated[int, typer.Option(help="Machines that share the work, under torchrun or SLURM.", min=1)]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint of the run folder.")]
MaxMinutes = Annotated[float | None, typer.Option(help="Stop and save after so many minutes.", min=0)]


def is_first() -> bool:
    """Whether this process is the one that talks, among those that work together."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"))


def progress_bar() -> "Progress":
    """A progress bar on standard error that leaves nothing behind."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}", justify="left", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=err,
        transient=True,
        disable=not is_first(),
    )


def say(text: str) -> None:
    """Print a line as it is: names of files and licences are never read as markup."""
    if is_first():
        out.print(text, soft_wrap=True, markup=False, highlight=False)


def warn(text: str) -> None:
    """The same on standard error."""
    if is_first():
        err.print(text, soft_wrap=True, markup=False, highlight=False)


def say_complete(target: Path, complete: bool) -> None:
    """How a training ended."""
    say(f"{target}: {'complete' if complete else 'stopped early; continue with --resume'}")


def parse_budget(text: str) -> float | int:
    """A fraction or a count from the command line."""
    try:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    except ValueError:
        raise ConfigError(
            f"budget {text!r} is not a number: give a fraction such as 0.1, or a count of pixels"
        ) from None


def check_one_way(sharded: bool, workers: int, cluster: str | None) -> None:
    """Refuse two ways to spread the work at once."""
    if sharded + (workers > 1) + (cluster is not None) > 1:
        raise ConfigError("--shard, --workers and --cluster all spread the work: give one of them")


def ensure_writable(folder: Path) -> None:
    """Fail before the work, not after it, if the results could not be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OutputError(f"cannot write {folder}: {error.strerror}; choose another folder") from error
