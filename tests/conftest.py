"""Small things that every test file uses, each from a seed of its own: tests do not depend on their order."""

import io

import pytest
import torch
from hypothesis import settings
from rich.console import Console

from sensewise.checkpoint import load_prior
from sensewise.data import Images, bundled_mnist
from sensewise.networks import UNet
from sensewise.priors import AbsorbingPrior, EmpiricalPrior

torch.set_num_threads(1)
settings.register_profile("suite", derandomize=True, deadline=None, max_examples=50, database=None)
settings.load_profile("suite")


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def random_tokens(shape, num_states=2, seed=0):
    return torch.randint(1, num_states + 1, shape, generator=seeded(seed))


def make_empirical(count=12, shape=(1, 4, 4), num_states=2, labels=3, seed=0):
    images = random_tokens((count, *shape), num_states, seed)
    return EmpiricalPrior(images, num_states, None if labels is None else torch.arange(count) % labels)


def make_absorbing(shape=(1, 8, 8), num_states=2, num_labels=10, time_input=True, seed=0):
    """A U-Net prior whose zero-initialised layers have weights too, so that everything it is told matters."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = UNet(shape[0], num_states, num_labels, widths=(8, 16), blocks=(1, 1), embedding=8)
        for parameter in network.parameters():
            if not parameter.any():
                torch.nn.init.normal_(parameter, std=0.3)
    prior = AbsorbingPrior(network, shape, num_states, num_labels, time_input=time_input)
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
    return load_prior("mnist")


@pytest.fixture(scope="session")
def digits():
    return bundled_mnist(16)


@pytest.fixture(scope="session")
def tiny_digits():
    """64 digits, cropped and thinned out to 8 x 8."""
    full = bundled_mnist(64)
    return Images("tiny", "train", full.tokens[:, :, 8:24:2, 8:24:2].contiguous(), full.labels, 2, 10)


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=200)
