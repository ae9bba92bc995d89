"""Where trained MR models and masks are found: a run of `runs/mri-PRESET`, else what comes with the package."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sensewise.checkpoint import ASSETS, load_prior, load_weights, read_json, read_tensors, save_run
from sensewise.errors import BudgetError, CheckpointError
from sensewise.mri.plan import RowPlan
from sensewise.networks.recon_unet import RECONSTRUCTORS
from sensewise.networks.rows import RowPolicyNetwork, RowValueNetwork

RUNS = Path("runs")


def run_folder(preset: str, name: str) -> Path:
    """Where a run of a preset (a bundled name, or the path of a TOML file) goes."""
    return RUNS / f"mri-{Path(preset).stem}" / name


def find(preset: str, name: str, file: str = "weights.safetensors") -> Path:
    """The folder of a trained model or mask: `runs/mri-PRESET/NAME`, else the bundled one of preset cpu."""
    places = [run_folder(preset, name), *([ASSETS / "mri" / name] if preset == "cpu" else [])]
    for place in places:
        if (place / file).is_file():
            return place
    raise CheckpointError(f"{places[0] / file} does not exist: train it first (docs/mri.md has the commands)")


def _options(table: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


def _reconstructor(model: dict[str, Any]) -> nn.Module:
    options = _options(model["network"])
    return RECONSTRUCTORS[options.pop("name")](**options)


_BUILDERS: dict[str, Callable[[dict[str, Any]], nn.Module]] = {
    "reconstructor": _reconstructor,
    "row-policy": lambda model: RowPolicyNetwork(**_options(model["network"])),
    "row-value": lambda model: RowValueNetwork(**_options(model["network"])),
    "row-plan": lambda model: RowPlan(**_options(model)),
}


def build(config: dict[str, Any], kind: str) -> nn.Module:
    """A model with fresh weights from a config."""
    try:
        if config["kind"] != kind:
            raise CheckpointError(f"this is a {config['kind']}, not a {kind}")
        model = _BUILDERS[kind](config["model"])
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"config.json does not describe a {kind}: {error!r}") from error
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def build_reconstructor(config: dict[str, Any]) -> nn.Module:
    """A reconstruction network with fresh weights."""
    return build(config, "reconstructor")


def load(folder: Path, kind: str) -> tuple[nn.Module, dict[str, Any]]:
    """A trained model, frozen, and its config."""
    config = read_json(folder / "config.json")
    try:
        model = build(config, kind)
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    path = folder / "weights.safetensors"
    tensors, _ = read_tensors(path)
    load_weights(model, tensors, path)
    return model.eval().requires_grad_(False), config


def load_plan(folder: Path) -> RowPlan:
    """A fitted plan of rows."""
    plan, _ = load(folder, "row-plan")
    assert isinstance(plan, RowPlan)
    return plan


def load_mask(path: Path, rows: int) -> Tensor:
    """A mask of rows from `.npy` or from the row numbers of a `.txt`, bool `(rows,)`."""
    try:
        if path.suffix == ".txt":
            numbers = np.loadtxt(path, dtype=np.int64, ndmin=1)
            if numbers.size and not 0 <= numbers.min() <= numbers.max() < rows:
                raise BudgetError(f"{path} names rows outside 0..{rows - 1}")
            found = np.zeros(rows, dtype=bool)
            found[numbers] = True
        else:
            found = np.load(path, allow_pickle=False)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} does not exist") from error
    except (OSError, ValueError) as error:
        if isinstance(error, BudgetError):
            raise
        raise CheckpointError(f"{path} is not a mask: {error}") from error
    if found.shape != (rows,) or found.dtype != bool:
        raise BudgetError(f"{path}: a mask of {rows} rows is needed, got {found.dtype} with shape {found.shape}")
    return torch.from_numpy(found)


def ship(preset: str, target: Path = ASSETS / "mri") -> list[str]:
    """Copy what a preset's runs made to `target`: models in half precision, masks as they are; returns their names."""
    shipped = []
    for folder in sorted(path for path in run_folder(preset, "").iterdir() if path.is_dir()):
        config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
        files = [folder / name for name in ("mask.npy", "mask.txt", "order.npy") if (folder / name).is_file()]
        trained = (folder / "weights.safetensors").is_file() and not files
        if trained:
            kind = config["kind"]
            model = load_prior(folder) if kind == "prior" else load(folder, kind)[0]
            save_run(target / folder.name, config, model, half=True)
        for file in files:
            (target / folder.name).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target / folder.name / file.name)
        shipped += [folder.name] if trained or files else []
    return shipped
