"""`sensewise demo`, `acquire`, `serve`, `evaluate`: what a budget buys, on bundled scenes and on your own."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from sensewise.apps.cli.options import (
    Cluster,
    Preset,
    Seed,
    Workers,
    check_one_way,
    ensure_writable,
    out,
    parse_budget,
    progress_bar,
    say,
    warn,
)
from sensewise.errors import DataError


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
    from sensewise.paper.demo import DEMOS
    from sensewise.paper.mri_masks import EXPERIMENT
    from sensewise.report import page
    from sensewise.report.table import terminal_table

    if dataset not in DEMOS:
        raise DataError(f"no data set {dataset!r}: choose one of {', '.join(DEMOS)}")
    ensure_writable(folder)
    chosen, path = DEMOS[dataset], folder / "results.json"
    count = chosen.count if images is None else images
    with progress_bar() as progress:
        results = chosen.run(count, seed, progress, prior or chosen.prior)
    results.write(path)
    for note in results.notes:
        warn(note)
    if dataset == "knee":
        assert EXPERIMENT.section is not None
        written = page.write_section(path, EXPERIMENT.section)
    else:
        written = page.write_demo(path) if dataset == "mnist" else page.write_evaluation(path)
    out.print(terminal_table(results.rows, chosen.title.format(count), chosen.metric))
    say_open(written)


def say_open(page: Path) -> None:
    out.print(f"Open [bold]{escape(str(page))}[/] for the figures.", soft_wrap=True)


def acquire(
    source: Annotated[
        str,
        typer.Argument(
            help="A picture, a folder of pictures, digit:N, photo:N; k-space: a file (fastMRI or ISMRMRD .h5, Siemens "
            ".dat, complex .npy), knee:N or phantom:0."
        ),
    ],
    budget: Annotated[
        str | None,
        typer.Option(
            help="Fraction of the pixels or rows to measure, or a count.",
            show_default="0.1; 0.25 of the rows of k-space",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="In how many steps.", show_default="32 for picture files, 1 for rows, else 16"),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            "--method",
            help="Which pixels: greedy (default for two levels), spread-variance-greedy (default for more), random ... "
            "Which rows: acs-variable-density (default), static-search ..., or a mask file. Or module:Class.",
        ),
    ] = None,
    label: Annotated[int | None, typer.Option(help="The class, if it is known.")] = None,
    prior: Annotated[
        str | None,
        typer.Option(
            help="A bundled prior's name or a run folder.",
            show_default="any-grey; mnist for digit:N, cifar10 for photo:N",
        ),
    ] = None,
    folder: Annotated[Path, typer.Option("--out", help="Where the files go.")] = Path("runs/acquire"),
    noise: Annotated[
        str | None,
        typer.Option(help="For pictures: noise of a reading, 0.05 of the range or poisson:DOSE.", show_default="none"),
    ] = None,
    stop: Annotated[
        str | None,
        typer.Option(
            help="For pictures: stop when this is expected, psnr:30 (errors:3 for two levels) or gain:1e-4; or when it "
            "is promised: 'psnr:30 with 90%'.",
            show_default="the budget",
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(help="How many possible images to draw.", min=0, max=64, show_default="4; 0 for picture files"),
    ] = None,
    preset: Annotated[str, typer.Option(help="For k-space: sizes and trained models.")] = "cpu",
    reconstructor: Annotated[
        str | None,
        typer.Option(
            "--reconstruct",
            "--reconstructor",
            help="For pictures: mean, mode or sample of the prior; at their own size also linear or inverse-distance. "
            "For k-space: unet-a, unet-b, cs-wavelet or zero-filled.",
            show_default="mean; mode for two levels; unet-a",
        ),
    ] = None,
    axis: Annotated[
        str, typer.Option(help="For k-space files: which axis is phase-encoded, rows or columns; auto asks the file.")
    ] = "auto",
    number: Annotated[
        int | None, typer.Option("--slice", help="For k-space files: which slice, from 0.", show_default="the middle")
    ] = None,
    seed: Seed = 0,
) -> None:
    """Acquire pictures or k-space: what to measure, the reconstruction, what is still uncertain, possible images."""
    wanted = None if budget is None else parse_budget(budget)
    from sensewise.apps.acquire import Settings, acquire_source
    from sensewise.data.stored import parse_axis

    settings = Settings(
        budget=wanted,
        steps=steps,
        policy=policy,
        prior=prior,
        label=label,
        samples=samples,
        noise=noise,
        stop=stop,
        preset=preset,
        reconstructor=reconstructor,
        axis=parse_axis(axis),
        slice=number,
        seed=seed,
    )
    say(acquire_source(source, folder, settings))


def serve(
    prior: Annotated[
        list[str] | None, typer.Option(help="A prior of your own, shown first: a run folder. May be repeated.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Default: 8000, or the next one that is free.", min=1)] = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the browser.")] = True,
) -> None:
    """The live page: watch any picture being measured. Answers on this machine only; stop it with Ctrl-C."""
    from sensewise.apps.web.server import serve as serve_page

    def show(address: str) -> None:
        out.print(f"Open [bold]{address}[/], stop with Ctrl-C")

    serve_page(prior or [], port, open_browser, show)


def evaluate(
    prior: Annotated[str, typer.Option(help="A run folder or a bundled prior's name.")],
    data: Annotated[
        str, typer.Option(help="A data set: mnist, cifar10, a folder of `sensewise data import`, or module:DATASET.")
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(help="One more policy to compare: a name, or module:Class for your own. May be repeated."),
    ] = None,
    images: Annotated[int, typer.Option(help="At most so many test images.", min=1)] = 500,
    seeds: Annotated[int, typer.Option(help="How many seeds, from 0 on.", min=1)] = 2,
    preset: Preset = "cpu",
    folder: Annotated[Path, typer.Option("--out", help="For results.json and report.html.")] = Path("runs/evaluate"),
    workers: Workers = 1,
    cluster: Cluster = None,
) -> None:
    """Compare every policy on test images: a table here, and a page to open. Run it again to go on after a stop."""
    from sensewise.apps.cluster import connected, engine
    from sensewise.apps.evaluation import Evaluation
    from sensewise.evaluate.runner import run_experiment
    from sensewise.report.page import write_evaluation
    from sensewise.report.table import terminal_table

    check_one_way(False, workers, cluster)
    asked = Evaluation(prior, data, tuple(policy or ()), images, preset)
    experiment = asked.experiment()
    ensure_writable(folder)
    with connected(cluster, workers) as client, progress_bar() as progress:
        spread = engine(client, asked, preset, range(seeds))
        results = run_experiment(experiment, preset, range(seeds), folder, progress, engine=spread)
    assert results is not None
    page = write_evaluation(folder / f"{experiment.name}.json")
    title = f"{results.dataset}, {results.rows[0].images} test images"
    for metric in [name for name in ("errors", "psnr") if any(row.metric == name for row in results.rows)]:
        out.print(terminal_table(results.rows, title, metric))
    say_open(page)


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    for command in (demo, acquire, serve, evaluate):
        app.command()(command)
