"""Small things that every test file uses, each from a seed of its own: tests do not depend on their order."""

import io
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import settings
from rich.console import Console

from sensewise import hub
from sensewise.data import bundled_mnist
from sensewise.networks import UNet
from sensewise.policies.base import Context
from sensewise.priors.absorbing import AbsorbingPrior
from sensewise.priors.empirical import EmpiricalPrior
from sensewise.sensors.base import Side

torch.set_num_threads(1)
settings.register_profile("suite", derandomize=True, deadline=None, max_examples=50, database=None)
settings.load_profile("suite")


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def random_tokens(shape, num_states=2, seed=0):
    return torch.randint(1, num_states + 1, shape, generator=seeded(seed))


def random_kspace(batch=3, height=12, width=10, seed=0):
    return torch.randn(batch, height, width, dtype=torch.complex64, generator=seeded(seed))


def make_context(budget=8, grid=(8, 8), label=None, summary=None, step=1, seed=0, observation=None):
    side = Side(label, summary)
    return Context(side, budget=budget, generator=seeded(seed), step=step, grid=grid, observation=observation)


def awake(module, std=0.3, seed=0):
    """The same module with small numbers instead of zeros, so that every input matters."""
    draw = seeded(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if not parameter.any():
                parameter.copy_(std * torch.randn(parameter.shape, generator=draw))
    return module


def fresh(make, *arguments, seed=0, **options):
    """A module with weights from a seed, the global random state left as it was."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return make(*arguments, **options)


def make_empirical(count=12, shape=(1, 4, 4), num_states=2, labels=3, seed=0):
    images = random_tokens((count, *shape), num_states, seed)
    return EmpiricalPrior(images, num_states, None if labels is None else torch.arange(count) % labels)


def make_absorbing(shape=(1, 8, 8), num_states=2, num_labels=10, time_input=True, seed=0, size=...):
    """A U-Net prior whose zero-initialised layers have weights too, so that everything it is given matters.

    Its images have the size of `shape`, or `size`, which may be None for any.
    """
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        network = UNet(shape[0], num_states, num_labels, widths=(8, 16), blocks=(1, 1), embedding=8)
        for parameter in network.parameters():
            if not parameter.any():
                torch.nn.init.normal_(parameter, std=0.3)
    size = shape[1:] if size is ... else size
    prior = AbsorbingPrior(network, shape[0], num_states, num_labels, size=size, time_input=time_input)
    return prior.eval().requires_grad_(False)


@pytest.fixture
def generator():
    return seeded()


@pytest.fixture
def empirical():
    return make_empirical()


@pytest.fixture
def absorbing():
    return make_absorbing()


@pytest.fixture(scope="session")
def mnist():
    return hub.load_prior("mnist")


@pytest.fixture(scope="session")
def digits():
    return bundled_mnist(16)


@pytest.fixture(scope="session")
def tiny_digits():
    """64 digits, cropped and thinned out to 8 x 8."""
    full = bundled_mnist(64)
    values = full.values[:, :, 8:24:2, 8:24:2].contiguous()
    return replace(full, name="tiny", split="train", values=values)


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=200)


@pytest.fixture(scope="session")
def quick():
    """A prior of the size of MNIST that knows nothing and answers at once."""
    return make_absorbing(shape=(1, 32, 32))


@pytest.fixture(scope="session")
def quick_run(quick, tmp_path_factory):
    """The same as a run folder."""
    model = {"shape": [1, 32, 32], "num_states": 2, "num_labels": 10, "network": "unet"}
    sizes = {"widths": [8, 16], "blocks": [1, 1], "embedding": 8}
    folder = tmp_path_factory.mktemp("quick")
    hub.save(folder, {"kind": "prior", "model": model | sizes}, quick)
    return folder


@pytest.fixture
def traced(monkeypatch):
    """Networks are compiled the whole way but the C++ compiler, which takes minutes and need not be there."""
    compile_all = torch.compile
    monkeypatch.setattr(torch, "compile", lambda network: compile_all(network, backend="eager"))
    monkeypatch.setenv("CXX", sys.executable)
