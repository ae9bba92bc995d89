"""Work in processes of their own that are killed at random moments: a training, an experiment, a session."""

import multiprocessing
import sys
import time
from pathlib import Path

import torch

from conftest import make_absorbing, random_tokens
from sensewise.apps.cli import main
from sensewise.data.mnist import bundled_mnist
from sensewise.evaluate.experiment import Experiment
from sensewise.evaluate.method import Method
from sensewise.evaluate.results import Results
from sensewise.evaluate.runner import run_experiment
from sensewise.evaluate.task import pixel_task
from sensewise.policies.greedy import Greedy
from sensewise.policies.simple import Random
from sensewise.policies.starts import RandomProbe
from sensewise.session import Session
from tiny_runs import training

SHAPE = (1, 32, 32)
server = multiprocessing.get_context("forkserver")
server.set_forkserver_preload(["kills", "sensewise.train.prior", "sensewise.apps.cli.train"])


def run(work, folder, seconds=None):
    """A process with the work, killed after some seconds; True if it came to its end before."""
    process = server.Process(target=work, args=(folder,))
    process.start()
    process.join(seconds)
    ended = process.exitcode is not None
    process.kill()
    process.join()
    assert process.exitcode == 0 or not ended, f"{work.__name__} failed"
    return ended


def train(folder: Path) -> None:
    """A training as on the command line, saved after every step; goes on where it was."""
    torch.set_num_threads(1)
    sys.argv = ["sensewise", *training(folder.parent, folder.name)[3:]]
    main()


def measure(folder: Path) -> None:
    """An experiment of 32 measurements; goes on where it was."""
    torch.set_num_threads(1)
    prior = make_absorbing(shape=SHAPE)
    task = pixel_task(bundled_mnist(4), prior, ("errors",))
    methods = [Method("random", Random()), Method("probe-greedy", Greedy(prior), 2, start=RandomProbe())]

    def rows(setup):
        return Results("tiny", setup.preset, "mnist", setup.evaluate(task, methods, (0.05, 0.1)))

    run_experiment(Experiment("tiny", rows), "cpu", range(8), folder)


def new_session() -> Session:
    return Session(Greedy(make_absorbing(shape=SHAPE)), SHAPE, 0.3, steps=24, start=RandomProbe(), seed=5)


def sense(folder: Path) -> None:
    """A session with a sensor, saved after every answer; goes on where it was."""
    torch.set_num_threads(1)
    truth, path, session = random_tokens((1, *SHAPE), seed=3), folder / "session.safetensors", new_session()
    if path.exists():
        session.restore(path)
    while (pixels := session.ask()) is not None:
        session.save(path)
        session.tell(truth[0][:, pixels[:, 0], pixels[:, 1]].T.numpy())
        session.save(path)
        time.sleep(0.005)  # a sensor takes its time
