"""The benchmark's arithmetic, on priors that answer at once; its times are never judged here."""

import time

import numpy as np
import pytest

from conftest import make_absorbing
from sensewise.data.mnist import bundled_mnist
from sensewise.errors import ProcessError
from sensewise.evaluate import speed
from sensewise.paper import bench


@pytest.fixture(scope="module")
def scenes():
    return bundled_mnist(512)


def test_the_median_time_of_each_job():
    short, long = speed.seconds(lambda: time.sleep(0.001), lambda: time.sleep(0.02), repeats=3)
    assert 0.001 <= short < long
    assert long >= 0.02


@pytest.mark.parametrize("power", [0.5, 1, 2])
def test_exponent(power):
    sizes = np.array([32, 64, 128, 256])
    assert speed.exponent(sizes, 3e-4 * sizes**power) == pytest.approx(power)


@pytest.mark.parametrize("measure", [speed.latency, speed.gemm_fraction, speed.overhead])
def test_every_row_measures_something(measure, quick, scenes, monkeypatch):
    monkeypatch.setattr(speed, "STEPS", 2)
    found = measure(quick, scenes)
    assert found.value > 0
    assert found.as_json()["row"] == found.name


def test_amortised_decisions(quick, scenes, monkeypatch):
    monkeypatch.setattr(speed, "STEPS", 2)
    assert speed.amortised(quick, quick, scenes).holds is False  # the same prior is as slow as itself
    one = speed.latency_amortised(quick, quick, scenes)
    assert 0 < one.value <= one.details["p99_ms"]


def test_sampling_costs_many_passes(monkeypatch, scenes):
    """16 samples of 16 rounds are 256 passes for each one of ours."""
    prior, passes = make_absorbing(shape=(1, 32, 32)), []
    predict = prior.predict

    def counted(y, label, t):
        passes.append(len(y))
        return predict(y, label, t)

    monkeypatch.setattr(prior, "predict", counted)
    monkeypatch.setattr(speed, "STEPS", 2)
    found = speed.acquire_vs_sampling(prior, scenes, images=2)
    assert found.details["errors_ours"] > 0
    ours = 2 * (2 + 1)  # two steps and the reconstruction
    sampling, timed = 2 * (2 * 256 + 1), 2 * 2 * 8  # then ours again: once to warm up, seven times to measure
    assert sum(passes) == ours + sampling + timed


def test_the_exported_prior_agrees(quick, scenes):
    pytest.importorskip("onnxruntime")
    from sensewise.apps.onnx import export_onnx

    found = speed.onnx(quick, scenes, export_onnx)
    assert found.value > 0
    assert found.details["largest_difference"] < 1e-4
    engine = speed.engine_onnx(quick, scenes)
    assert engine.value > 0
    assert engine.details["largest_difference"] < 1e-5
    assert quick.engine == "torch"


def test_a_measurement_of_memory_that_does_not_end_is_given_up(monkeypatch):
    monkeypatch.setattr(bench, "APART_SECONDS", 0.3)
    with pytest.raises(ProcessError, match="let nothing else run"):
        bench.memory()


def test_the_rows_of_a_large_picture(monkeypatch):
    """What is measured, on a small picture; and its four rows, with their bounds."""
    found = bench.picture_apart(side=32, steps=2)
    assert 0 < found["first_s"] < found["seconds"]
    assert found["psnr"] > 15
    assert min(found["memory_gb"], found["pass_s"], found["choose_s"]) > 0
    monkeypatch.setattr(bench, "apart", lambda function: {**found, "seconds": 30.0})
    rows = {row.name: row for row in bench.picture()}
    assert list(rows) == ["picture-512", "picture-512-first", "picture-512-memory", "picture-512-choose"]
    assert rows["picture-512"].holds is False
    assert rows["picture-512-first"].holds
