"""A journal of an experiment under way: what was measured once is not measured again after a stop.

Each measurement is one line of a file beside the results, with a checksum of its own: a line cut short or damaged is
measured again, the others are kept. The key names everything that the measurement depends on; a journal of another
experiment, preset or code is started anew. With a shard i/n a process makes every n-th measurement only; `join` puts
the journals of all shards together. A `Plan` measures nothing and says what there is to measure, for other processes.
"""

import hashlib
import inspect
import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import sensewise
from sensewise.errors import ConfigError, DataError
from sensewise.files import append_json, write_text

Value = dict[str, float]
Measure = Callable[[], Value]
Line = dict[str, Any]


def parse_shard(text: str) -> tuple[int, int]:
    """`"2/4"` as `(1, 4)`: the second of four."""
    try:
        number, of = (int(part) for part in text.split("/"))
    except ValueError:
        number, of = 0, 0
    if not 1 <= number <= of:
        raise ConfigError(f"a shard is i/n with 1 <= i <= n, such as 2/4, got {text!r}")
    return number - 1, of


def code_digest(*objects: Callable[..., Any] | ModuleType) -> str:
    """sha256 of the package's source and of the files that define further objects: code is never mixed."""
    digest, folder = hashlib.sha256(), Path(sensewise.__file__).parent
    paths = sorted(folder.rglob("*.py"))
    more = {Path(file) for file in map(inspect.getsourcefile, objects) if file is not None}
    for path in [*paths, *sorted(path for path in more - set(paths) if path.is_file())]:
        digest.update(str(path.relative_to(folder) if path in paths else path.name).encode() + path.read_bytes())
    return digest.hexdigest()


def digest_of(description: Any) -> str:
    """A short name of a description as JSON: equal descriptions, equal names."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:24]


class Journal:
    """Measurements made so far.

    Args:
        path: of the journal; None keeps nothing.
        origin: what a journal must have been made with to be continued: experiment, preset, code.
        shard: `(i, n)`: measure only every n-th, beginning with the i-th.
    """

    def __init__(
        self, path: Path | None = None, origin: Mapping[str, str] | None = None, shard: tuple[int, int] = (0, 1)
    ) -> None:
        self.path, self.shard = path, shard
        self.numbers: dict[str, int] = {}  # of the keys asked for: one asked for twice is one measurement
        self.found: dict[str, Value] = {}
        self.seconds_before = 0.0
        if path is None:
            return
        first = {"origin": dict(origin or {})}
        lines = _whole_lines(path) if path.exists() else []
        kept = lines[1:] if lines and lines[0] == first else []
        self.found = {line["key"]: line["value"] for line in kept}
        self.seconds_before = sum(line["seconds"] for line in kept)
        _write(path, [first, *kept])  # without damaged lines

    @property
    def is_shard(self) -> bool:
        """Whether only a part of the measurements is made here."""
        return self.shard[1] > 1

    def recall(self, key: str, measure: Measure) -> Value | None:
        """The value of `key`, measured now if it has not been before; None if another shard has to measure it."""
        number = self.numbers.setdefault(key, len(self.numbers))
        if key in self.found:
            return self.found[key]
        if number % self.shard[1] != self.shard[0]:
            return None
        value, seconds = timed(measure)
        self.add(key, value, seconds)
        return value

    def add(self, key: str, value: Value, seconds: float) -> None:
        """Keep a value that was measured here or elsewhere."""
        if self.path is not None:
            append_json(self.path, _checked({"key": key, "value": value, "seconds": seconds}))
        self.found[key] = value


class Plan(Journal):
    """Measures nothing: notes how every measurement is made, in the order in which they are asked for.

    Attributes:
        measures: by key.
    """

    def __init__(self) -> None:
        super().__init__()
        self.measures: dict[str, Measure] = {}

    @property
    def is_shard(self) -> bool:
        """Other processes make the measurements."""
        return True

    def recall(self, key: str, measure: Measure) -> Value | None:
        """Nothing is known, as if another shard had to measure it."""
        self.measures.setdefault(key, measure)
        return None


def timed(measure: Measure) -> tuple[Value, float]:
    """A measurement, made now, and the seconds that it took."""
    begun = time.monotonic()
    value = measure()
    return value, round(time.monotonic() - begun, 3)


def _checked(content: Line) -> Line:
    """A line with its checksum."""
    return {**content, "crc32": zlib.crc32(json.dumps(content).encode())}


def _content(text: bytes) -> Line:
    """What a line says besides its checksum; nothing where it is cut short or damaged."""
    try:
        line = json.loads(text.decode("utf-8"))
        crc32 = line.pop("crc32")
        return line if crc32 == _checked(line)["crc32"] else {}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _whole_lines(path: Path) -> list[Line]:
    """The origin and the measurements of a journal whose checksums are right; none without an origin."""
    first, *others = map(_content, path.read_bytes().splitlines() or [b""])
    return [first, *(line for line in others if "key" in line)] if "origin" in first else []


def _write(path: Path, lines: Sequence[Line]) -> None:
    write_text(path, "".join(json.dumps(_checked(line)) + "\n" for line in lines))


def join(parts: Sequence[Path], whole: Path) -> int:
    """One journal from those of all shards, which must have the same origin; returns how many measurements it holds."""
    first: Line | None = None
    found: dict[str, Line] = {}
    for part in parts:
        lines = _whole_lines(part)
        if not lines:
            raise DataError(f"{part} is not the journal of a shard: run that shard again")
        if first not in (None, lines[0]):
            raise DataError(f"{part} was made by other code or settings than {parts[0]}: run its shard again")
        first = lines[0]
        found |= {line["key"]: line for line in lines[1:]}
    assert first is not None
    _write(whole, [first, *found.values()])
    return len(found)
