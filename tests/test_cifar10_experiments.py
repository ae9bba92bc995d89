"""The CIFAR-10 experiments on a few images with a prior that answers at once."""

import pytest
from rich.progress import Progress

from conftest import make_absorbing
from sensewise.data import bundled_cifar10
from sensewise.errors import DataError
from sensewise.experiments import cifar10_one_shot, cifar10_sequential
from sensewise.experiments.cifar10_sequential import BUDGETS, METRICS, cifar10_strategies, held_out, measure, paper
from sensewise.experiments.evaluation import spend
from sensewise.generator import MaskGenerator
from sensewise.report import write_report
from sensewise.report_cifar10 import _label_against_random
from sensewise.sensors import Side

PRIOR = make_absorbing(shape=(3, 32, 32), num_states=8)


@pytest.fixture(scope="module")
def one_shot():
    generator = MaskGenerator((3, 32, 32), 10).eval().requires_grad_(False)
    with Progress(disable=True) as progress:
        priors = {"random-masks": PRIOR, "on-policy": PRIOR}
        return cifar10_one_shot.measure(priors, generator, generator, bundled_cifar10(3), (0, 1), progress)


@pytest.fixture(scope="module")
def results():
    with Progress(disable=True) as progress:
        return measure({"random-masks": PRIOR, "on-policy": PRIOR}, bundled_cifar10(3), (0, 1), progress)


def test_every_method_metric_and_budget_has_a_row(results):
    rows = [row for row in results.rows if row["prior"] == "on-policy"]
    methods = {(row["method"], row["steps"]) for row in rows}
    named = {"label-greedy", "variance-greedy", "probe-greedy", "grid-variance-greedy", "spread-variance-greedy"}
    mirrored = {("mirrored-random", 1), ("mirrored-variance-greedy", 16)}
    once = {("random", 1), ("variable-density", 1), *((name, r) for name in named for r in (4, 16))}
    assert methods == once | mirrored
    assert len(rows) == len(methods) * len(BUDGETS) * len(METRICS)
    before = {(row["method"], row["steps"]) for row in results.rows if row["prior"] == "random-masks"}
    greedy = {"label-greedy", "variance-greedy", "spread-variance-greedy"}
    assert before == {("random", 1), *((name, 16) for name in greedy)}
    assert all(row["density"] == round(round(row["budget"] * 1024) / 1024, 6) for row in results.rows)


def test_a_pixel_is_measured_with_all_its_channels():
    x, label = bundled_cifar10(2)[slice(None)]
    for strategy in cifar10_strategies(PRIOR):
        seen = spend(strategy, x, Side(label=label), 0.1, 0).observation > 0
        assert (seen == seen[:, :1]).all()


def test_the_papers_values():
    assert paper("grid-variance-greedy", 16, 0.5, "psnr") == 30.9
    assert paper("grid-variance-greedy", 4, 0.5, "psnr") is None
    assert paper("random", 1, 0.1, "accuracy") is None


def test_without_the_data_the_bundled_images_are_used_and_named(monkeypatch):
    def missing(_split):
        raise DataError("no CIFAR-10 here")

    monkeypatch.setattr(cifar10_sequential, "load_cifar10", missing)
    notes = []
    assert len(held_out(notes)) == 512
    assert notes == ["Only the 512 bundled images of 2560 were measured: no CIFAR-10 here"]


def test_one_shot_masks_are_on_budget_and_a_plain_draw_is_not(one_shot):
    methods = {row["method"] for row in one_shot.rows if row["prior"] == "on-policy"}
    on_budget, plain = {"random", "one-shot", "one-shot-topk", "one-shot-entropy"}, {"one-shot", "one-shot-entropy"}
    assert methods == on_budget | {f"{name}-bernoulli" for name in plain}
    assert {row["method"] for row in one_shot.rows if row["prior"] == "random-masks"} == {"random", "one-shot"}
    for row in one_shot.rows:
        exact = row["density"] == round(round(row["budget"] * 1024) / 1024, 6)
        assert exact == (row["method"] in on_budget)
    assert cifar10_one_shot.paper("one-shot", 1, 0.7, "psnr") == 31.54
    assert cifar10_one_shot.paper("one-shot-topk", 1, 0.7, "psnr") is None


def test_the_report_shows_them(results, one_shot, tmp_path):
    results.write(tmp_path / "cifar10-sequential.json")
    one_shot.write(tmp_path / "cifar10-one-shot.json")
    write_report(tmp_path, tmp_path / "docs", tmp_path / "report.html")
    text = (tmp_path / "docs" / "results.md").read_text()
    assert "grid probe + variance-greedy, 16 steps" in text
    assert "Label-greedy against random masks: " in text
    assert "A plain draw at s = 0.1 is not on budget: the shipped generator has a density of 0." in text
    assert "Density of the masks: a plain draw is not on budget" in text
    assert "Mirrored against single passes: " in text
    assert "Spread picks in 16 steps against plain variance-greedy: " in text
    assert (tmp_path / "docs" / "figures" / "cifar10-examples-0.3.png").stat().st_size > 10_000


@pytest.mark.parametrize(("four", "sixteen", "explained"), [(-2.0, 1.0, True), (-2.0, 0.01, False), (2.0, 1.0, False)])
def test_the_report_tells_why_label_greedy_gains_only_if_it_does(four, sixteen, explained):
    values = {("random", 1): 20.0, ("label-greedy", 4): 20.0 + four, ("label-greedy", 16): 20.0 + sixteen}
    rows = [
        {"prior": "on-policy", "method": method, "steps": steps, "budget": 0.1, "mean": mean}
        for (method, steps), mean in values.items()
    ]
    text = _label_against_random(rows)
    assert f"{sixteen:+.2f} dB at s = 0.1 in 16 steps" in text
    assert ("by its steps, not by the label" in text) == explained
