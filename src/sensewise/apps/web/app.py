"""The server behind the page: a few JSON answers and the static files, read once.

Safe by construction: bodies are limited and validated, unknown fields are refused, the Host header must be local, no
path is taken from a request, and a client never sees a stack trace. Whatever takes long waits in `Orders`; all else is
answered at once on the event loop.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any

import anyio.to_thread
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from sensewise import __version__
from sensewise.apps.web import film
from sensewise.apps.web.film import Event, Film
from sensewise.apps.web.messages import (
    MAX_STEPS,
    REFUSALS,
    AcquireBody,
    PixelBody,
    as_json,
    film_answer,
    pixel_answer,
    sent_event,
    thumbnail_answer,
)
from sensewise.apps.web.middleware import HEADERS, BodyLimit, SafeHeaders
from sensewise.apps.web.orders import ClientLeft, Orders
from sensewise.apps.web.recorder import Recorder
from sensewise.errors import SensewiseError

GALLERY = 60  # pictures in one answer
SCRIPTS = ("app.js", "chart.js", "draw.js", "lane.js", "paint.js", "server.js", "state.js")
STATIC = dict.fromkeys(SCRIPTS, "text/javascript") | {"page.css": "text/css", "icon.svg": "image/svg+xml"}
EVENTS = "text/event-stream"
DOWNLOADS: dict[str, tuple[Callable[[Film], bytes], str]] = {
    "mask.npy": (film.mask_npy, "application/octet-stream"),
    "mask.png": (film.mask_png, "image/png"),
    "reconstruction.png": (film.picture_png, "image/png"),
    "animation.gif": (film.gif, "image/gif"),
}


def create_app(
    recorder: Recorder, hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]"), orders: Orders | None = None
) -> FastAPI:
    """The application; `hosts` are the names under which it answers, `orders` its queue."""
    queue = orders or Orders(recorder)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await anyio.to_thread.run_sync(recorder.warm_up)
        yield
        queue.close()

    # The schema is not served; the tests make requests from it.
    app = FastAPI(
        title="sensewise", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None, responses=REFUSALS
    )
    app.add_middleware(BodyLimit)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    app.add_middleware(SafeHeaders)
    _add_errors(app)
    _add_static(app)
    _add_catalog(app, recorder)
    _add_orders(app, queue)
    return app


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(SensewiseError)
    async def mistake(_: Request, error: SensewiseError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 422)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part != "body") or "the request"
        return JSONResponse({"error": f"{place}: {first['msg'].lower()}"}, 422)

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": str(error.detail).lower()}, error.status_code, error.headers)

    @app.exception_handler(ClientLeft)
    async def left(_: Request, __: ClientLeft) -> Response:
        return Response(status_code=499)  # nobody reads it

    @app.exception_handler(Exception)
    async def broken(_: Request, __: Exception) -> JSONResponse:
        return JSONResponse({"error": "something went wrong on the server; its log says what"}, 500, HEADERS)


def _add_static(app: FastAPI) -> None:
    folder = files("sensewise.apps.web").joinpath("static")
    contents = {name: folder.joinpath(name).read_bytes() for name in (*STATIC, "index.html")}

    def serve(path: str, name: str, kind: str) -> None:
        async def content() -> Response:
            return Response(contents[name], media_type=kind)

        app.add_api_route(path, content, methods=["GET"], include_in_schema=False)

    serve("/", "index.html", "text/html; charset=utf-8")
    for name, kind in STATIC.items():
        serve(f"/{name}", name, kind)


def _add_catalog(app: FastAPI, recorder: Recorder) -> None:
    @app.get("/api/catalog")
    async def catalog() -> dict[str, Any]:
        return {"version": __version__, "priors": recorder.catalog, "max_steps": MAX_STEPS}

    @app.get("/api/images")
    async def images(prior: str, first: int = 0) -> dict[str, Any]:
        found = recorder.exhibit(prior).gallery(first, GALLERY)
        return {"first": first, "images": [thumbnail_answer(thumbnail) for thumbnail in found]}


def _add_orders(app: FastAPI, orders: Orders) -> None:
    @app.post("/api/acquire")
    async def acquire(body: AcquireBody, client: Request) -> JSONResponse:
        return JSONResponse(film_answer(await orders.film(body.request(), client)))

    @app.post("/api/stream", response_class=Response, responses={200: {"content": {EVENTS: {}}}})
    async def stream(body: AcquireBody, client: Request) -> StreamingResponse:
        events = orders.events(body.request(), client)
        first = await anext(events)  # a refusal comes as such, before anything is sent
        return StreamingResponse(_sent(first, events), media_type=EVENTS)

    @app.post("/api/pixel")
    async def pixel(body: PixelBody, client: Request) -> dict[str, Any]:
        return pixel_answer(await orders.film(body.request(), client), body.row, body.column)

    def offer(name: str) -> None:
        content, kind = DOWNLOADS[name]

        async def download(body: AcquireBody, client: Request) -> Response:
            found = await orders.film(body.request(), client)
            disposition = {"Content-Disposition": f'attachment; filename="sensewise-{name}"'}
            made = await orders.work(partial(content, found), client)
            return Response(made, media_type=kind, headers=disposition)

        answers: dict[int | str, dict[str, Any]] = {200: {"content": {kind: {}}}}
        app.add_api_route(f"/api/{name}", download, methods=["POST"], response_class=Response, responses=answers)

    for name in DOWNLOADS:
        offer(name)


async def _sent(first: Event, events: AsyncIterator[Event]) -> AsyncIterator[str]:
    """Server-sent events, as they are made; what goes wrong on the way is the last of them."""
    yield sent_event(first)
    try:
        async for event in events:
            yield sent_event(event)
    except ClientLeft:
        return
    except SensewiseError as error:
        yield as_json("failure", {"error": str(error)})
