"""Train LOUPE: one run folder a budget."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

import torch

from sensewise.checkpoint import read_json
from sensewise.data import Images
from sensewise.errors import ConfigError
from sensewise.loupe import LoupeObjective, build_loupe
from sensewise.training import FitSettings, How, fit


@dataclass(frozen=True)
class LoupeSettings:
    """Everything that `sensewise train loupe` needs to know; the widths and blocks are of its U-Net."""

    budgets: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3)
    batch_size: int = 64
    widths: tuple[int, ...] = (32, 64, 128)
    blocks: tuple[int, ...] = (1, 1, 1)
    fit: FitSettings = field(default_factory=FitSettings)

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {self.batch_size}")
        wrong = [budget for budget in self.budgets if not 0 < budget < 1]
        if wrong or not self.budgets:
            raise ConfigError(f"budgets must be fractions between 0 and 1, got {list(self.budgets)}")


def run_name(dataset: str, budget: float) -> str:
    """How the run of one budget is called, and its folder in `runs/` or among the bundled models."""
    return f"{dataset}-loupe-{budget:g}"


def loupe_config(settings: LoupeSettings, images: Images, budget: float) -> dict[str, Any]:
    """What `config.json` of one budget's run says."""
    model = {
        "shape": list(images.shape),
        "num_states": images.num_states,
        "budget": budget,
        "widths": list(settings.widths),
        "blocks": list(settings.blocks),
    }
    training = {"batch_size": settings.batch_size, "fit": dataclasses.asdict(settings.fit)}
    return {"kind": "loupe", "data": images.name, "model": model, "training": training}


def train_loupe(
    settings: LoupeSettings,
    train: Images,
    validation: Images,
    folder: Path,
    **how: Unpack[How],
) -> bool:
    """Train every budget of the settings, one after another, in `folder/NAME-loupe-BUDGET`; True if all are complete.

    With `resume`, budgets that are complete are left alone and those not begun are begun. A stop stops all.
    """
    for budget in settings.budgets:
        config = loupe_config(settings, train, budget)
        target = folder / run_name(train.name, budget)
        if how.get("resume") and is_complete(target, config):
            continue
        with torch.random.fork_rng():
            torch.manual_seed(settings.fit.seed)
            loupe = build_loupe(config)
        objective = LoupeObjective(loupe, train, validation, settings.batch_size)
        begun = how.get("resume", False) and (target / "config.json").is_file()
        here: How = {**how, "resume": begun}
        if not fit(objective, settings.fit, config, target, **here):
            return False
    return True


def is_complete(folder: Path, config: dict[str, Any]) -> bool:
    """Whether a folder holds the finished run of exactly this config."""
    if not (folder / "weights.safetensors").is_file():
        return False
    found = read_json(folder / "config.json")
    return isinstance(found, dict) and {key: value for key, value in found.items() if key != "trained"} == config
