"""The queue behind the page: each order is computed once, few at a time, and only while somebody waits for it.

Everything here runs on the event loop; the work itself runs in a few threads of its own, so that pages and small
answers never wait for it. An order that finds the queue full is refused with 503 and `Retry-After`.
"""

import asyncio
import ctypes
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

from sensewise.apps.web.recorder import AcquireRequest, Recorder
from sensewise.evaluate.recording import Recording

T = TypeVar("T")
AT_ONCE = 2  # jobs that run at the same time
WAITING = 32  # jobs that wait for their turn; more are refused
RETRY_SECONDS = 2
TIDY_EVERY = 16  # jobs


class ClientLeft(Exception):
    """The client has closed the connection: there is nobody to answer."""


class Order:
    """An acquisition under way.

    Attributes:
        waiting: clients that wait for it.
        stop: ends it between two steps.
        result: the recording, when it is there.
    """

    def __init__(self, result: asyncio.Future[Recording], stop: threading.Event) -> None:
        self.waiting, self.result, self.stop = 0, result, stop

    def abandon(self) -> None:
        """Nobody waits any more: never begin it, or end it after the step under way."""
        self.stop.set()
        self.result.cancel()


class Orders:
    """Acquisitions for the clients of a server.

    Args:
        recorder: does the work.
        at_once: jobs that run at the same time.
        waiting: jobs that wait for their turn.
    """

    def __init__(self, recorder: Recorder, at_once: int = AT_ONCE, waiting: int = WAITING) -> None:
        self.recorder, self.most = recorder, at_once + waiting
        self.under_way: dict[AcquireRequest, Order] = {}
        self._at_once, self._jobs = at_once, 0
        self._pool = self._new_pool()
        self._free = threading.BoundedSemaphore(self.most)

    async def recording(self, request: AcquireRequest, client: Request) -> Recording:
        """The acquisition of a request: kept, under way for another client, or begun now."""
        kept = self.recorder.kept(request)
        if kept is not None:
            return kept
        if request not in self.under_way:
            stop = threading.Event()
            self.under_way[request] = Order(self._submit(partial(self.recorder.recording, request, stop)), stop)
        order = self.under_way[request]
        order.waiting += 1
        try:
            return await _while_there(order.result, client)
        finally:
            order.waiting -= 1
            if not order.waiting:
                order.abandon()
                if self.under_way.get(request) is order:
                    del self.under_way[request]

    async def work(self, function: Callable[[], T], client: Request) -> T:
        """The result of a function, in the same queue: for what takes longer than a page may wait."""
        result = self._submit(function)
        try:
            return await _while_there(result, client)
        finally:
            result.cancel()

    def _submit(self, function: Callable[[], T]) -> asyncio.Future[T]:
        if not self._free.acquire(blocking=False):
            raise HTTPException(
                503,
                f"{self.most} acquisitions are under way: try again in a few seconds",
                {"Retry-After": str(RETRY_SECONDS)},
            )
        try:
            job = self._pool.submit(function)
        except RuntimeError:
            self._free.release()
            raise
        job.add_done_callback(self._release)
        return asyncio.wrap_future(job)

    def _release(self, job: Future[T]) -> None:
        self._free.release()
        self._jobs += 1
        if self._jobs % TIDY_EVERY == 0 and not job.cancelled():
            _give_back()

    def close(self) -> None:
        """End all that is under way; another server may begin anew."""
        for order in self.under_way.values():
            order.stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = self._new_pool()

    def _new_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._at_once, thread_name_prefix="acquire", initializer=_step_back)


def _step_back() -> None:
    """Let the event loop go first: on Linux, niceness belongs to a thread."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def _give_back() -> None:
    """Return freed memory to the system; C libraries keep it otherwise, for each thread apart."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


async def _while_there(result: asyncio.Future[T], client: Request) -> T:
    """Wait for a result as long as the client does."""
    left = asyncio.ensure_future(_gone(client))
    either: set[asyncio.Future[Any]] = {result, left}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        left.cancel()
        with suppress(asyncio.CancelledError):
            await left
    if not result.done():
        raise ClientLeft
    return result.result()


async def _gone(client: Request) -> None:
    """Wait until the client has closed the connection; its body has been read before."""
    while (await client.receive())["type"] != "http.disconnect":
        pass
