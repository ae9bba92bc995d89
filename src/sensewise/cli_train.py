"""The command line of training on pixels: priors, the mask generator, LOUPE, the mask-state ablation."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

import typer

from sensewise.cli_options import DataFolder, Dataset, Preset, say_complete, training_command
from sensewise.errors import ConfigError

if TYPE_CHECKING:
    from sensewise.data import Images
    from sensewise.training import How


def train_prior_command(
    stage: Annotated[
        str | None,
        typer.Option(
            help="random-masks (default), on-policy and on-policy-2 (each from the one before), mixed (for your data)."
        ),
    ] = None,
    dataset: Dataset = "mnist",
    preset: Preset = "cpu",
    folder: Annotated[Path | None, typer.Option("--out", help="The run folder. Default: runs/DATASET-STAGE.")] = None,
    init: Annotated[str | None, typer.Option(help="Start from the weights of this run or bundled prior.")] = None,
    data: DataFolder = None,
    **how: Unpack["How"],
) -> None:
    """Train a prior. Writes config.json, log.jsonl, loss.png and weights.safetensors into the run folder."""
    from sensewise import presets
    from sensewise.data import is_imported, load_imported
    from sensewise.train_prior import PriorSettings, train_prior

    own = data if is_imported(data) else None
    stage = stage or ("random-masks" if own is None else "mixed")
    settings = presets.load(preset, f"prior.{dataset if own is None else 'imported'}.{stage}", PriorSettings)
    if stage.startswith("on-policy") and init is None and not how["resume"]:
        raise ConfigError(f"stage {stage} needs --init: the run folder or bundled name of the stage before")
    target = folder or Path("runs") / f"{dataset if own is None else own.resolve().name}-{stage}"
    if own is None:
        train, validation = training_images(dataset, data)
    else:
        train, validation = load_imported(own, "train"), load_imported(own, "validation")
    complete = train_prior(settings, train, validation, target, init=init, **how)
    say_complete(target, complete)


def train_generator_command(
    variant: Annotated[
        str,
        typer.Option(
            help="disarm (the shipped one), or a control: observed, straight-through, ...; on CIFAR-10: entropy."
        ),
    ] = "disarm",
    dataset: Dataset = "mnist",
    preset: Preset = "cpu",
    prior: Annotated[
        str | None,
        typer.Option(help="A bundled prior's name or a run folder. Default: the data set's bundled one."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="The run folder. Default: runs/DATASET-generator[-VARIANT].")
    ] = None,
    data: DataFolder = None,
    **how: Unpack["How"],
) -> None:
    """Train the one-shot mask generator against a frozen prior."""
    from sensewise import presets
    from sensewise.checkpoint import load_prior
    from sensewise.train_generator import GeneratorSettings, train_generator

    settings = presets.load(preset, f"generator.{dataset}.{variant}", GeneratorSettings)
    train, validation = training_images(dataset, data)
    name = f"{dataset}-generator" + ("" if variant == "disarm" else f"-{variant}")
    target = folder or Path("runs") / name
    scorer = load_prior(prior or dataset)
    complete = train_generator(settings, scorer, train, validation, target, **how)
    say_complete(target, complete)


def train_loupe_command(
    dataset: Dataset = "mnist",
    preset: Preset = "cpu",
    folder: Annotated[Path, typer.Option("--out", help="Holds one run folder a budget.")] = Path("runs"),
    data: DataFolder = None,
    **how: Unpack["How"],
) -> None:
    """Train LOUPE for pixels with its own U-Net, one run a budget of the preset."""
    from sensewise import presets
    from sensewise.train_loupe import LoupeSettings, train_loupe

    settings = presets.load(preset, f"loupe.{dataset}", LoupeSettings)
    train, validation = training_images(dataset, data)
    complete = train_loupe(settings, train, validation, folder, **how)
    say_complete(folder, complete)


def train_mask_state_command(
    dataset: Dataset = "mnist",
    preset: Preset = "cpu",
    folder: Annotated[Path | None, typer.Option("--out", help="Default: runs/mnist-mask-state.")] = None,
    data: DataFolder = None,
    **how: Unpack["How"],
) -> None:
    """Train the pairs of small priors, with and without a mask state, that `run mask-state` compares."""
    from sensewise import presets
    from sensewise.train_mask_state import MaskStateSettings, train_mask_state

    settings = presets.load(preset, f"mask-state.{dataset}", MaskStateSettings)
    train, validation = training_images(dataset, data)
    target = folder or Path("runs") / f"{dataset}-mask-state"
    complete = train_mask_state(settings, train, validation, target, **how)
    say_complete(target, complete)


def training_images(dataset: str, data: Path | None) -> "tuple[Images, Images]":
    """Training and validation images of a data set."""
    from sensewise.data import LOAD

    return LOAD[dataset]("train", data), LOAD[dataset]("validation", data)


def register(train_app: typer.Typer) -> None:
    """Add these commands to `sensewise train`."""
    train_app.command("prior")(training_command(train_prior_command))
    train_app.command("generator")(training_command(train_generator_command))
    train_app.command("loupe")(training_command(train_loupe_command))
    train_app.command("mask-state")(training_command(train_mask_state_command))
