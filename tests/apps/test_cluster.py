"""Measurements spread by Dask: the rows of one process, whoever is killed; each measurement is made once."""

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from sensewise.data import import_images
from sensewise.errors import ProcessError

pytest.importorskip("distributed")

from sensewise.apps import cluster
from sensewise.apps.evaluation import Evaluation
from sensewise.evaluate.experiment import Setup
from sensewise.evaluate.journal import Journal
from sensewise.evaluate.results import read_arrays, read_results
from sensewise.evaluate.runner import plan, run_experiment
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
        time.sleep(0.05)
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
IMPATIENT = {**ENVIRONMENT, "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "3s"}


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


def said(words, environment=ENVIRONMENT):
    """The exit code of a command and what it says."""
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def run(results, *options, environment=ENVIRONMENT):
    """Run the experiment; its exit code and what it says."""
    return said(command(results, *options), environment)


def measured():
    """Budget and seed of every measurement so far, in order, and the processes that made them; forgets them."""
    lines = [line.split() for line in Path("log").read_text().splitlines()]
    Path("log").unlink()
    return [(budget, seed) for budget, seed, _ in lines], {process for _, _, process in lines}


def rows(results):
    return json.loads((Path(results) / "watched.json").read_text())["rows"]


def origin():
    return {"experiment": "watched", "preset": "cpu", "code": EXPERIMENTS.find("watched:TABLE").digest()}


def journalled(results, count, name="watched"):
    """Wait until so many measurements are in the journal."""
    path, deadline = Path(results) / f"{name}.partial.jsonl", time.monotonic() + 60
    while not path.exists() or path.read_bytes().count(b"\n") <= count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def alone(folder):
    """The rows of one process, and what it measured."""
    found = run_experiment(EXPERIMENTS.find("watched:TABLE"), "cpu", range(SEEDS), folder / "one")
    return [row.as_json() for row in found.rows], measured()[0]


@pytest.fixture
def dask(folder):
    """A scheduler and two workers, as on a cluster: the address, and the scheduler's process."""
    with ExitStack() as held:

        def start(*words):
            path = [sys.executable, "-m", "dask", *words, "--scheduler-file", "scheduler.json", "--no-dashboard"]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            process = held.enter_context(subprocess.Popen(path, env=ENVIRONMENT, **quiet))
            held.callback(process.terminate)
            return process

        scheduler = start("scheduler", "--host", "127.0.0.1", "--port", "0")
        start("worker", "--nworkers", "2", "--nthreads", "1")
        while not (folder / "scheduler.json").exists():
            time.sleep(0.02)
        yield json.loads((folder / "scheduler.json").read_text())["address"], scheduler


def test_two_processes_write_the_rows_of_one_though_a_worker_is_killed(folder, alone):
    (folder / "kill").touch()
    assert run("two", "--workers", 2) == (0, "two/watched.json: 8 rows")
    together, processes = measured()
    assert (rows("two"), set(together)) == (alone[0], set(alone[1]))
    assert len(processes) >= 2
    assert not (folder / "kill").exists()
    assert len(together) == len(alone[1]) + 1  # what the killed one had begun
    assert [path.name for path in (folder / "two").iterdir()] == ["watched.json"]


def test_a_caller_that_is_killed_goes_on_with_what_is_missing(folder, alone, dask):
    address, _ = dask
    with subprocess.Popen(command("two", "--cluster", address), env=ENVIRONMENT) as caller:
        journalled("two", 8)
        caller.kill()
    kept = set(Journal(folder / "two/watched.partial.jsonl", origin()).found)
    assert len(kept) >= 8
    time.sleep(0.5)  # the workers end what they have begun
    before, _ = measured()
    assert run("two", "--cluster", address)[0] == 0
    after, processes = measured()
    assert len(processes) == 2
    assert (rows("two"), {*before, *after}) == (alone[0], set(alone[1]))
    left = [key for key in plan(EXPERIMENTS.find("watched:TABLE"), "cpu", range(SEEDS)) if key not in kept]
    assert len(after) == sum(key.startswith("probe-greedy") for key in left)


@pytest.mark.slow
def test_a_scheduler_that_is_killed_loses_nothing(folder, alone, dask):
    address, scheduler = dask
    words = command("two", "--cluster", address)
    with subprocess.Popen(words, env=IMPATIENT, stderr=subprocess.PIPE, text=True) as caller:
        journalled("two", 8)
        scheduler.kill()
        _, said = caller.communicate(timeout=60)
    assert caller.returncode == 2
    assert "the scheduler is gone" in " ".join(said.split())
    assert "Traceback" not in said
    assert run("two") == (0, "two/watched.json: 8 rows")
    assert rows("two") == alone[0]


@pytest.fixture
def evaluation(folder, quick_run):
    """The command that evaluates a prior on own images beside `Watched`, and its table from one process."""
    np.save("images.npy", np.random.default_rng(0).integers(0, 255, (40, 32, 32), dtype=np.uint8))
    import_images(folder / "images.npy", folder / "data", size=32, levels=2)

    def evaluate(results, *options):
        asked = [
            "--prior",
            quick_run,
            "--data",
            "data",
            "--policy",
            "watched:Watched",
            "--seeds",
            1,
            "--images",
            2,
            "--out",
            results,
            *options,
        ]
        return [sys.executable, "-m", "sensewise", "evaluate", *map(str, asked)]

    assert said(evaluate("one"))[0] == 0
    return evaluate, table("one"), measured()[0]


def table(results):
    """The rows of an evaluation, and the arrays of its figures."""
    found = read_results(Path(results) / "results.json")
    arrays = read_arrays(Path(results) / "results.json")
    return [row.as_json() for row in found.rows], {name: array.tolist() for name, array in arrays.items()}


def test_an_evaluation_on_two_processes_is_that_of_one_though_a_worker_is_killed(folder, evaluation):
    evaluate, one, made = evaluation
    (folder / "kill").touch()
    code, told = said(evaluate("two", "--workers", 2))
    assert code == 0, told
    together, processes = measured()
    assert table("two") == one
    assert set(together) == set(made)
    assert len(processes) >= 3  # two workers at least, and the caller, who draws the examples
    assert sorted(path.name for path in (folder / "two").iterdir()) == ["report.html", "results.json", "results.npz"]


@pytest.mark.slow
def test_an_evaluation_whose_caller_is_killed_goes_on(folder, evaluation, dask):
    evaluate, one, _ = evaluation
    with subprocess.Popen(evaluate("two", "--cluster", dask[0]), env=ENVIRONMENT) as caller:
        journalled("two", 8, "results")
        caller.kill()
    assert said(evaluate("two", "--cluster", dask[0]))[0] == 0
    assert table("two") == one


def test_an_evaluation_depends_on_the_code_of_policies_of_ones_own(folder, quick_run):
    np.save("images.npy", np.random.default_rng(0).integers(0, 255, (20, 32, 32), dtype=np.uint8))
    import_images(folder / "images.npy", folder / "data", size=32, levels=2)
    usual, own = (Evaluation(str(quick_run), "data", names).experiment() for names in ((), ("watched:Watched",)))
    before = own.digest()
    assert before != usual.digest()
    (folder / "watched.py").write_text((folder / "watched.py").read_text() + "# changed\n")
    assert own.digest() not in (before, usual.digest())


def test_a_worker_builds_the_experiment_from_names_and_measures_what_it_is_given(folder):
    seeds, whole = (0, 1), Journal()
    found = EXPERIMENTS.find("watched:TABLE")
    sent = (cluster.Named("watched:TABLE"), "cpu", seeds, "torch", found.digest())
    found.run(Setup("cpu", seeds, whole))
    for key, value in whole.found.items():
        assert cluster.measure(*sent, key)[0] == value
    with pytest.raises(ProcessError, match="other weights or data"):
        cluster.measure(*sent, "another key")
    with pytest.raises(ProcessError, match="other code"):
        cluster.measure(*sent[:4], "0" * 64, key)


def test_no_scheduler(folder):
    code, said = run("one", "--cluster", "tcp://127.0.0.1:9", environment=IMPATIENT)
    assert code == 2
    assert said == "error: no scheduler answers at tcp://127.0.0.1:9: start one with `dask scheduler`"


def test_one_way_to_spread_the_work(folder, sensewise):
    code, _, err = sensewise("run", "watched:TABLE", "--cluster", "tcp://127.0.0.1:9", "--shard", "1/2")
    assert code == 2
    assert "give one of them" in err
