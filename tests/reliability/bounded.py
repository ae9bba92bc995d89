"""Runs a reader in a process of its own, with 2 GB of addresses, 2 seconds of the processor and 1 GB of memory."""

import multiprocessing
import resource
import signal
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path

from sensewise.errors import SensewiseError

ADDRESSES, SECONDS, MEMORY = 2 * 10**9, 2, 10**9
PATIENCE = 60  # seconds, on a busy machine or for a reader that waits

_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["sensewise.data", "sensewise.hub", "sensewise.data.imported"])


@dataclass(frozen=True)
class Outcome:
    """How a reader ended.

    Attributes:
        error: the sentence of the error, or None if the file was read.
        kind: the class of the error.
        ours: whether it is an error of the project.
        seconds: of the processor.
        memory: bytes, more than before, at most.
    """

    error: str | None
    kind: str
    ours: bool
    seconds: float
    memory: int


@cache
def slowness() -> float:
    """How much slower this machine is than one that unpacks 256 MB of nothing in 0.3 seconds; at least 1."""
    packed = zlib.compress(bytes(2**28), 1)
    begun = time.process_time()
    zlib.decompress(packed)
    return max(1.0, (time.process_time() - begun) / 0.3)


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def _run(read: Callable[..., object], arguments: tuple[object, ...], answer: Connection) -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # forget earlier peaks
    before, begun = _peak(), time.process_time()
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CPU, (int(begun) + 20, int(begun) + 20))
    error: BaseException | None = None
    try:
        read(*arguments)
    except BaseException as raised:
        error = raised
    seconds, memory = time.process_time() - begun, _peak() - before
    answer.send(
        Outcome(
            error=None if error is None else str(error),
            kind=type(error).__name__,
            ours=isinstance(error, SensewiseError),
            seconds=seconds,
            memory=memory,
        )
    )


def outcome(read: Callable[..., object], *arguments: object) -> Outcome:
    """How `read(*arguments)` ends; a process that dies or hangs fails the test."""
    receive, send = _server.Pipe(duplex=False)
    process = _server.Process(target=_run, args=(read, arguments, send))
    process.start()
    send.close()
    try:
        assert receive.poll(PATIENCE), "the reader hangs"
        return receive.recv()
    except EOFError:
        process.join()
        raise AssertionError(f"the reader died: {signal.strsignal(-(process.exitcode or 0))}") from None
    finally:
        process.kill()
        process.join()


def refused(read: Callable[..., object], *arguments: object, seconds: float = SECONDS) -> str:
    """The sentence with which a file is refused, soon and in little memory."""
    found = outcome(read, *arguments)
    assert found.error is not None, "it was not refused"
    assert found.ours, f"{found.kind}: {found.error}"
    assert found.seconds < seconds * slowness(), f"{found.seconds:.1f} s: {found.error}"
    assert found.memory < MEMORY, f"{found.memory:,} bytes: {found.error}"
    return found.error
