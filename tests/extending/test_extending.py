"""A sensor, a policy, a data set and a table, one file each, as somebody outside the package would write them.

docs/extending.md walks through the same files.
"""

import json
import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from conftest import make_absorbing, seeded
from sensewise import hub
from sensewise.apps.cli import app
from sensewise.evaluate.evaluate import evaluate
from sensewise.evaluate.experiment import Setup
from sensewise.evaluate.judges import PriorJudge
from sensewise.evaluate.method import Method
from sensewise.evaluate.results import read_results
from sensewise.evaluate.task import Task
from sensewise.files import from_text
from sensewise.loop import acquire
from sensewise.policies.choose import Spread
from sensewise.policies.greedy import Greedy
from sensewise.policies.simple import Random
from sensewise.priors.empirical import EmpiricalPrior
from sensewise.reconstruct.prior import Mode
from sensewise.report.page import write_report, write_section
from sensewise.sensors.pixels import PixelSensor

HERE = Path(__file__).parent
FILES = ("rooms.py", "line_scan.py", "farthest.py", "line_table.py")


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Commands are given in the folder of the files."""
    monkeypatch.chdir(HERE)
    monkeypatch.syspath_prepend(HERE)


@pytest.fixture
def rooms():
    return from_text("rooms:ROOMS").load("test", None)


def command(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output + repr(done.exception)
    return done.output


def run_folder(folder, shape, num_states):
    """An untrained prior for images of a shape, as a run."""
    model = {"shape": list(shape), "num_states": num_states, "num_labels": None, "network": "unet"}
    sizes = {"widths": [8, 16], "blocks": [1, 1], "embedding": 8}
    prior = make_absorbing(shape=shape, num_states=num_states, num_labels=None)
    hub.save(folder, {"kind": "prior", "model": model | sizes}, prior)
    return folder


def test_the_sensor_measures_lines(rooms):
    sensor_class, lines = from_text("line_scan:LineScan"), from_text("line_scan:Lines")()
    x, _ = rooms[slice(0, 6)]
    sensor, prior = sensor_class(x), EmpiricalPrior(rooms[slice(None)][0], 4)
    taken = acquire(Greedy(prior, view=lines), sensor, 4, steps=4, keep_scores=True)
    assert taken.mask.shape == (6, 16)
    assert taken.mask.sum(1).tolist() == [4] * 6
    seen = taken.observation != 0
    assert torch.equal(seen, taken.mask[:, None, :, None].expand_as(seen))
    torch.testing.assert_close(taken.scores[0], prior(torch.zeros_like(x)).entropy().sum((1, 3)))
    greedy, chance = (
        (Mode(prior)(one.observation, one.mask) != x).sum().item()
        for one in (taken, acquire(Random(), sensor, 4, generator=seeded()))
    )
    assert greedy < chance


def test_the_policy_serves_pixels_and_lines(rooms):
    policy, x = from_text("farthest:FarthestFirst")(), rooms[slice(0, 3)][0]
    lines = acquire(policy, from_text("line_scan:LineScan")(x), 4, steps=4)
    assert (lines.step[0] > 0).nonzero().flatten().tolist() == [0, 7, 11, 15]
    pixels = acquire(policy, PixelSensor(x), 12, steps=3, choose=Spread(0.9, 3.0))
    assert pixels.mask.sum(1).tolist() == [12] * 3


def test_the_table_is_measured_and_reported(tmp_path):
    experiment = from_text("line_table:EXPERIMENT")
    results = experiment.run(Setup(seeds=range(2)))
    assert len(results.rows) == 3 * 2 * 3  # methods, budgets, metrics
    errors = {(row.method, row.budget): row.mean for row in results.rows if row.metric == "errors"}
    for budget in (0.125, 0.25):
        assert errors["greedy", budget] < errors["random", budget]
    assert {row.seeds for row in results.rows if row.method == "random"} == {2}
    results.write(tmp_path / "room-lines.json")
    page = write_section(tmp_path / "room-lines.json", experiment.section).read_text()
    assert "farthest-first" in page
    assert "Which lines to measure" in page
    missing = write_report(
        tmp_path, tmp_path / "docs", tmp_path / "page.html", None, {experiment.name: experiment, "none": experiment}
    )
    assert missing == ["none"]
    assert "Lines of a room" in (tmp_path / "docs" / "results.md").read_text()
    assert (tmp_path / "docs" / "figures" / "room-lines.png").is_file()


def test_evaluate_takes_any_sensor_and_policy(rooms):
    judge = PriorJudge(EmpiricalPrior(rooms[slice(None)][0], 4), ("errors",), from_text("line_scan:Lines")())
    task = Task("rooms", rooms.first(5), from_text("line_scan:LineScan"), {"prior": judge})
    rows = evaluate(task, [Method("farthest-first", from_text("farthest:FarthestFirst")(), 2)], (0.25,), (0, 1))
    assert [(row.method, row.density, row.images, row.seeds) for row in rows] == [("farthest-first", 0.25, 5, 1)]


def test_run_and_report_on_the_command_line(tmp_path):
    command("run", "line_table:EXPERIMENT", "--seeds", "1", "--results", tmp_path)
    results = read_results(tmp_path / "room-lines.json")
    assert {row.method for row in results.rows} == {"random", "farthest-first", "greedy"}
    assert json.loads((tmp_path / "room-lines.json").read_text())["experiment"] == "room-lines"
    page, docs = tmp_path / "report.html", tmp_path / "docs"
    readme = tmp_path / "README.md"
    also = ("--also", "line_table:EXPERIMENT", "--readme", readme)
    command("report", "--results", tmp_path, "--docs", docs, "--page", page, *also)
    assert "Lines of a room" in page.read_text()
    assert "farthest-first" in (docs / "results.md").read_text()


def test_shards_of_the_table_on_the_command_line(tmp_path):
    for shard in ("1/2", "2/2"):
        command("run", "line_table:EXPERIMENT", "--seeds", "1", "--results", tmp_path, "--shard", shard)
    command("merge", "line_table:EXPERIMENT", "--seeds", "1", "--results", tmp_path)
    command("run", "line_table:EXPERIMENT", "--seeds", "1", "--results", tmp_path / "whole")
    merged, whole = (read_results(folder / "room-lines.json").rows for folder in (tmp_path, tmp_path / "whole"))
    assert merged == whole


def test_acquire_with_the_policy_on_the_command_line(tmp_path):
    folder = run_folder(tmp_path / "prior", (1, 32, 32), 2)
    words = ("--budget", "20", "--steps", "2", "--samples", "0", "--prior", folder, "--out", tmp_path / "out")
    command("acquire", "digit:3", "--policy", "farthest:FarthestFirst", *words)
    assert any((tmp_path / "out").rglob("*.json"))


def test_evaluate_with_the_data_set_and_the_policy_on_the_command_line(tmp_path):
    folder = run_folder(tmp_path / "prior", (1, 16, 16), 4)
    words = ("--images", "4", "--seeds", "1", "--out", tmp_path / "out", "--prior", folder)
    command("evaluate", "--data", "rooms:ROOMS", "--policy", "farthest:FarthestFirst", *words)
    results = read_results(tmp_path / "out" / "results.json")
    assert results.dataset == "rooms"
    assert "FarthestFirst" in {row.method for row in results.rows}
    assert "FarthestFirst" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize("name", FILES)
def test_the_page_shows_the_files_as_they_are(name):
    page = HERE.parent.parent / "docs" / "extending.md"
    if not page.is_file():
        pytest.skip("needs the source tree")
    blocks = re.findall(r'```python title="(\S+)"\n(.*?)```', page.read_text(encoding="utf-8"), re.DOTALL)
    assert dict(blocks)[name] == (HERE / name).read_text(encoding="utf-8")
