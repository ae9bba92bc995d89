"""Presets: TOML files that override the defaults of a command's dataclass. Unknown keys and wrong types are refused."""

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from pydantic_core import ErrorDetails

from sensewise.errors import ConfigError

T = TypeVar("T")
FOLDER = Path(__file__).parent
MAX_TEXT, MAX_LINE = 100_000, 1_000  # characters; long chains of dotted keys take tomllib for ever
STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def find(preset: str | Path) -> Path:
    """The file of a preset, by its bundled name or its path."""
    for path in (FOLDER / f"{preset}.toml", Path(preset)):
        if path.is_file():
            return path
    names = ", ".join(sorted(p.stem for p in FOLDER.glob("*.toml")))
    raise ConfigError(f"no preset {str(preset)!r}: choose one of {names}, or give the path of a TOML file")


def load(preset: str | Path, section: str, into: type[T]) -> T:
    """One section of a preset as a dataclass.

    Args:
        preset: a bundled name ("cpu", "paper") or the path of a TOML file.
        section: the dotted name of a table in the file, such as "prior.mnist.random-masks".
        into: the dataclass whose defaults the section overrides.
    """
    path = find(preset)
    table = _table(path, section)
    if table is None:
        raise ConfigError(f"preset {path.stem!r} has no section [{section}]")
    return build(into, table, f"{path.name} [{section}]")


def has(preset: str | Path, section: str) -> bool:
    """Whether a preset has a section."""
    return _table(find(preset), section) is not None


def _table(path: Path, section: str) -> Any:
    """What stands in a section of a file; None if there is no such section."""
    try:
        text = path.read_text(encoding="utf-8")
        if len(text) > MAX_TEXT or max(map(len, text.splitlines()), default=0) > MAX_LINE:
            raise ConfigError(
                f"{path.name} is not a preset: it has {len(text):,} characters, and at most {MAX_TEXT:,} in all "
                f"and {MAX_LINE:,} in a line are read"
            )
        table: Any = tomllib.loads(text)
    except ConfigError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path.name} is not valid TOML: {error}") from error
    for part in section.split("."):
        if not isinstance(table, dict) or part not in table:
            return None
        table = table[part]
    return table


def build(into: type[T], table: Any, where: str) -> T:
    """A dataclass from a table, nested dataclasses from nested tables.

    Args:
        where: the table's place, for messages.
    """
    try:
        text = json.dumps(table)  # JSON: there a list may become a tuple, and nothing else is converted
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {error}; numbers, texts, lists and tables are possible") from error
    try:
        return _reader(into).validate_json(text)
    except ValidationError as error:
        raise ConfigError(f"{where}: {_sentence(error.errors()[0], into)}") from error


def _reader(into: type[T]) -> TypeAdapter[T]:
    for part in _dataclasses(into):
        with_config(STRICT)(part)
    return TypeAdapter(into)


def _dataclasses(into: type[Any]) -> list[type[Any]]:
    """A dataclass and all that its fields hold."""
    inner = [hint for hint in get_type_hints(into).values() if dataclasses.is_dataclass(hint)]
    return [into, *(part for hint in inner if isinstance(hint, type) for part in _dataclasses(hint))]


def _sentence(error: ErrorDetails, into: type[Any]) -> str:
    """What is wrong with which key, and what is allowed."""
    keys = [part for part in error["loc"] if isinstance(part, str)]
    name = ": ".join(keys)
    if error["type"] == "unexpected_keyword_argument":
        owner = into
        for key in keys[:-1]:
            owner = get_type_hints(owner)[key]
        allowed = ", ".join(sorted(field.name for field in dataclasses.fields(owner)))
        return ": ".join([*keys[:-1], f"unknown key {keys[-1]!r}; allowed are {allowed}"])
    if error["type"] == "value_error":  # raised by the dataclass itself
        return ": ".join([*keys, str(error["ctx"]["error"])])
    if error["type"] == "dataclass_type":
        return ": ".join([*keys, f"a table is expected, got {error['input']!r}"])
    needed = error["msg"].removeprefix("Input should be ")
    return f"{name} must be {needed}, got {error['input']!r}"
