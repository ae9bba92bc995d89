"""What a release promises: locks with hashes, one version everywhere, licences, a wheel that needs no clone."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import sensewise
from sensewise import hub

ROOT = Path(sensewise.__file__).parent
PROJECT = ROOT.parent.parent
LOCKS = ("run", "dev", "docs")
NAME = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?")
POSIX_ONLY = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "spwd", "syslog", "termios", "tty"}
SPDX = {"Apache-2.0", "CC-BY-4.0", "CC-BY-SA-3.0", "CC0-1.0", "LicenseRef-CIFAR-10", "LicenseRef-public-domain", "MIT"}
pytestmark = pytest.mark.skipif(not (PROJECT / "pyproject.toml").is_file(), reason="needs the source tree")


def text(name):
    return (PROJECT / name).read_text(encoding="utf-8")


def project():
    return tomllib.loads(text("pyproject.toml"))


def normal(requirement):
    return re.sub(r"[-_.]+", "-", NAME.match(requirement)[1]).lower()


def locked(name):
    """Packages of a lock to versions, after every one of them was seen to have a hash."""
    entries = re.split(r"\n(?! )", text(f"lock/{name}.txt").strip())
    found = {}
    for entry in entries:
        first, *hashes = entry.replace("\\\n", "\n").splitlines()
        assert hashes, first
        assert all(re.fullmatch(r"\s+--hash=sha256:[0-9a-f]{64}\s*", line) for line in hashes), first
        package, version = first.split(";")[0].strip().split("==")
        found[normal(package)] = version
    return found


def wanted(extras):
    """Names of what the package needs with some extras, extras of extras included."""
    about, names = project()["project"], set()
    pending = [*about["dependencies"], *(line for extra in extras for line in about["optional-dependencies"][extra])]
    while pending:
        line = pending.pop()
        if normal(line) == "sensewise":
            more = re.search(r"\[(.*)\]", line)[1].split(",")
            pending += [line for extra in more for line in about["optional-dependencies"][extra]]
        else:
            names.add(normal(line))
    return names - {"torch"}


@pytest.mark.parametrize(("name", "extras"), [("run", ["web", "onnx"]), ("dev", ["dev"]), ("docs", ["docs"])])
def test_the_locks_hold_everything_with_its_hash(name, extras):
    assert wanted(extras) <= set(locked(name))
    assert {"hatchling", "editables"} <= set(locked(name))
    assert "torch" not in locked(name)
    assert "://" not in text(f"lock/{name}.txt")


def test_the_locks_agree_with_each_other_and_with_the_build():
    run, dev, docs = (locked(name) for name in LOCKS)
    for other in (dev, docs):
        assert {name: other[name] for name in run if name in other} == {
            name: run[name] for name in run if name in other
        }
    assert project()["build-system"]["requires"] == [f"hatchling=={run['hatchling']}"]


def test_the_version_is_the_same_everywhere():
    version = sensewise.__version__
    assert project()["project"]["version"] == version
    assert f"\nversion: {version}\n" in text("CITATION.cff")
    assert re.search(r"^## (.*)$", text("CHANGELOG.md"), re.MULTILINE)[1] == version
    assert f"sensewise-{version}-py3-none-any.whl" in text("docs/installing.md")
    assert "Active Data Acquisition with Side Information via Discrete Diffusion Priors" in text("CITATION.cff")


@pytest.mark.parametrize(
    "path", [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))], ids=lambda p: p.name
)
def test_no_page_promises_a_package_index(path):
    assert not re.search(r"pip install ['\"]?sensewise(?![-/])", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_exists_on_posix_alone(path):
    """Modules that Windows lacks are imported where their absence is caught; no path of one system is written out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    caught = {node for try_ in ast.walk(tree) if isinstance(try_, ast.Try) for node in ast.walk(try_)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and node not in caught:
            names = {node.module} if isinstance(node, ast.ImportFrom) else {alias.name for alias in node.names}
            assert not names & POSIX_ONLY
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in caught:
            assert not re.match(r"/(bin|dev|etc|home|opt|proc|sys|tmp|usr|var)(/|$)", node.value)


def expression(licence):
    """The SPDX expression at the beginning of a licence."""
    return licence.partition(" (")[0]


def test_everything_bundled_has_a_licence_of_spdx():
    apart = json.loads((ROOT / "assets" / "licences.json").read_text(encoding="utf-8"))
    for path in (ROOT / "assets").rglob("*"):
        if not path.is_file() or path.name == "licences.json":
            continue
        name = path.relative_to(ROOT / "assets")
        card = path.parent / "config.json"
        if card.is_file():
            licence = json.loads(card.read_text(encoding="utf-8"))["licence"]
        else:
            entry = apart[name.as_posix() if len(name.parts) == 1 else name.parent.as_posix()]
            assert set(expression(entry["licence"]).split(" AND ")) <= SPDX
            licence = entry.get("licence of the data", entry["licence"])
        assert set(expression(licence).split(" AND ")) <= SPDX, name
    assert ("licence of the weights", "Apache-2.0") in hub.card("mnist").lines()


def test_the_workflow_runs_what_every_change_has_to_pass():
    workflow = text(".github/workflows/ci.yml")
    for command in (".ci/run", "make wheel", "make test-slow"):
        assert f"- run: {command}\n" in workflow
    assert "make docs" in text(".ci/run")


@pytest.mark.slow
def test_a_wheel_below_40_mb_runs_outside_the_clone(tmp_path):
    """Built, installed into an environment of its own beside the packages of this one, run in an empty folder."""

    def run(*command, **options):
        return subprocess.run(
            list(map(str, command)), check=True, capture_output=True, text=True, timeout=600, **options
        )

    source = tmp_path / "source"
    run("git", "clone", "--quiet", PROJECT, source)
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path / "dist", source)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert wheel.stat().st_size < 40e6
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith("licenses/LICENSE") for name in names)
    run(*pip, "install", "--no-deps", "--target", tmp_path / "installed", wheel)
    empty = tmp_path / "empty"
    empty.mkdir()
    packages = os.pathsep.join([str(tmp_path / "installed"), *(path for path in sys.path if "site-packages" in path)])
    environment = {**os.environ, "PYTHONPATH": packages, "OMP_NUM_THREADS": "1"}
    where = run(sys.executable, "-c", "import sensewise; print(sensewise.__file__)", cwd=empty, env=environment)
    assert Path(where.stdout.strip()).is_relative_to(tmp_path / "installed")
    for command in (["info", "any-grey"], ["acquire", "digit:3", "--steps", "2"], ["demo", "--images", "2"]):
        run(sys.executable, "-m", "sensewise", *command, cwd=empty, env=environment)
    assert (empty / "runs" / "demo" / "report.html").is_file()
