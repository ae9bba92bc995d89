"""Every tutorial runs from the first line to the last, and prints what its page says.

Blocks of a page are taken in order, in one empty folder: `python` blocks share their names, blocks with a title are
written as files, `console` blocks run their `sensewise` commands, and each line of a `text` block has to be in what the
block before it printed, its numbers about the same. `<!-- in the tests: A => B -->` shortens a training.
"""

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sensewise.apps import cli
from sensewise.hub import ASSETS

PAGES = sorted((Path(__file__).parents[2] / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r'```(\w+)(?: title="(\S+)")?\n(.*?)```', re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?!\w)")
BY_HAND = ("make ", "sensewise serve", "pip ", "source ")  # a tutorial names them, a test does not run them
pytestmark = pytest.mark.skipif(not PAGES or not (ASSETS / "any-grey").is_dir(), reason="needs the source tree")


def run_command(line, monkeypatch):
    monkeypatch.setattr(sys, "argv", shlex.split(line))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code, line


def about_the_same(found, wanted):
    """The same words, and numbers that another machine may have."""
    if NUMBER.sub("#", found) != NUMBER.sub("#", wanted):
        return False
    for one, two in zip(NUMBER.findall(found), NUMBER.findall(wanted), strict=True):
        slack = 0.25 * float(two.replace(",", "")) + (0 if "." in two else 2)
        if abs(float(one.replace(",", "")) - float(two.replace(",", ""))) > slack:
            return False
    return True


def squeezed(text):
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tutorial(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SENSEWISE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("COLUMNS", "250")
    text = page.read_text(encoding="utf-8")
    for short in re.findall(r"<!-- in the tests: (.*?) => (.*?) -->", text):
        assert short[0] in text.replace(f"{short[0]} => ", "")
        text = text.replace(*short)
    names, printed = {"__name__": page.stem}, ""
    for kind, title, block in BLOCK.findall(text):
        if kind == "text":
            lines = squeezed(printed)
            for line in squeezed(block):
                assert any(about_the_same(found, line) for found in lines), f"{line!r} is not in\n{printed}"
            continue
        if title:
            Path(title).write_text(block, encoding="utf-8")
            monkeypatch.delitem(sys.modules, Path(title).stem, raising=False)  # or that of another test
        elif kind == "python":
            exec(compile(block, str(page), "exec"), names)
        else:
            assert kind == "console", kind
            for line in block.replace("\\\n", " ").splitlines():
                command = line.removeprefix("$ ").partition(" #")[0]
                if not command.startswith(BY_HAND):
                    run_command(command, monkeypatch)
        printed = capsys.readouterr().out


def test_there_is_a_tutorial_for_everything_that_people_begin_with():
    stems = {page.stem for page in PAGES}
    assert stems == {"digits", "microscope", "own-prior", "kspace", "write-your-own"}


def test_the_lines_of_the_readme_for_your_own_picture(tmp_path, monkeypatch, capsys):
    text = (PAGES[0].parents[2] / "README.md").read_text(encoding="utf-8")
    block = re.search(r"## On your own picture\n\n```console\n(.*?)```", text, re.DOTALL)[1]
    monkeypatch.chdir(tmp_path)
    ramp = np.add.outer(np.arange(40), np.arange(60))
    Image.fromarray((2 * ramp).astype(np.uint8)).save("picture.png")
    lines = [line.removeprefix("$ ").partition(" #")[0] for line in block.splitlines()]
    assert len(lines) == 4
    for line in lines:
        if not line.startswith(BY_HAND):
            run_command(line, monkeypatch)
            assert "40 x 60, 8 bits -> 40 x 60, 256 levels, prior any-grey" in capsys.readouterr().out.replace(
                "\n", " "
            )
