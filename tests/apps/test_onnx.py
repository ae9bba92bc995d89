"""The ONNX file says what the prior says, for any batch, and drives the same acquisition."""

import json

import numpy as np
import onnxruntime
import pytest
import torch

from conftest import make_absorbing, make_context, random_tokens, seeded
from sensewise import Greedy, PixelSensor, Side, acquire
from sensewise.apps.onnx import export_onnx
from sensewise.errors import ConfigError, OutputError
from sensewise.files import fingerprint
from sensewise.masks import step_sizes, top_k
from sensewise.priors import engines
from sensewise.tokens import observe

PRIOR = make_absorbing(shape=(1, 16, 16))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return export_onnx(PRIOR, tmp_path_factory.mktemp("onnx") / "prior.onnx")


@pytest.fixture(scope="module")
def session(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def ask(session, y, label):
    return session.run(["probabilities", "entropy"], {"tokens": y.numpy(), "label": label.numpy()})


@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize("density", [0.0, 0.1, 0.9])
def test_parity(session, batch, density):
    x = random_tokens((batch, 1, 16, 16))
    y = observe(x, torch.rand(batch, 256, generator=seeded()) < density)
    label = torch.arange(batch) - 1  # the first is unknown
    probabilities, entropy = ask(session, y, label)
    assert np.abs(probabilities - PRIOR(y, label).log_probs.exp().numpy()).max() < 1e-4
    expected = Greedy(PRIOR).scores(y, y.flatten(1) > 0, make_context(grid=(16, 16), label=label))
    assert np.abs(entropy - expected.numpy()).max() < 1e-4


def test_an_acquisition_without_torch_is_the_same(session):
    """The loop of a small machine: measure where the entropy is highest."""
    x, label = random_tokens((2, 1, 16, 16)), torch.tensor([3, 4])
    mask = torch.zeros(2, 256, dtype=torch.bool)
    for size in step_sizes(32, 4):
        _, entropy = ask(session, observe(x, mask), label)
        mask |= top_k(torch.from_numpy(entropy).masked_fill(mask, -torch.inf), size)
    taken = acquire(Greedy(PRIOR), PixelSensor(x), 32, side=Side(label=label), steps=4)
    assert torch.equal(mask, taken.mask)


def test_the_file_says_what_it_is(session):
    about = json.loads(session.get_modelmeta().custom_metadata_map["sensewise"])
    assert about == {"shape": [1, 16, 16], "num_states": 2, "num_labels": 10, "prior": fingerprint(PRIOR)}


def test_without_the_extra(monkeypatch, tmp_path):
    monkeypatch.setattr(engines, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match="install the extra `onnx`"):
        export_onnx(PRIOR, tmp_path / "prior.onnx")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        export_onnx(PRIOR, tmp_path / "file" / "prior.onnx")
