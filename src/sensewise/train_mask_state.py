"""Train the priors of the mask-state ablation: one common start, then pairs of fine-tunes.

A small prior is trained without the mask state (0 is both black and unobserved). From its weights, each seed fine-tunes
two priors with the same recipe and the same random masks: one with the mask state, one without (paper, Appendix E).
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

import torch

from sensewise.checkpoint import build_prior, load_weights, read_tensors
from sensewise.curriculum import Curriculum, PriorObjective
from sensewise.data import Images
from sensewise.errors import ConfigError
from sensewise.train_loupe import is_complete
from sensewise.train_prior import NetworkSettings, PriorSettings, prior_config
from sensewise.training import FitSettings, How, fit

START = "start"


@dataclass(frozen=True)
class MaskStateSettings:
    """Everything that `sensewise train mask-state` needs to know.

    Attributes:
        seeds: fine-tuning seeds; each trains two priors.
        start: how the common start is trained.
        fine_tune: how each of the fine-tunes is trained.
    """

    seeds: int = 5
    batch_size: int = 64
    network: NetworkSettings = field(default_factory=NetworkSettings)
    curriculum: Curriculum = field(default_factory=Curriculum)
    start: FitSettings = field(default_factory=FitSettings)
    fine_tune: FitSettings = field(default_factory=FitSettings)

    def __post_init__(self) -> None:
        if self.seeds < 1 or self.batch_size < 1:
            raise ConfigError(f"seeds and batch_size must be at least 1, got {self.seeds} and {self.batch_size}")


def variant_name(mask_state: bool, seed: int) -> str:
    """The run folder of one fine-tune."""
    return f"{'with' if mask_state else 'without'}-{seed}"


def variants(settings: MaskStateSettings) -> Iterator[tuple[str, bool, FitSettings]]:
    """Name, mask state and recipe of every run: the common start first, then the fine-tunes in pairs."""
    yield START, False, settings.start
    for seed in range(settings.seeds):
        for mask_state in (True, False):
            recipe = dataclasses.replace(settings.fine_tune, seed=settings.fine_tune.seed + 1 + seed)
            yield variant_name(mask_state, seed), mask_state, recipe


def variant_config(
    settings: MaskStateSettings, images: Images, mask_state: bool, recipe: FitSettings
) -> dict[str, Any]:
    """What `config.json` of one run says."""
    prior = PriorSettings(settings.batch_size, True, settings.network, settings.curriculum, recipe)
    config = prior_config(prior, images, START)
    config["model"]["mask_state"] = mask_state
    return config


def train_mask_state(
    settings: MaskStateSettings,
    train: Images,
    validation: Images,
    folder: Path,
    **how: Unpack[How],
) -> bool:
    """Train every run of the ablation in `folder/NAME`, one after another; True if all are complete.

    With `resume`, complete runs are left alone and those not begun are begun. A run stopped by `max_minutes` stops all.
    """
    for name, mask_state, recipe in variants(settings):
        config, target = variant_config(settings, train, mask_state, recipe), folder / name
        if how.get("resume") and is_complete(target, config):
            continue
        with torch.random.fork_rng():
            torch.manual_seed(recipe.seed)
            prior = build_prior(config)
        begun = how.get("resume", False) and (target / "config.json").is_file()
        here: How = {**how, "resume": begun}
        if name != START and not begun:
            path = folder / START / "weights.safetensors"
            load_weights(prior, read_tensors(path)[0], path)
        objective = PriorObjective(prior, train, validation, settings.curriculum, settings.batch_size)
        if not fit(objective, recipe, config, target, **here):
            return False
    return True
