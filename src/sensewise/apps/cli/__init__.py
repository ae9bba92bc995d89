"""The command line: each command calls the library; a mistake of the user is one sentence and exit code 2.

Commands import what they need when they run, so that `sensewise --help` answers at once.
"""

import sys
from typing import Annotated, NoReturn

import typer
from rich.markup import escape
from typer.core import TyperGroup

from sensewise import __version__
from sensewise.apps.cli import data, experiments, models, scan, scenes, train
from sensewise.apps.cli.options import err, is_first, say
from sensewise.apps.memory import keep_memory
from sensewise.errors import ProcessError, SensewiseError

ORDER = (
    *("demo", "acquire", "serve", "data", "train", "evaluate"),
    *("run", "merge", "report", "bench", "info", "calibrate", "export", "bridge", "scan"),
)
"""As a newcomer needs them."""
LONG = ("demo", "train", "evaluate", "run", "merge", "bench", "calibrate")
"""Commands that compute for minutes to hours, and may keep what memory they need."""


class InOrder(TyperGroup):
    """Lists commands in `ORDER`, others after them."""

    def list_commands(self, ctx: object) -> list[str]:
        return sorted(self.commands, key=_place)


def _place(name: str) -> int:
    return ORDER.index(name) if name in ORDER else len(ORDER)


app = typer.Typer(
    cls=InOrder,
    help="Decide what to measure: pick the pixels that say most about the whole picture, and reconstruct the rest.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
data_app = typer.Typer(help="Fetch, import and prepare data sets.", no_args_is_help=True)
train_app = typer.Typer(
    help="Train models. Every run can be stopped at any time and continued with --resume.", no_args_is_help=True
)
scan_app = typer.Typer(help="Chosen lines of k-space for an MR scanner.", no_args_is_help=True)
for register in (scenes.register, experiments.register, models.register):
    register(app)
data.register(data_app)
scan.register(scan_app)
train.register(train_app, app)
app.add_typer(data_app, name="data")
app.add_typer(train_app, name="train")
app.add_typer(scan_app, name="scan")


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if version:
        say(f"sensewise {__version__}")
        raise typer.Exit


def fail(message: str) -> NoReturn:
    """Say what is wrong and leave."""
    err.print(f"[bold red]error:[/] {escape(message)}", soft_wrap=True, highlight=False)
    sys.exit(2)


def main() -> None:
    """The console script."""
    if set(sys.argv[1:2]) & set(LONG):
        keep_memory()
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
