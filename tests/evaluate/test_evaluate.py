"""Rows of results: every column, means over scenes and seeds, blocks, and methods that need no second seed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.progress import Progress

from conftest import random_kspace
from sensewise.data.scenes import Scenes
from sensewise.errors import BudgetError, ConfigError, DataError
from sensewise.evaluate import evaluate as machinery
from sensewise.evaluate.evaluate import evaluate, measure, published, spend
from sensewise.evaluate.judges import TOKEN_METRICS, MagnitudeJudge, PriorJudge
from sensewise.evaluate.method import Method, PlainDraw
from sensewise.evaluate.task import Task, pixel_task, row_task
from sensewise.metrics import errors
from sensewise.networks.decoders import MaskDesigner
from sensewise.policies.base import Policy
from sensewise.policies.greedy import Greedy
from sensewise.policies.simple import Random, VariableDensity
from sensewise.policies.starts import RandomProbe
from sensewise.reconstruct.prior import Mode
from sensewise.reconstruct.zero_filled import ZeroFilled
from sensewise.sensors.base import Side
from sensewise.sensors.pixels import PixelSensor

PAPER = published((0.05, 0.1), {("random", 1, "errors"): (60.5, 46.7), ("label-greedy", 4, "exact"): (0.04, None)})


def scored(prior, images, metrics, seeds=(0, 1, 2), **options):
    methods = [Method("random", Random()), Method("label-greedy", Greedy(prior), 4)]
    task = pixel_task(images, prior, metrics, prior="on-policy")
    return evaluate(task, methods, (0.05, 0.1), seeds, paper=PAPER, **options)


def test_rows_have_every_column(quick, digits):
    rows = scored(quick, digits.first(8), list(TOKEN_METRICS))
    assert len(rows) == 2 * 2 * len(TOKEN_METRICS)
    for row in rows:
        assert (row.dataset, row.images, row.prior) == ("mnist", 8, "on-policy")
        assert row.density == round({0.05: 51, 0.1: 102}[row.budget] / 1024, 6)
        assert row.paper == PAPER.get((row.method, row.steps, row.budget, row.metric, None))
        assert row.reconstructor is None
        if row.method == "label-greedy":
            assert (row.sd, row.seeds) == (0, 1)  # it was run once
        else:
            assert row.seeds == 3
            assert row.sd > 0 or row.metric != "errors"


def test_means_are_over_scenes_and_seeds(quick, digits):
    task = pixel_task(digits.first(8), quick, ["errors"])
    expected = []
    for seed in (0, 1, 2):
        taken = spend(task, Method("random", Random()), 0.05, seed)
        expected.append(errors(Mode(quick)(taken.observation, taken.mask, task.side), task.values).mean().item())
    found = scored(quick, digits.first(8), ["errors"])[0]
    assert found.mean == pytest.approx(np.mean(expected), abs=1e-5)
    assert found.sd == pytest.approx(np.std(expected, ddof=1), abs=1e-5)


def test_the_same_seed_gives_the_same_rows(quick, digits):
    first, second = (scored(quick, digits.first(4), ["errors"]) for _ in range(2))
    assert first == second
    assert first != scored(quick, digits.first(4), ["errors"], seeds=(5, 6, 7))


def test_progress_ends_with_the_work(quick, digits):
    with Progress(disable=True) as progress:
        scored(quick, digits.first(2), ["errors"], seeds=(0,), progress=progress)
        assert progress.task_ids == []


def test_measuring_in_blocks_changes_nothing_but_the_draws(monkeypatch, absorbing, tiny_digits):
    """Without randomness the rows of small blocks are those of the whole; budgets and counts always are."""
    task = pixel_task(tiny_digits.first(8), absorbing, ("errors", "exact"))
    methods = [Method("random", Random()), Method("label-greedy", Greedy(absorbing), 2)]
    whole = evaluate(task, methods, (0.25,), (0, 1))
    monkeypatch.setattr(machinery, "BLOCK", 3)
    for one, other in zip(whole, evaluate(task, methods, (0.25,), (0, 1)), strict=True):
        assert other.images == 8
        assert other.density == one.density
        if one.method == "label-greedy":
            assert other.mean == pytest.approx(one.mean, abs=1e-6)


def test_a_method_is_random_through_its_policy_or_any_start(quick):
    greedy = Method("greedy", Greedy(quick))
    assert not greedy.is_random()
    assert greedy.is_random(RandomProbe())
    assert Method("probe", Greedy(quick), start=RandomProbe()).is_random()
    assert Method("density", VariableDensity()).is_random()


def test_further_columns_and_the_papers_values(quick, digits):
    """A method with columns of its own, such as a control, is not what the paper measured."""
    task = pixel_task(digits.first(2), quick, ["errors"])
    control = Method("random", Random(), columns={"masks": "sampled"})
    (row,) = evaluate(task, [control], (0.1,), (0,), paper=PAPER)
    assert (row.masks, row.paper) == ("sampled", None)


def test_at_most_so_many_steps(quick, digits):
    """Five pixels cannot be measured in sixteen steps, and a probe takes some of them already."""
    task = pixel_task(digits.first(2), quick, ["errors"])
    assert spend(task, Method("greedy", Greedy(quick), 16), 5, 0).steps == 5
    assert spend(task, Method("greedy", Greedy(quick), 16, start=RandomProbe(0.4)), 5, 0).steps == 3


def test_rows_of_kspace_under_several_judges():
    slices = Scenes("toy", "val", random_kspace(4, 16, 12))
    judges = {"zero-filled": MagnitudeJudge(ZeroFilled()), "again": MagnitudeJudge(ZeroFilled(), ("nmse",))}
    task = row_task(slices, judges, 4, slices="all")
    rows = evaluate(task, [Method("acs-random", Random())], (0.5,), (0, 1))
    assert [(row.reconstructor, row.metric) for row in rows] == [
        *(("zero-filled", metric) for metric in ("nmse", "psnr", "ssim")),
        ("again", "nmse"),
    ]
    assert all((row.density, row.slices, row.seeds) == (0.5, "all", 2) for row in rows)
    assert rows[0].mean == rows[3].mean
    with pytest.raises(BudgetError, match="ACS block"):
        evaluate(task, [Method("acs-random", Random())], (0.2,), (0,))


def test_a_plain_draw_has_the_density_that_it_happens_to_have(quick, digits):
    designer = MaskDesigner((1, 32, 32), 10).eval().requires_grad_(False)
    task = pixel_task(digits.first(4), quick, ["errors"])
    (row,) = evaluate(task, [PlainDraw("one-shot-bernoulli", designer)], (0.3,), range(2))
    assert row.density != round(307 / 1024, 6)
    assert row.density == pytest.approx(0.3, abs=0.05)


def test_tasks_that_cannot_be(quick, digits):
    with pytest.raises(ConfigError, match="one scene and one judge"):
        Task("nothing", digits.first(0), PixelSensor, {"prior": PriorJudge(quick, ["errors"])})
    with pytest.raises(ConfigError, match="no metric 'beauty'"):
        pixel_task(digits, quick, ["beauty"])
    with pytest.raises(DataError, match="train one with"):
        pixel_task(replace(digits, values=digits.values[..., :24]), quick, ["errors"])


def test_any_size_of_image_where_the_prior_takes_any(digits):
    from conftest import make_absorbing

    prior = make_absorbing(shape=(1, 32, 32), size=None)
    wide = replace(digits.first(2), values=digits.values[:2, :, 4:24])  # 20 x 32
    (row,) = evaluate(pixel_task(wide, prior, ["errors"]), [Method("greedy", Greedy(prior), 2)], (0.1,), (0,))
    assert row.density == 64 / 640


class Elsewhere(Policy):
    """Looks at where it is: no numbers, but everything that a policy is given."""

    def scores(self, observation, mask, context):
        assert context.side.label is not None
        return torch.arange(mask.shape[1]).float().expand(mask.shape)


def test_side_information_is_that_of_the_block(monkeypatch, quick, digits):
    monkeypatch.setattr(machinery, "BLOCK", 3)
    task = pixel_task(digits.first(5), quick, ["errors"])
    assert measure(task, Method("own", Elsewhere()), 0.1, (0,)) is not None
    assert task.part(slice(3, 5)).side.label.tolist() == digits.labels[3:5].tolist()
    assert replace(task, side=Side()).part(slice(0, 2)).side == Side()
