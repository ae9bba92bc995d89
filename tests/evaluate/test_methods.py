"""Methods by name, and those that an outsider brings."""

import pytest

from sensewise.errors import ConfigError
from sensewise.evaluate.method import PIXEL_METHODS, Method, method_from_text, pixel_methods
from sensewise.policies.choose import SPREAD_VARIANCE

OWN = """
import torch
from sensewise.evaluate.method import Method
from sensewise.policies.base import Policy

class Raster(Policy):
    def scores(self, observation, mask, context):
        return -torch.arange(mask.shape[1]).float().expand(mask.shape)

class Believer(Raster):
    def __init__(self, prior):
        self.prior = prior

RASTER = Raster()
METHOD = Method("raster-in-two", Raster(), 2)
NUMBER = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_policies.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return "own_policies"


def test_titles_and_methods_agree(quick):
    found = pixel_methods(quick, 7)
    assert set(found) == set(PIXEL_METHODS)
    assert all((method.name, method.steps) == (name, 7) for name, method in found.items())
    assert found["spread-variance-greedy"].choose == SPREAD_VARIANCE


def test_policies_of_ones_own(own, quick):
    raster = method_from_text(f"{own}:Raster", quick, 4)
    assert (raster.name, raster.steps, raster.is_random()) == ("Raster", 4, False)
    assert method_from_text(f"{own}:Believer", quick, 4).policy.prior is quick
    assert method_from_text(f"{own}:RASTER", quick, 4).steps == 4
    assert method_from_text(f"{own}:METHOD", quick, 4).steps == 2
    assert isinstance(method_from_text("greedy", quick, 4), Method)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("spiral", "choose one of greedy"),
        ("own_policies:NUMBER", "neither a Policy"),
        ("own_policies:Nothing", "Nothing"),
    ],
)
def test_policies_that_there_are_not(own, quick, text, words):
    with pytest.raises(ConfigError, match=words):
        method_from_text(text, quick, 4)
