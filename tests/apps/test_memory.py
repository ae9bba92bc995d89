"""Memory that is kept: a process of its own, since the C library cannot be told to forget it."""

import subprocess
import sys

import pytest

from sensewise.apps import cli

COUNT = """
import resource, sys
if "keep" in sys.argv:
    from sensewise.apps.memory import keep_memory
    if not keep_memory():
        sys.exit(3)
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        block = bytearray(2**25)
        del block
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def faults(*arguments):
    done = subprocess.run([sys.executable, "-c", COUNT, *arguments], capture_output=True, text=True, check=False)
    if done.returncode == 3:
        pytest.skip("the C library here is not glibc")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_pages_are_asked_for_once():
    assert faults("keep") < faults() / 100


@pytest.mark.parametrize(("command", "kept"), [("train", True), ("run", True), ("acquire", False), ("serve", False)])
def test_long_commands_keep_their_memory(sensewise, monkeypatch, command, kept):
    asked = []
    monkeypatch.setattr(cli, "keep_memory", lambda: asked.append(command))
    sensewise(command, "--help")
    assert bool(asked) is kept
