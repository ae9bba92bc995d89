"""Files: written whole or not at all, locked while in use, read with limits. No model is known here.

Every file is written under a temporary name, brought to disk and then renamed, so that a reader never sees half a file
and a power cut loses nothing that was there. Tensors are safetensors; nothing is ever unpickled.
"""

import dataclasses
import errno
import hashlib
import importlib
import json
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path, PurePath
from typing import IO, Any, TypeVar, overload

import numpy as np
import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from sensewise.errors import CheckpointError, ConfigError, DataError, OutputError

T = TypeVar("T")
PARTIAL, LOCK, REPLACED = ".partial", ".lock", ".replaced"
_SCRATCH = re.compile(r"\..+\.[a-z0-9_]{8}\.partial")  # as `_scratch` names its folders
LARGEST_JSON = 8_000_000  # bytes of a text that is read as a whole
LARGEST_HEADER, MOST_TENSORS = 4_000_000, 20_000  # of a safetensors file: a million empty tensors take a minute
LARGEST_TENSORS = 4_000_000_000  # bytes: a checkpoint has the weights four times
_NPY_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well, and is removed when it does not."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _scratch(path.absolute()) as scratch:
            temporary = scratch / path.name
            try:
                yield temporary
                _to_disk(temporary)
                temporary.replace(path)
                _to_disk(path.parent)
            except OutputError:
                raise
            except OSError as error:
                raise OutputError(f"cannot write {path}: {error.strerror or error}; nothing was changed") from error
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}; choose another folder") from error


@contextmanager
def whole_folder(folder: Path, names: Collection[str]) -> Iterator[Path]:
    """A temporary folder beside `folder` that takes its place when the block ends well: all files, or none.

    Args:
        names: of files that may go when the folder is replaced; a folder with any other is refused.
    """
    target = folder.resolve()
    with ExitStack() as stack:
        try:
            if target.exists() and (target == Path.cwd() or not _holds_only(target, names)):
                raise OutputError(f"{folder} holds files that would be lost: choose another folder with --out")
            target.parent.mkdir(parents=True, exist_ok=True)
            scratch = stack.enter_context(_scratch(target))
            new, old = scratch / target.name, scratch / REPLACED
            new.mkdir()
        except OutputError:
            raise
        except OSError as error:
            raise OutputError(f"cannot write {folder}: {error.strerror}; choose another folder") from error
        try:
            yield new
            for path in (*new.rglob("*"), new):
                _to_disk(path)
            if target.exists():
                target.rename(old)
            new.rename(target)
            _to_disk(target.parent)
        finally:
            if old.exists() and not target.exists():
                old.rename(target)


@contextmanager
def _scratch(target: Path) -> Iterator[Path]:
    """A folder beside `target` for what will take its place: locked while in use, removed afterwards."""
    _sweep(target.parent)
    while True:
        scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name[:100]}.", suffix=PARTIAL))
        lock = FileLock(scratch / LOCK)
        with suppress(OSError, NotImplementedError):  # a file system without locks: then it is never swept either
            lock.acquire()
        if scratch.exists():  # else another process took it for one that was left behind, before it was locked
            break
    try:
        yield scratch
    finally:
        lock.release()
        shutil.rmtree(scratch, ignore_errors=True)


@cache
def _sweep(folder: Path) -> None:
    """Remove what killed processes left half-written in a folder, once per process; what is in use is locked."""
    for scratch in folder.glob(f".*{PARTIAL}"):
        if not _SCRATCH.fullmatch(scratch.name) or scratch.is_symlink() or not scratch.is_dir():
            continue
        with suppress(OSError, NotImplementedError), FileLock(scratch / LOCK, timeout=0):
            _finish(scratch)
            shutil.rmtree(scratch, ignore_errors=True)


def _finish(scratch: Path) -> None:
    """Put the new folder in its place if its process was killed just after it had moved the old one away."""
    if (scratch / REPLACED).exists():
        for new in scratch.iterdir():
            if new.name not in (REPLACED, LOCK) and not (scratch.parent / new.name).exists():
                new.rename(scratch.parent / new.name)


def _holds_only(folder: Path, names: Collection[str]) -> bool:
    """Whether a folder and those in it hold only files of these names."""
    if not folder.is_dir():
        return False
    return all(path.name in names if path.is_file() else _holds_only(path, names) for path in folder.iterdir())


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


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a file; refuses more than `most` bytes, and what is no file: a pipe would be waited for."""
    return check_size(path, most).read_bytes()


def check_size(path: Path, most: int) -> Path:
    """The same path; refuses what is no file, or larger than `most` bytes, before anything of it is read."""
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    if not path.is_file():
        raise DataError(f"{path} is not a file")
    if (size := path.stat().st_size) > most:
        raise DataError(f"{path} has {size:,} bytes, and at most {most:,} are read: it is damaged or not what it seems")
    return path


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    try:
        return json.loads(read_bytes(path, LARGEST_JSON).decode("utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} does not exist") from error
    except DataError as error:
        raise CheckpointError(str(error)) from error
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}") from error


def check_npy(stream: IO[bytes], size: int) -> None:
    """Refuse an `.npy` stream of `size` bytes whose header says something else than what follows, or names objects."""
    version = np.lib.format.read_magic(stream)
    if version not in _NPY_HEADERS:
        raise ValueError(f"version {version[0]}.{version[1]} of the format is not read")
    shape, _, dtype = _NPY_HEADERS[version](stream)
    if dtype.hasobject or dtype.fields or dtype.itemsize == 0:
        raise ValueError(f"an array of {dtype} is not read")
    wanted = math.prod(shape) * dtype.itemsize
    if min(shape, default=1) < 0 or wanted != size - stream.tell():
        raise ValueError(f"its header says {wanted:,} bytes for shape {shape}, and {size - stream.tell():,} are there")
    stream.seek(0)


def read_npy(path: Path, most: int) -> np.ndarray:
    """The array of an `.npy` file of at most `most` bytes, left on the disk until it is used; nothing is unpickled."""
    with check_size(path, most).open("rb") as stream:
        check_npy(stream, path.stat().st_size)
    return np.load(path, mmap_mode="r" if path.stat().st_size > LARGEST_JSON else None, allow_pickle=False)


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """A safetensors file, written in one go."""
    with atomic(path) as temporary:
        try:
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary, metadata)
        except SafetensorError as error:
            raise OutputError(f"cannot write {path}: {error}; nothing was changed") from error


def read_tensors(path: Path, most: int = LARGEST_TENSORS) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file of at most `most` bytes."""
    with _opened(path, most) as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


def tensor_shapes(path: Path, most: int = LARGEST_TENSORS) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors of a safetensors file by name; none of them is read."""
    with _opened(path, most) as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


@contextmanager
def _opened(path: Path, most: int) -> Iterator[Any]:
    """A safetensors file whose sizes, header and number of tensors are within bounds."""
    try:
        with check_size(path, most).open("rb") as stream:
            header = int.from_bytes(stream.read(8), "little")
        if header > LARGEST_HEADER and path.stat().st_size > LARGEST_HEADER:
            raise DataError(f"{path} has a header of {header:,} bytes, and at most {LARGEST_HEADER:,} are read")
        with safe_open(path, framework="pt") as file:
            if (count := len(file.keys())) > MOST_TENSORS:
                raise DataError(f"{path} holds {count:,} tensors, and at most {MOST_TENSORS:,} are read")
            yield file
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} does not exist") from error
    except DataError as error:
        raise CheckpointError(str(error)) from error
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
