import json
import shutil
import subprocess
import sys

import pytest

from conftest import make_absorbing
from sensewise import __version__, data, hub
from sensewise.files import write_json


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


COMMANDS = ["demo", "data", "data fetch", "train", "train prior", "run", "report", "acquire", ""]


@pytest.mark.parametrize("command", COMMANDS)
def test_help(sensewise, command):
    code, out, _ = sensewise(*command.split(), "--help")
    assert code == 0
    assert "Usage:" in out
    assert "--help" in out


def test_version(sensewise):
    assert sensewise("--version")[:2] == (0, "sensewise 0.1.0\n")


def test_it_runs_as_a_program(tmp_path):
    command = [sys.executable, "-m", "sensewise.cli", "acquire", "digit:3", "--budget", "ten"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: budget 'ten' is not a number")
    assert "Traceback" not in done.stderr


def test_demo(sensewise, tmp_path, quick_run):
    code, out, _ = sensewise("demo", "--images", 4, "--prior", quick_run)
    assert code == 0
    assert "label-greedy, 16 steps" in out
    results = json.loads((tmp_path / "runs/demo/results.json").read_text())
    assert {row["images"] for row in results["rows"]} == {4}
    assert len(results["rows"]) == 7 * 4 * 2  # methods, budgets, metrics
    page = (tmp_path / "runs/demo/report.html").read_text()
    assert "http://" not in page
    assert "https://" not in page


def test_demo_of_photographs(sensewise, tmp_path):
    prior = make_absorbing(shape=(3, 32, 32), num_states=8)
    sizes = {"network": "unet", "widths": [8, 16], "blocks": [1, 1], "embedding": 8}
    model = {"shape": [3, 32, 32], "num_states": 8, "num_labels": 10, **sizes}
    save_run(tmp_path / "colour", {"kind": "prior", "data": "cifar10", "model": model}, prior)
    code, out, _ = sensewise("demo", "--dataset", "cifar10", "--images", 3, "--prior", "colour")
    assert code == 0
    assert "grid probe + variance-greedy, 16 steps" in out
    assert "PSNR in dB" in out
    rows = json.loads((tmp_path / "runs/demo/results.json").read_text())["rows"]
    assert {row["paper"] for row in rows if row["method"] == "random" and row["metric"] == "psnr"} == {
        20.14,
        24.33,
        27.47,
        30.87,
    }
    assert "What to measure on cifar10" in (tmp_path / "runs/demo/report.html").read_text()


def damage_truncated(run):
    path = run / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def damage_foreign(run):
    (run / "weights.safetensors").write_bytes(b"PK\x03\x04" + bytes(100))


def damage_missing(run):
    (run / "weights.safetensors").unlink()


def damage_config(run):
    config = json.loads((run / "config.json").read_text())
    config["model"]["widths"] = [16, 16]
    write_json(run / "config.json", config)


def damage_json(run):
    (run / "config.json").write_text("{")


DAMAGES = [damage_truncated, damage_foreign, damage_missing, damage_config, damage_json]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("command", ["acquire digit:3", "demo --images 2"])
def test_damaged_weights(sensewise, tmp_path, quick_run, damage, command):
    shutil.copytree(quick_run, tmp_path / "run")
    damage(tmp_path / "run")
    before = files(tmp_path)
    code, _, err = sensewise(*command.split(), "--prior", "run")
    assert code == 2
    assert err.startswith("error: run")
    assert files(tmp_path) == before


CUT_SHORT = b"\x00\x00\x08\x03\x00\x00\x00\x02\x00\x00\x00\x1c\x00\x00\x00\x1c" + bytes(100)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("demo --images 0", "0 images are not possible"),
        ("demo --images 2561", "the package holds 1 to 2560"),
        ("demo --dataset cifar10 --images 513", "the package holds 1 to 512"),
        ("demo --dataset imagenet", "no data set 'imagenet': choose one of"),
        ("demo --images two", "Invalid value for"),
        ("demo --out file/below", "cannot write"),
        ("demo --prior nothing", "no model called 'nothing'"),
        ("run nothing", "no experiment 'nothing': choose one of mnist-sequential"),
        ("run mnist-sequential --results file/below", "cannot write"),
        ("run mnist-sequential --seeds 0", "Invalid value for"),
        ("data fetch cifar", "no data set 'cifar': choose one of mnist"),
        ("train prior --dataset cifar", "no data set 'cifar'"),
        ("train prior --preset gpu", "no preset 'gpu': choose one of cpu"),
        ("run mnist-sequential --preset gpu", "no preset 'gpu': choose one of cpu"),
        ("train prior --stage third", "has no section [prior.mnist.third]"),
        ("train prior --preset own.toml", "unknown key 'batch'; allowed are batch_size"),
        ("train prior --stage on-policy", "needs --init"),
        ("train prior", "MNIST is not here"),
        ("train prior --data cut", "is cut short"),
        ("train prior --max-minutes -1", "Invalid value for"),
        ("report --results nowhere", "no results in nowhere"),
        ("report --results broken", "is not a results file"),
        ("paint", "No such command 'paint'"),
        ("demo --colour red", "No such option"),
    ],
)
def test_bad_input(sensewise, tmp_path, command, message):
    (tmp_path / "file").write_text("here")
    (tmp_path / "own.toml").write_text("[prior.mnist.random-masks]\nbatch = 3\n")
    (tmp_path / "cut/mnist").mkdir(parents=True)
    (tmp_path / "cut/mnist/train-images-idx3-ubyte").write_bytes(CUT_SHORT)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/mnist-sequential.json").write_text('{"rows": []}')
    (tmp_path / "runs/demo").mkdir(parents=True)
    (tmp_path / "runs/demo/results.json").write_text("an older result")
    before = files(tmp_path)
    code, _, err = sensewise(*command.split())
    assert code == 2
    assert message in " ".join(err.replace("│", " ").split())
    assert files(tmp_path) == before


def test_run_and_report(sensewise, tmp_path, monkeypatch, tiny_results):
    shutil.copytree(tiny_results.parent, tmp_path / "results")
    code, _, _ = sensewise("report")
    assert code == 0
    assert (tmp_path / "docs/results.md").is_file()
    assert (tmp_path / "report.html").is_file()


def test_run_writes_results(sensewise, tmp_path, monkeypatch, quick, digits):
    monkeypatch.setattr(mnist_sequential, "load_prior", lambda name: quick)
    monkeypatch.setattr(mnist_sequential, "bundled_mnist", lambda: digits.first(1))
    monkeypatch.setattr(mnist_sequential, "BUDGETS", (0.05,))
    code, out, err = sensewise("run", "mnist-sequential", "--seeds", 1)
    assert code == 0
    assert "60 rows" in out
    assert "left out" in err
    assert json.loads((tmp_path / "results/mnist-sequential.json").read_text())["experiment"] == "mnist-sequential"


def test_fetch(sensewise, tmp_path, monkeypatch):
    monkeypatch.setitem(FETCH, "mnist", lambda root, console: root)
    assert sensewise("data", "fetch", "mnist", "--data", "here")[:2] == (0, "mnist is in here\n")


def test_train_prior(sensewise, tmp_path, monkeypatch, tiny_digits):
    monkeypatch.setitem(LOAD, "mnist", lambda split, root: tiny_digits)
    (tmp_path / "own.toml").write_text(
        "[prior.mnist.random-masks]\nbatch_size = 4\n"
        "[prior.mnist.random-masks.network]\nwidths = [8, 16]\nblocks = [1, 1]\n"
        "[prior.mnist.random-masks.fit]\nsteps = 2\nvalidate_every = 10\nsave_minutes = 0\n"
    )
    monkeypatch.setattr("sensewise.curriculum.PriorObjective.validate", lambda self, model: {"held_out": 1.0})
    train = ("train", "prior", "--preset", "own.toml", "--out", "run")
    assert sensewise(*train, "--max-minutes", 0)[:2] == (0, "run: stopped early; continue with --resume\n")
    before = files(tmp_path)
    code, _, err = sensewise(*train)
    assert code == 2
    assert "holds a run already" in err
    assert files(tmp_path) == before
    assert sensewise(*train, "--resume")[:2] == (0, "run: complete\n")
    assert (tmp_path / "run/weights.safetensors").is_file()
