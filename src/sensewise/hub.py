"""Names and folders to models: where they are found, what kinds there are, how a folder becomes a model.

A model is a folder with `config.json` (its card: what it is, how it was trained, the sha256 of its weights) and
`weights.safetensors`. A name stands for the first of: that path, `runs/PRESET/NAME`, `runs/NAME`, and, for the preset
`cpu`, what comes with the package. What is loaded is checked: hash, shapes, finite numbers, and a size that its
weights can explain.
"""

import math
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from sensewise.errors import BudgetError, CheckpointError, ConfigError, DataError, SensewiseError
from sensewise.files import (
    atomic,
    fingerprint,
    read_bytes,
    read_json,
    read_npy,
    read_tensors,
    sha256_of,
    tensor_shapes,
    write_json,
    write_tensors,
    write_text,
)
from sensewise.networks import PRIOR_NETWORKS
from sensewise.networks.any_size import AnySize
from sensewise.networks.decoders import MaskDesigner
from sensewise.networks.loupe import Loupe, LoupeRows
from sensewise.networks.recon import RECONSTRUCTORS
from sensewise.networks.rows import RowPolicyNetwork, RowValueNetwork
from sensewise.policies.nearest import NearestRows
from sensewise.policies.planned import RowPlan
from sensewise.policies.stops import Calibration
from sensewise.priors import engines
from sensewise.priors.absorbing import AbsorbingPrior, prior_options
from sensewise.priors.base import Prior
from sensewise.priors.engines import EngineName
from sensewise.priors.flips import FlipPrior
from sensewise.priors.readings import ReadingPrior
from sensewise.sensors.rows import RowProfile

ASSETS = Path(__file__).parent / "assets"
SHIPPED = "cpu"  # the preset whose models come with the package
CONFIG, WEIGHTS = "config.json", "weights.safetensors"
NOISY = "noisy"  # the encoding of priors over readings that may be wrong
ANY_SIZE = "any-size"  # the network of priors over readings of pictures of any size
GUIDE = "-guide"  # how the name ends of a small prior that decides for another
TAKES = ("shape", "num_states", "num_labels")  # what the config of a prior says of its observations
LARGEST_SIDE = 4096  # pixels or rows that a config may ask for
LARGEST_WEIGHTS = 1_000_000_000  # bytes
LARGEST_MASK = 1_000_000  # bytes
M = TypeVar("M", bound=nn.Module)


def runs() -> Path:
    """Where runs are kept: `SENSEWISE_RUNS`, else `runs` in the present folder."""
    return Path(os.environ.get("SENSEWISE_RUNS") or "runs")


def preset_name(preset: str | Path) -> str:
    """What a preset's runs are filed under: a bundled name, or the name of a TOML file."""
    return Path(preset).stem


def run_folder(preset: str | Path, name: str) -> Path:
    """Where the run of a preset goes that makes the model `name`."""
    return runs() / preset_name(preset) / name


def find(name: str | Path, preset: str | Path = SHIPPED, file: str = CONFIG) -> Path:
    """The folder of a model; refuses a name that none of the places has."""
    places = [Path(name), run_folder(preset, str(name)), runs() / name]
    places += [ASSETS / name] if preset_name(preset) == SHIPPED else []
    for place in places:
        if (place / file).is_file():
            return place
    if preset_name(preset) != SHIPPED:
        raise CheckpointError(f"{places[1] / file} does not exist: train it first (`sensewise train --help`)")
    names = sorted(path.parent.name for path in ASSETS.glob("*/config.json"))
    raise CheckpointError(
        f"no model called {str(name)!r}: give a bundled name ({', '.join(names)}) or a run folder that holds {file}"
    )


def trained_budgets(name: str, preset: str | Path = SHIPPED, file: str = CONFIG) -> dict[float, Path]:
    """Every budget for which `NAME-BUDGET` is there, such as `mri/static-search-0.25`, and its folder."""
    places = [run_folder(preset, name), runs() / name]
    places += [ASSETS / name] if preset_name(preset) == SHIPPED else []
    found: dict[float, Path] = {}
    for place in places:
        for folder in sorted(place.parent.glob(f"{place.name}-*")):
            with suppress(ValueError):
                budget = float(folder.name.removeprefix(f"{place.name}-"))
                if (folder / file).is_file():
                    found.setdefault(budget, folder)
    if not found:
        raise CheckpointError(f"{places[0]}-BUDGET does not exist: train it first (`sensewise train --help`)")
    return found


def _options(table: Mapping[str, Any], *without: str) -> dict[str, Any]:
    """Arguments of a class from a table of a config: lists become tuples."""
    return {
        key: tuple(value) if isinstance(value, list) else value for key, value in table.items() if key not in without
    }


def _prior(model: Mapping[str, Any]) -> Prior:
    name = model["network"]
    if name == ANY_SIZE:
        return ReadingPrior(AnySize(**_options(model, "network", "num_states")), model["num_states"])
    if name not in PRIOR_NETWORKS:
        raise CheckpointError(f"network {name!r} is not known: {', '.join((*PRIOR_NETWORKS, ANY_SIZE))}")
    options = prior_options(model)
    own = _options(model, "shape", "num_states", "num_labels", "time_input", "mask_state", "network")
    network = PRIOR_NETWORKS[name](options["channels"], options["num_states"], options["num_labels"], **own)
    if own.get("encoding") == NOISY:
        return FlipPrior(network, **{key: options[key] for key in ("channels", "num_states", "num_labels", "size")})
    return AbsorbingPrior(network, **options)


def _designer(model: Mapping[str, Any]) -> MaskDesigner:
    channels, height, width = model["shape"]
    return MaskDesigner((channels, height, width), model["num_labels"], model["decoder"])


def _loupe(model: Mapping[str, Any]) -> Loupe:
    channels, height, width = model["shape"]
    return Loupe((channels, height, width), **_options(model, "shape"))


def _loupe_rows(model: Mapping[str, Any]) -> LoupeRows:
    return LoupeRows(model["rows"], model["budget"], model["base"], model.get("acs", 0))


def _reconstructor(model: Mapping[str, Any]) -> nn.Module:
    return RECONSTRUCTORS[model["network"]["name"]](**_options(model["network"], "name"))


def _row_policy(model: Mapping[str, Any]) -> RowPolicyNetwork:
    return RowPolicyNetwork(**_options(model["network"]))


def _row_value(model: Mapping[str, Any]) -> RowValueNetwork:
    return RowValueNetwork(**_options(model["network"]))


def _row_plan(model: Mapping[str, Any]) -> RowPlan:
    return RowPlan(**_options(model))


def _nearest_mask(model: Mapping[str, Any]) -> NearestRows:
    return NearestRows(**_options(model))


KINDS: dict[str, Callable[[Mapping[str, Any]], nn.Module]] = {
    "prior": _prior,
    "generator": _designer,
    "loupe": _loupe,
    "loupe-rows": _loupe_rows,
    "reconstructor": _reconstructor,
    "row-policy": _row_policy,
    "row-value": _row_value,
    "row-plan": _row_plan,
    "nearest-mask": _nearest_mask,
}
"""Every kind of model, and what makes one with fresh weights from the `model` part of its config."""
ROW_MAJOR = ("generator", "loupe", "loupe-rows")  # laid out as made; the other kinds are faster channels-last


def _check_sizes(table: Any) -> None:
    """Refuse sizes that no picture has: a damaged config can ask for any amount of memory."""
    values = table.values() if isinstance(table, Mapping) else table if isinstance(table, list | tuple) else ()
    for value in values:
        if isinstance(value, int) and abs(value) > LARGEST_SIDE:
            raise CheckpointError(f"config.json asks for a size of {value:,}, and at most {LARGEST_SIDE:,} is allowed")
        _check_sizes(value)


def build(config: Mapping[str, Any], kind: str | None = None) -> nn.Module:
    """A model with fresh weights from a config; whatever does not fit is reported as a damaged config."""
    try:
        found = config["kind"]
        if found not in KINDS or kind not in (None, found):
            raise CheckpointError(f"this is a {found}, not a {kind or ' or '.join(KINDS)}")
        _check_sizes(config["model"])
        model = KINDS[found](config["model"])
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, SensewiseError):
            raise
        raise CheckpointError(f"config.json does not describe a {kind or 'model'}: {error!r}") from error
    if found in ROW_MAJOR:
        return model
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


@contextmanager
def no_larger_than(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[None]:
    """Stop the building of a model far larger than its weights, whose shapes these are."""
    parts, numbers = max(1000, 4 * len(shapes)), max(10**7, 4 * sum(map(math.prod, shapes.values())))
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
    """Fill a module; says by name which weights are missing, left over, of another shape or not finite."""
    _check_shapes(module, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, path)
    wrong = [name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())]
    if wrong:
        raise CheckpointError(f"{path} holds numbers that are not finite, in {wrong[0]}: it is damaged")
    module.load_state_dict(
        {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    )


def _check_shapes(module: nn.Module, found: Mapping[str, tuple[int, ...]], path: Path) -> None:
    """Refuse weights that are missing, left over or of another shape."""
    expected = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
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


def load(name: str | Path, kind: str | None = None, preset: str | Path = SHIPPED) -> tuple[nn.Module, dict[str, Any]]:
    """A trained model, frozen, and its config.

    Args:
        name: a bundled name, the name of a run, or a folder.
        kind: refuse any other; None takes every kind.
        preset: whose runs are looked at.
    """
    folder = find(name, preset)
    config, path = read_json(folder / CONFIG), folder / WEIGHTS
    if not isinstance(config, dict):
        raise CheckpointError(f"{folder / CONFIG} is not a card: it holds no table")
    shapes = tensor_shapes(path, LARGEST_WEIGHTS)
    if config.get("sha256") not in (None, sha256_of(path)):
        raise CheckpointError(f"{path} is not the file that its config.json names (sha256): it is damaged or replaced")
    try:
        with torch.random.fork_rng(devices=()), no_larger_than(shapes):  # fresh weights are drawn, then overwritten
            model = build(config, kind)
    except SensewiseError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    _check_shapes(model, shapes, path)  # before any of them is read
    tensors, _ = read_tensors(path, LARGEST_WEIGHTS)
    load_weights(model, tensors, path)
    return model.eval().requires_grad_(False), config


def save(folder: Path, config: Mapping[str, Any], module: nn.Module, *, half: bool = False) -> None:
    """Write a model's folder: the weights first, then the card that names their sha256."""
    state = {name: t.half() if half and t.is_floating_point() else t for name, t in module.state_dict().items()}
    write_tensors(folder / WEIGHTS, {name: tensor.cpu() for name, tensor in state.items()})
    write_json(folder / CONFIG, {**config, "sha256": sha256_of(folder / WEIGHTS)})


def load_prior(name: str | Path, preset: str | Path = SHIPPED, engine: EngineName = "torch") -> Prior:
    """A trained prior, ready to use: a bundled name such as "mnist", or a run folder.

    Args:
        engine: what computes it. "onnx" takes some five seconds to get ready and then half of the time for a single
            image, with the same predictions up to 1e-5; it needs the extra `onnx` and a prior of tokens. "fastest"
            takes the best one of these that is installed; the prior's `engine` says which. "bfloat16" is PyTorch with
            rounded products: predictions differ by some thousandths.
    """
    prior, _ = load(name, "prior", preset)
    assert isinstance(prior, Prior)
    if engine != "torch":
        if not isinstance(prior, AbsorbingPrior):
            raise ConfigError(f"{name} is not a prior of tokens, and runs with engine torch alone")
        prior.run_with(engine)
    return prior


def load_absorbing(name: str | Path, preset: str | Path = SHIPPED, engine: EngineName = "torch") -> AbsorbingPrior:
    """The same, for code that needs the network and its process."""
    prior = load_prior(name, preset, engine)
    if not isinstance(prior, AbsorbingPrior):
        raise CheckpointError(f"{name} is another kind of prior than an absorbing one")
    return prior


def find_guide(model: Mapping[str, Any], preset: str | Path = SHIPPED) -> Path | None:
    """The folder of a small prior, `NAME-guide`, that can decide for one with this `model` in its config."""
    places = [run_folder(preset, ""), *([ASSETS] if preset_name(preset) == SHIPPED else [])]
    for path in (path for place in places for path in sorted(place.glob(f"*{GUIDE}/{CONFIG}"))):
        config = read_json(path)
        own = config.get("model") if isinstance(config, dict) else None
        if isinstance(own, dict) and all(own.get(key) == model.get(key) for key in TAKES):
            return path.parent
    return None


def load_guide(prior: Prior, preset: str | Path = SHIPPED) -> Prior:
    """The small prior that decides for `prior` in `policies.amortised`; refuses where there is none."""
    size = prior.size or ()
    model = {"shape": [prior.channels, *size], "num_states": prior.num_states, "num_labels": prior.num_labels}
    folder = find_guide(model, preset)
    if folder is None:
        raise CheckpointError("no small prior decides for this one: make it with `sensewise train prior --stage guide`")
    return load_prior(folder, preset)


def calibration(name: str | Path, preset: str | Path = SHIPPED) -> Calibration:
    """What the card of a prior says about its expectations; refuses a card that says nothing."""
    folder = find(name, preset)
    config = read_json(folder / CONFIG)
    found = config.get("calibration") if isinstance(config, dict) else None
    if found is None:
        raise CheckpointError(f"the card of {name} has no calibration: make one with `sensewise calibrate {name}`")
    try:
        factors = {float(level): float(factor) for level, factor in found["factors"].items()}
        return Calibration(str(found["method"]), float(found["probability"]), int(found["images"]), factors)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{folder / CONFIG} has a damaged calibration: {error!r}") from error


def save_calibration(folder: Path, found: Calibration, data: str) -> None:
    """Write a calibration into the card of a prior.

    Args:
        data: what it was fitted on, in words.
    """
    config = read_json(folder / CONFIG)
    factors = {f"{level:g}": factor for level, factor in sorted(found.factors.items())}
    entry = {**vars(found), "factors": factors, "data": data}
    write_json(folder / CONFIG, {**config, "calibration": entry})


def load_row_prior(name: str | Path = "mri/row-prior", preset: str | Path = SHIPPED) -> tuple[Prior, RowProfile]:
    """A trained coarse prior over rows, and how it looks at them."""
    prior, config = load(name, "prior", preset)
    try:
        profile = RowProfile(**config["profile"])
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{name} does not hold a prior over rows: {error!r}") from error
    assert isinstance(prior, Prior)
    return prior, profile


def load_designer(name: str | Path, prior: Prior, preset: str | Path = SHIPPED) -> MaskDesigner:
    """A trained mask designer: a bundled name such as "mnist-generator", or a run folder.

    Args:
        prior: what the masks will be judged by; has to be the prior that the designer was trained against.
    """
    designer, config = load(name, "generator", preset)
    assert isinstance(designer, MaskDesigner)
    problems = []
    if designer.shape != prior.shape:
        problems.append(f"for images of shape {designer.shape}, the prior is for {prior.shape}")
    if designer.num_labels not in (None, prior.num_labels):
        problems.append(f"for {designer.num_labels} labels, the prior knows {prior.num_labels}")
    if not problems and config.get("prior") != fingerprint(prior):
        problems.append("trained against another prior: train one with `sensewise train generator`")
    if problems:
        raise CheckpointError(f"{name}: this generator is {' and '.join(problems)}")
    return designer


def load_loupe(name: str | Path, shape: tuple[int, int, int], budget: float, preset: str | Path = SHIPPED) -> Loupe:
    """A trained LOUPE for images of `shape` and one budget: a bundled name, or a run folder."""
    loupe, _ = load(name, "loupe", preset)
    assert isinstance(loupe, Loupe)
    if loupe.shape != shape or loupe.map.budget != budget:
        raise CheckpointError(
            f"{name}: this LOUPE is for images of shape {loupe.shape} and budget {loupe.map.budget:g}, "
            f"not for {shape} and {budget:g}"
        )
    return loupe


def load_mask(path: Path, rows: int) -> Tensor:
    """A mask of rows from `.npy` or from the row numbers of a `.txt`, bool `(rows,)`."""
    try:
        if path.suffix == ".txt":
            numbers = np.loadtxt(read_bytes(path, LARGEST_MASK).decode().splitlines(), dtype=np.int64, ndmin=1)
            if numbers.size and not 0 <= numbers.min() <= numbers.max() < rows:
                raise BudgetError(f"{path} names rows outside 0..{rows - 1}")
            found = np.zeros(rows, dtype=bool)
            found[numbers] = True
        else:
            found = read_npy(path, LARGEST_MASK)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} does not exist") from error
    except BudgetError:
        raise
    except DataError as error:
        raise CheckpointError(str(error)) from error
    except Exception as error:  # a damaged file can raise almost anything
        raise CheckpointError(f"{path} is not a mask: {error}") from error
    if found.shape != (rows,) or found.dtype != bool:
        raise BudgetError(f"{path}: a mask of {rows} rows is needed, got {found.dtype} with shape {found.shape}")
    return torch.from_numpy(found)


def save_mask(folder: Path, mask: Tensor) -> None:
    """A mask `(rows,)` as `mask.npy` and, as row numbers, in `mask.txt`."""
    save_array(folder / "mask.npy", mask.cpu().numpy())
    write_text(folder / "mask.txt", "".join(f"{row}\n" for row in mask.nonzero()[:, 0].tolist()))


def save_array(path: Path, values: np.ndarray) -> None:
    """An `.npy` file, written in one go."""
    with atomic(path) as temporary, temporary.open("wb") as file:
        np.save(file, values, allow_pickle=False)


def ship(folder: Path, target: Path) -> None:
    """Copy what a run made: a model in half precision, its log, its masks as they are."""
    if (folder / WEIGHTS).is_file():
        model, config = load(folder)
        save(target, {key: value for key, value in config.items() if key != "sha256"}, model, half=True)
    for name in ("mask.npy", "mask.txt", "order.npy", "search.json", "log.jsonl"):
        if (folder / name).is_file():
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, target / name)


WEIGHTS_LICENCE = "Apache-2.0"
"""Of everything that was trained here; the data's own licence goes with it."""


@dataclass(frozen=True)
class Card:
    """What a person asks about a model.

    Attributes:
        name: bundled name or run folder.
        kind: of the model.
        data: name of the data set.
        licence: of the data, an SPDX expression and, in parentheses, whom to name.
        model: what `config.json` says about its size and shape.
        parameters: how many.
        steps: optimiser steps, or None where not recorded.
        minutes: of training, or None.
        validation: named numbers on held-out images, in the order in which they were logged.
        sha256: of the weights in half precision; the same for a run and its shipped copy.
        engines: what can compute it here, the one that does so unless asked otherwise first.
    """

    name: str
    kind: str
    data: str
    licence: str
    model: Mapping[str, Any]
    parameters: int
    steps: int | None
    minutes: float | None
    validation: Mapping[str, float]
    sha256: str
    engines: tuple[str, ...] = ("torch",)

    def lines(self) -> list[tuple[str, str]]:
        """Names and values, as a person reads them."""
        unknown = "not recorded"
        values = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in self.validation.items())
        minutes = unknown if self.minutes is None else f"{self.minutes:g} minutes"
        steps = "" if self.steps is None else f", {self.steps:,} steps"
        return [
            ("kind", self.kind),
            ("data", self.data),
            ("licence of the weights", WEIGHTS_LICENCE),
            ("licence of the data", self.licence),
            *((name.replace("_", " "), _plain(value)) for name, value in self.model.items()),
            ("parameters", f"{self.parameters:,}"),
            ("trained", minutes + steps),
            ("validation", values or unknown),
            ("sha256 of the weights", self.sha256),
            ("engines", ", ".join(self.engines)),
        ]


def _plain(value: Any) -> str:
    """A value of a config as text."""
    if isinstance(value, list):
        return " x ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(part)}" for name, part in value.items())
    return "none" if value is None else str(value)


def card(name: str | Path, preset: str | Path = SHIPPED) -> Card:
    """The card of a bundled model or of a run folder."""
    model, config = load(name, None, preset)
    trained = config.get("trained")
    trained = trained if isinstance(trained, dict) else {}
    validation = trained.get("validation")
    found = validation.items() if isinstance(validation, dict) else ()
    return Card(
        name=str(name),
        kind=str(config["kind"]),
        data=str(config.get("data", "not recorded")),
        licence=str(config.get("licence") or "not recorded"),
        model=config["model"],
        parameters=sum(p.numel() for p in model.parameters()),
        steps=_number(trained.get("steps"), int),
        minutes=_number(trained.get("minutes"), float),
        validation={str(key): number for key, value in found if (number := _number(value, float)) is not None},
        sha256=fingerprint(model),
        engines=engines.available() if isinstance(model, AbsorbingPrior) else ("torch",),
    )


def _number(value: Any, kind: Callable[[Any], Any]) -> Any:
    """A number of a card; None for what is none, or is not finite."""
    try:
        return kind(value) if isinstance(value, int | float) and math.isfinite(value) else None
    except OverflowError:  # a whole number beyond all floats
        return None
