"""The experiments of the one-shot study on a handful of images, and what the report makes of them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from rich.progress import Progress
from torch import nn

from conftest import make_absorbing
from sensewise.checkpoint import fingerprint, load_prior
from sensewise.data import Images, bundled_cifar10, bundled_mnist
from sensewise.errors import ConfigError
from sensewise.experiments import EXPERIMENTS, baselines, gradient_estimators, mask_state, mnist_one_shot
from sensewise.experiments import side_information as side_experiment
from sensewise.experiments.evaluation import Strategy, evaluate, judge, known_side
from sensewise.experiments.results import Results, read_results
from sensewise.generator import MaskGenerator
from sensewise.loupe import Loupe
from sensewise.networks import UNet
from sensewise.policies import Random
from sensewise.presets import load
from sensewise.priors import AbsorbingPrior
from sensewise.report import SECTIONS, write_report
from sensewise.tables import Cell, Grid, pick
from sensewise.tokens import observe
from sensewise.train_mask_state import MaskStateSettings, train_mask_state, variants
from sensewise.train_prior import NetworkSettings
from sensewise.training import FitSettings

SHAPE, TINY = (1, 32, 32), (1, 8, 8)
SEEDS = range(1)


def tiny_prior(shape: tuple[int, int, int] = TINY) -> AbsorbingPrior:
    torch.manual_seed(0)
    network = UNet(1, 2, 10, widths=(8, 8), blocks=(1, 1), embedding=8)
    nn.init.normal_(network.head.weight)
    return AbsorbingPrior(network, shape, 2, 10).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def prior() -> AbsorbingPrior:
    return tiny_prior(SHAPE)


@pytest.fixture(scope="module")
def generator() -> MaskGenerator:
    torch.manual_seed(0)
    return MaskGenerator(SHAPE, 10, "paper").eval().requires_grad_(False)


@pytest.fixture(scope="module")
def digits() -> Images:
    return bundled_mnist(3)


@pytest.fixture(scope="module")
def found(prior: AbsorbingPrior, generator: MaskGenerator, digits: Images) -> dict[str, Results]:
    """Every experiment at the smallest size."""
    torch.manual_seed(0)
    loupe = Loupe(SHAPE, 2, 0.1, widths=(8, 8), blocks=(1, 1)).eval()
    quiet = Progress(disable=True)
    generators = {"one-shot": generator, "one-shot-observed": generator}
    effort = gradient_estimators.Effort(images=1, masks=2, pairs=(1, 2), draws=2)
    gradients = Results("gradient-estimators", "cpu", "mnist")
    tiny = Images("toy", "test", digits.tokens[..., 12:20, 12:20], digits.labels, 2, 10)
    for surrogate in gradient_estimators.SURROGATES:
        bench = gradient_estimators.Bench(tiny_prior(), MaskGenerator(TINY, 10, "full"), tiny, surrogate, effort)
        columns = {"generator": "untrained", "surrogate": surrogate}
        gradients.rows += gradient_estimators.cosines(bench, columns, SEEDS)
    photographs, colour_prior = bundled_cifar10(3), make_absorbing(shape=(3, 32, 32), num_states=8)
    colour_generator = MaskGenerator((3, 32, 32), 10).eval().requires_grad_(False)
    colour_loupe = Loupe((3, 32, 32), 8, 0.1, widths=(8, 8), blocks=(1, 1)).eval()
    base = Results("baselines", "cpu", "mnist")
    baselines.measure(base, "mnist", prior, generator, [loupe], digits, SEEDS, quiet, {})
    stages = [{"dataset": "cifar10", "prior": stage} for stage in ("random-masks", "on-policy")]
    colour = colour_prior, colour_generator
    for where in stages:
        baselines.measure(base, "cifar10", *colour, [colour_loupe], photographs, SEEDS, quiet, where)
    sides = Results("side-information", "cpu", "mnist")
    sides.rows = side_experiment.measure(prior, generator, digits, "mnist", SEEDS, quiet, {})
    for where in stages:
        sides.rows += side_experiment.measure(*colour, photographs, "cifar10", SEEDS, quiet, where)
    return {
        "mnist-one-shot": mnist_one_shot.measure(prior, generators, digits, SEEDS, quiet),
        "side-information": sides,
        "gradient-estimators": gradients,
        "mask-state": mask_state.measure([(prior, prior)] * 2, digits, SEEDS, quiet),
        "baselines": base,
    }


def test_every_experiment_is_registered(found: dict[str, Results]) -> None:
    assert set(found) <= set(EXPERIMENTS)


@pytest.mark.parametrize("name", ["mnist-one-shot", "side-information", "mask-state", "baselines"])
def test_masks_are_on_budget(found: dict[str, Results], name: str) -> None:
    for row in found[name].rows:
        if not row["method"].endswith("-bernoulli"):
            assert row["density"] == pytest.approx(round(row["budget"] * 1024) / 1024, abs=1e-5)


def test_one_shot_has_all_nine_metrics_and_the_papers_numbers(found: dict[str, Results]) -> None:
    rows = [row for row in found["mnist-one-shot"].rows if row["method"] == "one-shot"]
    assert len({row["metric"] for row in rows}) == 9
    paper = {row["budget"]: row["paper"] for row in rows if row["metric"] == "errors"}
    assert paper == {0.1: 23.0, 0.3: 4.74, 0.5: 0.68, 0.7: 0.06}


def test_plain_draws_report_their_own_density(found: dict[str, Results]) -> None:
    rows = [row for row in found["mnist-one-shot"].rows if row["method"] == "one-shot-bernoulli"]
    assert {row["budget"] for row in rows} == {0.1, 0.3, 0.5, 0.7}
    assert all(0 <= row["density"] <= 1 for row in rows)
    assert any(abs(row["density"] - row["budget"]) > 0.01 for row in rows)


def test_side_information_has_the_papers_numbers(found: dict[str, Results]) -> None:
    paper = {
        (row["method"], row["summary"]): row["paper"]
        for row in found["side-information"].rows
        if row["budget"] == 0.1 and row["metric"] == "errors"
    }
    assert paper["one-shot", "own"] == 23.0
    assert paper["one-shot-topk", "another"] == 39.7
    assert paper["one-shot-topk", "none"] == 42.1
    assert paper["random", "unused"] == 46.7


def test_another_summary_is_never_ones_own() -> None:
    summary = torch.arange(5.0).view(5, 1, 1, 1)
    assert not (side_experiment.SUMMARIES["another"](summary) == summary).any()


def test_cosines_are_cosines(found: dict[str, Results]) -> None:
    rows = found["gradient-estimators"].rows
    assert {row["method"] for row in rows} == {"disarm", "disarm-local", "straight-through", "ceiling"}
    assert all(-1.0001 <= row["mean"] <= 1.0001 for row in rows)
    assert {row["part"] for row in rows} == {"entropy", "loss"}


def test_identical_priors_have_no_winner(found: dict[str, Results]) -> None:
    rows = found["mask-state"].rows
    assert all(row["wins"] == 0 for row in rows)
    assert all(row["mean"] == 0 for row in rows if row["metric"] == "fewer-errors")


@pytest.mark.parametrize(
    ("where", "metric", "best"),
    [({"dataset": None}, "errors", min), ({"dataset": "cifar10", "prior": "on-policy"}, "psnr", max)],
)
def test_one_kind_of_loupe_masks_is_the_better(found: dict[str, Results], where, metric, best) -> None:
    for method in ("loupe", "loupe-own-unet"):
        rows = pick(found["baselines"].rows, **where, metric=metric, method=method)
        assert sorted(row["masks"] for row in rows) == ["sampled", "top-k"]
        assert all(row["better"] == (row["mean"] == best(r["mean"] for r in rows)) for row in rows)


def test_photographs_are_judged_by_both_priors(found: dict[str, Results]) -> None:
    rows = pick(found["baselines"].rows, dataset="cifar10")
    first, last = ({row["method"] for row in pick(rows, prior=stage)} for stage in ("random-masks", "on-policy"))
    assert first == {"random", "variable-density", "one-shot", "spread-variance-greedy", "loupe"}
    assert last == first | {"variance-greedy", "loupe-own-unet"}


@pytest.mark.parametrize("experiment", [baselines, side_experiment], ids=["baselines", "side-information"])
def test_rows_name_the_prior_that_made_them(experiment, monkeypatch) -> None:
    seen = {}

    def measured(*given):
        where = given[-1]
        seen[where.get("prior")] = fingerprint(next(model for model in given if isinstance(model, AbsorbingPrior)))
        return []

    monkeypatch.setattr(experiment, "measure", measured)
    monkeypatch.setattr("sensewise.experiments.cifar10_sequential.load_cifar10", lambda _split: bundled_cifar10())
    results = experiment.run("cpu", SEEDS, Progress(disable=True))
    names = {None: "mnist", "random-masks": "cifar10-random-masks", "on-policy": "cifar10"}
    assert seen == {stage: fingerprint(load_prior(name)) for stage, name in names.items()}
    assert all(results.weights[f"cifar10-{stage}"] == seen[stage] for stage in ("random-masks", "on-policy"))


@pytest.mark.parametrize("stage", ["random-masks", "on-policy"])
def test_side_information_on_photographs(found: dict[str, Results], stage) -> None:
    rows = pick(found["side-information"].rows, dataset="cifar10", prior=stage, metric="psnr", budget=0.5)
    assert {(row["method"], row["summary"]): row["paper"] for row in rows if row["method"] != "one-shot-topk"} == {
        ("one-shot", "own"): 28.01,
        ("one-shot", "another"): 27.40,
        ("one-shot", "none"): 26.42,
        ("random", "unused"): 27.47,
    }
    assert not pick(found["side-information"].rows, dataset="cifar10", metric="errors")


def test_report_shows_every_section(found: dict[str, Results], tmp_path: Path) -> None:
    one_shot = found["mnist-one-shot"]
    names = [f"{n}_{s}{r}" for n in ("entropy", "recovery") for s in (0.1, 0.3, 0.5, 0.7) for r in ("", "_random")]
    one_shot.arrays |= {f"checkpoints/{name}": np.array([0.5, 0.4]) for name in names}
    one_shot.arrays["checkpoints/step"] = np.array([1, 2])
    for name, results in found.items():
        results.write(tmp_path / "results" / f"{name}.json")
        assert read_results(tmp_path / "results" / f"{name}.json")["rows"]
    missing = write_report(tmp_path / "results", tmp_path / "docs", tmp_path / "report.html")
    assert missing == sorted(set(SECTIONS) - set(found))
    assert "mnist-sequential" in missing
    page = (tmp_path / "docs" / "results.md").read_text()
    assert "spread picks in 16 steps against the best mask chosen at once: " in page
    for heading in ("one-shot masks", "side information", "Gradient estimators", "mask state adds", "Baselines"):
        assert heading in page
    for figure in (
        "pipeline",
        "one-shot-training",
        "one-shot-metrics",
        "one-shot-controls",
        "gradient-cosines",
        "baselines",
        "baselines-cifar10",
        "baselines-cifar10-examples-0.3",
    ):
        assert (tmp_path / "docs" / "figures" / f"{figure}.png").stat().st_size > 1000
    assert "<table>" in (tmp_path / "report.html").read_text()


def test_training_log_becomes_arrays(tmp_path: Path) -> None:
    assert mnist_one_shot.checkpoint_arrays(tmp_path) == {}
    (tmp_path / "log.jsonl").write_text('{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n')
    arrays = mnist_one_shot.checkpoint_arrays(tmp_path)
    assert arrays["checkpoints/loss"].tolist() == [0.5, 0.25]


def test_judge_measures_everything_in_one_pass(prior: AbsorbingPrior, digits: Images) -> None:
    x, label = digits[slice(None)]
    mask = torch.rand(len(x), 1024, generator=torch.Generator().manual_seed(0)) < 0.999
    side = known_side(x, label, 2)
    values = judge(prior, x, observe(x, mask), mask, side, ("errors", "entropy", "psnr"))
    assert 0 <= values["errors"] <= 5
    assert 0 <= values["entropy"] < 0.01
    assert values["psnr"] > 20


def test_another_reconstructor_leaves_entropy_out(prior: AbsorbingPrior, digits: Images) -> None:
    strategy = Strategy("loupe-own-unet", Random(), reconstructor=lambda y, mask, side: y.clamp(min=1) - 1.0)  # type: ignore[arg-type]
    rows = evaluate(
        prior, digits, [strategy], (0.1,), [0], ("errors", "entropy"), lambda *_: None, Progress(disable=True), {}
    )
    assert rows[0]["mean"] is not None
    assert rows[1]["mean"] is None


def test_shared_zero_cannot_tell_black_from_unobserved() -> None:
    torch.manual_seed(0)
    network = UNet(1, 2, 3, widths=(8,), blocks=(1,), embedding=8)
    nn.init.normal_(network.head.weight)
    y = torch.ones(1, 1, 8, 8, dtype=torch.long)
    t, label = torch.tensor([500]), torch.tensor([0])
    shared = AbsorbingPrior(network, (1, 8, 8), 2, 3, mask_state=False)
    apart = AbsorbingPrior(network, (1, 8, 8), 2, 3)
    assert torch.equal(shared.predict(y, label, t), shared.predict(torch.zeros_like(y), label, t))
    assert not torch.equal(apart.predict(y, label, t), apart.predict(torch.zeros_like(y), label, t))


def test_mask_state_pairs_share_start_and_recipe(digits: Images, tmp_path: Path) -> None:
    fit = FitSettings(steps=2, validate_every=2, average=0.0)
    network = NetworkSettings(widths=(8,), blocks=(1,), embedding=8)
    settings = MaskStateSettings(seeds=2, batch_size=4, network=network, start=fit, fine_tune=fit)
    runs = list(variants(settings))
    assert [name for name, _, _ in runs] == ["start", "with-0", "without-0", "with-1", "without-1"]
    assert runs[1][2] == runs[2][2] != runs[3][2]
    quiet = Console(quiet=True)
    assert not train_mask_state(settings, digits, digits, tmp_path, max_minutes=0, console=quiet)
    assert train_mask_state(settings, digits, digits, tmp_path, resume=True, console=quiet)
    with_state, without = load_prior(tmp_path / "with-0"), load_prior(tmp_path / "without-0")
    assert with_state.mask_state
    assert not without.mask_state


def test_presets_describe_the_experiments() -> None:
    for preset in ("cpu", "paper"):
        assert load(preset, "mask-state.mnist", MaskStateSettings).seeds == 5
        assert load(preset, "experiment.gradient-estimators", gradient_estimators.Effort).masks >= 2


def test_impossible_efforts_are_refused() -> None:
    with pytest.raises(ConfigError, match="masks at least 2"):
        gradient_estimators.Effort(masks=1)
    with pytest.raises(ConfigError):
        MaskStateSettings(seeds=0)


def test_tables_escape_and_mark_the_best() -> None:
    grid = Grid(["", "s"], [("a<b", [Cell("1.0", "2.0", best=True)])])
    assert "a&lt;b" in grid.html()
    assert 'class="best"' in grid.html()
    assert "**1.0**<br>paper 2.0" in grid.markdown()
