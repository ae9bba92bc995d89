import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from conftest import make_absorbing, random_tokens
from sensewise import cli
from sensewise.checkpoint import save_run, write_json
from sensewise.data import FETCH, LOAD, bundled_cifar10, bundled_mnist
from sensewise.experiments import mnist_sequential


@pytest.fixture
def sensewise(monkeypatch, capsys, tmp_path):
    """Run the command in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SENSEWISE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["sensewise", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        shown = capsys.readouterr()
        assert "Traceback" not in shown.out + shown.err
        return stopped.value.code or 0, shown.out, shown.err.strip()

    return call


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


def test_acquire_a_bundled_digit(sensewise, tmp_path):
    code, out, _ = sensewise("acquire", "digit:3", "--label", 0, "--out", "out", "--samples", 2)
    assert code == 0
    assert out.startswith("102 of 1024 pixels measured in 16 steps")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "acquisition.json",
        "animation.gif",
        "mask.npy",
        "mask.png",
        "reconstruction.png",
        "samples.png",
        "steps.png",
        "uncertainty.npy",
        "uncertainty.png",
    }
    outcome = json.loads((tmp_path / "out" / "acquisition.json").read_text())
    assert outcome["measured"] == np.load(tmp_path / "out" / "mask.npy").sum() == 102
    assert outcome["errors"] < 40
    digit = bundled_mnist(4).tokens[3, 0].numpy() - 1
    with Image.open(tmp_path / "out" / "reconstruction.png") as picture:
        assert (np.asarray(picture.convert("L")) // 255 != digit).sum() == outcome["errors"]
    with Image.open(tmp_path / "out" / "samples.png") as picture:
        assert picture.size == (2 * 4 * 34, 4 * 34)


def test_acquire_a_picture(sensewise, tmp_path, quick_run):
    tokens = random_tokens((64, 64))
    Image.fromarray(((tokens - 1) * 255).numpy().astype(np.uint8)).save(tmp_path / "picture.png")
    code, out, _ = sensewise(
        "acquire", "picture.png", "--budget", 20, "--steps", 2, "--prior", quick_run, "--samples", 0
    )
    assert code == 0
    assert out.startswith("20 of 1024 pixels measured in 2 steps")
    assert not (tmp_path / "runs/acquire/samples.png").exists()


ACQUIRE = [
    (["--budget", "0"], "budget 0 is not possible"),
    (["--budget", "1"], "budget 1 is not possible"),
    (["--budget", "1.0"], "budget 1.0 is not possible"),
    (["--budget", "1.5"], "budget 1.5 is not possible"),
    (["--budget", "-1"], "budget -1 is not possible"),
    (["--budget", "1024"], "budget 1024 is not possible"),
    (["--budget", "9" * 400], "is not possible"),
    (["--budget", "ten"], "budget 'ten' is not a number"),
    (["--budget", "nan"], "is not a number"),
    (["--budget", ""], "is not a number"),
    (["--steps", "0"], "steps must be a whole number of at least 1"),
    (["--steps", "103"], "103 steps need at least 103 measurements"),
    (["--steps", "ten"], "Invalid value for"),
    (["--label", "10"], "label 10 is not possible: allowed are 0..9"),
    (["--label", "-1"], "label -1 is not possible: allowed are 0..9"),
    (["--label", "seven"], "Invalid value for"),
    (["--samples", "65"], "Invalid value for"),
    (["--seed", "-1"], "Invalid value for"),
    (["--prior", "mnits"], "no model called 'mnits'"),
    (["--method", "greedi"], "no policy 'greedi': choose one of greedy, spread-greedy"),
    (["--out", "file/below"], "cannot write"),
]


@pytest.mark.parametrize(("options", "message"), ACQUIRE, ids=lambda value: str(value)[:40])
def test_acquire_with_bad_options(sensewise, tmp_path, options, message):
    (tmp_path / "file").write_text("here")
    (tmp_path / "runs/acquire").mkdir(parents=True)
    (tmp_path / "runs/acquire/mask.png").write_text("an older result")
    before = files(tmp_path)
    code, _, err = sensewise("acquire", "digit:3", *options)
    assert code == 2
    assert message in " ".join(err.split())
    assert files(tmp_path) == before


def test_acquire_a_bundled_photograph(sensewise, tmp_path):
    """The posterior mean of the bundled prior, judged in dB; random pixels are worse than spread ones."""
    found = {}
    for method in ("spread-variance-greedy", "random"):
        options = [] if method == "spread-variance-greedy" else ["--method", method]
        code, out, _ = sensewise(
            "acquire", "photo:1", "--prior", "cifar10-random-masks", "--budget", 0.3, "--samples", 0, *options
        )
        assert code == 0
        outcome = json.loads((tmp_path / "runs/acquire/acquisition.json").read_text())
        assert outcome["measured"] == 307
        assert f"{outcome['psnr']:.1f} dB in the reconstruction" in out
        with Image.open(tmp_path / "runs/acquire/reconstruction.png") as picture:
            drawn = np.moveaxis(np.asarray(picture), 2, 0) / 255
        error = drawn - (bundled_cifar10(2).tokens[1].numpy() - 1.0) / 7
        assert abs(-10 * np.log10((error**2).mean()) - outcome["psnr"]) < 0.1
        found[method] = outcome["psnr"]
    assert found["spread-variance-greedy"] > found["random"]


@pytest.mark.parametrize("name", ["photo:512", "photo:x"])
def test_no_such_photograph(sensewise, name):
    code, _, err = sensewise("acquire", name, "--prior", "cifar10-random-masks")
    assert code == 2
    assert "give photo:0 to photo:511" in " ".join(err.split())


def test_a_digit_does_not_fit_the_prior_of_photographs(sensewise):
    code, _, err = sensewise("acquire", "digit:3", "--prior", "cifar10-random-masks")
    assert code == 2
    assert "takes tokens of shape (B, 3, 32, 32), got (1, 1, 32, 32)" in " ".join(err.split())


@pytest.mark.parametrize("name", ["digit:2560", "digit:-1", "digit:", "digit:x", "digit:²", "digit:" + "9" * 5000])
def test_no_such_digit(sensewise, name):
    code, _, err = sensewise("acquire", name)
    assert code == 2
    assert "2560" in err or "2559" in err


@pytest.mark.parametrize("name", ["nothing.png", "text.png", "folder", "[/bold].png", "empty.png", "[prior.x].png"])
def test_no_such_picture(sensewise, tmp_path, name):
    (tmp_path / "text.png").write_text("not a picture")
    (tmp_path / "empty.png").touch()
    (tmp_path / "folder").mkdir()
    code, _, err = sensewise("acquire", name)
    assert code == 2
    assert err.startswith((f"error: {name} ", f"error: no picture that can be read in {name}"))


@pytest.mark.parametrize("kind", ["png", "gif", "jpeg", "bmp"])
def test_pictures_cut_short(tmp_path, quick, kind):
    from sensewise.acquire_image import read_picture
    from sensewise.errors import DataError

    path = tmp_path / f"picture.{kind}"
    noise = np.random.default_rng(0).integers(0, 256, (16, 16), dtype=np.uint8)
    Image.fromarray(noise).save(path, kind)
    content = path.read_bytes()
    for kept in range(0, len(content) // 2, 7):
        path.write_bytes(content[:kept])
        with pytest.raises(DataError, match="not a picture"):
            read_picture(path, quick.shape)


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
