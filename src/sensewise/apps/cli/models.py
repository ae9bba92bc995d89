"""`sensewise info` and `sensewise export`: what a model is, and a model for machines without PyTorch."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from sensewise.apps.cli.options import Preset, out, say

Model = Annotated[str, typer.Argument(help="A bundled name (mnist, mri/unet-a, ...) or a run folder.")]


def info(model: Model, preset: Preset = "cpu") -> None:
    """The card of any model: kind, data and their licence, size, how it was trained, validation, hash."""
    from sensewise.hub import card

    found = card(model, preset)
    out.print(f"[bold]{escape(found.name)}[/]", highlight=False)
    for name, value in found.lines():
        out.print(f"  [dim]{escape(name):<22}[/] {escape(value)}", soft_wrap=True, highlight=False)


def export(
    prior: Annotated[str, typer.Argument(help="A bundled prior's name or a run folder.")],
    path: Annotated[Path, typer.Option("--out", help="The ONNX file.")] = Path("prior.onnx"),
) -> None:
    """Write a prior as ONNX (any batch size): tokens and labels in, probabilities and entropies out."""
    from sensewise.apps.onnx import export_onnx
    from sensewise.hub import load_absorbing

    say(f"{export_onnx(load_absorbing(prior), path)}: inputs tokens, label; outputs probabilities, entropy")


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(info)
    app.command()(export)
