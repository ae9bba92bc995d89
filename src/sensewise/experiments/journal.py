"""A journal of an experiment under way: what was measured once is not measured again after a kill.

Each measurement is one line `{"key": ..., "value": ..., "seconds": ...}` of a file beside the results. The key names
everything that the measurement depends on: strategy, budget, seed, images, weights. A journal of other code is started
anew. With a shard i/n a process makes every n-th measurement only; `merge` puts the journals of all shards together.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from sensewise.checkpoint import append_json, atomic, fingerprint
from sensewise.errors import ConfigError, DataError

Value = dict[str, float]


def parse_shard(text: str) -> tuple[int, int]:
    """`"2/4"` as `(1, 4)`: the second of four."""
    try:
        number, of = (int(part) for part in text.split("/"))
    except ValueError:
        number, of = 0, 0
    if not 1 <= number <= of:
        raise ConfigError(f"a shard is i/n with 1 <= i <= n, such as 2/4, got {text!r}")
    return number - 1, of


class Journal:
    """Measurements made so far.

    Args:
        path: of the journal.
        origin: what a journal must have been made with to be continued: experiment, preset, code.
        shard: `(i, n)`: measure only every n-th, beginning with the i-th.
    """

    def __init__(self, path: Path, origin: dict[str, Any], shard: tuple[int, int] = (0, 1)) -> None:
        self.path, self.shard = path, shard
        self.numbers: dict[
            str, int
        ] = {}  # of the keys asked for, in their order: one asked for twice is one measurement
        lines = _complete_lines(path) if path.exists() else []
        if not lines or lines[0] != {"origin": origin}:
            lines = [{"origin": origin}]
        self.found: dict[str, Value] = {line["key"]: line["value"] for line in lines[1:]}
        self.seconds_before: float = sum(line["seconds"] for line in lines[1:])
        with atomic(path) as temporary:  # without a line cut short by a kill
            temporary.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def recall(self, key: str, names: Sequence[str], measure: Callable[[], Value]) -> Value:
        """The value of `key`, measured now if it has not been before.

        What is another shard's to measure is 0 here; a run of one shard writes no results.
        """
        number = self.numbers.setdefault(key, len(self.numbers))
        if key in self.found:
            return self.found[key]
        if number % self.shard[1] != self.shard[0]:
            return dict.fromkeys(names, 0.0)
        begun = time.monotonic()
        value = measure()
        seconds = round(time.monotonic() - begun, 3)
        append_json(self.path, {"key": key, "value": value, "seconds": seconds})
        self.found[key] = value
        return value


def _complete_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a journal up to the first that is not whole: the origin, then measurements."""
    lines: list[dict[str, Any]] = []
    for line in path.read_bytes().splitlines():
        try:
            found = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError):
            break
        if not (_is_measurement(found) if lines else isinstance(found, dict) and "origin" in found):
            break
        lines.append(found)
    return lines


def _is_measurement(line: Any) -> bool:
    if not isinstance(line, dict) or not isinstance(line.get("key"), str) or not isinstance(line.get("value"), dict):
        return False
    values = (line.get("seconds"), *line["value"].values())
    return all(isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63) for value in values)


def join(parts: list[Path], whole: Path) -> int:
    """One journal from those of all shards, which must have the same origin; returns how many measurements it holds."""
    origin: dict[str, Any] | None = None
    found: dict[str, dict[str, Any]] = {}
    for part in parts:
        lines = _complete_lines(part)
        if not lines:
            raise DataError(f"{part} is not the journal of a shard")
        if origin not in (None, lines[0]):
            raise DataError(f"{part} was made by other code or settings than {parts[0]}: run its shard again")
        origin = lines[0]
        found |= {line["key"]: line for line in lines[1:]}
    with atomic(whole) as temporary:
        temporary.write_text("".join(json.dumps(line) + "\n" for line in [origin, *found.values()]))
    return len(found)


_ACTIVE: ContextVar[Journal | None] = ContextVar("journal", default=None)


@contextmanager
def keeping(journal: Journal) -> Iterator[Journal]:
    """Every measurement inside this block goes through the journal."""
    token = _ACTIVE.set(journal)
    try:
        yield journal
    finally:
        _ACTIVE.reset(token)


def recall(key: Sequence[Any], names: Sequence[str], measure: Callable[[], Value]) -> Value:
    """A measurement of the named numbers, from the journal in use or made now."""
    journal = _ACTIVE.get()
    return measure() if journal is None else journal.recall(json.dumps(key), names, measure)


def weights_of(*holders: object) -> list[str]:
    """The fingerprints of every model and every mask that policies and reconstructors hold."""
    found = set()
    for holder in holders:
        for value in (holder, *getattr(holder, "__dict__", {}).values()):
            owner = getattr(value, "__self__", value)  # a method of a model stands for the model
            if isinstance(owner, nn.Module):
                found.add(fingerprint(owner))
            elif isinstance(owner, Tensor):
                found.add(hashlib.sha256(owner.numpy().tobytes()).hexdigest())
    return sorted(found)
