"""Train a mask generator: from a preset's numbers to a run folder."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

import torch

from sensewise.checkpoint import fingerprint
from sensewise.data import Images
from sensewise.errors import ConfigError
from sensewise.generator import Decoder, build_generator
from sensewise.generator_objective import GeneratorLoss, GeneratorObjective
from sensewise.priors import AbsorbingPrior
from sensewise.training import FitSettings, How, fit


@dataclass(frozen=True)
class GeneratorSettings:
    """Everything that `sensewise train generator` needs to know."""

    batch_size: int = 64
    decoder: Decoder = "full"
    loss: GeneratorLoss = field(default_factory=GeneratorLoss)
    fit: FitSettings = field(default_factory=FitSettings)

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {self.batch_size}")


def generator_config(settings: GeneratorSettings, images: Images, prior: AbsorbingPrior) -> dict[str, Any]:
    """What `config.json` of the run says."""
    model = {"shape": list(images.shape), "num_labels": images.num_labels, "decoder": settings.decoder}
    training = dataclasses.asdict(settings)
    training.pop("decoder")
    return {
        "kind": "generator",
        "data": images.name,
        "prior": fingerprint(prior),
        "model": model,
        "training": training,
    }


def train_generator(
    settings: GeneratorSettings,
    prior: AbsorbingPrior,
    train: Images,
    validation: Images,
    folder: Path,
    **how: Unpack[How],
) -> bool:
    """Train a generator against a frozen prior in `folder`; True if the run is complete."""
    config = generator_config(settings, train, prior)
    with torch.random.fork_rng():
        torch.manual_seed(settings.fit.seed)
        generator = build_generator(config)
    objective = GeneratorObjective(generator, prior, train, validation, settings.loss, settings.batch_size)
    return fit(objective, settings.fit, config, folder, **how)
