"""The server behind the page: a few JSON answers and the static files, read once.

Safe by construction: bodies are limited and validated, unknown fields are refused, the Host header must be local, no
path is taken from a request, and a client never sees a stack trace.
"""

import base64
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Annotated, Any

import anyio.to_thread
import numpy as np
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sensewise import __version__
from sensewise.apps.web.recorder import AcquireRequest, Recorder
from sensewise.errors import DataError, SensewiseError
from sensewise.evaluate.method import PIXEL_METHODS
from sensewise.evaluate.recording import Recording
from sensewise.report.figures import recording as pictures

MAX_BODY = 1_000_000  # bytes
MAX_STEPS = 64
GALLERY = 60  # images in one answer
SCRIPTS = ("app.js", "chart.js", "draw.js", "paint.js", "state.js")
STATIC = dict.fromkeys(SCRIPTS, "text/javascript") | {"page.css": "text/css", "icon.svg": "image/svg+xml"}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


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


class BodyLimit:
    """Refuses bodies above `MAX_BODY`, whether or not their length was declared."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        body = b""
        while scope["method"] == "POST":
            message = await receive()
            body += message.get("body", b"")
            if len(body) > MAX_BODY:
                answer = JSONResponse({"error": f"the request is larger than {MAX_BODY:,} bytes"}, 413, HEADERS)
                return await answer(scope, receive, send)
            if not message.get("more_body"):
                break
        replayed = False

        async def replay() -> Message:
            nonlocal replayed
            if replayed:
                return await receive()
            replayed = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, replay if scope["method"] == "POST" else receive, send)


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


def create_app(recorder: Recorder, hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")) -> FastAPI:
    """The application; `hosts` are the names under which it answers."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await anyio.to_thread.run_sync(recorder.warm_up)
        yield

    app = FastAPI(title="sensewise", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(GZipMiddleware, minimum_size=2000, compresslevel=3)
    app.add_middleware(BodyLimit)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    _add_headers_and_errors(app)
    _add_static(app)
    _add_api(app, recorder)
    return app


def _add_headers_and_errors(app: FastAPI) -> None:
    @app.middleware("http")
    async def headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await call_next(request)
        response.headers.update(HEADERS)
        return response

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
        return JSONResponse({"error": str(error.detail).lower()}, error.status_code)

    @app.exception_handler(Exception)
    async def broken(_: Request, __: Exception) -> JSONResponse:
        return JSONResponse({"error": "something went wrong on the server; its log says what"}, 500, HEADERS)


def _add_static(app: FastAPI) -> None:
    folder = files("sensewise.apps.web").joinpath("static")
    contents = {name: folder.joinpath(name).read_bytes() for name in (*STATIC, "index.html")}

    @app.get("/")
    def page() -> Response:
        return Response(contents["index.html"], media_type="text/html; charset=utf-8")

    def serve(name: str, kind: str) -> None:
        app.add_api_route(f"/{name}", lambda: Response(contents[name], media_type=kind), methods=["GET"])

    for name, kind in STATIC.items():
        serve(name, kind)


def _add_api(app: FastAPI, recorder: Recorder) -> None:
    @app.get("/api/catalog")
    def catalog() -> dict[str, Any]:
        priors = [bundled.describe() for bundled in recorder.priors.values()]
        policies = [{"name": name, "title": title} for name, title in PIXEL_METHODS.items()]
        return {"version": __version__, "priors": priors, "policies": policies, "max_steps": MAX_STEPS}

    @app.get("/api/images")
    def images(prior: str, first: int = 0) -> dict[str, Any]:
        found = recorder.bundled(prior).images
        if found is None or not 0 <= first < len(found):
            return {"first": first, "tokens": [], "labels": []}
        tokens, labels = found[slice(first, first + GALLERY)]
        return {
            "first": first,
            "tokens": [packed(image.numpy().astype(np.uint8)) for image in tokens],
            "labels": None if labels is None else labels.tolist(),
        }

    @app.post("/api/acquire")
    def acquire(body: AcquireBody) -> dict[str, Any]:
        return recording_answer(recorder.recording(body.request()))

    @app.post("/api/pixel")
    def pixel(body: PixelBody) -> dict[str, Any]:
        return pixel_answer(recorder.recording(body.request()), body.row, body.column)

    def offer(name: str) -> None:
        content, kind = DOWNLOADS[name]

        def download(body: AcquireBody) -> Response:
            disposition = {"Content-Disposition": f'attachment; filename="sensewise-{name}"'}
            return Response(content(recorder.recording(body.request())), media_type=kind, headers=disposition)

        app.add_api_route(f"/api/{name}", download, methods=["POST"])

    for name in DOWNLOADS:
        offer(name)
