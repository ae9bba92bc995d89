"""`sensewise scan`: chosen lines for an MR scanner."""

from pathlib import Path
from typing import Annotated

import typer

from sensewise.apps.cli.options import say
from sensewise.errors import ConfigError


def export(
    mask: Annotated[
        Path, typer.Argument(help="mask.txt of `sensewise acquire`, or a mask of the full matrix (mask-full.npy).")
    ],
    out: Annotated[Path, typer.Option(help="The sequence to write; a picture of its k-space goes beside it.")] = Path(
        "scan.seq"
    ),
    samples: Annotated[
        int | None, typer.Option(help="Samples of the readout.", show_default="as many as there are lines")
    ] = None,
    oversampling: Annotated[int, typer.Option(help="Of the readout: 1 or 2.")] = 1,
    fov: Annotated[float, typer.Option(help="Field of view, in mm.")] = 250.0,
    thickness: Annotated[float, typer.Option(help="Of the slice, in mm.", min=0.1)] = 5.0,
    flip: Annotated[float, typer.Option(help="Flip angle, in degrees.")] = 10.0,
    te: Annotated[float, typer.Option(help="Echo time, in ms.")] = 6.0,
    tr: Annotated[float, typer.Option(help="Repetition time, in ms.")] = 15.0,
) -> None:
    """A Pulseq sequence (spoiled gradient echo) that plays the lines of a mask, in their order. Checked by reading."""
    from sensewise.data.arrays import load_arrays
    from sensewise.data.lines import ScanLines, read_lines
    from sensewise.instruments.pulseq import GradientEcho, write_sequence
    from sensewise.report.figures.style import save
    from sensewise.report.figures.trajectory import trajectory

    if mask.suffix == ".npy":
        found = load_arrays(mask)["array"]
        if found.dtype != bool or found.ndim != 1:
            raise ConfigError(f"{mask}: a mask is bool with one entry per line, got {found.dtype} with {found.shape}")
        lines = ScanLines(tuple(found.nonzero()[0].tolist()), len(found), len(found) // 2)
    else:
        listed = read_lines(mask)
        if listed is None:
            raise ConfigError(
                f"{mask} does not say how many lines the full matrix has: give mask.txt of `sensewise acquire`, or "
                "begin it with `# scanner lines, 160 in all, line 80 in the middle`"
            )
        lines = listed
    echo = GradientEcho(
        samples=samples or lines.full,
        oversampling=oversampling,
        fov=fov / 1e3,
        thickness=thickness / 1e3,
        flip=flip,
        te=te / 1e3,
        tr=tr / 1e3,
    )
    played = write_sequence(lines, out, echo)
    save(trajectory(played.kx, played.ky), out.with_suffix(".png"))
    say(
        f"{out}: {len(lines.numbers)} of {lines.full} lines in {played.seconds:.2f} s, read back and checked; "
        f"their k-space is in {out.with_suffix('.png')}"
    )


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""

    @app.callback()
    def _group() -> None:
        """Keep `export` a command of its own."""

    app.command("export")(export)
