"""The server behind the page: a few JSON answers and the static files, read once.

Safe by construction: bodies are limited and validated, unknown fields are refused, the Host header must be local, no
path is taken from a request, and a client never sees a stack trace. Whatever takes long waits in `Orders`; all else is
answered at once on the event loop.
"""

import base64
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Annotated, Any

import anyio.to_thread
import numpy as np
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from sensewise import __version__
from sensewise.apps.web.middleware import HEADERS, MAX_BODY, BodyLimit, SafeHeaders
from sensewise.apps.web.orders import ClientLeft, Orders
from sensewise.apps.web.recorder import AcquireRequest, Recorder
from sensewise.errors import DataError, SensewiseError
from sensewise.evaluate.method import PIXEL_METHODS
from sensewise.evaluate.recording import Recording
from sensewise.report.figures import recording as pictures

MAX_STEPS = 64
GALLERY = 60  # images in one answer
SCRIPTS = ("app.js", "chart.js", "draw.js", "paint.js", "state.js")
STATIC = dict.fromkeys(SCRIPTS, "text/javascript") | {"page.css": "text/css", "icon.svg": "image/svg+xml"}


class AcquireBody(BaseModel):
    """What `POST /api/acquire` takes; a picture is a bundled image's number or its tokens in base64."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    prior: Annotated[str, Field(max_length=64)]
    image: Annotated[int, Field(ge=0)] | None = None
    tokens: Annotated[str, Field(max_length=MAX_BODY)] | None = None
    label: Annotated[int, Field(ge=0, le=10_000)] | None = None
    budget: Annotated[float, Field(gt=0, lt=1)]
    steps: Annotated[int, Field(ge=1, le=MAX_STEPS)]
    policy: Annotated[str, Field(max_length=64)]
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0

    def request(self) -> AcquireRequest:
        try:
            tokens = None if self.tokens is None else base64.b64decode(self.tokens, validate=True)
        except ValueError:
            raise DataError("tokens are not base64") from None
        return AcquireRequest(
            prior=self.prior,
            image=self.image,
            tokens=tokens,
            label=self.label,
            budget=self.budget,
            steps=self.steps,
            policy=self.policy,
            seed=self.seed,
        )


class PixelBody(AcquireBody):
    """What `POST /api/pixel` takes: an acquisition and a pixel of it."""

    row: Annotated[int, Field(ge=0)]
    column: Annotated[int, Field(ge=0)]


class Problem(BaseModel):
    """What every refusal says: one sentence."""

    error: str


REFUSALS: dict[int | str, dict[str, Any]] = {code: {"model": Problem} for code in (400, 408, 413, 422, 503)}


def packed(array: np.ndarray) -> str:
    """Bytes in base64: how arrays travel."""
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def recording_answer(recording: Recording) -> dict[str, Any]:
    """A recording as JSON: small arrays as lists, pictures as bytes."""
    assert recording.expected_errors is not None
    peak = max(float(recording.entropy.max()), 1e-9)
    frames = range(recording.steps + 1)
    return {
        "target": packed(recording.target),
        "step": packed(recording.step.astype(np.int8)),
        "reconstruction": packed(recording.mode),
        "entropy": packed((recording.entropy * (255 / peak)).round().astype(np.uint8)),
        "peak": peak,
        "measured": [int(recording.mask(r).sum()) for r in frames],
        "errors": recording.errors.tolist(),
        "expected": [round(float(value), 3) for value in recording.expected_errors],
        "nats": [round(float(value), 3) for value in recording.entropy.sum((1, 2))],
    }


def pixel_answer(recording: Recording, row: int, column: int) -> dict[str, Any]:
    """The distribution of one pixel in every frame, `(R + 1, C, N)`, its true tokens and when it was measured."""
    assert recording.probs is not None
    _, height, width = recording.target.shape
    if row >= height or column >= width:
        raise DataError(f"no pixel ({row}, {column}): rows are 0 to {height - 1}, columns 0 to {width - 1}")
    return {
        "probs": recording.probs[:, :, row, column].round(5).tolist(),
        "entropy": recording.entropy[:, row, column].round(4).tolist(),
        "target": recording.target[:, row, column].tolist(),
        "step": int(recording.step[row, column]),
    }


def _npy(recording: Recording) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, recording.mask(recording.steps), allow_pickle=False)
    return buffer.getvalue()


def _mask_png(recording: Recording) -> bytes:
    return pictures.png(recording.mask(recording.steps))


DOWNLOADS: dict[str, tuple[Callable[[Recording], bytes], str]] = {
    "mask.npy": (_npy, "application/octet-stream"),
    "mask.png": (_mask_png, "image/png"),
    "animation.gif": (pictures.gif, "image/gif"),
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
        policies = [{"name": name, "title": title} for name, title in PIXEL_METHODS.items()]
        return {"version": __version__, "priors": recorder.catalog, "policies": policies, "max_steps": MAX_STEPS}

    @app.get("/api/images")
    async def images(prior: str, first: int = 0) -> dict[str, Any]:
        found = recorder.bundled(prior).images
        if found is None or not 0 <= first < len(found):
            return {"first": first, "tokens": [], "labels": []}
        tokens, labels = found[slice(first, first + GALLERY)]
        return {
            "first": first,
            "tokens": [packed(image.numpy().astype(np.uint8)) for image in tokens],
            "labels": None if labels is None else labels.tolist(),
        }


def _add_orders(app: FastAPI, orders: Orders) -> None:
    @app.post("/api/acquire")
    async def acquire(body: AcquireBody, client: Request) -> JSONResponse:
        return JSONResponse(recording_answer(await orders.recording(body.request(), client)))

    @app.post("/api/pixel")
    async def pixel(body: PixelBody, client: Request) -> dict[str, Any]:
        return pixel_answer(await orders.recording(body.request(), client), body.row, body.column)

    def offer(name: str) -> None:
        content, kind = DOWNLOADS[name]

        async def download(body: AcquireBody, client: Request) -> Response:
            recording = await orders.recording(body.request(), client)
            disposition = {"Content-Disposition": f'attachment; filename="sensewise-{name}"'}
            made = await orders.work(partial(content, recording), client)
            return Response(made, media_type=kind, headers=disposition)

        answers: dict[int | str, dict[str, Any]] = {200: {"content": {kind: {}}}}
        app.add_api_route(f"/api/{name}", download, methods=["POST"], response_class=Response, responses=answers)

    for name in DOWNLOADS:
        offer(name)
