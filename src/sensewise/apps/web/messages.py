"""What travels between the page and its server: bodies of requests, and answers as JSON."""

import base64
import json
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sensewise.apps.web.exhibits import AcquireRequest, Thumbnail
from sensewise.apps.web.film import Ending, Event, Film, Shot, Title
from sensewise.apps.web.middleware import MAX_BODY
from sensewise.errors import DataError

MAX_STEPS = 64


class AcquireBody(BaseModel):
    """What `POST /api/acquire` and `/api/stream` take: a bundled picture's number, or a picture in base64."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    prior: Annotated[str, Field(max_length=64)]
    image: Annotated[int, Field(ge=0)] | None = None
    tokens: Annotated[str, Field(max_length=MAX_BODY)] | None = None
    height: Annotated[int, Field(ge=1, le=4096)] | None = None
    width: Annotated[int, Field(ge=1, le=4096)] | None = None
    label: Annotated[int, Field(ge=0, le=10_000)] | None = None
    budget: Annotated[float, Field(gt=0, lt=1)]
    steps: Annotated[int, Field(ge=1, le=MAX_STEPS)]
    policy: Annotated[str, Field(max_length=64)]
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    noise: Annotated[float, Field(ge=0, le=1)] = 0.0
    stop: Annotated[float, Field(ge=1e-4, le=1000)] | None = None

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
            size=None if self.height is None or self.width is None else (self.height, self.width),
            noise=self.noise,
            stop=self.stop,
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


def _title(title: Title) -> dict[str, Any]:
    return {
        "shape": title.target.shape,
        "target": packed(title.target),
        "grid": title.grid,
        "budget": title.budget,
        "steps": title.steps,
    }


def _shot(shot: Shot) -> dict[str, Any]:
    return {
        "actions": packed(shot.actions.astype("<i4")),
        "values": packed(shot.values),
        "picture": packed(shot.picture),
        "doubt": packed(shot.doubt),
        "numbers": {name: round(value, 5) for name, value in shot.numbers.items()},
    }


def _ending(ending: Ending) -> dict[str, Any]:
    return {"stopped": ending.stopped, "audit": ending.audit, "ratio": round(ending.ratio, 3), "fits": ending.fits}


def film_answer(film: Film) -> dict[str, Any]:
    """A whole film."""
    return {"title": _title(film.title), "shots": [_shot(shot) for shot in film.shots], "ending": _ending(film.ending)}


def as_json(name: str, content: dict[str, Any]) -> str:
    """A server-sent event."""
    return f"event: {name}\ndata: {json.dumps(content)}\n\n"


def sent_event(event: Event) -> str:
    """An event of a film as a server-sent one."""
    if isinstance(event, Title):
        return as_json("title", _title(event))
    return as_json("shot", _shot(event)) if isinstance(event, Shot) else as_json("ending", _ending(event))


def thumbnail_answer(thumbnail: Thumbnail) -> dict[str, Any]:
    """A picture of the gallery."""
    return {
        "shape": thumbnail.picture.shape,
        "picture": packed(thumbnail.picture),
        "name": thumbnail.name,
        "label": thumbnail.label,
    }


def pixel_answer(film: Film, row: int, column: int) -> dict[str, Any]:
    """The distribution of one pixel in every shot, `(R + 1, C, N)`."""
    _, height, width = film.title.target.shape
    if row >= height or column >= width:
        raise DataError(f"no pixel ({row}, {column}): rows are 0 to {height - 1}, columns 0 to {width - 1}")
    probs = [shot.probs[:, row, column] for shot in film.shots if shot.probs is not None]
    if not probs:
        raise DataError("only a prior of few levels says how probable each of them is")
    return {"probs": np.stack(probs).round(5).tolist()}
