from dataclasses import asdict, dataclass, field
from typing import Literal

import pytest

from sensewise import hub, presets
from sensewise.errors import ConfigError
from sensewise.files import read_json
from sensewise.train.designer import DesignerSettings
from sensewise.train.prior import PriorSettings


@dataclass(frozen=True)
class Inner:
    width: int = 3


@dataclass(frozen=True)
class Outer:
    rate: float = 0.1
    count: int = 2
    name: str = "a"
    fast: bool = False
    kind: Literal["x", "y"] = "x"
    sizes: tuple[int, ...] = (1, 2)
    limit: float | None = None
    inner: Inner = field(default_factory=Inner)

    def __post_init__(self):
        if self.count < 0:
            raise ConfigError("count must not be negative")


def load(tmp_path, text, section="part"):
    path = tmp_path / "own.toml"
    path.write_text(text)
    return presets.load(path, section, Outer)


def test_a_section_overrides_defaults(tmp_path):
    text = '[a.b-c]\nrate = 1\nfast = true\nkind = "y"\nsizes = [4]\nlimit = 2\n[a.b-c.inner]\nwidth = 7\n'
    found = load(tmp_path, text, "a.b-c")
    assert found == Outer(rate=1.0, fast=True, kind="y", sizes=(4,), limit=2.0, inner=Inner(7))
    assert isinstance(found.rate, float)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("rat = 1", "unknown key 'rat'; allowed are count, fast, inner"),
        ('rate = "fast"', "rate must be a valid number, got 'fast'"),
        ("rate = true", "rate must be a valid number, got True"),
        ("count = 1.5", "count must be a valid integer"),
        ("count = true", "count must be a valid integer"),
        ("fast = 1", "fast must be a valid boolean"),
        ("name = 3", "name must be a valid string"),
        ('kind = "z"', "kind must be 'x' or 'y', got 'z'"),
        ("sizes = 3", "sizes must be a valid array"),
        ('sizes = [1, "a"]', "sizes must be a valid integer, got 'a'"),
        ('limit = "high"', "limit must be a valid number"),
        ("inner = 3", "inner: a table is expected"),
        ("inner = {depth = 1}", "inner: unknown key 'depth'; allowed are width"),
        ("count = -1", "count must not be negative"),
        ("rate = inf", "rate must be a finite number"),
        (f"rate = 1{400 * '0'}", "rate must be"),
        ("name = 2024-01-01", "not JSON serializable"),
        ("inner = {width = 0.5}", "inner: width must be a valid integer"),
    ],
)
def test_wrong_keys_and_types_are_named(tmp_path, line, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load(tmp_path, f"[part]\n{line}\n")
    assert "own.toml [part]" in str(caught.value)


@pytest.mark.parametrize("section", ["other", "part.deeper", "part.rate.deeper"])
def test_missing_section(tmp_path, section):
    with pytest.raises(ConfigError, match="no section"):
        load(tmp_path, "[part]\nrate = 1\n", section)


def test_bad_toml(tmp_path):
    with pytest.raises(ConfigError, match="not valid TOML"):
        load(tmp_path, "[part\n")
    (tmp_path / "own.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not valid TOML"):
        presets.load(tmp_path / "own.toml", "part", Outer)


def test_unknown_preset(tmp_path):
    for name in ("gpu", tmp_path):
        with pytest.raises(ConfigError, match="cpu"):
            presets.load(name, "part", Outer)


@pytest.mark.parametrize(
    ("preset", "stage"), [("cpu", "random-masks"), ("cpu", "on-policy"), ("paper", "random-masks")]
)
def test_bundled_presets(preset, stage):
    found = presets.load(preset, f"prior.mnist.{stage}", PriorSettings)
    assert found.fit.steps > 1000
    assert (found.curriculum.on_policy > 0) == (stage == "on-policy")
    assert found.network.name == ("paper-conv" if preset == "paper" else "unet")


SHIPPED = {
    "mnist-random-masks": "prior.mnist.random-masks",
    "mnist": "prior.mnist.small-2",
    "cifar10-random-masks": "prior.cifar10.random-masks",
    "mnist-generator": "generator.mnist.disarm",
    "mnist-generator-paper-decoder": "generator.mnist.paper-decoder",
    "mnist-generator-observed": "generator.mnist.observed",
    "mnist-generator-straight-through": "generator.mnist.straight-through",
    "cifar10-generator": "generator.cifar10.disarm",
    "cifar10-generator-entropy": "generator.cifar10.entropy",
}


def agrees(card, settings):
    """Whether everything that a card says about its training stands in the settings as well."""
    if isinstance(card, dict):
        return all(agrees(value, settings[name]) for name, value in card.items())
    return settings == (tuple(card) if isinstance(card, list) else card)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_cpu_preset_says_what_was_run(name):
    section = SHIPPED[name]
    into = PriorSettings if section.startswith("prior") else DesignerSettings
    settings = asdict(presets.load("cpu", section, into))
    assert agrees(read_json(hub.ASSETS / name / hub.CONFIG)["training"], settings)
