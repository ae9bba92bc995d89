"""Train a prior: from a preset's numbers to a run folder."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Unpack

import torch

from sensewise.checkpoint import build_prior, load_weights, read_json, read_tensors, resolve
from sensewise.curriculum import Curriculum, PriorObjective
from sensewise.data import Images
from sensewise.errors import CheckpointError, ConfigError
from sensewise.training import FitSettings, How, fit


@dataclass(frozen=True)
class NetworkSettings:
    """Which network, and how large: `dim`, `layers` and `heads` are the transformer's, the other sizes the U-Net's."""

    name: Literal["unet", "paper-conv", "dit"] = "unet"
    widths: tuple[int, ...] = (32, 64, 128)
    blocks: tuple[int, ...] = (1, 2, 2)
    patch: int = 2
    embedding: int = 128
    encoding: Literal["one-hot", "ordinal"] = "one-hot"
    dim: int = 1024
    layers: int = 5
    heads: int = 16

    def options(self) -> dict[str, Any]:
        if self.name == "paper-conv":
            return {}
        if self.name == "dit":
            return {name: getattr(self, name) for name in ("dim", "layers", "heads", "patch", "encoding")}
        return {
            "widths": list(self.widths),
            "blocks": list(self.blocks),
            "patch": self.patch,
            "embedding": self.embedding,
            "encoding": self.encoding,
        }


@dataclass(frozen=True)
class PriorSettings:
    """Everything that `sensewise train prior` needs to know."""

    batch_size: int = 64
    time_input: bool = True
    network: NetworkSettings = field(default_factory=NetworkSettings)
    curriculum: Curriculum = field(default_factory=Curriculum)
    fit: FitSettings = field(default_factory=FitSettings)

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {self.batch_size}")


def prior_config(settings: PriorSettings, images: Images, init: str | None) -> dict[str, Any]:
    """What `config.json` of the run says."""
    model = {
        "shape": list(images.shape),
        "num_states": images.num_states,
        "num_labels": images.num_labels,
        "time_input": settings.time_input,
        "network": settings.network.name,
        **settings.network.options(),
    }
    training = dataclasses.asdict(settings)
    training.pop("network"), training.pop("time_input")
    config = {"kind": "prior", "data": images.name, "model": model, "training": training, "init": init}
    return config | {"licence": images.licence} if images.licence else config


def train_prior(
    settings: PriorSettings,
    train: Images,
    validation: Images,
    folder: Path,
    *,
    init: str | Path | None = None,
    **how: Unpack[How],
) -> bool:
    """Train a prior in `folder`, from scratch or from the weights of another run; True if the run is complete."""
    config = prior_config(settings, train, None if init is None else str(init))
    with torch.random.fork_rng():
        torch.manual_seed(settings.fit.seed)
        prior = build_prior(config)
    if init is not None and not how.get("resume"):
        source = resolve(init)
        if read_json(source / "config.json").get("model") != config["model"]:
            raise CheckpointError(f"{source} holds a model of another size or data set than this preset asks for")
        tensors, _ = read_tensors(source / "weights.safetensors")
        load_weights(prior, tensors, source / "weights.safetensors")
    objective = PriorObjective(prior, train, validation, settings.curriculum, settings.batch_size)
    return fit(objective, settings.fit, config, folder, **how)
