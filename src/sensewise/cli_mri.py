"""The command line of accelerated MRI: preparing data, training on k-space rows, searching masks."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

import typer

from sensewise.cli_options import MaxMinutes, Preset, Resume, err, out, say_complete, training_command
from sensewise.errors import DataError

if TYPE_CHECKING:
    from sensewise.training import How

Budget = Annotated[float, typer.Option(help="Fraction of the rows, the ACS block included.")]
Folder = Annotated[Path | None, typer.Option("--out", help="The run folder. Default: runs/mri-PRESET/NAME.")]
Data = Annotated[
    Path | None, typer.Option("--data", help="Folder of the data sets. Default: SENSEWISE_DATA, else the user's cache.")
]


def data_prepare(
    name: Annotated[str, typer.Argument(help="What to call the data set: brain-t1.")],
    images: Annotated[Path, typer.Option(help="Folder with magnitude slices in train/ and val/: PNG, NIfTI, DICOM.")],
    data: Data = None,
    snr: Annotated[float, typer.Option(help="Mean of the signal over the noise's standard deviation.")] = 20.0,
    seed: Annotated[int, typer.Option(help="Of phases and noise.", min=0)] = 0,
    pack: Annotated[int, typer.Option(help="Slices to one HDF5 file.", min=1)] = 1,
) -> None:
    """Magnitude slices to simulated complex k-space in fastMRI's HDF5 layout."""
    from sensewise.data.prepare import prepare
    from sensewise.data.sources import data_root

    if not images.is_dir():
        raise DataError(f"{images} is not a folder: give one that holds train/ and val/")
    counts = prepare(name, images, data, snr=snr, seed=seed, pack=pack)
    out.print(f"{data_root(data) / name}: {counts['train']} train, {counts['val']} val slices", soft_wrap=True)


def _train(
    trainer: Callable[..., bool],
    into: type[Any],
    section: str,
    name: str,
    preset: str,
    folder: Path | None,
    data: Path | None,
    *before: Any,
    **how: Unpack["How"],
) -> None:
    """Load data and settings of a preset, run a trainer in the run folder, say how it ended."""
    from sensewise import presets
    from sensewise.mri.models import run_folder
    from sensewise.mri.settings import load_settings

    mri = load_settings(preset)
    settings = presets.load(preset, f"mri.{section}", into)
    train, validation = mri.load(data)[0].hold_out()  # the val split is for scoring alone
    target = folder or run_folder(preset, name)
    complete = trainer(settings, train, validation, mri.acs, *before, target, **how)
    say_complete(target, complete)


def train_reconstructor(
    which: Annotated[Literal["a", "b"], typer.Argument(help="a: masks are optimised against it. b: the judge.")],
    preset: Preset = "cpu",
    folder: Folder = None,
    data: Data = None,
    **how: Unpack["How"],
) -> None:
    """Train U-Net A or B on heuristic row masks."""
    from sensewise.mri.reconstruction import ReconstructorSettings, train_reconstructor

    section, name = f"reconstructor-{which}", f"unet-{which}"
    _train(train_reconstructor, ReconstructorSettings, section, name, preset, folder, data, **how)


def train_row_prior(
    preset: Preset = "cpu",
    folder: Folder = None,
    data: Data = None,
    **how: Unpack["How"],
) -> None:
    """Train the coarse prior over row profiles."""
    from sensewise.mri.profile import RowPriorSettings, train_row_prior

    _train(train_row_prior, RowPriorSettings, "row-prior", "row-prior", preset, folder, data, **how)


def train_row_policy(
    form: Annotated[Literal["adaptive", "static"], typer.Argument(help="With or without the scout.")] = "adaptive",
    preset: Preset = "cpu",
    folder: Folder = None,
    data: Data = None,
    **how: Unpack["How"],
) -> None:
    """Train the one-shot row policy; needs the row prior."""
    from sensewise.mri.models import find
    from sensewise.mri.profile import load_row_prior
    from sensewise.mri.row_policy import RowPolicySettings, train_row_policy

    prior, profile = load_row_prior(find(preset, "row-prior"))
    extra = (prior, profile, form == "adaptive")
    name = f"row-policy-{form}"
    _train(train_row_policy, RowPolicySettings, "row-policy", name, preset, folder, data, *extra, **how)


def train_row_profile(
    budget: Budget,
    preset: Preset = "cpu",
    folder: Folder = None,
    data: Data = None,
    **how: Unpack["How"],
) -> None:
    """Train a relaxed row profile for one budget; needs U-Net A."""
    from sensewise.mri.models import find, load
    from sensewise.mri.relaxed import RelaxedSettings, train_relaxed

    network, _ = load(find(preset, "unet-a"), "reconstructor")
    section = "relaxed-profile"
    extra = (network, budget)
    _train(train_relaxed, RelaxedSettings, section, f"{section}-{budget:g}", preset, folder, data, *extra, **how)


def train_loupe_rows(
    budget: Budget,
    preset: Preset = "cpu",
    folder: Folder = None,
    data: Data = None,
    **how: Unpack["How"],
) -> None:
    """Train LOUPE on whole rows for one budget, with its own U-Net."""
    from sensewise.mri.loupe_rows import LoupeRowsSettings, train_loupe_rows

    name = f"loupe-{budget:g}"
    _train(train_loupe_rows, LoupeRowsSettings, "loupe", name, preset, folder, data, budget, **how)


def train_row_value(
    form: Annotated[
        Literal["gain", "gradient", "rollout"],
        typer.Argument(help="Exact one-step gains, the mask gradient, or gains over the static mask."),
    ] = "gain",
    preset: Preset = "cpu",
    folder: Folder = None,
    data: Data = None,
    **how: Unpack["How"],
) -> None:
    """Train the value of a row to U-Net A; the form rollout needs the searched masks."""
    from sensewise.mri.models import find, load
    from sensewise.mri.settings import load_settings
    from sensewise.mri.train_value import RowValueSettings, load_orders, train_row_value

    network, _ = load(find(preset, "unet-a"), "reconstructor")
    mri = load_settings(preset)
    orders = load_orders(preset, mri) if form == "rollout" else None
    extra = (network, form, mri.budgets, orders)
    _train(train_row_value, RowValueSettings, "row-value", f"row-value-{form}", preset, folder, data, *extra, **how)


def train_row_plan(
    budget: Budget,
    preset: Preset = "cpu",
    resume: Resume = False,
    max_minutes: MaxMinutes = None,
    folder: Folder = None,
    data: Data = None,
) -> None:
    """Fit a plan of rows for one budget to the errors of U-Net A: what rows are worth together, and in this slice."""
    from sensewise.mri.models import find, load
    from sensewise.mri.train_plan import PlanSettings, train_plan

    network, _ = load(find(preset, "unet-a"), "reconstructor")
    name, extra = f"row-plan-{budget:g}", (network, budget)
    how: How = {"resume": resume, "max_minutes": max_minutes}
    _train(train_plan, PlanSettings, "row-plan", name, preset, folder, data, *extra, **how)


def search_mask(
    budget: Budget,
    preset: Preset = "cpu",
    resume: Resume = False,
    max_minutes: MaxMinutes = None,
    folder: Folder = None,
    data: Data = None,
) -> None:
    """Search a static mask against U-Net A. Writes mask.npy, mask.txt, mask.png, log.jsonl into the run folder."""
    from sensewise import presets
    from sensewise.mri.models import find, load, run_folder
    from sensewise.mri.row_masks import count_rows
    from sensewise.mri.search import Search, SearchSettings
    from sensewise.mri.settings import load_settings

    mri = load_settings(preset)
    k = count_rows(budget, mri.rows, mri.acs)
    network, _ = load(find(preset, "unet-a"), "reconstructor")
    train, _ = mri.load(data)
    target = folder or run_folder(preset, f"static-search-{budget:g}")
    search = Search(network, train.kspace, k, mri.acs, presets.load(preset, "mri.search", SearchSettings), target)
    complete = search.run(resume=resume, max_minutes=max_minutes, console=err)
    say_complete(target, complete)


def register(app: typer.Typer, data_app: typer.Typer, train_app: typer.Typer) -> None:
    """Add the commands of this file."""
    data_app.command("prepare")(data_prepare)
    app.command("search-mask")(search_mask)
    train_app.command("reconstructor")(training_command(train_reconstructor))
    train_app.command("row-prior")(training_command(train_row_prior))
    train_app.command("row-policy")(training_command(train_row_policy))
    train_app.command("row-profile")(training_command(train_row_profile))
    train_app.command("loupe-rows")(training_command(train_loupe_rows))
    train_app.command("row-value")(training_command(train_row_value))
    train_app.command("row-plan")(train_row_plan)
