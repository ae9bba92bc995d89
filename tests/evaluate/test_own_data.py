"""Any prior on any scenes: rows, examples, a recording, and methods of one's own."""

from dataclasses import replace

import pytest

from conftest import make_absorbing
from sensewise.errors import ConfigError, DataError
from sensewise.evaluate.examples import example_arrays
from sensewise.evaluate.judges import MagnitudeJudge
from sensewise.evaluate.method import Method
from sensewise.evaluate.own_data import METRICS, STEPS, evaluate_prior, own_methods
from sensewise.evaluate.recording import read_recording
from sensewise.evaluate.task import pixel_task
from sensewise.files import fingerprint
from sensewise.policies.simple import Random
from sensewise.reconstruct.zero_filled import ZeroFilled


def test_everything_that_the_page_shows(quick, digits):
    own = Method("mine", Random(), STEPS)
    results = evaluate_prior(quick, digits.first(3), range(2), extra=[own], budgets=(0.1,))
    assert {row.method for row in results.rows} == {*(m.name for m in own_methods(quick)), "mine"}
    assert {row.metric for row in results.rows} == set(METRICS)
    assert {row.split for row in results.rows} == {"test"}
    assert results.weights == {"prior": fingerprint(quick)}
    assert results.arrays["example/mine/16/reconstruction"].shape == (3, 1, 32, 32)
    assert "example/label-greedy/4/observation" not in results.arrays
    assert read_recording(results.arrays).steps == STEPS


def test_more_levels_have_a_psnr_and_greedy_variance(digits):
    prior = make_absorbing(shape=(1, 32, 32), num_states=4, num_labels=None)
    scenes = replace(digits.first(2), num_states=4, labels=None)
    results = evaluate_prior(prior, scenes, range(1), budgets=(0.1,))
    assert {"greedy", "variance-greedy"} <= {row.method for row in results.rows}
    assert "psnr" in {row.metric for row in results.rows}
    assert results.arrays["example/random/1/mean"].dtype == "float16"
    assert results.arrays["example/random/1/psnr"].shape == (2,)


def test_a_prior_of_another_shape_is_refused(quick, tiny_digits):
    with pytest.raises(DataError, match="train one with"):
        evaluate_prior(quick, tiny_digits, range(1))


def test_examples_need_token_images(quick, digits):
    task = replace(pixel_task(digits, quick, ["errors"]), judges={"zero-filled": MagnitudeJudge(ZeroFilled())})
    with pytest.raises(ConfigError, match="token images"):
        example_arrays(task, [Method("random", Random())], 0.1, 0)
