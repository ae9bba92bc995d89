"""Presets: TOML files that override the defaults of a command's dataclass. Unknown keys and wrong types are refused."""

import dataclasses
import sys
import tomllib
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from sensewise.errors import ConfigError

T = TypeVar("T")
FOLDER = Path(__file__).parent
MAX_TEXT, MAX_LINE = 100_000, 1_000  # characters; long chains of dotted keys take tomllib for ever


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
    try:
        text = path.read_text(encoding="utf-8")
        if len(text) > MAX_TEXT or max(map(len, text.splitlines()), default=0) > MAX_LINE:
            raise ConfigError(
                f"{path.name} is no preset: it has {len(text):,} characters, and at most {MAX_TEXT:,} in all "
                f"and {MAX_LINE:,} in a line are read"
            )
        table: Any = tomllib.loads(text)
        for part in section.split("."):
            if not isinstance(table, dict) or part not in table:
                raise ConfigError(f"preset {path.stem!r} has no section [{section}]")
            table = table[part]
        return build(into, table, f"{path.name} [{section}]")
    except ConfigError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path.name} is not valid TOML: {error}") from error


def build(into: type[T], table: Any, where: str) -> T:
    """A dataclass from a table, nested dataclasses from nested tables."""
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: a table is expected, got {table!r}")
    fields = {field.name for field in dataclasses.fields(into)}  # type: ignore[arg-type]
    hints = get_type_hints(into)
    unknown = sorted(set(table) - fields)
    if unknown:
        raise ConfigError(f"{where}: unknown key {unknown[0]!r}; allowed are {', '.join(sorted(fields))}")
    values = {key: _convert(value, hints[key], f"{where}: {key}") for key, value in table.items()}
    try:
        return into(**values)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _convert(value: Any, hint: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return build(hint, value, where)  # type: ignore[arg-type]
    origin, options = get_origin(hint), get_args(hint)
    if origin is Literal:
        if value in options:
            return value
        raise ConfigError(f"{where} must be one of {', '.join(map(str, options))}, got {value!r}")
    if origin is tuple:
        if isinstance(value, list):
            return tuple(_convert(item, options[0], where) for item in value)
    elif origin in (Union, UnionType):
        for option in options:
            if option is type(None):
                continue
            return _convert(value, option, where)
    elif hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if abs(value) <= sys.float_info.max:
            return float(value)
    elif isinstance(hint, type) and isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    name = getattr(hint, "__name__", str(hint)) if origin is None else str(hint)
    raise ConfigError(f"{where} must be {name}, got {value!r}")
