"""The command line as a user has it."""

import sys

import pytest

from sensewise.apps import cli
from sensewise.apps.cli import options


@pytest.fixture
def sensewise(monkeypatch, capsys, tmp_path):
    """Run the command in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SENSEWISE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")
    for console in (options.out, options.err):  # they may have been made under another one
        monkeypatch.setattr(console, "width", 200)
    monkeypatch.setattr(cli, "keep_memory", bool)  # the tests' own process goes on as it is

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["sensewise", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        shown = capsys.readouterr()
        assert "Traceback" not in shown.out + shown.err
        return stopped.value.code or 0, shown.out, shown.err.strip()

    return call
