"""`sensewise run`, `merge`, `report`, `bench`: the tables and figures, from measuring to the page."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sensewise.apps.cli.options import (
    Cluster,
    ComputedBy,
    Engine,
    Preset,
    Results,
    Seeds,
    Workers,
    check_one_way,
    ensure_writable,
    out,
    progress_bar,
    say,
    warn,
)

if TYPE_CHECKING:
    from sensewise.evaluate import results as result_files
    from sensewise.evaluate.experiment import Experiment
    from sensewise.evaluate.kept import Kept

Name = Annotated[str, typer.Argument(help="An experiment's name, all, or module:EXPERIMENT.")]
Keep = Annotated[
    bool, typer.Option("--keep", help="Keep the rows that the results file has, and measure what it lacks.")
]
Again = Annotated[
    list[str] | None,
    typer.Option(
        help="With --keep: a method to measure again, by the beginning of its name, such as loupe. May be repeated.",
        show_default="none",
    ),
]


def run(
    experiment: Name,
    preset: Preset = "cpu",
    seeds: Seeds = 5,
    results: Results = Path("results"),
    shard: Annotated[str, typer.Option(help="i/n: every n-th measurement only; put together by merge.")] = "1/1",
    workers: Workers = 1,
    cluster: Cluster = None,
    fast: Annotated[
        Path | None, typer.Option(help="For pictures: a clone of FAST, which is run beside ours.", show_default="none")
    ] = None,
    keep: Keep = False,
    again: Again = None,
    computed_by: ComputedBy = "torch",
) -> None:
    """Run an experiment of the paper and write results/EXPERIMENT.json. Run it again to go on after a stop."""
    from sensewise import presets
    from sensewise.apps.cluster import Named, connected, engine
    from sensewise.evaluate.journal import parse_shard
    from sensewise.evaluate.runner import run_experiment

    presets.find(preset)
    if fast is not None:
        os.environ["SENSEWISE_FAST"] = str(fast.resolve())  # processes that share the work see it too
    part = parse_shard(shard)
    check_one_way(part[1] > 1, workers, cluster)
    chosen = _experiments(experiment, results)
    with connected(cluster, workers) as client:
        for name, one in chosen.items():
            spread = engine(client, Named(name), preset, range(seeds), computed_by)
            kept = _kept(results / f"{one.name}.json", keep, again)
            with progress_bar() as progress:
                found = run_experiment(
                    one, preset, range(seeds), results, progress, part, spread, kept, computed_by=computed_by
                )
            _say(found, name, results / one.name)


def merge(
    experiment: Name,
    preset: Annotated[str, typer.Option(help="That of the shards.")] = "cpu",
    seeds: Seeds = 5,
    results: Results = Path("results"),
    keep: Keep = False,
    again: Again = None,
    computed_by: Annotated[Engine, typer.Option("--engine", help="That of the shards.")] = "torch",
) -> None:
    """Put the shards of `run --shard i/n` together and write results/EXPERIMENT.json."""
    from sensewise.evaluate.runner import merge_shards

    for name, one in _experiments(experiment, results).items():
        kept = _kept(results / f"{one.name}.json", keep, again)
        with progress_bar() as progress:
            found = merge_shards(one, preset, range(seeds), results, progress, kept, computed_by)
            _say(found, name, results / one.name)


def _kept(path: Path, keep: bool, again: list[str] | None) -> "Kept | None":
    """The rows of an earlier file that are not measured again; none without --keep."""
    from sensewise.errors import ConfigError
    from sensewise.evaluate.kept import Kept
    from sensewise.evaluate.results import read_results

    if again and not keep:
        raise ConfigError("--again goes with --keep: without it everything is measured again")
    return Kept(read_results(path), tuple(again or ())) if keep else None


def _experiments(name: str, folder: Path) -> "dict[str, Experiment]":
    """Experiments by what was said to choose them."""
    from sensewise.beyond import EXPERIMENTS

    found = dict(EXPERIMENTS) if name == "all" else {name: EXPERIMENTS.find(name)}
    ensure_writable(folder)
    return found


def _say(found: "result_files.Results | None", name: str, path: Path) -> None:
    if found is None:
        say(f"this shard of {path.name} is done: merge all with `sensewise merge {name}`")
        return
    for note in found.notes:
        warn(note)
    say(f"{path}.json: {len(found.rows)} rows")


def report(
    results: Annotated[Path, typer.Option(help="Folder of the results files.")] = Path("results"),
    docs: Annotated[Path, typer.Option(help="Where results.md and its figures go.")] = Path("docs"),
    page: Annotated[Path, typer.Option(help="The self-contained page.")] = Path("report.html"),
    readme: Annotated[Path, typer.Option(help="Its marked tables are brought up to date.")] = Path("README.md"),
    pdf: Annotated[bool, typer.Option("--pdf", help="Also write every figure as PDF, for papers.")] = False,
    also: Annotated[
        list[str] | None, typer.Option(help="A table of your own, module:EXPERIMENT. May be repeated.")
    ] = None,
) -> None:
    """Draw every table and figure from the results files: ours beside the paper's."""
    from sensewise.beyond import EXPERIMENTS
    from sensewise.evaluate.experiment import Experiment
    from sensewise.files import from_text
    from sensewise.paper.together import JOINT
    from sensewise.report.page import write_report

    folder = docs / "figures" if pdf else None
    own = {found.name: found for found in (from_text(text, Experiment) for text in also or ())}
    missing = write_report(results, docs, page, readme, {**EXPERIMENTS, **own}, folder, JOINT)
    say(f"{docs / 'results.md'}, its pages and {page} are written")
    if missing:
        warn(f"No results yet for {', '.join(missing)}")


def bench(results: Results = Path("results")) -> None:
    """Speed as ratios measured in one run, to results/bench.json. Let nothing else run on the machine."""
    from sensewise.apps.onnx import export_onnx
    from sensewise.paper import bench as benchmarks
    from sensewise.report.table import bench_table

    ensure_writable(results)
    with progress_bar() as progress:
        found = benchmarks.run(results / "bench.json", export_onnx, progress)
    out.print(bench_table(found))


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    for command in (run, merge, report, bench):
        app.command()(command)
