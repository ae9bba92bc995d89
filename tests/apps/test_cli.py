import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from apps.test_acquire import OWN, files
from apps.web_fixtures import tiny_config
from conftest import make_absorbing
from data.test_imported import write_folder
from sensewise import __version__, data, hub
from sensewise.apps import cli
from sensewise.apps.cli.options import ensure_writable
from sensewise.errors import OutputError
from sensewise.files import write_json
from tiny_runs import PRESET

COMMANDS = [
    "demo",
    "data",
    "data fetch",
    "train",
    "train prior",
    "run",
    "merge",
    "report",
    "acquire",
    "evaluate",
    "info",
    "export",
    "serve",
    "bench",
    "",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_help(sensewise, command):
    code, out, _ = sensewise(*command.split(), "--help")
    assert code == 0
    assert "Usage:" in out
    assert "--help" in out


def test_version(sensewise):
    assert sensewise("--version")[:2] == (0, f"sensewise {__version__}\n")


def test_commands_are_listed_as_a_newcomer_needs_them(sensewise):
    _, out, _ = sensewise("--help")
    words = [line.split()[1] for line in out.splitlines() if line.startswith("│") and len(line.split()) > 2]
    assert [word for word in words if word in cli.ORDER] == list(cli.ORDER)


def test_help_is_quick_because_nothing_heavy_is_imported(tmp_path):
    """One second of processor time, most of which is Python's own."""
    code = """
import resource, sys
sys.argv = ["sensewise", "--help"]
from sensewise.apps.cli import main
try:
    main()
except SystemExit:
    pass
heavy = {"torch", "numpy", "matplotlib", "pandas", "pydantic", "lightning_fabric", "h5py", "PIL"} & set(sys.modules)
used = resource.getrusage(resource.RUSAGE_SELF)
print(sorted(heavy), used.ru_utime + used.ru_stime, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    heavy, seconds = done.stderr.rsplit(" ", 1)
    assert heavy == "[]"
    assert float(seconds) < 1


def test_it_runs_as_a_program(tmp_path):
    command = [sys.executable, "-m", "sensewise", "acquire", "digit:3", "--budget", "ten"]
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
    hub.save(tmp_path / "colour", {"kind": "prior", "data": "cifar10", "model": model}, prior)
    code, out, _ = sensewise("demo", "--dataset", "cifar10", "--images", 3, "--prior", "colour")
    assert code == 0
    assert "grid probe + variance-greedy, 16 steps" in out
    assert "PSNR (dB)" in out
    rows = json.loads((tmp_path / "runs/demo/results.json").read_text())["rows"]
    assert {row["paper"] for row in rows if row["method"] == "random" and row["metric"] == "psnr"} == {
        20.14,
        24.33,
        27.47,
        30.87,
    }
    assert "What to measure on cifar10" in (tmp_path / "runs/demo/report.html").read_text()


def test_demo_of_the_bundled_knee(sensewise, tmp_path):
    code, out, err = sensewise("demo", "--dataset", "knee", "--images", 1)
    assert code == 0
    assert "judged by U-Net B" in out
    assert "none of them has seen a knee" in err
    results = json.loads((tmp_path / "runs/demo/results.json").read_text())
    assert {"static-search", "sequential-value", "acs-variable-density"} <= {row["method"] for row in results["rows"]}
    assert "What to measure on knee" in (tmp_path / "runs/demo/report.html").read_text()
    code, _, err = sensewise("demo", "--dataset", "knee", "--images", 5)
    assert code == 2
    assert "holds 1 to 4 knee slices" in err


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
        ("demo --images 0", "0 scenes of mnist are not possible"),
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


EXPERIMENT = """
from sensewise.data import bundled_mnist
from sensewise.evaluate.experiment import Experiment
from sensewise.evaluate.method import Method
from sensewise.evaluate.own_data import pixel_task
from sensewise.evaluate.results import Results
from sensewise.hub import load_prior
from sensewise.policies.simple import Random

def run(setup):
    task = pixel_task(bundled_mnist(2), load_prior("quick"), ("errors",))
    rows = setup.evaluate(task, [Method("random", Random())], (0.1, 0.2))
    return Results("own", setup.preset, "mnist", rows, notes=["Two [digits] only."])

OWN = Experiment("own", run)
"""


@pytest.fixture
def own_experiment(tmp_path, quick_run):
    (tmp_path / "own_table.py").write_text(EXPERIMENT)
    shutil.copytree(quick_run, tmp_path / "quick")


def test_run_an_experiment_of_your_own(sensewise, tmp_path, own_experiment):
    code, out, err = sensewise("run", "own_table:OWN", "--seeds", 1)
    assert (code, out) == (0, "results/own.json: 2 rows\n")
    assert err == "Two [digits] only."
    assert json.loads((tmp_path / "results/own.json").read_text())["experiment"] == "own"
    code, _, err = sensewise("run", "own_table:run")
    assert code == 2
    assert "own_table:run is not a Experiment" in err


def test_shards_are_merged(sensewise, tmp_path, own_experiment):
    for shard in ("1/2", "2/2"):
        code, out, _ = sensewise("run", "own_table:OWN", "--seeds", 2, "--shard", shard)
        assert (code, out) == (0, "this shard of own is done: merge all with `sensewise merge own_table:OWN`\n")
    assert sensewise("merge", "own_table:OWN", "--seeds", 2)[:2] == (0, "results/own.json: 2 rows\n")
    whole = json.loads((tmp_path / "results/own.json").read_text())["rows"]
    sensewise("run", "own_table:OWN", "--seeds", 2, "--results", "alone")
    assert json.loads((tmp_path / "alone/own.json").read_text())["rows"] == whole


def test_rows_are_kept(sensewise, tmp_path, own_experiment):
    path = tmp_path / "results/own.json"
    code, _, err = sensewise("run", "own_table:OWN", "--keep")
    assert code == 2
    assert "own.json does not exist" in err
    assert sensewise("run", "own_table:OWN", "--seeds", 2)[0] == 0
    before = json.loads(path.read_text())
    path.write_text(json.dumps(before | {"commit": "earlier"}))
    code, _, err = sensewise("run", "own_table:OWN", "--seeds", 2, "--again", "random")
    assert code == 2
    assert "--again goes with --keep" in err
    assert sensewise("run", "own_table:OWN", "--seeds", 2, "--keep")[0] == 0
    assert json.loads(path.read_text())["rows"] == [row | {"commit": "earlier"} for row in before["rows"]]
    assert sensewise("run", "own_table:OWN", "--seeds", 2, "--keep", "--again", "rand")[0] == 0
    assert json.loads(path.read_text())["rows"] == before["rows"]


def test_fetch(sensewise, monkeypatch):
    fetched = replace(data.DATASETS["mnist"], fetch=lambda root, console: root)
    monkeypatch.setitem(data.DATASETS, "mnist", fetched)
    assert sensewise("data", "fetch", "mnist", "--data", "here")[:2] == (0, "mnist is in here\n")
    code, _, err = sensewise("data", "fetch", "fastmri")
    assert code == 2
    assert "fastMRI knee slices cannot be fetched" in err


@pytest.mark.parametrize("name", ["[/bold]", "[red]x[/red]", "[link=file:///etc/passwd]y[/link]"])
def test_markup_in_names_is_shown_as_it_is(sensewise, tmp_path, name):
    """What is not ours is never read as markup: no crash after the work, nothing hidden."""
    folder = write_folder(tmp_path / "pictures", 24)
    (folder / "left" / f"{name.replace('/', '')}.png").write_text("not a picture")
    options = ("--size", 24, "--levels", 2, "--licence", name, "--out", name.replace("/", ""))
    code, out, err = sensewise("data", "import", "pictures", *options)
    assert code == 0
    assert out.startswith(f"{name.replace('/', '')}: ")
    assert f"{name.replace('/', '')}.png is not a picture" in err
    config = tiny_config(name, (1, 24, 24), 2, None) | {"licence": name}
    hub.save(tmp_path / "prior", config, hub.build(config, "prior"))
    code, out, _ = sensewise("info", "prior")
    assert code == 0
    assert out.count(name) == 2
    assert sensewise("data", "prepare", name.replace("/", ""), "--images", "pictures")[0] == 2


@pytest.mark.parametrize("model", ["mnist", "mnist-generator", "mnist-loupe-0.1", "mri/unet-a", "mri/row-plan-0.25"])
def test_info_shows_the_card_of_any_kind_of_model(sensewise, model):
    code, out, _ = sensewise("info", model)
    assert code == 0
    assert out.startswith(model)
    for word in ("kind", "licence of the data", "parameters", "trained", "sha256 of the weights"):
        assert word in out


def test_from_a_folder_to_the_report_in_three_commands(sensewise, tmp_path):
    write_folder(tmp_path / "pictures")
    (tmp_path / "tiny.toml").write_text(PRESET.format(steps=2, save_minutes=1))
    (tmp_path / "mine.py").write_text(OWN)
    options = ("--size", 24, "--labels", "folders", "--out", "mydata", "--licence", "CC0")
    _, out, _ = sensewise("data", "import", "pictures", *options)
    assert "32 train, 4 validation, 4 test images, 2 classes" in out
    assert sensewise("train", "prior", "--data", "mydata", "--preset", "tiny.toml", "--out", "prior")[0] == 0
    policies = ("--policy", "mine:TopRows", "--policy", "random", "--policy", "grid-greedy")
    options = ("--prior", "prior", "--data", "mydata", "--seeds", 1, "--out", "report")
    code, out, err = sensewise("evaluate", *options, *policies)
    assert (code, err) == (0, "")
    assert "label-greedy, 16 steps" in out
    assert "greedy, spread, 16 steps" in out
    assert "TopRows" in out
    assert "PSNR (dB)" in out
    assert "paper" not in out
    rows = json.loads((tmp_path / "report/results.json").read_text())["rows"]
    assert {row["budget"] for row in rows} == {0.05, 0.1, 0.2, 0.3}
    found = [(row["method"], row["steps"], row["budget"], row["metric"]) for row in rows]
    assert len(set(found)) == len(found)
    assert {row["method"] for row in rows} >= {
        "random",
        "variable-density",
        "variance-greedy",
        "TopRows",
        "grid-greedy",
    }
    page = (tmp_path / "report/report.html").read_text()
    assert "What to measure on mydata" in page
    assert page.count("data:image/") == 5  # with the PSNR curves of four levels
    assert "PSNR in dB" in page
    _, out, _ = sensewise("info", "prior")
    assert "CC0" in out
    assert "1 x 24 x 24" in out
    assert "greedy errors 0.1" in out


@pytest.mark.parametrize(("levels", "encoding", "score"), [(2, "one-hot", "entropy"), (4, "ordinal", "variance")])
def test_levels_are_ordered_above_two(sensewise, tmp_path, levels, encoding, score):
    """By default, and stopped at once; what is left is a prior."""
    data.import_images(write_folder(tmp_path / "pictures", 20), tmp_path / "mydata", size=24, levels=levels)
    assert sensewise("train", "prior", "--data", "mydata", "--max-minutes", 0)[0] == 0
    run = tmp_path / "runs/cpu/mydata-mixed"
    config = json.loads((run / "config.json").read_text())
    assert config["model"]["encoding"] == encoding
    assert config["training"]["curriculum"]["score"] == score
    picture = next((tmp_path / "pictures").rglob("*.png"))
    code, out, _ = sensewise("acquire", picture, "--prior", run, "--steps", 2, "--budget", 9, "--samples", 0)
    assert code == 0
    assert f"24 x 24, {levels} levels" in out
    assert sensewise("evaluate", "--prior", run, "--data", "mydata", "--images", 1, "--seeds", 1)[0] == 0


def test_evaluate_refuses_a_prior_of_another_shape(sensewise, tmp_path, quick_run):
    data.import_images(write_folder(tmp_path / "pictures", 20), tmp_path / "mydata", size=24)
    code, _, err = sensewise("evaluate", "--prior", quick_run, "--data", "mydata")
    assert code == 2
    assert "train one with" in err


def test_writable_folders_are_found_without_a_trace(tmp_path):
    """Also when many processes look at once."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ensure_writable, [tmp_path / "out"] * 200))
    assert list((tmp_path / "out").iterdir()) == []
    (tmp_path / "file").write_text("here")
    with pytest.raises(OutputError, match="cannot write"):
        ensure_writable(tmp_path / "file" / "below")


def test_train_prior(sensewise, tmp_path, monkeypatch, tiny_digits):
    tiny = replace(data.DATASETS["mnist"], load=lambda split, root: tiny_digits)
    monkeypatch.setitem(data.DATASETS, "mnist", tiny)
    (tmp_path / "own.toml").write_text(
        "[prior.mnist.random-masks]\nbatch_size = 4\n"
        "[prior.mnist.random-masks.network]\nwidths = [8, 16]\nblocks = [1, 1]\n"
        "[prior.mnist.random-masks.fit]\nsteps = 2\nvalidate_every = 10\nsave_minutes = 0\n"
    )
    monkeypatch.setattr("sensewise.train.prior.PriorObjective.validate", lambda self, model: {"held_out": 1.0})
    train = ("train", "prior", "--preset", "own.toml", "--out", "run")
    assert sensewise(*train, "--max-minutes", 0)[:2] == (0, "run: stopped early; continue with --resume\n")
    before = files(tmp_path)
    code, _, err = sensewise(*train)
    assert code == 2
    assert "holds a run already" in err
    assert files(tmp_path) == before
    assert sensewise(*train, "--resume")[:2] == (0, "run: complete\n")
    assert (tmp_path / "run/weights.safetensors").is_file()
