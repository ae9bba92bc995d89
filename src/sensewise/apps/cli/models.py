"""`sensewise info`, `calibrate`, `export`, `bridge`: a model's card, its promises, it without PyTorch or Python."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from sensewise.apps.cli.options import Preset, out, progress_bar, say
from sensewise.errors import ConfigError

Model = Annotated[str, typer.Argument(help="A bundled name (mnist, mri/unet-a, ...) or a run folder.")]


def info(model: Model, preset: Preset = "cpu") -> None:
    """The card of any model: kind, data and their licence, size, how it was trained, validation, hash."""
    from sensewise.hub import card

    found = card(model, preset)
    out.print(f"[bold]{escape(found.name)}[/]", highlight=False)
    for name, value in found.lines():
        out.print(f"  [dim]{escape(name):<22}[/] {escape(value)}", soft_wrap=True, highlight=False)


def calibrate(
    prior: Annotated[str, typer.Argument(help="A bundled prior's name or a run folder.")],
    data: Annotated[
        str,
        typer.Option(
            help="Images that it was not trained on: a data set's validation split, or a folder of pictures for a "
            "prior of any size."
        ),
    ],
    images: Annotated[int, typer.Option(help="At most so many.", min=20)] = 2048,
    probability: Annotated[float, typer.Option(help="How often a promise is kept.", min=0.5, max=0.99)] = 0.9,
    preset: Preset = "cpu",
) -> None:
    """Find out how far a prior's expectations can be trusted, and write it into its card: stops can then promise."""
    from sensewise import data as data_sets
    from sensewise.beyond import stopping
    from sensewise.data.gallery import folder_views
    from sensewise.hub import find, load_prior, save_calibration

    model = load_prior(prior, preset)
    rule = stopping.rule_for(model)
    pictures = model.size is None and Path(data).is_dir()
    scenes = folder_views(Path(data), stopping.SIDE) if pictures else data_sets.load(data, "validation")
    scenes = scenes.first(min(images, len(scenes)))
    with progress_bar() as progress:
        found = stopping.calibrate(rule, model, scenes, probability, progress)
    save_calibration(find(prior, preset), found, f"{scenes.name}, {scenes.split}")
    for level, factor in found.factors.items():
        say(f"{rule.quantity.metric} {level:g}: factor {factor:g} ({found.images} images, {probability:.0%})")


def export(
    prior: Annotated[str, typer.Argument(help="A bundled prior's name or a run folder.")],
    path: Annotated[Path, typer.Option("--out", help="The ONNX file.")] = Path("prior.onnx"),
) -> None:
    """Write a prior as ONNX (any batch size): tokens and labels in, probabilities and entropies out."""
    from sensewise.apps.onnx import export_onnx
    from sensewise.hub import load_absorbing

    say(f"{export_onnx(load_absorbing(prior), path)}: inputs tokens, label; outputs probabilities, entropy")


def bridge(
    port: Annotated[
        int | None,
        typer.Option(
            help="Listen on 127.0.0.1 at this port, 0 for any that is free.",
            show_default="standard input and output",
            min=0,
            max=65535,
        ),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where sessions are saved.")] = Path(),
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of a request and exit.")] = False,
) -> None:
    """Ask and tell as lines of JSON, for LabVIEW, MATLAB, a microcontroller's host or any other program."""
    import json

    from sensewise.instruments import bridge as lines

    if schema:
        print(json.dumps(lines.schema(), indent=2))
        return
    made = lines.Bridge(folder)
    if port is None:
        lines.serve_lines(made, sys.stdin.buffer, sys.stdout.buffer)
        return
    try:
        server = lines.LocalServer(made, port)
    except OSError as error:
        raise ConfigError(f"port {port} cannot be used: {error.strerror}; choose another, or 0 for any") from error
    with server:
        print(json.dumps({"ok": True, "port": server.port}), flush=True)
        server.serve_forever()


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(info)
    app.command()(calibrate)
    app.command()(export)
    app.command()(bridge)
