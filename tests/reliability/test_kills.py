"""`acquire` and `data import` are killed at random moments: what is there is whole, of one run, and nothing is left."""

import hashlib
import multiprocessing
import random
import shutil

import numpy as np
import pytest

from sensewise.apps.acquire import Settings, acquire_source
from sensewise.data import import_images, is_imported, load_imported

KILLS = [6, pytest.param(100, marks=pytest.mark.slow)]
server = multiprocessing.get_context("forkserver")
server.set_forkserver_preload(["sensewise.apps.acquire", "sensewise.data", "sensewise.hub"])


def digests(folder):
    """Every file of a folder by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def partial(folder):
    return [path.name for path in folder.iterdir() if path.name.endswith(".partial")]


def run(function, *arguments, seconds=None):
    """A process with the work, killed after some seconds; True if it came to its end before."""
    process = server.Process(target=function, args=arguments)
    process.start()
    process.join(seconds)
    ended = process.exitcode == 0
    process.kill()
    process.join()
    return ended


def acquire(out, digit):
    acquire_source(f"digit:{digit}", out, Settings(budget=0.1, steps=2, policy="random", samples=0, prior="mnist"))


@pytest.mark.parametrize("kills", KILLS)
def test_killed_acquisitions_are_whole_and_never_mixed(kills, tmp_path):
    for digit in (0, 1):
        assert run(acquire, tmp_path / f"whole-{digit}", digit, seconds=60)
    whole = [digests(tmp_path / f"whole-{digit}") for digit in (0, 1)]
    assert whole[0] != whole[1]
    rng, out = random.Random(0), tmp_path / "out"
    killed = 0
    for number in range(10 * kills):
        ended = run(acquire, out, number % 2, seconds=rng.uniform(0.02, 0.6))
        killed += not ended
        assert not out.exists() or digests(out) in whole
        assert not ended or digests(out) == whole[number % 2]
        if killed == kills:
            break
    assert killed == kills
    assert run(acquire, out, 0, seconds=60)
    assert digests(out) == whole[0]
    assert not partial(tmp_path)


def import_all(source, out):
    import_images(source, out, size=24, levels=4)


@pytest.mark.parametrize("kills", KILLS)
def test_killed_imports_are_whole_or_not_there(kills, tmp_path):
    source = tmp_path / "images.npy"
    np.save(source, np.random.default_rng(0).integers(0, 255, (2000, 24, 24), dtype=np.uint8))
    import_all(source, tmp_path / "whole")
    rng, out = random.Random(0), tmp_path / "out"
    killed = 0
    for _ in range(10 * kills):
        ended = run(import_all, source, out, seconds=rng.uniform(0.02, 0.6))
        killed += not ended
        if is_imported(out):
            assert np.array_equal(load_imported(out, "train").values, load_imported(tmp_path / "whole", "train").values)
            shutil.rmtree(out)
        else:
            assert not ended
        if killed == kills:
            break
    assert killed == kills
    assert run(import_all, source, out, seconds=60)
    assert not partial(tmp_path)
    assert not partial(out)
