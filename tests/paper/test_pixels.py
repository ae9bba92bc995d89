"""The paper's pixel experiments on a handful of images, with models that answer at once."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from conftest import make_absorbing
from sensewise import hub, presets
from sensewise.data.cifar10 import bundled_cifar10
from sensewise.data.mnist import bundled_mnist
from sensewise.errors import CheckpointError, ConfigError, DataError
from sensewise.evaluate.experiment import Setup
from sensewise.evaluate.journal import Journal
from sensewise.evaluate.recording import read_recording
from sensewise.evaluate.results import Results
from sensewise.evaluate.task import pixel_task
from sensewise.files import fingerprint
from sensewise.networks.decoders import MaskDesigner
from sensewise.networks.loupe import Loupe
from sensewise.networks.unet import UNet
from sensewise.paper import (
    EXPERIMENTS,
    baselines,
    cifar10_one_shot,
    cifar10_sequential,
    gradient_estimators,
    mask_state,
    mnist_one_shot,
    mnist_sequential,
    models,
    scenes,
    side_information,
)
from sensewise.priors.absorbing import AbsorbingPrior
from sensewise.train.mask_state import MaskStateSettings

SHAPE, COLOUR, TINY = (1, 32, 32), (3, 32, 32), (1, 8, 8)
SETUP = Setup(seeds=range(1))
STAGES = ("random-masks", "on-policy")


def pick(rows, **wanted):
    return [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]


def make_designer(shape, decoder="full", labels=10):
    torch.manual_seed(0)
    return MaskDesigner(shape, labels, decoder).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def photo_prior():
    return make_absorbing(shape=COLOUR, num_states=8)


@pytest.fixture(scope="module")
def found(quick, photo_prior):
    """Every experiment at the smallest size."""
    torch.manual_seed(0)
    loupe = Loupe(SHAPE, 2, 0.1, widths=(8, 8), blocks=(1, 1)).eval().requires_grad_(False)
    photo_loupe = Loupe(COLOUR, 8, 0.1, widths=(8, 8), blocks=(1, 1)).eval().requires_grad_(False)
    digits, photographs = bundled_mnist(3), bundled_cifar10(3)
    designer, photo_designer = make_designer(SHAPE, "paper"), make_designer(COLOUR)
    photo_designers = {"one-shot": make_designer(COLOUR, "paper", None), "one-shot-variance": photo_designer}
    stages, ours = dict.fromkeys(STAGES, photo_prior), {"one-shot": designer}
    rows, arrays = baselines.measure(SETUP, baselines.PARTS["mnist"], {"prior": quick}, ours, [loupe], digits)
    more = baselines.measure(SETUP, baselines.PARTS["cifar10"], stages, photo_designers, [photo_loupe], photographs)
    task = pixel_task(digits, quick, side_information.MNIST_METRICS)
    sides = side_information.measure(SETUP, task, ours, side_information.PAPER["mnist"])
    for stage in STAGES:
        task = pixel_task(photographs, photo_prior, cifar10_sequential.METRICS, prior=stage)
        sides += side_information.measure(SETUP, task, photo_designers, side_information.PAPER["cifar10"])
    settings = gradient_estimators.GradientSettings(images=1, masks=2, pairs=(1, 2), draws=2)
    tiny = replace(digits.first(1), values=digits.values[:1, :, 12:20, 12:20])
    untrained = {"untrained": make_designer(TINY)}
    gradients = gradient_estimators.measure(SETUP, make_absorbing(TINY), untrained, tiny, settings)
    one_shot = {"one-shot": designer, "one-shot-observed": designer}
    two = Setup(seeds=range(2))
    return {
        "mnist-one-shot": mnist_one_shot.measure(SETUP, quick, one_shot, digits),
        "side-information": Results("side-information", "cpu", "mnist", sides),
        "gradient-estimators": Results("gradient-estimators", "cpu", "mnist", gradients),
        "mask-state": Results("mask-state", "cpu", "mnist", mask_state.measure(SETUP, [(quick, quick)] * 2, digits)),
        "baselines": Results("baselines", "cpu", "mnist", rows + more[0], arrays=arrays | more[1]),
        "cifar10-sequential": cifar10_sequential.measure(two, stages, photographs, photo_prior),
        "cifar10-one-shot": cifar10_one_shot.measure(two, stages, photo_designers, photographs),
    }


def test_every_experiment_is_registered(found):
    assert set(found) <= set(EXPERIMENTS)
    assert {experiment.name for experiment in EXPERIMENTS.values()} == set(EXPERIMENTS)


@pytest.mark.parametrize(
    "name",
    ["mnist-one-shot", "side-information", "mask-state", "baselines", "cifar10-sequential", "cifar10-one-shot"],
)
def test_masks_are_on_budget_and_plain_draws_are_not(found, name):
    for row in found[name].rows:
        exact = row.density == round(round(row.budget * 1024) / 1024, 6)
        assert exact != row.method.endswith("-bernoulli")


def test_one_shot_has_all_nine_metrics_and_the_papers_numbers(found):
    rows = pick(found["mnist-one-shot"].rows, method="one-shot")
    assert len({row.metric for row in rows}) == 9
    assert {row.budget: row.paper for row in pick(rows, metric="errors")} == {
        0.1: 23.0,
        0.3: 4.74,
        0.5: 0.68,
        0.7: 0.06,
    }
    assert {row.budget for row in pick(found["mnist-one-shot"].rows, method="one-shot-bernoulli")} == {
        0.1,
        0.3,
        0.5,
        0.7,
    }
    assert read_recording(found["mnist-one-shot"].arrays).steps == 16


def test_one_shot_entropies_stand_beside_the_papers_in_its_own_form(found):
    rows = pick(found["mnist-one-shot"].rows, method="one-shot", budget=0.1)
    raw, certain = ({row.metric: row for row in rows}[name] for name in ("entropy-raw", "entropy"))
    assert (raw.paper, certain.paper) == (0.0564, None)
    assert raw.mean > certain.mean
    assert not pick(rows, metric="psnr")


def test_timesteps_are_the_papers():
    rows = {(row.method, row.budget): row for row in mnist_one_shot.timestep_rows(bundled_mnist(256))}
    measured, closed = rows["survival-monte-carlo", 0.1], rows["survival-closed-form", 0.1]
    assert int(measured.mean) == measured.paper == 935
    assert measured.mean == pytest.approx(closed.mean, abs=0.7)
    assert closed.paper is None


def test_a_designer_that_is_missing_is_left_out_and_named(photo_prior, monkeypatch):
    def found(preset, dataset, judge, variant="disarm"):
        if variant != "disarm":
            raise CheckpointError("not here")
        return "designer"

    monkeypatch.setattr(models, "designer", found)
    notes = []
    assert models.photograph_designers("cpu", photo_prior, notes) == {"one-shot-variance": "designer"}
    assert [note.split()[2] for note in notes] == ["one-shot", "one-shot-entropy"]
    with pytest.raises(CheckpointError, match="not here"):
        models.photograph_designers("cpu", photo_prior, notes, ("one-shot",))


def test_side_information_has_the_papers_numbers(found):
    rows = pick(found["side-information"].rows, dataset="mnist", budget=0.1, metric="errors")
    paper = {(row.method, row.summary): row.paper for row in rows}
    assert paper["one-shot", "own"] == 23.0
    assert paper["one-shot-topk", "another"] == 39.7
    assert paper["one-shot-topk", "none"] == 42.1
    assert paper["random", "unused"] == 46.7


@pytest.mark.parametrize("stage", STAGES)
def test_side_information_on_photographs(found, stage):
    rows = pick(found["side-information"].rows, dataset="cifar10", prior=stage, metric="psnr", budget=0.5)
    variance = [row for row in rows if row.method.startswith("one-shot-variance")]
    assert {row.summary for row in variance} == {"own", "another", "none"}
    assert {row.paper for row in variance} == {None}
    assert {(row.method, row.summary): row.paper for row in rows if row.method in ("one-shot", "random")} == {
        ("one-shot", "own"): 28.01,
        ("one-shot", "another"): 27.40,
        ("one-shot", "none"): 26.42,
        ("random", "unused"): 27.47,
    }
    assert not pick(found["side-information"].rows, dataset="cifar10", metric="errors")


def test_another_summary_is_never_ones_own():
    summary = torch.arange(5.0).view(5, 1, 1, 1)
    assert not (side_information.SUMMARIES["another"](summary) == summary).any()


def test_cosines_are_cosines(found):
    rows = found["gradient-estimators"].rows
    assert {row.method for row in rows} == {"disarm", "disarm-local", "straight-through", "ceiling"}
    assert all(-1.0001 <= row.mean <= 1.0001 for row in rows)
    assert {row.part for row in rows} == {"entropy", "loss"}
    assert {row.surrogate for row in rows} == {"all", "all-raw"}
    assert {row.samples for row in pick(rows, method="disarm")} == {1, 2}


def test_straight_through_against_a_prior_that_sees_numbers(digits):
    torch.manual_seed(0)
    network = UNet(1, 2, 10, widths=(8, 8), blocks=(1, 1), embedding=8, encoding="scalar")
    nn.init.normal_(network.head.weight)
    prior = AbsorbingPrior(network, 1, 2, 10, size=(32, 32)).eval().requires_grad_(False)
    few, designers = digits.first(2), {"one-shot-3e-4": make_designer(SHAPE, "paper")}
    rows = gradient_estimators.trained_rows(SETUP, prior, designers, few)
    assert {(row.method, row.metric) for row in rows} == {
        (name, metric) for name in ("random", "one-shot-3e-4") for metric in ("entropy-raw", "errors")
    }
    assert {row.prior for row in rows} == {"scalar"}
    assert gradient_estimators.trained_rows(SETUP, prior, {}, few) == []
    settings = gradient_estimators.GradientSettings(images=1, masks=2, pairs=(1,), draws=1)
    gradients = gradient_estimators.Gradients(prior, designers["one-shot-3e-4"], few, "all-raw", settings)
    values = gradient_estimators.rows_of({"entropy disarm 1 0": 0.5, "density": 0.1, "budget": 0.1}, 1, "a", "b", "c")
    assert gradients.straight_through(torch.Generator().manual_seed(0)).abs().sum() > 0
    assert [row.prior for row in values] == ["c"]


def test_identical_priors_have_no_winner(found):
    rows = found["mask-state"].rows
    assert len(rows) == 2 * 3 * len(mask_state.BUDGETS)
    assert {(row.steps, row.paper is None) for row in rows} == {(1, False), (16, True)}
    assert all(row.wins == 0 for row in rows)
    assert all(row.mean == 0 for row in rows if row.metric == "fewer-errors")
    assert {row.paper_wins for row in pick(rows, budget=0.4, steps=1)} == {4}
    assert {row.paper_wins for row in pick(rows, steps=16)} == {None}


@pytest.mark.parametrize(
    ("where", "metric", "best"),
    [({"dataset": "mnist"}, "errors", min), ({"dataset": "cifar10", "prior": "on-policy"}, "psnr", max)],
)
def test_one_kind_of_loupe_masks_is_the_better(found, where, metric, best):
    for method in ("loupe", "loupe-own-unet"):
        rows = pick(found["baselines"].rows, **where, metric=metric, method=method)
        assert sorted(row.masks for row in rows) == ["sampled", "top-k"]
        assert all(row.better == (row.mean == best(r.mean for r in rows)) for row in rows)


def test_photographs_are_judged_by_both_priors(found):
    rows = pick(found["baselines"].rows, dataset="cifar10")
    first, last = ({row.method for row in pick(rows, prior=stage)} for stage in STAGES)
    learned = {"one-shot", "one-shot-variance"}
    assert first == {"random", "variable-density", "spread-variance-greedy", "loupe"} | learned
    assert last == first | {"variance-greedy", "loupe-own-unet"}


def test_examples_of_the_baselines_are_in_their_order(found):
    names = [name for name in found["baselines"].arrays if name.startswith("example-0.1/")]
    methods = dict.fromkeys(name.split("/")[1] for name in names if name.count("/") == 3)
    assert list(methods) == [
        *("random", "variable-density", "loupe", "loupe-own-unet", "one-shot"),
        *("label-greedy", "spread-greedy"),
    ]


def test_every_method_on_photographs_has_its_rows(found):
    every = found["cifar10-sequential"].rows
    rows, few = pick(every, split=None), pick(every, split="first-256", metric="psnr")
    assert sorted((row.method, row.steps, row.budget, row.seeds) for row in few) == [
        (name, 16, budget, 1) for name in ("label-greedy", "posterior-sampling") for budget in (0.1, 0.3)
    ]
    last, before = ({(row.method, row.steps) for row in pick(rows, prior=stage)} for stage in reversed(STAGES))
    named = {"label-greedy", "variance-greedy", "probe-greedy", "grid-variance-greedy", "spread-variance-greedy"}
    named |= {"joint-greedy"}
    mirrored = {("mirrored-random", 1), ("mirrored-variance-greedy", 16)}
    once = {("random", 1), ("variable-density", 1), *((name, r) for name in named for r in (4, 16))}
    assert last == once | mirrored | {("amortised", 16)}
    assert len(pick(rows, prior="on-policy")) == len(last) * 4 * 4
    greedy = {"label-greedy", "variance-greedy", "spread-variance-greedy"}
    assert before == {("random", 1), *((name, 16) for name in greedy)}


def test_one_shot_masks_on_photographs(found):
    rows = found["cifar10-one-shot"].rows
    learned = {"one-shot", "one-shot-variance"}
    drawn = {f"{name}-{how}" for name in learned for how in ("topk", "bernoulli")}
    assert {row.method for row in pick(rows, prior="on-policy")} == {"random"} | learned | drawn
    assert {row.method for row in pick(rows, prior="random-masks")} == {"random"} | learned
    with_paper = {(row.method, row.metric) for row in rows if row.paper is not None}
    metrics = {"psnr", "accuracy", "nonblack-recovery", "entropy-raw"}
    assert with_paper == {(name, metric) for name in ("random", "one-shot") for metric in metrics}


def test_a_pixel_is_measured_with_all_its_channels(photo_prior):
    from sensewise.evaluate.evaluate import spend

    task = pixel_task(bundled_cifar10(2), photo_prior, ["psnr"])
    for method in cifar10_sequential.methods(photo_prior):
        seen = spend(task, method, 0.1, 0).observation > 0
        assert (seen == seen[:, :1]).all()


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        (mnist_sequential, ("label-greedy", 16, 0.1, "errors"), 5.63),
        (mnist_sequential, ("label-greedy", 16, 0.05, "errors"), 22.9),
        (mnist_sequential, ("label-greedy", 16, 0.1, "exact"), 0.26),
        (mnist_sequential, ("random", 1, 0.3, "errors"), 24.0),
        (mnist_sequential, ("probe-greedy", 1, 0.2, "errors"), 9.22),
        (mnist_sequential, ("label-greedy", 32, 0.1, "errors"), None),
        (mnist_sequential, ("variable-density", 1, 0.1, "errors"), None),
        (mnist_sequential, ("random", 1, 0.4, "errors"), None),
        (mnist_sequential, ("random", 1, 0.1, "accuracy"), None),
        (cifar10_sequential, ("grid-variance-greedy", 16, 0.5, "psnr"), 30.9),
        (cifar10_sequential, ("grid-variance-greedy", 4, 0.5, "psnr"), None),
        (cifar10_sequential, ("random", 1, 0.1, "accuracy"), None),
        (cifar10_one_shot, ("one-shot", 1, 0.7, "psnr"), 31.54),
        (cifar10_one_shot, ("one-shot-topk", 1, 0.7, "psnr"), None),
    ],
)
def test_the_papers_values(table, key, value):
    assert table.PAPER.get((*key, None)) == value


def test_methods_of_table_closed(quick):
    assert [(m.name, m.steps, m.is_random()) for m in mnist_sequential.methods(quick, extra_steps=(32,))] == [
        ("random", 1, True),
        ("variable-density", 1, True),
        ("probe-greedy", 1, True),
        ("probe-greedy", 16, True),
        ("label-greedy", 4, False),
        ("label-greedy", 16, False),
        ("label-greedy", 32, False),
        ("spread-greedy", 16, False),
    ]


def test_batch_aware_steps_need_known_digits_for_joint(quick, digits):
    plain = [("label-greedy", 8), ("spread-greedy", 4), ("spread-greedy", 8)]
    found = mnist_sequential.batch_aware(quick, digits)
    assert [(m.name, m.steps) for m in mnist_sequential.batch_aware(quick, None)] == plain
    assert [(m.name, m.steps) for m in found] == [*plain, *(("joint-greedy", steps) for steps in (4, 8, 16))]
    assert torch.equal(found[-1].choose.known.images, digits.values)
    assert len({json.dumps(method.describe()) for method in found}) == len(found)


def test_mnist_sequential(quick, digits, monkeypatch):
    cheap, everything = mnist_sequential.methods(quick)[:2], digits.first(3)
    monkeypatch.setattr(models, "prior", lambda preset, dataset, stage="on-policy", engine="torch": quick)
    small_priors = {"guide": quick, "tiny": quick}
    monkeypatch.setattr(models, "small_priors", lambda preset, dataset, notes, engine: small_priors)
    monkeypatch.setattr(mnist_sequential, "methods", lambda prior, extra_steps=(): cheap)
    monkeypatch.setattr(scenes, "bundled_mnist", lambda count: digits.first(2))

    def missing(split):
        raise DataError("MNIST is not here")

    monkeypatch.setattr(scenes, "load_mnist", missing)
    results = mnist_sequential.run(SETUP)
    small = {"guide", "tiny"}
    assert {row.prior for row in results.rows} == {*STAGES, "tiny"}
    assert {row.prior for row in pick(results.rows, method="amortised")} == {"on-policy"}
    assert len(results.rows) == (2 * 2 + 3) * 4 * 4 + 2 * 3 * 4 + (1 + 2) * 4 * 4
    few = pick(results.rows, split="first-256")
    assert {row.method for row in few} == {"posterior-sampling", "label-greedy"}
    assert {row.paper for row in few} == {None}
    assert results.weights == dict.fromkeys([*STAGES, *small], fingerprint(quick))
    assert "joint-greedy was left out" in results.notes[0]
    assert "10,000 test images were left out" in results.notes[1]
    monkeypatch.setattr(scenes, "load_mnist", lambda split: everything)
    results = mnist_sequential.run(SETUP)
    assert {row.images for row in results.rows} == {2, 3}
    assert {(row.prior, row.steps) for row in pick(results.rows, method="joint-greedy")} == {
        ("on-policy", steps) for steps in (4, 8, 16)
    }
    assert {row.paper for row in pick(results.rows, images=3)} == {None}
    assert results.notes == []


def test_without_the_data_the_bundled_photographs_are_used_and_named(monkeypatch):
    def missing(split):
        raise DataError("no CIFAR-10 here")

    monkeypatch.setattr(scenes, "load_cifar10", missing)
    notes = []
    assert len(scenes.photographs(notes)) == 512
    assert notes == ["Only the 512 bundled images of 2560 were measured: no CIFAR-10 here"]


@pytest.mark.parametrize("name", ["baselines", "side-information"])
def test_rows_name_the_prior_that_made_them(name, tmp_path, monkeypatch):
    """What is written in `prior` is the stage whose weights judged."""
    monkeypatch.setenv("SENSEWISE_RUNS", str(tmp_path))
    earlier, seen = make_absorbing((3, 32, 32), 8, 10), {}
    model = {"shape": [3, 32, 32], "num_states": 8, "num_labels": 10, "network": "unet"}
    sizes = {"widths": [8, 16], "blocks": [1, 1], "embedding": 8}
    hub.save(tmp_path / "cpu" / "cifar10-random-masks", {"kind": "prior", "model": model | sizes}, earlier)

    def evaluated(self, task, methods, budgets, paper=None):
        (judge,) = task.judges.values()
        seen[task.columns.get("prior")] = fingerprint(judge.prior)
        return []

    monkeypatch.setattr(Setup, "evaluate", evaluated)
    monkeypatch.setattr(baselines, "_loupes", lambda *given: [])
    monkeypatch.setattr(baselines, "example_arrays", lambda *given: {})
    monkeypatch.setattr(scenes, "load_cifar10", lambda split: bundled_cifar10(4))
    results = EXPERIMENTS[name].run(SETUP)
    of_stage = {None: hub.load_prior("mnist"), "random-masks": earlier, "on-policy": hub.load_prior("cifar10")}
    assert seen == {stage: fingerprint(prior) for stage, prior in of_stage.items()}
    assert all(results.weights[f"cifar10-{stage}"] == seen[stage] for stage in STAGES)


def test_a_training_log_becomes_arrays(tmp_path):
    assert mnist_one_shot.log_arrays(tmp_path) == {}
    (tmp_path / "log.jsonl").write_text('{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n')
    assert mnist_one_shot.log_arrays(tmp_path)["checkpoints/loss"].tolist() == [0.5, 0.25]


@pytest.mark.parametrize("name", ["mask-state", "gradient-estimators", "mnist-one-shot"])
def test_everything_resumes_and_shards(name, quick, digits, tmp_path):
    """What was measured once is not measured again, and shards share the work without inventing numbers."""
    few, designer = digits.first(2), make_designer(SHAPE)
    settings = gradient_estimators.GradientSettings(images=1, masks=2, pairs=(1,), draws=1)
    tiny = replace(few.first(1), values=few.values[:1, :, 12:20, 12:20])
    small = make_absorbing(TINY)

    def run(journal):
        setup = Setup(seeds=range(2), journal=journal)
        if name == "mask-state":
            return mask_state.measure(setup, [(quick, make_absorbing(SHAPE, seed=1))], few)
        if name == "gradient-estimators":
            return gradient_estimators.measure(setup, small, {"untrained": make_designer(TINY)}, tiny, settings)
        return mnist_one_shot.measure(setup, quick, {"one-shot": designer}, few).rows

    whole, path = run(Journal()), tmp_path / "j.jsonl"
    assert run(Journal(path)) == whole
    again = Journal(path)
    again.recall = lambda key, measure: again.found[key]  # everything is there
    assert run(again) == whole
    for i in range(2):
        part = run(Journal(shard=(i, 2)))
        assert all(row in whole for row in part)
        assert len(part) < len(whole)


def test_presets_describe_the_experiments():
    for preset in ("cpu", "paper"):
        assert presets.load(preset, "mask-state.mnist", MaskStateSettings).seeds == 5
        section = "experiment.gradient-estimators"
        assert presets.load(preset, section, gradient_estimators.GradientSettings).masks >= 2


def test_impossible_settings_are_refused():
    with pytest.raises(ConfigError, match="masks at least 2"):
        gradient_estimators.GradientSettings(masks=1)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_preset_without_its_weights_is_refused(name, tmp_path, monkeypatch):
    """Numbers of the bundled weights never appear under another preset's name."""
    monkeypatch.setenv("SENSEWISE_RUNS", str(tmp_path))
    with pytest.raises(CheckpointError, match=r"make it with `sensewise train .* --preset paper`"):
        EXPERIMENTS[name].run(Setup("paper", range(1)))


def test_an_earlier_stage_that_is_not_there_is_left_out_and_named(quick, tmp_path, monkeypatch):
    monkeypatch.setenv("SENSEWISE_RUNS", str(tmp_path))
    preset = tmp_path / "own.toml"
    preset.write_text("[prior.mnist.random-masks]\n[prior.mnist.on-policy]\n")
    model = {"shape": [1, 32, 32], "num_states": 2, "num_labels": 10, "network": "unet"}
    sizes = {"widths": [8, 16], "blocks": [1, 1], "embedding": 8}
    with pytest.raises(CheckpointError, match="--stage on-policy"):
        models.priors(str(preset), "mnist", [])
    hub.save(tmp_path / "own" / "mnist", {"kind": "prior", "model": model | sizes}, quick)
    notes = []
    assert list(models.priors(str(preset), "mnist", notes)) == ["on-policy"]
    assert "The prior mnist-random-masks was left out" in notes[0]
    assert "--stage random-masks" in notes[0]
    hub.save(tmp_path / "own" / "mnist-random-masks", {"kind": "prior", "model": model | sizes}, quick)
    assert list(models.priors(str(preset), "mnist", notes)) == list(STAGES)
    assert len(notes) == 1


def test_a_preset_uses_its_own_weights(quick, tmp_path, monkeypatch):
    monkeypatch.setenv("SENSEWISE_RUNS", str(tmp_path))
    model = {"shape": [1, 32, 32], "num_states": 2, "num_labels": 10, "network": "unet"}
    sizes = {"widths": [8, 16], "blocks": [1, 1], "embedding": 8}
    for name in ("mnist", "mnist-random-masks"):
        hub.save(tmp_path / "own" / name, {"kind": "prior", "model": model | sizes}, quick)
    monkeypatch.setattr(scenes, "bundled_mnist", lambda count: bundled_mnist(2))
    monkeypatch.setattr(scenes, "all_digits", lambda notes: None)
    cheap = mnist_sequential.methods(quick)[:1]
    monkeypatch.setattr(mnist_sequential, "methods", lambda prior, extra_steps=(): cheap)
    preset = tmp_path / "own.toml"
    preset.write_text("[prior.mnist.random-masks]\n[prior.mnist.on-policy]\n")
    results = mnist_sequential.run(Setup(str(preset), range(1)))
    assert results.preset == str(preset)
    assert set(results.weights.values()) == {fingerprint(quick)}
    assert results.arrays["recording/step"].dtype == np.int32
