"""One loop for everything that is trained, fitted or searched. The loop owns the run, a job owns the step.

A job's randomness at step n comes from a generator seeded with (seed, n), so a run that was killed and resumed takes
exactly the steps that an undisturbed run takes. A run folder holds

    config.json               what is made and how; after every stop also how far it got
    checkpoint.safetensors    everything needed to go on
    log.jsonl                 how it went
    weights.safetensors       the model, or mask.npy the mask, usable after every stop
"""

import json
import math
import signal
import threading
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Generator, Tensor

from sensewise.errors import CheckpointError, ConfigError
from sensewise.files import append_json, locked, read_json, read_tensors, write_json, write_tensors, write_text
from sensewise.hub import CONFIG
from sensewise.train.cost import Cost
from sensewise.train.processes import Execution, Team, launch

WORTH_SAYING = 100  # steps: of shorter runs nobody asks what they will take
CHECKPOINT, LOG = "checkpoint.safetensors", "log.jsonl"
NOT_SETTINGS = {
    "trained",
    "sha256",
    "licence",
    "calibration",
}  # entries of a config that may differ when a run is resumed


def step_generator(seed: int, step: int) -> Generator:
    """The source of all randomness of one step."""
    return torch.Generator().manual_seed((seed * 1_000_003 + step) % 2**63)


class Job(ABC):
    """What a run does, step by step.

    Attributes:
        steps: at most so many.
        save_minutes: minutes between two checkpoints.
        team: the processes that share the work, from `begin` on.
    """

    steps: int
    save_minutes: float = 2.0
    team: Team = Team()

    def begin(self, team: Team, *, compiled: bool) -> None:
        """Get ready on the team's device, before any state is loaded."""
        self.team = team

    def cost(self) -> Cost | None:
        """What a step takes, found out before the first one, with everything left as it was; None if it is not known.

        Every process calls it.
        """
        return None

    @abstractmethod
    def advance(self, step: int) -> dict[str, float]:
        """Take one step, in every process; returns what is shown beside the bar."""

    @abstractmethod
    def looks_at(self, step: int) -> bool:
        """Whether there is something to look at after so many steps."""

    @abstractmethod
    def look(self, over: Callable[[], bool]) -> dict[str, float] | None:
        """Named numbers for the log. Every process calls it, the first one's are written.

        Args:
            over: whether the run has to stop. A look that takes long asks between its batches; then it gives None, and
                everything is as before the look.
        """

    def settled(self) -> bool:
        """Whether the run may end before its last step; the first process decides, after every look."""
        return False

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """What is carried from step to step."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Tensor], path: Path) -> None:
        """Take back what `state` gave; `path` is where it was read, for messages."""

    def finish(self) -> None:
        """What is computed once, in every process, after the last step of a complete run; nothing by default."""
        return

    def validation(self, logged: Mapping[str, float]) -> dict[str, float]:
        """What the card says of the result; the latest look by default."""
        return {name: value for name, value in logged.items() if name != "loss"}

    @abstractmethod
    def export(self, folder: Path, card: Mapping[str, Any]) -> None:
        """Write the result as it is now, and its card; called in the first process whenever a run stops."""


def carry_out(job: Job, config: Mapping[str, Any], folder: Path, execution: Execution) -> bool:
    """Run a job until its last step, until the time is up, or until Ctrl-C or a request to terminate; then save.

    With several processes each does its share of every step; the first alone reads and writes the run folder, apart
    from the checkpoint that all of them resume from.

    Args:
        config: written to `config.json`; has to describe the result so that it can be built again.
        folder: of the run.

    Returns:
        True if the run is complete.
    """
    team = launch(
        device=execution.device,
        devices=execution.devices,
        num_nodes=execution.num_nodes,
        strategy=execution.strategy,
        precision=execution.precision,
    )
    run = Run(job, config, folder, execution, team)
    with ExitStack() as held, team.lost_processes(folder):

        def claim() -> None:
            held.enter_context(locked(folder / ".lock"))
            run.claim()

        team.first_only(claim)
        job.begin(team, compiled=execution.compile)
        team.first_only(run.load)
        if not team.first:
            run.load()
        return run.go()


def unchanging(config: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a config that a resumed run has to repeat, as JSON gives them back."""
    kept = {key: value for key, value in config.items() if key not in NOT_SETTINGS}
    return json.loads(json.dumps(kept))


def last_look(folder: Path) -> dict[str, float]:
    """The last line of a run's log; empty where there is none."""
    lines = read_log(folder)
    return lines[-1] if lines else {}


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's log that say their step; one that a kill has cut short is left out."""
    path = folder / LOG
    lines = path.read_bytes().splitlines() if path.is_file() else []
    return [line for line in map(_parsed, lines) if isinstance(line.get("step"), int)]


def is_complete(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether a folder holds the finished run of exactly this config."""
    if not (folder / CONFIG).is_file():
        return False
    found = read_json(folder / CONFIG)
    if not isinstance(found, dict) or unchanging(found) != unchanging(config):
        return False
    trained = found.get("trained")
    return isinstance(trained, dict) and trained.get("complete", True) is True


class Run:
    """A job in a folder: how it is begun, saved, logged and taken up again."""

    def __init__(self, job: Job, config: Mapping[str, Any], folder: Path, execution: Execution, team: Team) -> None:
        self.job, self.config, self.folder, self.execution, self.team = job, config, folder, execution, team
        shown = execution.console or Console(stderr=True)
        self.console = shown if team.first else Console(quiet=True)
        self.step, self.seconds = 0, 0.0
        self.logged: dict[str, float] = {}  # the latest line of the log

    def claim(self) -> None:
        """Claim the folder: a new run overwrites nothing, a resumed one has the settings that it began with."""
        path = self.folder / CONFIG
        if not self.execution.resume:
            if path.exists():
                raise ConfigError(
                    f"{self.folder} holds a run already: continue it with --resume, or choose another folder"
                )
            write_json(path, self.config)
            return
        found = read_json(path)
        before = unchanging(found) if isinstance(found, dict) else {}
        now = unchanging(self.config)
        changed = [key for key in {*before, *now} if before.get(key) != now.get(key)]
        if changed:
            raise CheckpointError(
                f"{self.folder} is a run with other settings ({', '.join(sorted(changed))}): it cannot be resumed"
            )

    def load(self) -> None:
        """Take up what was saved, if anything was, and drop what was logged later: those steps are taken again."""
        if not self.execution.resume:
            return
        path = self.folder / CHECKPOINT
        if path.exists():
            try:
                self._take_up(*read_tensors(path), path)
            except CheckpointError:
                raise
            except Exception as error:  # a file that was tampered with can lack anything
                raise CheckpointError(f"{path} is damaged or of another run: {type(error).__name__} {error}") from error
        log = self.folder / LOG
        if self.team.first and log.exists():
            lines = [line for line in read_log(self.folder) if line["step"] <= self.step]
            write_text(log, "".join(json.dumps(line) + "\n" for line in lines))
            self.logged = lines[-1] if lines else {}

    def _take_up(self, tensors: dict[str, Tensor], metadata: Mapping[str, str], path: Path) -> None:
        step, seconds = int(metadata["step"]), float(metadata["seconds"])
        if not 0 <= step <= self.job.steps or not 0 <= seconds < math.inf:
            raise CheckpointError(
                f"{path} is damaged or of another run: it is of step {step} after {seconds:g} seconds, and the run has "
                f"{self.job.steps} steps"
            )
        if metadata.get("crc32") not in (None, checksum(tensors, step)):  # earlier versions had none
            raise CheckpointError(f"{path} is damaged: its checksum is another")
        self.job.load_state(tensors, path)
        self.step, self.seconds = step, seconds

    def save(self) -> None:
        """Write the checkpoint."""
        tensors = {name: tensor.detach().cpu() for name, tensor in self.job.state().items()}
        about = {"step": str(self.step), "seconds": str(self.seconds), "crc32": checksum(tensors, self.step)}
        write_tensors(self.folder / CHECKPOINT, tensors, about)

    def look(self, over: Callable[[], bool]) -> bool:
        """Add a line to the log and show it; False if the look was cut short."""
        values = self.job.look(over)
        if self.team.first and values is not None:
            self.logged = {"step": self.step, "seconds": round(self.seconds, 1), **values}
            append_json(self.folder / LOG, self.logged)
            if self.execution.on_log is not None:
                self.execution.on_log(self.folder)
            left = (self.job.steps - self.step) * self.seconds / self.step / 60
            shown = " ".join(f"{name} {value:.4g}" for name, value in values.items())
            self.console.print(f"step {self.step}/{self.job.steps} {shown} ({left:.0f} min left)", soft_wrap=True)
        return self.team.broadcast(values is not None)

    def owes_a_look(self) -> bool:
        """Whether a stop came between a step and the end of the look at it; the first process knows."""
        owed = self.step > 0 and self.job.looks_at(self.step) and self.logged.get("step", 0) < self.step
        return self.team.broadcast(owed)

    def export(self, *, complete: bool) -> None:
        """Write the result as it is now, with its card."""
        logged = {name: value for name, value in self.logged.items() if name not in ("step", "seconds")}
        trained = {
            "steps": self.step,
            "minutes": round(self.seconds / 60, 1),
            "complete": complete,
            "validation": {
                name: float(f"{value:.6g}")
                for name, value in self.job.validation(logged).items()
                if math.isfinite(value)
            },
        }
        self.job.export(self.folder, {**self.config, "trained": trained})

    def announce(self) -> None:
        """Say what the steps ahead will take: a new run tries, a resumed one has been measured."""
        left = self.job.steps - self.step
        if left < WORTH_SAYING:
            return
        cost = Cost(self.seconds / self.step) if self.step else self.job.cost()
        if cost is not None:
            self.console.print(cost.sentence(left), soft_wrap=True, highlight=False)

    def go(self) -> bool:
        """Take step after step; True if the run is complete."""
        job, team, limit = self.job, self.team, self.execution.max_minutes
        begun = saved = time.monotonic()
        with stop_signal() as stop, progress_bar(self.console) as progress:
            self.announce()
            tick = time.monotonic()

            def over() -> bool:
                return stop.is_set() or (limit is not None and time.monotonic() - begun > 60 * limit)

            bar = progress.add_task(self.folder.name, total=job.steps, completed=self.step)
            # one step or one look is taken whatever the limit, or else a short limit would never come to an end
            stopping = self.owes_a_look() and not self.look(stop.is_set)
            settled = team.broadcast(job.settled())
            while self.step < job.steps and not settled and not stopping:
                shown = job.advance(self.step)
                self.step += 1
                self.seconds += time.monotonic() - tick
                values = "".join(f" {name} {value:.4f}" for name, value in shown.items())
                progress.update(bar, completed=self.step, description=self.folder.name + values)
                stopping = team.any(over())  # all stop after the same step, whichever of them was asked to
                if job.looks_at(self.step) and not stopping:  # what is left out is made up for by --resume
                    stopping = not self.look(over)
                    settled = team.broadcast(job.settled())
                due = stopping or settled or self.step == job.steps or time.monotonic() - saved > 60 * job.save_minutes
                if due and team.first:
                    self.save()
                    saved = time.monotonic()
                tick = time.monotonic()
        complete = (settled or self.step >= job.steps) and not self.owes_a_look()
        if complete:
            job.finish()
        if team.first:
            self.export(complete=complete)
        self.console.print(f"{self.step} of {job.steps} steps, {self.seconds / 60:.1f} minutes", soft_wrap=True)
        team.wait()  # none leaves before everything is written
        return complete


def checksum(tensors: Mapping[str, Tensor], step: int) -> str:
    """Of everything in a checkpoint that the run goes on from."""
    found = zlib.crc32(str(step).encode())
    for name, tensor in sorted(tensors.items()):
        found = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), found)
        found = zlib.crc32(tensor.contiguous().flatten().view(torch.uint8).numpy().data, found)
    return str(found)


def _parsed(line: bytes) -> dict[str, Any]:
    """A line of the log; nothing if a kill has cut it short."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def progress_bar(console: Console) -> Progress:
    """Steps, time taken and time left."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console)


@contextmanager
def stop_signal() -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets, so that a step is never cut in half; a second one stops at once."""
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
