"""Measurements of an experiment made by other processes and machines, which Dask starts, feeds and replaces.

Only names, numbers and JSON travel: a worker is given the name of an experiment, builds it by itself, and measures the
keys that it is sent. Nothing is kept on a worker or by the scheduler: the journal of the caller is the record.
"""

import logging
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from sensewise.beyond import EXPERIMENTS
from sensewise.errors import ConfigError, ProcessError
from sensewise.evaluate.experiment import Experiment
from sensewise.evaluate.journal import Measure, Value, timed
from sensewise.evaluate.runner import Engine, plan
from sensewise.priors.engines import EngineName

if TYPE_CHECKING:
    from distributed import Client

_one_at_a_time = Lock()  # a worker with several threads has one set of models


class Work(Protocol):
    """Names from which a worker builds an experiment by itself; hashable."""

    def __hash__(self) -> int: ...

    def experiment(self) -> Experiment: ...


@dataclass(frozen=True)
class Named:
    """An experiment by its name, or `module:NAME`."""

    name: str

    def experiment(self) -> Experiment:
        return EXPERIMENTS.find(self.name)


def measure(
    work: Work, preset: str, seeds: tuple[int, ...], computed_by: EngineName, code: str, key: str
) -> tuple[Value, float]:
    """What a worker does: one measurement, and the seconds that it took.

    Args:
        work: what is measured.
        computed_by: what computes the networks of priors over images.
        code: the caller's `Experiment.digest`; a worker with other code refuses.
        key: of the measurement in the journal; it names the weights and the data.
    """
    with _one_at_a_time:
        found = _measures(work, preset, seeds, computed_by, code).get(key)
        if found is None:
            raise ProcessError(
                f"the worker on {socket.gethostname()} has other weights or data than the caller: "
                f"give both the same SENSEWISE_DATA, runs folder and preset (it does not know {key!r})"
            )
        return timed(found)


@lru_cache(maxsize=1)
def _measures(
    work: Work, preset: str, seeds: tuple[int, ...], computed_by: EngineName, code: str
) -> dict[str, Measure]:
    """Every measurement of an experiment by key, ready to be made; models are loaded once per worker."""
    found = work.experiment()
    if found.digest() != code:
        raise ProcessError(
            f"the worker on {socket.gethostname()} runs other code than the caller: install the same there and "
            "start the worker again"
        )
    return plan(found, preset, seeds, computed_by=computed_by)


@contextmanager
def connected(address: str | None, workers: int) -> Iterator["Client | None"]:
    """A client of the scheduler at an address, or of processes on this machine that end with the block.

    There is none where this process is the only one.

    Args:
        address: such as `tcp://scheduler:8786`; None for this machine.
        workers: how many processes, on this machine.
    """
    if address is None and workers == 1:
        yield None
        return
    try:
        from distributed import Client, LocalCluster
        from distributed.security import Security
    except ImportError as error:
        raise ConfigError(f"--workers and --cluster need {error.name}: install the extra `cluster`") from error

    for name in ("distributed", "distributed.client"):  # what ends a run is said in one sentence
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    if address is not None:
        try:
            client = Client(address)
        except (OSError, ValueError) as error:
            raise ProcessError(f"no scheduler answers at {address}: start one with `dask scheduler`") from error
        with client:
            yield client
        return
    # whoever may talk to a worker can run code in it: certificates of this sitting keep the machine's other users out
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",  # any free port: several sweeps may run beside each other
            security=Security.temporary(),
            memory_limit=0,
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def engine(
    client: "Client | None", work: Work, preset: str, seeds: Sequence[int], computed_by: EngineName = "torch"
) -> Engine | None:
    """Makes measurements of an experiment on the workers of a client; those of a lost worker are made by another."""
    if client is None:
        return None
    from distributed import as_completed
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker

    def measured(keys: Sequence[str]) -> Iterator[tuple[str, Value, float]]:
        about = (work, preset, tuple(seeds), computed_by, work.experiment().digest())
        sent = {client.submit(measure, *about, key, pure=False, retries=1): key for key in keys}
        try:
            for future in as_completed(sent):
                value, seconds = future.result()
                yield sent[future], value, seconds
        except KilledWorker as error:
            raise ProcessError(
                "a measurement ended several workers: look at their logs and memory; what was measured is kept, "
                "the same command goes on"
            ) from error
        except (CancelledError, CommClosedError, TimeoutError) as error:
            raise ProcessError("the scheduler is gone: what was measured is kept, the same command goes on") from error

    return measured
