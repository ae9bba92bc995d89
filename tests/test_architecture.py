import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import sensewise
import zoo
from conftest import make_absorbing, make_context, make_empirical, random_kspace, seeded
from sensewise import hub, masks
from sensewise.loop import acquire
from sensewise.policies.starts import CentralBlock, GridProbe, RandomProbe
from sensewise.predictions import Mixture
from sensewise.sensors.base import Side
from sensewise.sensors.pixels import PixelSensor
from sensewise.sensors.rows import RowSensor

ROOT = Path(sensewise.__file__).parent
PROJECT = ROOT.parent.parent
FILES = sorted(ROOT.rglob("*.py"))
every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
in_the_project = pytest.mark.skipif(not (PROJECT / "pyproject.toml").is_file(), reason="needs the source tree")


@in_the_project
def test_imports_go_downward_only():
    """The contracts of `pyproject.toml`: layers and what may not be reached, not even through others."""
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--config", PROJECT / "pyproject.toml"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)
    assert found.returncode == 0, found.stdout + found.stderr


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@every_file
def test_nothing_is_unpickled(path):
    banned = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    assert not banned & {module.split(".")[0] for module in imported_modules(path)}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in {("torch", "load"), ("torch", "save")}
            assert node.attr != "read_pickle"
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant)
            assert node.value.value is False


@every_file
def test_no_other_program_is_waited_for_without_end(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("subprocess."):
            assert ast.unparse(node.func) == "subprocess.run", f"line {node.lineno}: it kills what takes too long"
            assert "timeout" in {keyword.arg for keyword in node.keywords}, f"line {node.lineno}"


@every_file
def test_a_module_says_what_it_is(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_public_names_exist_and_are_few():
    assert len(set(sensewise.__all__)) == len(sensewise.__all__) <= 16
    for name in sensewise.__all__:
        assert getattr(sensewise, name) is not None
    assert set(sensewise.__all__) < set(dir(sensewise))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sensewise.nothing  # noqa: B018


def test_importing_the_package_imports_no_torch():
    script = "import sys, sensewise; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_the_root_is_small():
    modules = [path for path in ROOT.glob("*.py") if path.name not in ("__init__.py", "__main__.py")]
    assert len(modules) <= 14


def names_in(folder):
    """Modules without their suffix, folders with a slash; what is not Python does not count."""
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    folders = {f"{path.name}/" for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__"}
    return modules | folders


@in_the_project
def test_the_tree_of_the_docs_is_the_folder():
    """`name.py` or `folder/`, two spaces at least, the names in the folder up to a colon, and what they are."""
    text = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = re.search(r"```\nsrc/sensewise/\n(.*?)```", text, re.DOTALL).group(1)
    joined = re.sub(r"\n {6,}", " ", tree)  # a long line goes on below
    entries = dict(re.split(r" {2,}", line.strip(), maxsplit=1) for line in joined.splitlines())
    found = {name.removesuffix(".py") for name in entries}
    assert found == names_in(ROOT)
    for name, about in entries.items():
        if name.endswith("/") and name not in ("assets/", "presets/"):
            assert set(about.split(":")[0].split()) == names_in(ROOT / name), name


@in_the_project
def test_the_reference_has_every_module():
    """All but what is not meant to be imported, which the page says; each once."""
    unlisted = re.compile(r"sensewise\.(paper|beyond|apps\.cli|apps\.web)\.|.*__main__$")
    modules = {
        ".".join(["sensewise", *path.relative_to(ROOT).with_suffix("").parts])
        for path in FILES
        if path.name != "__init__.py"
    }
    pages = sorted((PROJECT / "docs").glob("api*.md"))
    shown = [name for page in pages for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.M)]
    assert len(shown) == len(set(shown))
    assert set(shown) - {"sensewise.presets"} == {name for name in modules if not unlisted.match(name)}
    navigation = (PROJECT / "mkdocs.yml").read_text(encoding="utf-8")
    assert all(f": {page.name}\n" in navigation for page in pages)


def uses_of_randomness(tiny_digits):
    prior, empirical = make_absorbing(), make_empirical()
    x, label = tiny_digits[slice(0, 3)]
    nothing = torch.zeros(1, 1, 4, 4, dtype=torch.int64)
    yield lambda: masks.random(2, 16, 4, seeded())
    yield lambda: masks.variable_density(2, (4, 4), 4, seeded())
    yield lambda: masks.jittered_grid(2, (4, 4), 4, seeded())
    yield lambda: masks.sample_on_budget(torch.zeros(2, 16), 4, seeded())
    sensor = PixelSensor(x)
    side = Side(label, sensor.summary(2))
    for make in zoo.PIXEL_POLICIES.values():
        policy = make(torch.device("cpu"))
        for start in (RandomProbe(), GridProbe(), None):
            yield lambda policy=policy, start=start: acquire(policy, sensor, 8, steps=2, side=side, start=start)
    rows = RowSensor(random_kspace(3, zoo.ROWS, zoo.COLUMNS))
    scouts = Side(summary=rows.summary(zoo.ACS))
    for make in zoo.ROW_POLICIES.values():
        policy = make(torch.device("cpu"))
        yield lambda policy=policy: acquire(policy, rows, 8, side=scouts, start=CentralBlock(zoo.ACS))
    for choice in zoo.PIXEL_CHOICES.values():
        yield lambda choice=choice: choice(torch.zeros(2, 64), 5, make_context(observation=torch.zeros_like(x[:2])))
    yield lambda: empirical.sample(nothing, None, seeded(), steps=3)
    yield lambda: prior(x).sample(3, seeded())
    yield lambda: Mixture(*torch.ones(3, 1, 1, 2, 4, 4), 8).sample(3, seeded())
    yield lambda: hub.load_prior("mnist")


def test_global_random_state_is_never_touched(tiny_digits):
    for use in list(uses_of_randomness(tiny_digits)):
        before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
        use()
        assert torch.equal(torch.get_rng_state(), before)
        assert (np.random.get_state()[1] == numpy_before).all()  # noqa: NPY002
