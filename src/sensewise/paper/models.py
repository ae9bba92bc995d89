"""The models of a preset: its own runs, or, for the preset `cpu` alone, those that come with the package.

A preset without its runs is refused, and the message says which command makes them: numbers of other weights never
appear under its name.
"""

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from sensewise import hub, presets
from sensewise.errors import CheckpointError, ConfigError, SensewiseError
from sensewise.files import fingerprint
from sensewise.networks.decoders import MaskDesigner
from sensewise.networks.loupe import Loupe
from sensewise.priors.absorbing import AbsorbingPrior
from sensewise.priors.base import Prior
from sensewise.priors.engines import EngineName

STAGES = ("random-masks", "on-policy")
"""Stages of a prior that are compared, in the order of training; a preset may end with the first one."""


def folder(preset: str, name: str, command: str, file: str = hub.CONFIG) -> Path:
    """Where a model of a preset is.

    Args:
        command: what makes it, after `sensewise`, without the preset.
        file: that has to be there.
    """
    own = hub.run_folder(preset, name)
    places = [own, *([hub.ASSETS / name] if hub.preset_name(preset) == hub.SHIPPED else [])]
    for place in places:
        if (place / file).is_file():
            return place
    raise CheckpointError(f"{own / file} does not exist: make it with `sensewise {command} --preset {preset}`")


def stages(preset: str, dataset: str) -> list[str]:
    """The stages of `STAGES` that a preset trains; all, for the name of runs that no file describes."""
    try:
        known = [stage for stage in STAGES if presets.has(preset, f"prior.{dataset}.{stage}")]
    except ConfigError:
        return list(STAGES)
    return known or list(STAGES)


def prior(preset: str, dataset: str, stage: str | None = None, engine: EngineName = "torch") -> AbsorbingPrior:
    """One stage of the prior of a data set; the last one, whose run has the name of the data set, by default."""
    last = stages(preset, dataset)[-1]
    stage = stage or last
    name = dataset if stage == last else f"{dataset}-{stage}"
    command = f"train prior --dataset {dataset} --stage {stage} --out {hub.run_folder(preset, name)}"
    return hub.load_absorbing(folder(preset, name, command), engine=engine)


def priors(preset: str, dataset: str, notes: list[str], engine: EngineName = "torch") -> dict[str, AbsorbingPrior]:
    """The last stage of the prior of a data set, and before it those that there are; a note says which are left out."""
    *before, last = stages(preset, dataset)
    found = {}
    for stage in before:
        try:
            found[stage] = prior(preset, dataset, stage, engine)
        except CheckpointError as error:
            notes.append(f"The prior {dataset}-{stage} was left out: {error}")
    return {**found, last: prior(preset, dataset, last, engine)}


SMALL = ("guide", "tiny")
"""Small priors that the last stage has taught: the first decides for it, the second is as good as the paper's."""


SIZES = tuple(f"{kind}-{width}" for kind in ("plain", "taught") for width in (16, 32, 64, 96))
"""Small priors of rising width, learned from images or from the last stage: what a guide costs and saves."""


def guides(preset: str, dataset: str, notes: list[str]) -> dict[str, AbsorbingPrior]:
    """Every small prior that a preset trains: `SIZES` and `SMALL`."""
    return small_priors(preset, dataset, notes, (*SIZES, *SMALL))


def small_priors(
    preset: str, dataset: str, notes: list[str], names: Sequence[str] = SMALL, engine: EngineName = "torch"
) -> dict[str, AbsorbingPrior]:
    """Those small priors that a preset trains; a note says which are left out because they were not trained yet."""
    found = {}
    for stage in names:
        command = f"train prior --dataset {dataset} --stage {stage}"
        try:
            if presets.has(preset, f"prior.{dataset}.{stage}"):
                found[stage] = hub.load_absorbing(folder(preset, f"{dataset}-{stage}", command), engine=engine)
        except SensewiseError as error:
            notes.append(f"The small prior {dataset}-{stage} was left out: {error}")
    return found


def scalar_prior(preset: str, stage: str) -> AbsorbingPrior:
    """A prior over digits that sees tokens as numbers: "scalar" (small) or "paper-conv" (the paper's network)."""
    name = f"mnist-{stage}"
    return hub.load_absorbing(folder(preset, name, f"train prior --dataset mnist --stage {stage}"))


def designer_folder(preset: str, dataset: str, variant: str = "disarm") -> Path:
    """Where a mask designer is; "disarm" is the main one, the others are controls."""
    name = f"{dataset}-generator" + ("" if variant == "disarm" else f"-{variant}")
    return folder(preset, name, f"train generator --dataset {dataset} --variant {variant}")


def designer(preset: str, dataset: str, judge: Prior, variant: str = "disarm") -> MaskDesigner:
    """A mask designer that was trained against a prior."""
    return hub.load_designer(designer_folder(preset, dataset, variant), judge)


PHOTOGRAPH_DESIGNERS = {"one-shot": "paper", "one-shot-variance": "disarm", "one-shot-entropy": "entropy"}
"""Designers for photographs by method: the paper's, and our extensions, which see labels and decide on each pixel."""


def photograph_designers(
    preset: str, judge: Prior, notes: list[str], names: Sequence[str] = tuple(PHOTOGRAPH_DESIGNERS)
) -> dict[str, MaskDesigner]:
    """The designers for CIFAR-10 that there are; a note says which are left out, and with none it is refused."""
    found, problems = {}, []
    for name in names:
        variant = PHOTOGRAPH_DESIGNERS[name]
        if not presets.has(preset, f"generator.cifar10.{variant}"):
            continue  # the preset `paper` has no extensions of ours
        try:
            found[name] = designer(preset, "cifar10", judge, variant)
        except CheckpointError as error:
            problems.append(error)
            notes.append(f"The method {name} was left out on CIFAR-10: {error}")
    if not found:
        raise problems[0]
    return found


def loupe(preset: str, dataset: str, shape: tuple[int, int, int], budget: float) -> Loupe:
    """LOUPE at one budget."""
    found = folder(preset, f"{dataset}-loupe-{budget:g}", f"train loupe --dataset {dataset}")
    return hub.load_loupe(found, shape, budget)


def fingerprints(**models: nn.Module) -> dict[str, str]:
    """What a results file says about its models."""
    return {name: fingerprint(model) for name, model in models.items()}
