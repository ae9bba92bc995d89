"""What every request and every answer of the page goes through: limits of the body, headers that keep browsers safe."""

import asyncio

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sensewise.apps.web.orders import ClientLeft

MAX_BODY = 1_000_000  # bytes
BODY_SECONDS = 10.0  # for a whole body to come
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class BodyLimit:
    """Refuses bodies above `MAX_BODY`, whether or not their length was declared, and bodies that do not come."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            return await self.app(scope, receive, send)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await _whole_body(receive, Headers(scope=scope))
        except ClientLeft:
            return None
        except TimeoutError:
            late = {"error": f"the request did not come in {BODY_SECONDS:g} seconds"}
            return await JSONResponse(late, 408, {"Connection": "close"})(scope, receive, send)
        if body is None:
            large = {"error": f"the request is larger than {MAX_BODY:,} bytes"}
            return await JSONResponse(large, 413)(scope, receive, send)
        replayed = False

        async def replay() -> Message:
            nonlocal replayed
            if replayed:
                return await receive()
            replayed = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, replay, send)


async def _whole_body(receive: Receive, headers: Headers) -> bytes | None:
    """The body of a request; None if it is too large."""
    length = headers.get("content-length", "0")
    if length.isdecimal() and len(length) < 20 and int(length) > MAX_BODY:
        return None
    body = bytearray()
    while len(body) <= MAX_BODY:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        body += message.get("body", b"")
        if not message.get("more_body") and len(body) <= MAX_BODY:
            return bytes(body)
    return None


class SafeHeaders:
    """Adds `HEADERS` to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_safe(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self.app(scope, receive, send_safe if scope["type"] == "http" else send)
