"""Ask and tell as lines of JSON, for programs in other languages: a request per line, an answer per line.

Whatever a line holds, its answer is a line of JSON, and the bridge goes on. It reads and writes sessions in one folder
only, and runs no code of others. `sensewise bridge` serves it on standard input and output, or on a local socket.
"""

import json
import re
import socketserver
import warnings
from collections.abc import Callable
from dataclasses import replace
from io import BufferedIOBase
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

import sensewise
from sensewise import hub
from sensewise.errors import ConfigError, SensewiseError, SessionError
from sensewise.evaluate.method import Method, pixel_methods, reading_methods
from sensewise.policies.choose import Spread
from sensewise.policies.stops import ExpectedErrors, ExpectedPSNR
from sensewise.priors.base import Prior
from sensewise.priors.readings import ReadingPrior
from sensewise.session import Session

LONGEST = 2**24  # bytes of a line
LARGEST = 2**22  # pixels of a picture
HTTP = re.compile(rb"[A-Z]+ \S+ HTTP/")  # what a web page that was led here sends first
Answer = dict[str, Any]


class Request(BaseModel):
    """A line that was received."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Hello(Request):
    """Which version answers."""

    do: Literal["hello"]


class Begin(Request):
    """A new session; the one before it is forgotten."""

    do: Literal["begin"]
    shape: Annotated[list[int], Field(min_length=2, max_length=3, description="[H, W], or [C, H, W]")]
    budget: Annotated[int | float, Field(description="how many pixels, or a fraction of them")]
    steps: Annotated[int, Field(ge=1, description="in how many rounds of ask and tell")] = 16
    prior: Annotated[str, Field(description="a bundled prior's name, or a run folder")] = "any-grey"
    policy: Annotated[str | None, Field(description="such as spread-variance-greedy or random")] = None
    label: Annotated[int | None, Field(description="the class, for priors that take one")] = None
    low: Annotated[float, Field(description="the reading that is black")] = 0.0
    high: Annotated[float, Field(description="the reading that is white")] = 1.0
    above: Annotated[float | None, Field(description="stop at this expected PSNR, in dB")] = None
    below: Annotated[float | None, Field(description="stop when fewer wrong pixels are expected")] = None
    travel: Annotated[float, Field(ge=0, description="how much a short path counts")] = 0.0
    audit: Annotated[float, Field(ge=0, lt=1, description="part of the budget read at random, to judge the prior")] = (
        0.0
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0


class Ask(Request):
    """Which pixels to read now; the same again until they are told."""

    do: Literal["ask"]


class Tell(Request):
    """What was read, in the order of ask."""

    do: Literal["tell"]
    values: Annotated[list[float] | list[list[float]], Field(description="one reading per pixel, or one per channel")]
    sigma: Annotated[float | list[float] | None, Field(description="their standard deviation, in the same units")] = (
        None
    )


class Look(Request):
    """What the whole picture is expected to be."""

    do: Literal["look"]


class Save(Request):
    """Write the session to a file of the bridge's folder."""

    do: Literal["save"]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class Restore(Request):
    """Go on with a saved session, after a begin with the same settings."""

    do: Literal["restore"]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


REQUESTS: TypeAdapter[Any] = TypeAdapter(
    Annotated[Hello | Begin | Ask | Tell | Look | Save | Restore, Field(discriminator="do")]
)


def schema() -> dict[str, Any]:
    """The JSON schema of a request."""
    return REQUESTS.json_schema()


class Bridge:
    """One session at a time, behind lines of JSON.

    Args:
        folder: where sessions are saved.
    """

    def __init__(self, folder: str | Path = ".") -> None:
        self.folder = Path(folder)
        self.session: Session | None = None
        self.low, self.range = 0.0, 1.0
        self._priors: dict[str, Prior] = {}
        self._actions: dict[type[Request], Callable[[Any], Answer]] = {
            Hello: self._hello,
            Begin: self._begin,
            Ask: self._ask,
            Tell: self._tell,
            Look: self._look,
            Save: self._save,
            Restore: self._restore,
        }

    def answer(self, line: bytes | str) -> str:
        """The answer to a line, without the end of line; never raises because of what the line holds."""
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                request = REQUESTS.validate_json(line)
                found = {"ok": True, **self._actions[type(request)](request)}
            except ValidationError as error:
                found = {"ok": False, "error": _sentence(error)}
            except SensewiseError as error:
                found = {"ok": False, "error": str(error)}
            except Exception as error:  # a program on the other side of a wire cannot read a traceback
                found = {"ok": False, "error": f"this went wrong inside: {error!r}"}
        notes = [str(warning.message) for warning in heard if issubclass(warning.category, UserWarning)]
        return json.dumps(found | ({"warnings": notes} if notes else {}), allow_nan=False)

    def _begun(self) -> Session:
        if self.session is None:
            raise SessionError("there is no session: begin one first")
        return self.session

    def _hello(self, request: Hello) -> Answer:
        return {"sensewise": sensewise.__version__, "begun": self.session is not None}

    def _begin(self, request: Begin) -> Answer:
        if not request.low < request.high:
            raise ConfigError(f"low must be below high, got {request.low:g} and {request.high:g}")
        if min(request.shape) < 1 or int(np.prod(request.shape, dtype=object)) > LARGEST:
            raise ConfigError(f"a picture of {request.shape} is not possible: at most {LARGEST} pixels")
        channels, height, width = ([1] * 3 + request.shape)[-3:]
        if request.prior not in self._priors:
            self._priors = {request.prior: hub.load_prior(request.prior)}
        prior = self._priors[request.prior]
        method = _method(prior, request)
        session = Session(
            method.policy,
            (channels, height, width),
            request.budget,
            steps=method.steps,
            label=request.label,
            start=method.start,
            choose=method.choose,
            stop=_stop(request),
            audit=request.audit,
            prior=prior,
            seed=request.seed,
        )
        self.session, self.low, self.range = session, request.low, request.high - request.low
        return self._state(session)

    def _state(self, session: Session) -> Answer:
        return {"measured": int(session.mask.sum()), "travel": round(session.travel, 3)}

    def _ask(self, request: Ask) -> Answer:
        session = self._begun()
        pixels = session.ask()
        if pixels is None:
            reason = "the picture is good enough" if session.stopped else "the budget is spent"
            return {"done": True, "reason": reason, "pixels": []}
        return {"done": False, "pixels": pixels.tolist()}

    def _tell(self, request: Tell) -> Answer:
        session = self._begun()
        try:
            values = np.asarray(request.values, dtype=np.float64)
        except ValueError as error:
            raise SessionError("every pixel needs as many values as there are channels") from error
        sigma = None if request.sigma is None else np.asarray(request.sigma) / self.range
        session.tell((values - self.low) / self.range, sigma)
        return self._state(session)

    def _look(self, request: Look) -> Answer:
        session = self._begun()
        fit = session.fit
        deviation = session.variance.sqrt()
        return {
            **self._state(session),
            "picture": _plain(self.low + self.range * session.mean),
            "uncertainty": _plain(self.range * deviation),
            "mask": session.mask.int().tolist(),
            "expected_psnr": round(session.expected_psnr, 3),
            "fits": None if fit is None else fit.fits,
        }

    def _save(self, request: Save) -> Answer:
        self._begun().save(self.folder / request.name)
        return {"name": request.name}

    def _restore(self, request: Restore) -> Answer:
        return self._state(self._begun().restore(self.folder / request.name))


def _plain(values: Any) -> list[Any]:
    """`(C, H, W)` as lists, without the channels if there is one."""
    found: list[Any] = values[0].tolist() if len(values) == 1 else values.tolist()
    return found


def _sentence(error: ValidationError) -> str:
    """What is wrong with a request, its first mistake."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]


def _method(prior: Prior, request: Begin) -> Method:
    make = reading_methods if isinstance(prior, ReadingPrior) else pixel_methods
    known = make(prior, request.steps)
    name = request.policy or ("spread-variance-greedy" if prior.num_states > 2 else "greedy")
    if name not in known:
        raise ConfigError(f"no policy {name!r}: choose one of {', '.join(known)}")
    method = known[name]
    if not request.travel:
        return method
    spread = method.choose if isinstance(method.choose, Spread) else Spread(damping=0.0)
    return replace(method, choose=replace(spread, travel=request.travel))


def _stop(request: Begin) -> ExpectedPSNR | ExpectedErrors | None:
    if request.above is not None and request.below is not None:
        raise ConfigError("above and below are two ways to stop: give one of them")
    if request.above is not None:
        return ExpectedPSNR(request.above)
    return None if request.below is None else ExpectedErrors(request.below)


def serve_lines(bridge: Bridge, source: IO[bytes] | BufferedIOBase, target: IO[bytes] | BufferedIOBase) -> None:
    """Answer line by line until there are no more, or until a web browser turns out to be at the other end."""
    while line := source.readline(LONGEST):
        if HTTP.match(line):
            return
        whole = line.endswith(b"\n") or len(line) < LONGEST
        answer = bridge.answer(line) if whole else json.dumps({"ok": False, "error": "the line is too long"})
        while not whole and (rest := source.readline(LONGEST)):
            whole = rest.endswith(b"\n")
        target.write(answer.encode() + b"\n")
        target.flush()


class LocalServer(socketserver.TCPServer):
    """The same on a socket of this machine: one client after the other, all with the same session.

    Args:
        bridge: what answers.
        port: 0 for any that is free.
    """

    allow_reuse_address = True

    def __init__(self, bridge: Bridge, port: int = 0) -> None:
        self.bridge = bridge
        super().__init__(("127.0.0.1", port), Client)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])


class Client(socketserver.StreamRequestHandler):
    """A client of the socket; one that goes away in the middle of a line takes nothing with it."""

    server: LocalServer

    def handle(self) -> None:
        try:
            serve_lines(self.server.bridge, self.rfile, self.wfile)
        except OSError:
            return
