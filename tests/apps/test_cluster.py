"""Measurements spread by Dask: the rows of one process, whoever is killed; each measurement is made once."""

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from sensewise.errors import ProcessError

pytest.importorskip("distributed")

from sensewise.apps import cluster
from sensewise.evaluate.experiment import Setup
from sensewise.evaluate.journal import Journal, code_digest
from sensewise.paper import EXPERIMENTS

TABLE = """
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from conftest import make_absorbing
from sensewise.data.mnist import bundled_mnist
from sensewise.evaluate.experiment import Experiment
from sensewise.evaluate.method import Method
from sensewise.evaluate.results import Results
from sensewise.evaluate.task import pixel_task
from sensewise.policies.greedy import Greedy
from sensewise.policies.simple import Random
from sensewise.policies.starts import RandomProbe


class Watched(Greedy):
    "Greedy, which notes in files what was measured where, and may be killed in the middle."

    def scores(self, observation, mask, context):
        with Path("log").open("a") as log:
            log.write(f"{{context.budget}} {{context.generator.initial_seed()}} {{os.getpid()}}\\n")
        if Path("kill").exists():
            Path("kill").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.1)
        return super().scores(observation, mask, context)


def run(setup):
    prior = make_absorbing(shape=(1, 32, 32))
    task = pixel_task(bundled_mnist(4), prior, ("errors", "entropy"))
    methods = [Method("random", Random()), Method("probe-greedy", Watched(prior), start=RandomProbe())]
    return Results("watched", setup.preset, "mnist", setup.evaluate(task, methods, (0.05, 0.1)))


TABLE = Experiment("watched", run)
"""
SEEDS = 6
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The present folder, with a module `watched` whose measurements leave traces."""
    (tmp_path / "watched.py").write_text(TABLE.format(tests=str(Path(__file__).parents[1])))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("watched", None)
    cluster._measures.cache_clear()


def command(results, *options):
    words = ["run", "watched:TABLE", "--seeds", SEEDS, "--results", results, *options]
    return [sys.executable, "-m", "sensewise", *map(str, words)]


def run(results, *options):
    """Run the experiment; its exit code and what it says."""
    done = subprocess.run(command(results, *options), env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def measured():
    """Budget and seed of every measurement so far, in order, and the processes that made them; forgets them."""
    lines = [line.split() for line in Path("log").read_text().splitlines()]
    Path("log").unlink()
    return [(budget, seed) for budget, seed, _ in lines], {process for _, _, process in lines}


def rows(results):
    return json.loads((Path(results) / "watched.json").read_text())["rows"]


def journalled(results, count):
    """Wait until so many measurements are in the journal."""
    path, deadline = Path(results) / "watched.partial.jsonl", time.monotonic() + 60
    while not path.exists() or path.read_bytes().count(b"\n") <= count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_two_processes_write_the_rows_of_one_though_a_worker_is_killed(folder):
    assert run("one") == (0, "one/watched.json: 8 rows")
    alone, processes = measured()
    assert len(processes) == 1
    (folder / "kill").touch()
    code, said = run("two", "--workers", 2)
    assert code == 0, said
    assert rows("one") == rows("two")
    together, processes = measured()
    assert len(processes) == 3  # two, and the one that took the place of the killed one
    assert set(together) == set(alone)
    assert len(together) == len(alone) + 1  # what was being measured by the killed one
    assert os.listdir("two") == ["watched.json"]


def test_the_caller_and_then_the_scheduler_are_killed(folder):
    run("one")
    alone, _ = measured()
    with ExitStack() as held:

        def dask(*words):
            path = [sys.executable, "-m", "dask", *words, "--scheduler-file", "scheduler.json"]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            process = held.enter_context(subprocess.Popen(path, env=ENVIRONMENT, **quiet))
            held.callback(process.terminate)
            return process

        scheduler = dask("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        dask("worker", "--nworkers", "2", "--nthreads", "1", "--no-dashboard")
        while not (folder / "scheduler.json").exists():
            time.sleep(0.02)
        address = json.loads((folder / "scheduler.json").read_text())["address"]

        with subprocess.Popen(command("two", "--cluster", address), env=ENVIRONMENT) as caller:
            journalled("two", 8)
            caller.kill()
        time.sleep(0.5)  # the workers end what they have begun
        done, _ = measured()
        kept = len((folder / "two/watched.partial.jsonl").read_text().splitlines()) - 1
        assert run("two", "--cluster", address)[0] == 0
        assert rows("two") == rows("one")
        again, processes = measured()
        assert len(processes) == 2
        assert set(done) | set(again) == set(alone)
        assert len(again) <= 4 * SEEDS - kept  # nothing that is in the journal

        with subprocess.Popen(
            command("three", "--cluster", address), env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
        ) as caller:
            journalled("three", 8)
            scheduler.kill()
            _, said = caller.communicate(timeout=60)
        assert caller.returncode == 2
        assert "the scheduler is gone" in " ".join(said.split())
        assert "Traceback" not in said
    assert run("three")[0] == 0
    assert rows("three") == rows("one")


def test_a_worker_builds_the_experiment_from_names_and_measures_what_it_is_given(folder):
    seeds, whole = (0, 1), Journal()
    found = EXPERIMENTS.find("watched:TABLE")
    sent = json.loads(json.dumps(["watched:TABLE", "cpu", seeds, code_digest(found.run)]))
    sent[2] = tuple(sent[2])
    found.run(Setup("cpu", seeds, whole))
    for key, value in whole.found.items():
        assert cluster.measure(*sent, key)[0] == value
    with pytest.raises(ProcessError, match="other weights or data"):
        cluster.measure(*sent, "another key")
    with pytest.raises(ProcessError, match="other code"):
        cluster.measure(*sent[:3], "0" * 64, key)


def test_no_scheduler(folder):
    code, said = run("one", "--cluster", "tcp://127.0.0.1:9")
    assert code == 2
    assert "no scheduler answers at tcp://127.0.0.1:9" in said
    code, said = run("one", "--cluster", "tcp://127.0.0.1:9", "--shard", "1/2")
    assert code == 2
    assert "give one of them" in said
