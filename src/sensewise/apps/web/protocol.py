"""HTTP with deadlines: what a client sends half, slowly or in crumbs does not keep the others out.

uvicorn's own protocol waits for ever for the rest of the headers, and for a client that does not read its answer.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS, WRITE_SECONDS = 10.0, 30.0  # for a whole header to come; for a client to take its answer
LARGEST_HEADER = 16_384  # bytes
MOST_PIECES = 2048  # of one body, which has 1 MB at most
MOST_CONNECTIONS = 400  # above the number from which requests are answered with 503, connections are closed unheard


class CountedConnection(h11.Connection):
    """Refuses bodies in very many pieces: each costs as much as a large one, and all others wait meanwhile."""

    pieces = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.pieces = 0
        elif isinstance(event, h11.Data):
            self.pieces += 1
            if self.pieces > MOST_PIECES:
                raise h11.RemoteProtocolError("the body comes in far too many pieces")
        return event


class DeadlineProtocol(H11Protocol):
    """uvicorn's protocol with a deadline for headers and for answers, and a body that cannot hold up the end."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = CountedConnection(h11.SERVER, LARGEST_HEADER)
        self._header_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        self._header_timer = self.loop.call_later(HEADER_SECONDS, transport.abort)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._has_request():
            self._cancel_timers()
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _has_request(self) -> bool:
        """Whether a whole header has come whose answer is not complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timers()
        super().connection_lost(exc)

    def _cancel_timers(self) -> None:
        for timer in (self._header_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._header_timer = self._write_timer = None

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # an answer is on its way already
            self.transport.close()

    def shutdown(self) -> None:
        """Called when the server ends: nobody waits for the rest of a body."""
        super().shutdown()
        if self._has_request() and self.cycle.more_body:
            self.transport.abort()
