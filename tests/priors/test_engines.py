"""Every engine says what PyTorch says, and what an engine cannot do is refused."""

import copy
import sys

import pytest
import torch

from conftest import make_absorbing, random_tokens, seeded
from sensewise import hub
from sensewise.errors import ConfigError
from sensewise.files import fingerprint, identity
from sensewise.policies.greedy import Greedy
from sensewise.priors import engines
from sensewise.tokens import observe
from zoo import network_prior

pytest.importorskip("onnxruntime")
SHAPE = (1, 9, 10)  # the networks have to be given padded images
NAMES = {"unet": {}, "unet-ordinal": {"encoding": "ordinal"}, "unet-fine": {"fine": 8}, "dit": {}}


@pytest.fixture(scope="module", params=NAMES)
def pair(request):
    """A prior, and the same with the engine onnx."""
    prior = network_prior(request.param.partition("-")[0], **NAMES[request.param])
    prior.size = SHAPE[1:]
    other = copy.copy(prior)
    other.run_with("onnx")
    return prior, other


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_same_predictions(pair, batch, density):
    prior, other = pair
    y = observe(random_tokens((batch, *SHAPE)), torch.rand(batch, 90, generator=seeded()) < density)
    label = torch.arange(batch) - 1
    expected, found = prior.predict(y, label, None), other.predict(y, label, None)
    assert float((expected.log_probs.exp() - found.log_probs.exp()).abs().max()) < 1e-5
    assert other(y, label).entropy().shape == y.shape
    with torch.inference_mode():
        assert torch.equal(other(y, label).log_probs, other(y, label).log_probs)


def test_the_engine_is_visible(pair):
    prior, other = pair
    assert "engine=torch" in repr(prior)
    assert "engine=onnx" in repr(other)
    assert fingerprint(prior) == fingerprint(other)
    assert identity(Greedy(prior)) != identity(Greedy(other))  # they agree up to rounding, which is not the same
    other = copy.copy(other)
    other.run_with("torch")
    assert "engine=torch" in repr(other)


@pytest.mark.parametrize("name", NAMES)
def test_rounded_products_say_nearly_the_same(name, traced):
    nearly_the_same(name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")
@pytest.mark.parametrize("name", NAMES)
def test_compiled_with_rounded_products(name):
    nearly_the_same(name)


def nearly_the_same(name):
    prior = network_prior(name.partition("-")[0], **NAMES[name])
    prior.size = SHAPE[1:]
    other = copy.copy(prior)
    other.run_with("bfloat16")
    y = observe(random_tokens((3, *SHAPE)), torch.rand(3, 90, generator=seeded()) < 0.3)
    label = torch.arange(3) - 1
    expected, found = prior(y, label), other(y, label)
    gap = float((expected.log_probs.exp() - found.log_probs.exp()).abs().max())
    assert 0 < gap < 0.02
    assert found.log_probs.dtype == torch.float32
    assert "engine=bfloat16" in repr(other)
    assert identity(Greedy(prior)) != identity(Greedy(other))


def test_what_onnx_cannot_do_is_refused(pair):
    _, other = pair
    with pytest.raises(ConfigError, match="engine torch"):
        other.predict(torch.zeros(1, *SHAPE, dtype=torch.int64, device="meta"), torch.zeros(1).long().to("meta"), None)


def test_engines_by_name(monkeypatch):
    prior = make_absorbing()
    with pytest.raises(ConfigError, match="'abacus' is not known"):
        prior.run_with("abacus")
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    prior.run_with("fastest")
    assert prior.engine == "torch"
    with pytest.raises(ConfigError, match="install the extra `onnx`"):
        prior.run_with("onnx")
    assert prior.engine == "torch"
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ConfigError, match=r"no C\+\+ compiler"):
        prior.run_with("bfloat16")
    assert hub.card("mnist").engines == ("torch",)
    monkeypatch.setenv("CXX", sys.executable)  # a program that is there
    assert hub.card("mnist").engines == ("torch", "bfloat16")


def test_a_bundled_prior():
    assert hub.load_prior("mnist", engine="fastest").engine == "onnx"
    assert ("engines", ", ".join(engines.available())) in hub.card("mnist").lines()
    with pytest.raises(ConfigError, match="engine torch alone"):
        hub.load_prior("any-grey", engine="onnx")


def test_torch_needs_no_extra():
    """PyTorch stays the default: nothing of the extra is imported."""
    before = "onnxruntime" in sys.modules
    assert hub.load_prior("mnist").engine == "torch"
    assert ("onnxruntime" in sys.modules) == before
