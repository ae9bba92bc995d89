"""Run folders: `config.json` (what the model is) and `weights.safetensors`. Nothing here is ever unpickled.

A bundled model is such a folder under `assets/`, so a bundled name and a run folder load in the same way. Every file is
written under a temporary name and then renamed: a reader never sees half a file.
"""

import fcntl
import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from sensewise.errors import CheckpointError, OutputError, SensewiseError
from sensewise.networks import PRIOR_NETWORKS
from sensewise.priors import AbsorbingPrior

ASSETS = Path(__file__).parent / "assets"
M = TypeVar("M", bound=nn.Module)


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
        temporary.replace(path)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}; nothing was changed") from error
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`: one process at a time. The system lets go of it even after `kill -9`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            file = path.open("a+", encoding="utf-8")
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _same_file(file.fileno(), path):
                break
            file.close()  # its last owner has just removed it
    except BlockingIOError as error:
        file.seek(0)
        owner = file.read().strip() or "unknown"
        file.close()
        raise OutputError(
            f"{path.parent} is in use by process {owner}: wait for it, or choose another folder"
        ) from error
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}; choose another folder") from error
    try:
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
    finally:
        path.unlink(missing_ok=True)
        file.close()


def _same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def write_text(path: Path, text: str) -> None:
    """Write a text file in one go."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def append_json(path: Path, value: Any) -> None:
    """Add one line to a log; a reader must expect that a kill has cut the last one short."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(value) + "\n")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}; make room and go on") from error


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
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


def fingerprint(module: nn.Module) -> str:
    """sha256 of a module's weights and buffers in half precision: the same for a run and its shipped copy."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        stored = tensor.half() if tensor.is_floating_point() else tensor
        digest.update(name.encode() + str(tuple(tensor.shape)).encode() + stored.contiguous().numpy().tobytes())
    return digest.hexdigest()


@contextmanager
def no_larger_than(tensors: dict[str, Tensor]) -> Iterator[None]:
    """Stop the building of a model far larger than its weights: a damaged config can ask for any amount of memory."""
    parts, numbers = max(1000, 4 * len(tensors)), max(10**7, 4 * sum(tensor.numel() for tensor in tensors.values()))
    thread = threading.get_ident()

    def count(_module: nn.Module, _name: str, parameter: nn.Parameter | None) -> None:
        nonlocal parts, numbers
        if threading.get_ident() == thread and parameter is not None:
            parts, numbers = parts - 1, numbers - parameter.numel()
            if parts < 0 or numbers < 0:
                raise CheckpointError("config.json describes a model far larger than weights.safetensors")

    hook = register_module_parameter_registration_hook(count)  # before any weight is drawn
    try:
        yield
    finally:
        hook.remove()


def load_weights(module: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Fill a module; says by name which weights are missing, left over or of another shape."""
    expected = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    problems = [f"{name} is missing" for name in expected if name not in found]
    problems += [f"{name} is not part of this model" for name in found if name not in expected]
    problems += [
        f"{name} has shape {found[name]} instead of {shape}"
        for name, shape in expected.items()
        if name in found and found[name] != shape
    ]
    if problems:
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        raise CheckpointError(f"{path} does not fit its config.json: {'; '.join(problems[:3])}{more}")
    module.load_state_dict(
        {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    )


@contextmanager
def model_part(config: dict[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    """The `model` part of a config; whatever does not fit inside the block is reported as a damaged config."""
    try:
        if config["kind"] != kind:
            raise CheckpointError(f"this is a {config['kind']}, not a {kind}")
        yield dict(config["model"])
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        if isinstance(error, SensewiseError):
            raise
        raise CheckpointError(f"config.json does not describe a {kind}: {error!r}") from error


def build_prior(config: dict[str, Any]) -> AbsorbingPrior:
    """A prior with fresh weights from the `model` part of a config."""
    with model_part(config, "prior") as model:
        channels, height, width = model.pop("shape")
        num_states, num_labels = model.pop("num_states"), model.pop("num_labels")
        if not all(isinstance(n, int) and n >= 1 for n in (channels, height, width, num_states)):
            raise ValueError("shape and num_states must be whole numbers above 0")
        time_input, mask_state = model.pop("time_input", True), model.pop("mask_state", True)
        name = model.pop("network")
        if name not in PRIOR_NETWORKS:
            raise CheckpointError(f"network {name!r} is not known: {', '.join(PRIOR_NETWORKS)}")
        options = {key: tuple(value) if isinstance(value, list) else value for key, value in model.items()}
        network = PRIOR_NETWORKS[name](channels, num_states, num_labels, **options)
        if height % network.multiple or width % network.multiple:
            raise ValueError(f"for this network the sides of an image must be multiples of {network.multiple}")
    prior = AbsorbingPrior(
        network, (channels, height, width), num_states, num_labels, time_input=time_input, mask_state=mask_state
    )
    return prior.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def save_run(folder: Path, config: dict[str, Any], module: nn.Module, *, half: bool = False) -> None:
    """Write `config.json` and `weights.safetensors`."""
    state = {name: t.half() if half and t.is_floating_point() else t for name, t in module.state_dict().items()}
    write_tensors(folder / "weights.safetensors", state)
    write_json(folder / "config.json", config)


def resolve(name_or_run: str | Path) -> Path:
    """The folder of a bundled model's name or of a run; a run in `runs/` goes by its name as well."""
    for folder in (ASSETS / str(name_or_run), Path(name_or_run), Path("runs") / name_or_run):
        if (folder / "config.json").is_file():
            return folder
    names = sorted(path.parent.name for path in ASSETS.glob("*/config.json"))
    raise CheckpointError(
        f"no model called {str(name_or_run)!r}: give a bundled name ({', '.join(names)}) "
        "or a run folder that holds config.json and weights.safetensors"
    )


def load_run(name_or_run: str | Path, build: Callable[[dict[str, Any]], M]) -> tuple[M, dict[str, Any]]:
    """A trained model and its config: `build` makes it with fresh weights, the folder fills them in."""
    folder = resolve(name_or_run)
    config, path = read_json(folder / "config.json"), folder / "weights.safetensors"
    tensors, _ = read_tensors(path)
    try:
        with torch.random.fork_rng(devices=()), no_larger_than(tensors):  # fresh weights are drawn, then overwritten
            model = build(config)
    except SensewiseError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    load_weights(model, tensors, path)
    return model.eval().requires_grad_(False), config


def load_prior(name_or_run: str | Path) -> AbsorbingPrior:
    """A trained prior, ready to use: a bundled name such as "mnist", or a run folder."""
    return load_run(name_or_run, build_prior)[0]
