"""Any prior on any scenes: rows, examples, a recording, and methods of one's own."""

from dataclasses import replace

import pytest

from conftest import make_absorbing
from sensewise.errors import ConfigError, DataError
from sensewise.evaluate.examples import example_arrays
from sensewise.evaluate.experiment import Setup
from sensewise.evaluate.judges import MagnitudeJudge
from sensewise.evaluate.method import PIXEL_METHODS, Method
from sensewise.evaluate.own_data import METRICS, STEPS, evaluate_prior, own_methods
from sensewise.evaluate.recording import read_recording
from sensewise.evaluate.task import pixel_task
from sensewise.files import fingerprint
from sensewise.policies.simple import Random
from sensewise.reconstruct.zero_filled import ZeroFilled
from sensewise.report.methods import name_of


def test_everything_that_the_page_shows(quick, digits):
    own = Method("mine", Random(), STEPS)
    results = evaluate_prior(quick, digits.first(3), Setup(seeds=range(2)), extra=[own], budgets=(0.1,))
    assert {row.method for row in results.rows} == {*(m.name for m in own_methods(quick, digits)), "mine"}
    assert {row.metric for row in results.rows} == set(METRICS)
    assert {row.split for row in results.rows} == {"test"}
    assert results.weights == {"prior": fingerprint(quick)}
    assert results.arrays["example/mine/16/reconstruction"].shape == (3, 1, 32, 32)
    assert "example/label-greedy/4/observation" not in results.arrays
    assert read_recording(results.arrays).steps == STEPS


def test_more_levels_have_a_psnr_and_greedy_variance(digits):
    prior = make_absorbing(shape=(1, 32, 32), num_states=4, num_labels=None)
    scenes = replace(digits.first(2), num_states=4, labels=None)
    results = evaluate_prior(prior, scenes, Setup(seeds=range(1)), budgets=(0.1,))
    assert {"greedy", "variance-greedy"} <= {row.method for row in results.rows}
    assert "psnr" in {row.metric for row in results.rows}
    assert results.arrays["example/random/1/mean"].dtype == "float16"
    assert results.arrays["example/random/1/psnr"].shape == (2,)


@pytest.mark.parametrize("levels", [2, 4])
@pytest.mark.parametrize("labels", [None, 10])
def test_every_policy_of_acquire_is_compared(digits, levels, labels):
    prior = make_absorbing(shape=(1, 32, 32), num_states=levels, num_labels=labels)
    names = {method.name for method in own_methods(prior, digits)}
    assert names == (PIXEL_METHODS.keys() if labels is None else PIXEL_METHODS.keys() - {"greedy"} | {"label-greedy"})


def test_label_greedy_needs_labels(digits):
    """Neither names nor what tables call them; also of a prior that could take labels."""
    names = [method.name for method in own_methods(make_absorbing(), replace(digits, labels=None))]
    assert "greedy" in names
    assert not any("label" in name_of(name) for name in names)


def test_a_prior_of_another_shape_is_refused(quick, tiny_digits):
    with pytest.raises(DataError, match="train one with"):
        evaluate_prior(quick, tiny_digits, Setup())


def test_examples_need_token_images(quick, digits):
    task = replace(pixel_task(digits, quick, ["errors"]), judges={"zero-filled": MagnitudeJudge(ZeroFilled())})
    with pytest.raises(ConfigError, match="token images"):
        example_arrays(task, [Method("random", Random())], 0.1, 0)
