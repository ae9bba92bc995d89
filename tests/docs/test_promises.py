"""Every promise of docs/reliability.md names tests that exist, and says what they showed."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="needs the source tree")


def test_every_promise_names_a_test_that_exists():
    table = PAGE.read_text().split("| Promise |")[1].split("\n\n")[0]
    promises = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    assert len(promises) > 20
    for promise, tested, shown in promises:
        file = None
        for path, name in re.findall(r"`(tests/[\w/.]+)?(?:::(\w+))?`", tested):
            file = ROOT / path if path else file
            assert not name or f"def {name}(" in file.read_text(), f"{promise}: {path}::{name}"
        assert file or "`make mutants`" in tested, promise
        assert shown
