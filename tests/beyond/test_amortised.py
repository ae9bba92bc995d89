"""Small priors that decide for another: rows of errors and times, and what the section says of them."""

import pytest
import torch

from conftest import make_absorbing, seeded
from sensewise.beyond import amortised
from sensewise.data.scenes import Scenes
from sensewise.evaluate.evaluate import evaluate
from sensewise.evaluate.experiment import Setup
from sensewise.evaluate.method import spread_entropy
from sensewise.evaluate.results import Results
from sensewise.evaluate.task import pixel_task
from sensewise.report import metrics

FULL = make_absorbing((1, 16, 16))
GUIDES = {
    "plain-16": make_absorbing((1, 16, 16), seed=1),
    "taught-16": FULL,
    "guide": make_absorbing((1, 16, 16), seed=2),
}


@pytest.fixture(scope="module")
def digits():
    tokens = torch.randint(1, 3, (4, *FULL.shape), generator=seeded()).to(torch.uint8)
    return Scenes("mnist", "test", tokens, torch.arange(4), 2, 10)


@pytest.fixture(scope="module")
def rows(digits):
    return amortised.measure(Setup(seeds=range(2)), FULL, GUIDES, digits)


def test_a_guide_that_is_the_full_prior_picks_what_the_full_prior_picks(rows):
    own = {row.budget: row.mean for row in metrics.pick(rows, metric="errors", guide=None)}
    guided = {row.budget: row.mean for row in metrics.pick(rows, metric="errors", guide="taught-16", prior=None)}
    assert own == guided
    assert set(own) == set(amortised.BUDGETS)


def test_by_itself_a_small_prior_picks_and_pictures(rows, digits):
    (alone,) = metrics.pick(rows, metric="errors", guide="plain-16", prior="plain-16", budget=0.1)
    small = GUIDES["plain-16"]
    method = spread_entropy("own", small, amortised.STEPS)
    (same,) = evaluate(pixel_task(digits, small, ("errors",)), [method], (0.1,), range(1))
    assert alone.mean == same.mean


def test_every_contender_has_a_time(rows):
    times = metrics.pick(rows, metric="seconds")
    assert {row.guide for row in times} == {None, *GUIDES}
    assert all(0 < row.mean < 1 for row in times)
    assert all(row.seeds == 1 for row in times)


def test_another_shard_times(digits):
    class Elsewhere(type(Setup().journal)):
        def recall(self, key, measure):
            return None if key.startswith("seconds") else super().recall(key, measure)

    found = amortised.measure(Setup(journal=Elsewhere()), FULL, {}, digits)
    assert metrics.pick(found, metric="errors")
    assert not metrics.pick(found, metric="seconds")


def test_the_section_says_what_is_lost_and_saved(rows):
    section = amortised.section(Results("amortised", "cpu", "mnist", rows))
    text = " ".join(section.paragraphs)
    assert "`taught-16`: 1.00 times the errors" in text
    shown = section.tables[0].markdown()
    assert "the full prior by itself" in shown
    assert f"`guide`, {sum(p.numel() for p in GUIDES['guide'].parameters()):,} weights, picture by itself" in shown
    (axes,) = section.figures[0].content.axes
    assert {text.get_text() for text in axes.texts} == set(GUIDES)
    assert [len(line.get_xdata()) for line in axes.lines[:3]] == [1, 1, 1]  # plain, taught, taught for longer


def test_what_was_not_trained_is_not_in_the_legend(rows):
    known = [row for row in rows if row.guide in (None, "guide")]
    (axes,) = amortised.section(Results("amortised", "cpu", "mnist", known)).figures[0].content.axes
    assert axes.get_legend_handles_labels()[1] == [amortised.KINDS["longer"], "the full prior decides"]
