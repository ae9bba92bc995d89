"""The queue behind the page: each order is computed once, few at a time, and only while somebody waits for it.

Everything here runs on the event loop; the work itself runs in a few threads of its own, so that pages and small
answers never wait for it. Those who watch see every step as it is made, those who come later see it from the start.
An order that finds the queue full is refused with 503 and `Retry-After`.
"""

import asyncio
import ctypes
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import torch
from starlette.exceptions import HTTPException
from starlette.requests import Request

from sensewise.apps.web.film import Event, Film
from sensewise.apps.web.recorder import AcquireRequest, Recorder

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
        events: what there is to see of it so far.
        result: the film, when it is there.
    """

    result: asyncio.Future[Film]

    def __init__(self) -> None:
        self.waiting, self.stop = 0, threading.Event()
        self.events: list[Event] = []
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def begin(self, result: asyncio.Future[Film]) -> None:
        """It has been put into the queue."""
        self.result = result
        result.add_done_callback(self._tell)

    async def more(self, client: Request) -> None:
        """Wait for another event or for the end, as long as the client does."""
        self._news.clear()
        news = asyncio.ensure_future(self._news.wait())
        try:
            await _while_there(news, client)
        finally:
            news.cancel()

    def show(self, event: Event) -> None:
        """Called from the thread that works."""
        with suppress(RuntimeError):  # the server has ended meanwhile
            self._loop.call_soon_threadsafe(self._add, event)

    def _add(self, event: Event) -> None:
        self.events.append(event)
        self._tell()

    def _tell(self, _: object = None) -> None:
        self._news.set()

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

    async def film(self, request: AcquireRequest, client: Request) -> Film:
        """The film of a request: kept, under way for another client, or begun now."""
        kept = self.recorder.kept(request)
        if kept is not None:
            return kept
        with self._waiting_for(request) as order:
            return await _while_there(order.result, client)

    async def events(self, request: AcquireRequest, client: Request) -> AsyncIterator[Event]:
        """The same, event by event as they are made."""
        kept = self.recorder.kept(request)
        if kept is not None:
            for event in kept.events:
                yield event
            return
        with self._waiting_for(request) as order:
            seen = 0
            while True:
                while seen < len(order.events):
                    yield order.events[seen]
                    seen += 1
                if order.result.done():
                    order.result.result()  # what went wrong, if anything
                    return
                await order.more(client)

    @contextmanager
    def _waiting_for(self, request: AcquireRequest) -> Iterator[Order]:
        """The order of a request, which goes on as long as anybody is in here."""
        if request not in self.under_way:
            order = Order()
            order.begin(self._submit(partial(self.recorder.film, request, order.stop, order.show)))
            self.under_way[request] = order
        order = self.under_way[request]
        order.waiting += 1
        try:
            yield order
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
    """Share the processor among the jobs, and let the event loop go first: on Linux, niceness belongs to a thread."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // AT_ONCE))
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
