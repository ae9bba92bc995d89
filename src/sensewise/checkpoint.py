"""Run folders: `config.json` (what the model is) and `weights.safetensors`. Nothing here is ever unpickled.

A bundled model is such a folder under `assets/`, so a bundled name and a run folder load in the same way. Every file is
written under a temporary name and then renamed: a reader never sees half a file.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from sensewise.errors import CheckpointError, OutputError
from sensewise.networks import NETWORKS
from sensewise.priors import AbsorbingPrior

ASSETS = Path(__file__).parent / "assets"


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


def write_text(path: Path, text: str) -> None:
    """Write a text file in one go."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} does not exist") from error
    except (OSError, ValueError) as error:
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


def build_prior(config: dict[str, Any]) -> AbsorbingPrior:
    """A prior with fresh weights from the `model` part of a config."""
    try:
        model = dict(config["model"])
        if config["kind"] != "prior":
            raise CheckpointError(f"this is a {config['kind']}, not a prior")
        channels, height, width = model.pop("shape")
        num_states, num_labels = model.pop("num_states"), model.pop("num_labels")
        if not all(isinstance(n, int) and n >= 1 for n in (channels, height, width, num_states)):
            raise ValueError("shape and num_states must be whole numbers above 0")
        time_input = model.pop("time_input", True)
        name = model.pop("network")
        if name not in NETWORKS:
            raise CheckpointError(f"network {name!r} is not known: {', '.join(NETWORKS)}")
        options = {key: tuple(value) if isinstance(value, list) else value for key, value in model.items()}
        network = NETWORKS[name](channels, num_states, num_labels, **options)
        if height % network.multiple or width % network.multiple:
            raise ValueError(f"for this network the sides of an image must be multiples of {network.multiple}")
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"config.json does not describe a prior: {error!r}") from error
    prior = AbsorbingPrior(network, (channels, height, width), num_states, num_labels, time_input=time_input)
    return prior.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def save_run(folder: Path, config: dict[str, Any], module: nn.Module, *, half: bool = False) -> None:
    """Write `config.json` and `weights.safetensors`."""
    state = {name: t.half() if half and t.is_floating_point() else t for name, t in module.state_dict().items()}
    write_tensors(folder / "weights.safetensors", state)
    write_json(folder / "config.json", config)


def resolve(name_or_run: str | Path) -> Path:
    """The folder of a bundled model's name or of a run."""
    bundled = ASSETS / str(name_or_run)
    if (bundled / "config.json").is_file():
        return bundled
    folder = Path(name_or_run)
    if (folder / "config.json").is_file():
        return folder
    names = sorted(path.parent.name for path in ASSETS.glob("*/config.json"))
    raise CheckpointError(
        f"no model called {str(name_or_run)!r}: give a bundled name ({', '.join(names)}) "
        "or a run folder that holds config.json and weights.safetensors"
    )


def load_prior(name_or_run: str | Path) -> AbsorbingPrior:
    """A trained prior, ready to use: a bundled name such as "mnist", or a run folder."""
    folder = resolve(name_or_run)
    try:
        with torch.random.fork_rng(devices=()):  # fresh weights are drawn, then overwritten
            prior = build_prior(read_json(folder / "config.json"))
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    path = folder / "weights.safetensors"
    tensors, _ = read_tensors(path)
    load_weights(prior, tensors, path)
    return prior.eval().requires_grad_(False)
