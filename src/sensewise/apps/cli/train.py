"""`sensewise train THING`: each command makes the recipe of a thing and carries it out."""

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from sensewise.apps.cli.options import (
    DataFolder,
    Devices,
    Engine,
    MaxMinutes,
    NumNodes,
    Preset,
    Resume,
    err,
    is_first,
    say_complete,
)
from sensewise.errors import DataError

if TYPE_CHECKING:
    from torch import nn

    from sensewise.data.scenes import Scenes
    from sensewise.presets.mri import MRISettings
    from sensewise.train.processes import Execution
    from sensewise.train.recipe import Recipe

Dataset = Annotated[str, typer.Option(help="mnist, cifar10, a data set made by `data import`, or module:DATASET.")]
Out = Annotated[Path | None, typer.Option("--out", help="The run folder.", show_default="runs/PRESET/NAME")]
Budget = Annotated[float, typer.Option(help="Fraction of the rows, the ACS block included.")]
Device = Annotated[
    Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where to compute; auto takes a GPU where there is one.")
]
Strategy = Annotated[str, typer.Option(help="How Fabric spreads a step over processes: ddp.")]
Precision = Annotated[Literal["32-true", "bf16-mixed"], typer.Option(help="Fabric's.")]
Compile = Annotated[
    bool,
    typer.Option(
        "--compile", help="Compile the network first: two minutes, then about two thirds of the time per step."
    ),
]
Answers = Annotated[
    Engine,
    typer.Option(
        "--engine",
        help="What computes the frozen prior that is learned from; bfloat16 is rounded, and quicker where the "
        "processor has instructions for it.",
    ),
]
S = TypeVar("S")
WITHOUT = "without-mask-state"


def _execution_options(
    resume: Resume = False,
    max_minutes: MaxMinutes = None,
    device: Device = "auto",
    devices: Devices = 1,
    num_nodes: NumNodes = 1,
    strategy: Strategy = "auto",
    precision: Precision = "32-true",
    compile: Compile = False,
) -> "Execution":
    """How a run is carried out, from the options that every command has."""
    from sensewise.report.figures.training import draw_log
    from sensewise.train.processes import Execution

    return Execution(
        resume=resume,
        max_minutes=max_minutes,
        device=device,
        devices=devices,
        num_nodes=num_nodes,
        strategy=strategy,
        precision=precision,
        compile=compile,
        console=err,
        on_log=draw_log,
    )


def training_command(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the argument `execution` of a command by the options that it is made of."""
    shared = inspect.signature(_execution_options).parameters
    signature = inspect.signature(command)
    own = [parameter for name, parameter in signature.parameters.items() if name != "execution"]
    options = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in shared.values()]

    @wraps(command)
    def with_options(**given: Any) -> None:
        execution = _execution_options(**{name: given.pop(name) for name in shared})
        command(**given, execution=execution)

    parameters = [*own, *options]
    with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options


def _settings(preset: str, section: str, into: type[S]) -> S:
    from sensewise import presets

    return presets.load(preset, section, into)


def _images(dataset: str, data: Path | None) -> "tuple[Scenes, Scenes]":
    """Training and validation images of a data set."""
    from sensewise.data import load

    train = load(dataset, "train", data)
    if train.values.is_complex():
        raise DataError(f"{dataset} holds MR slices: choose a thing that is trained on rows, such as reconstructor")
    return train, load(dataset, "validation", data)


def _slices(preset: str, data: Path | None) -> "tuple[MRISettings, Scenes]":
    """The MR settings of a preset and the training split; the val split is for scoring alone."""
    from sensewise.data.fastmri import load_splits
    from sensewise.presets.mri import load_settings

    mri = load_settings(preset)
    train, _ = load_splits(mri.dataset, (mri.rows, mri.columns), data, axis=mri.axis, coils=mri.coils)
    return mri, train


def _unet_a(preset: str) -> "nn.Module":
    from sensewise.hub import load

    network, _ = load("mri/unet-a", "reconstructor", preset)
    return network


def _carry_out(recipe: "Recipe", preset: str, name: str, folder: Path | None, execution: "Execution") -> None:
    """Train in the run folder, draw a mask if one was made, say how it ended."""
    from sensewise.hub import run_folder

    target = folder or run_folder(preset, name)
    complete = recipe.train(target, execution)
    if is_first() and (target / "mask.npy").is_file():
        from sensewise.report.figures.rows import draw_mask

        draw_mask(target)
    say_complete(target, complete)


def prior(
    execution: "Execution",
    stage: Annotated[
        str | None,
        typer.Option(
            help="A section of the preset: random-masks (default), on-policy, noise, guide, tiny (small, taught by "
            "on-policy), mixed (for your data); of the preset paper: without-mask-state, random-masks."
        ),
    ] = None,
    dataset: Dataset = "mnist",
    preset: Preset = "cpu",
    folder: Out = None,
    init: Annotated[
        str | None,
        typer.Option(help="Start from the weights of this model.", show_default="as the preset says"),
    ] = None,
    data: DataFolder = None,
    engine: Answers = "torch",
) -> None:
    """Train a prior over images: what every hidden pixel may be.

    Its run is runs/PRESET/DATASET-STAGE; experiments look for runs/PRESET/DATASET, so give the last stage that --out.
    """
    from sensewise import presets
    from sensewise.data import DATASETS, is_imported
    from sensewise.hub import load_absorbing
    from sensewise.priors.mean import MeanPrior
    from sensewise.train.prior import PriorRecipe, PriorSettings
    from sensewise.train.taught import TaughtRecipe

    dataset = str(data) if is_imported(data) else dataset
    own = dataset not in DATASETS
    if not own and (pictures := DATASETS[dataset].pictures) is not None:
        from sensewise.train.reading_prior import ReadingPriorRecipe, ReadingPriorSettings

        stage = stage or "mixed"
        asked = _settings(preset, f"prior.{dataset}.{stage}", ReadingPriorSettings)
        start = init or asked.init
        found = ReadingPriorRecipe(asked, pictures("train", data), pictures("validation", data), start, preset)
        return _carry_out(found, preset, f"{dataset}-{stage}", folder, execution)
    stage = stage or ("mixed" if own else "random-masks")
    settings = _settings(preset, f"prior.{'imported' if own else dataset}.{stage}", PriorSettings)
    train, validation = _images(dataset, data)
    if own and (train.num_states or 2) > 2 and presets.has(preset, ordered := f"prior.imported-ordered.{stage}"):
        settings = _settings(preset, ordered, PriorSettings)
    name, start = train.name if own else dataset, init or settings.init
    mask_state = False if stage == WITHOUT else None
    recipe = PriorRecipe(settings, train, validation, init=start, preset=preset, mask_state=mask_state)
    if settings.teacher is not None:
        names = [settings.teacher] if isinstance(settings.teacher, str) else settings.teacher
        teachers = [load_absorbing(teacher, preset, engine) for teacher in names]
        one = teachers[0] if len(teachers) == 1 else MeanPrior(teachers)
        recipe = TaughtRecipe(settings, train, validation, start, preset, mask_state, one)
    _carry_out(recipe, preset, f"{name}-{stage}", folder, execution)


def generator(
    execution: "Execution",
    variant: Annotated[
        str,
        typer.Option(
            help="disarm (the shipped one), or a control: observed, straight-through, ...; on CIFAR-10: paper, entropy."
        ),
    ] = "disarm",
    dataset: Dataset = "mnist",
    preset: Preset = "cpu",
    prior: Annotated[
        str | None, typer.Option(help="Which prior scores the masks, by name or folder.", show_default="DATASET")
    ] = None,
    folder: Out = None,
    data: DataFolder = None,
    engine: Answers = "torch",
) -> None:
    """Train the designer of one-shot masks against a frozen prior."""
    from sensewise.hub import load_absorbing
    from sensewise.train.designer import DesignerRecipe, DesignerSettings

    settings = _settings(preset, f"generator.{dataset}.{variant}", DesignerSettings)
    train, validation = _images(dataset, data)
    recipe = DesignerRecipe(settings, train, validation, load_absorbing(prior or dataset, preset, engine))
    name = f"{dataset}-generator" + ("" if variant == "disarm" else f"-{variant}")
    _carry_out(recipe, preset, name, folder, execution)


def loupe(
    execution: "Execution",
    dataset: Dataset = "mnist",
    preset: Preset = "cpu",
    folder: Annotated[
        Path | None, typer.Option("--out", help="Holds one run folder per budget.", show_default="runs/PRESET")
    ] = None,
    data: DataFolder = None,
) -> None:
    """Train LOUPE for pixels with its own U-Net, one run per budget of the preset."""
    from sensewise.hub import run_folder
    from sensewise.train.loupe import LoupeSettings, loupe_recipes
    from sensewise.train.recipe import train_all

    settings = _settings(preset, f"loupe.{dataset}", LoupeSettings)
    target = folder or run_folder(preset, "")
    say_complete(target, train_all(loupe_recipes(settings, *_images(dataset, data)), target, execution))


def mask_state(
    execution: "Execution",
    dataset: Dataset = "mnist",
    preset: Preset = "cpu",
    folder: Out = None,
    data: DataFolder = None,
) -> None:
    """Train the pairs of small priors, with and without a mask state, that `run mask-state` compares."""
    from sensewise.hub import run_folder
    from sensewise.train.mask_state import MaskStateSettings, mask_state_recipes
    from sensewise.train.recipe import train_all

    settings = _settings(preset, f"mask-state.{dataset}", MaskStateSettings)
    target = folder or run_folder(preset, f"{dataset}-mask-state")
    recipes = mask_state_recipes(settings, *_images(dataset, data), target)
    say_complete(target, train_all(recipes, target, execution))


def reconstructor(
    execution: "Execution",
    which: Annotated[Literal["a", "b"], typer.Argument(help="a: masks are optimised against it. b: the judge.")],
    preset: Preset = "cpu",
    folder: Out = None,
    data: DataFolder = None,
) -> None:
    """Train U-Net A or B on heuristic masks of k-space rows."""
    from sensewise.train.reconstructor import ReconstructorRecipe, ReconstructorSettings

    settings = _settings(preset, f"mri.reconstructor-{which}", ReconstructorSettings)
    mri, slices = _slices(preset, data)
    recipe = ReconstructorRecipe(settings, *slices.hold_out(), acs=mri.acs)
    _carry_out(recipe, preset, f"mri/unet-{which}", folder, execution)


def row_prior(execution: "Execution", preset: Preset = "cpu", folder: Out = None, data: DataFolder = None) -> None:
    """Train the coarse prior over profiles of k-space rows."""
    from sensewise.train.row_prior import RowPriorRecipe, RowPriorSettings

    settings = _settings(preset, "mri.row-prior", RowPriorSettings)
    mri, slices = _slices(preset, data)
    recipe = RowPriorRecipe(settings, *slices.hold_out(), acs=mri.acs)
    _carry_out(recipe, preset, "mri/row-prior", folder, execution)


def row_policy(
    execution: "Execution",
    form: Annotated[Literal["adaptive", "static"], typer.Argument(help="With or without the scout.")] = "adaptive",
    preset: Preset = "cpu",
    folder: Out = None,
    data: DataFolder = None,
) -> None:
    """Train the one-shot row policy; needs row-prior."""
    from sensewise.hub import load_row_prior
    from sensewise.train.row_policy import RowPolicyRecipe, RowPolicySettings

    settings = _settings(preset, "mri.row-policy", RowPolicySettings)
    prior, profile = load_row_prior(preset=preset)
    mri, slices = _slices(preset, data)
    recipe = RowPolicyRecipe(
        settings, *slices.hold_out(), acs=mri.acs, prior=prior, profile=profile, adaptive=form == "adaptive"
    )
    _carry_out(recipe, preset, f"mri/row-policy-{form}", folder, execution)


def row_profile(
    execution: "Execution",
    budget: Budget,
    variant: Annotated[
        Literal["slow", "fast"], typer.Option(help="fast: the control with the paper's large step, 5e-3.")
    ] = "slow",
    preset: Preset = "cpu",
    folder: Out = None,
    data: DataFolder = None,
) -> None:
    """Train a relaxed profile of rows for one budget; needs reconstructor a."""
    from sensewise.train.relaxed import RelaxedRecipe, RelaxedSettings

    name = "relaxed-profile" if variant == "slow" else "relaxed-profile-fast"
    settings = _settings(preset, f"mri.{name}", RelaxedSettings)
    network = _unet_a(preset)
    mri, slices = _slices(preset, data)
    recipe = RelaxedRecipe(settings, slices.hold_out()[0], acs=mri.acs, network=network, budget=budget)
    _carry_out(recipe, preset, f"mri/{name}-{budget:g}", folder, execution)


def loupe_rows(
    execution: "Execution", budget: Budget, preset: Preset = "cpu", folder: Out = None, data: DataFolder = None
) -> None:
    """Train LOUPE on whole rows for one budget, with its own U-Net."""
    from sensewise.train.loupe import LoupeRowsRecipe, LoupeRowsSettings

    settings = _settings(preset, "mri.loupe", LoupeRowsSettings)
    mri, slices = _slices(preset, data)
    recipe = LoupeRowsRecipe(settings, *slices.hold_out(), acs=mri.acs, budget=budget)
    _carry_out(recipe, preset, f"mri/loupe-{budget:g}", folder, execution)


def row_value(
    execution: "Execution",
    form: Annotated[
        Literal["gain", "gradient", "rollout"],
        typer.Argument(help="Exact one-step gains, the mask gradient, or gains over the static mask."),
    ] = "gain",
    preset: Preset = "cpu",
    folder: Out = None,
    data: DataFolder = None,
) -> None:
    """Train the value of a row to U-Net A; needs reconstructor a, the form rollout also static-search."""
    from sensewise.train.value import RowValueRecipe, RowValueSettings, load_orders

    settings = _settings(preset, "mri.row-value", RowValueSettings)
    network = _unet_a(preset)
    mri, slices = _slices(preset, data)
    orders = load_orders(preset, mri.budgets, mri.rows, mri.acs) if form == "rollout" else None
    recipe = RowValueRecipe(
        settings,
        *slices.hold_out(),
        acs=mri.acs,
        network=network,
        form=form,
        budgets=mri.budgets,
        orders=orders,
    )
    _carry_out(recipe, preset, f"mri/row-value-{form}", folder, execution)


def row_plan(
    execution: "Execution", budget: Budget, preset: Preset = "cpu", folder: Out = None, data: DataFolder = None
) -> None:
    """Fit a plan of rows for one budget: what rows are worth together, and in this slice; needs reconstructor a."""
    from sensewise.train.plan import PlanRecipe, PlanSettings

    settings = _settings(preset, "mri.row-plan", PlanSettings)
    network = _unet_a(preset)
    mri, slices = _slices(preset, data)
    recipe = PlanRecipe(settings, *slices.hold_out(), acs=mri.acs, network=network, budget=budget)
    _carry_out(recipe, preset, f"mri/row-plan-{budget:g}", folder, execution)


def static_search(
    execution: "Execution", budget: Budget, preset: Preset = "cpu", folder: Out = None, data: DataFolder = None
) -> None:
    """Search one mask for all slices against U-Net A; needs reconstructor a. Writes mask.npy, mask.txt, order.npy."""
    from sensewise.train.search import SearchRecipe, SearchSettings

    settings = _settings(preset, "mri.search", SearchSettings)
    network = _unet_a(preset)
    mri, slices = _slices(preset, data)
    recipe = SearchRecipe(settings, slices, acs=mri.acs, network=network, budget=budget)
    _carry_out(recipe, preset, f"mri/static-search-{budget:g}", folder, execution)


def nearest_mask(
    execution: "Execution", budget: Budget, preset: Preset = "cpu", folder: Out = None, data: DataFolder = None
) -> None:
    """Search masks for slices that look alike, one budget; needs reconstructor a and static-search."""
    from sensewise import hub
    from sensewise.train.nearest import NearestRecipe, NearestSettings

    settings = _settings(preset, "mri.nearest-mask", NearestSettings)
    network = _unet_a(preset)
    mri, slices = _slices(preset, data)
    found = hub.find(f"mri/static-search-{budget:g}", preset, "mask.npy")
    start = hub.load_mask(found / "mask.npy", mri.rows)
    recipe = NearestRecipe(settings, *slices.hold_out(), acs=mri.acs, network=network, budget=budget, start=start)
    _carry_out(recipe, preset, f"mri/nearest-mask-{budget:g}", folder, execution)


THINGS: dict[str, Callable[..., None]] = {
    "prior": prior,
    "generator": generator,
    "loupe": loupe,
    "mask-state": mask_state,
    "reconstructor": reconstructor,
    "static-search": static_search,
    "row-prior": row_prior,
    "row-policy": row_policy,
    "row-profile": row_profile,
    "loupe-rows": loupe_rows,
    "row-value": row_value,
    "row-plan": row_plan,
    "nearest-mask": nearest_mask,
}
"""What can be trained, in an order in which each finds what it needs."""


def register(train_app: typer.Typer, app: typer.Typer | None = None) -> None:
    """Add a command per thing; to the main app the old name of the search."""
    for name, command in THINGS.items():
        train_app.command(name)(training_command(command))
    if app is not None:
        app.command("search-mask", hidden=True)(training_command(static_search))
