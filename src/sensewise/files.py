"""Files: written whole or not at all, locked while in use, read with limits. No model is known here.

Every file is written under a temporary name, brought to disk and then renamed, so that a reader never sees half a file
and a power cut loses nothing that was there. Tensors are safetensors; nothing is ever unpickled.
"""

import dataclasses
import hashlib
import importlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import Any, TypeVar, overload

import numpy as np
import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from sensewise.errors import CheckpointError, ConfigError, OutputError

T = TypeVar("T")


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well, and is removed when it does not."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
        os.close(handle)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}; choose another folder") from error
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        _to_disk(temporary)
        temporary.replace(path)
        _to_disk(path.parent)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}; nothing was changed") from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def whole_folder(folder: Path, names: Collection[str]) -> Iterator[Path]:
    """A temporary folder beside `folder` that takes its place when the block ends well: all files, or none.

    Args:
        names: of files that may go when the folder is replaced; a folder with any other is refused.
    """
    target = folder.resolve()
    try:
        if target.exists() and (target == Path.cwd() or not _holds_only(target, names)):
            raise OutputError(f"{folder} holds files that would be lost: choose another folder with --out")
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write {folder}: {error.strerror}; choose another folder") from error
    new, old = temporary / "new", temporary / "old"
    try:
        new.mkdir()
        yield new
        if target.exists():
            target.rename(old)
        new.rename(target)
    finally:
        if old.exists() and not target.exists():
            old.rename(target)
        shutil.rmtree(temporary, ignore_errors=True)


def _holds_only(folder: Path, names: Collection[str]) -> bool:
    """Whether a folder and those in it hold only files of these names."""
    if not folder.is_dir():
        return False
    return all(path.name in names if path.is_file() else _holds_only(path, names) for path in folder.iterdir())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk; some systems cannot do it for folders."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`: one process at a time. The system lets go of it even after `kill -9`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, timeout=0)
        lock.acquire()
    except Timeout as error:
        raise OutputError(
            f"{path.parent} is in use by another process: wait for it, or choose another folder"
        ) from error
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}; choose another folder") from error
    try:
        yield
    finally:
        lock.release()


def write_text(path: Path, text: str) -> None:
    """Write a text file in one go."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file in one go."""
    with atomic(path) as temporary:
        temporary.write_bytes(content)


def append_json(path: Path, value: Any) -> None:
    """Add one line to a log and bring it to disk; a reader must expect that a kill has cut the last one short."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(value) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}; make room and go on") from error


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file in one go."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} does not exist") from error
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}") from error


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """A safetensors file, written in one go."""
    with atomic(path) as temporary:
        try:
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary, metadata)
        except SafetensorError as error:
            raise OutputError(f"cannot write {path}: {error}; nothing was changed") from error


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} does not exist") from error
    except (SafetensorError, OSError, RuntimeError) as error:
        raise CheckpointError(f"{path} is not a complete safetensors file: {error}") from error


def sha256_of(path: Path) -> str:
    """The sha256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(module: nn.Module) -> str:
    """sha256 of a module's weights and buffers in half precision: the same for a run and its shipped copy."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        stored = tensor.half() if tensor.is_floating_point() else tensor
        digest.update(name.encode() + str(tuple(tensor.shape)).encode() + stored.contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()


def identity(value: Any) -> Any:
    """What distinguishes an object, as JSON: its class, its settings, the fingerprints of its weights.

    Two objects with the same identity measure the same. A journal's key and a saved session are made of it. Attributes
    whose names begin with an underscore do not count: they are where an object keeps what it can compute again.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, PurePath | torch.device | torch.dtype):
        return str(value)
    if isinstance(value, nn.Module):
        plain = {name: part for name, part in vars(value).items() if isinstance(part, bool | int | float | str | tuple)}
        settings = {name: part for name, part in plain.items() if name != "training" and not name.startswith("_")}
        return [type(value).__name__, fingerprint(value), identity(settings)]
    if isinstance(value, Tensor | np.ndarray):
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        return hashlib.sha256(f"{array.dtype}{array.shape}".encode() + array.tobytes()).hexdigest()
    if isinstance(value, Mapping):
        return {str(key): identity(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [identity(part) for part in value]
    if isinstance(value, set | frozenset):
        return sorted((identity(part) for part in value), key=json.dumps)  # their own order changes between processes
    if callable(value) and hasattr(value, "__qualname__"):
        owner = getattr(value, "__self__", None)
        return [value.__qualname__] if owner is None else [value.__qualname__, identity(owner)]
    if dataclasses.is_dataclass(value):
        settings = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    else:
        own = getattr(value, "__dict__", {})
        settings = {name: part for name, part in own.items() if not name.startswith("_")}
    return [type(value).__name__, identity(settings)]


@overload
def from_text(text: str, kind: type[T]) -> T: ...
@overload
def from_text(text: str, kind: None = None) -> Any: ...
def from_text(text: str, kind: type[Any] | None = None) -> Any:
    """An object of another module, named as `module:Name`; the present folder is searched first.

    Args:
        kind: what it has to be an instance or a subclass of.
    """
    module_name, colon, name = text.partition(":")
    module_name = module_name.removesuffix(".py")
    if not colon or not all(part.isidentifier() for part in (*module_name.split("."), name)):
        raise ConfigError(f"{text!r} is not of the form module:Name")
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{text}: {error}") from error
    finally:
        sys.path.remove(folder)
    fits = kind is None or isinstance(found, kind) or (isinstance(found, type) and issubclass(found, kind))
    if not fits:
        raise ConfigError(f"{text} is not a {kind.__name__ if kind else 'value'}, but {type(found).__name__}")
    return found
