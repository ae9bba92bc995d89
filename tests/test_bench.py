"""The benchmark's arithmetic, on priors that answer at once; its times are never judged here."""

import io
import time

import numpy as np
import pytest
from rich.console import Console

from conftest import make_absorbing
from sensewise import bench
from sensewise.report import bench_table


def test_the_median_time_of_each_job():
    short, long = bench.seconds(lambda: time.sleep(0.001), lambda: time.sleep(0.02), repeats=3)
    assert 0.001 <= short < long
    assert long >= 0.02


@pytest.mark.parametrize("power", [0.5, 1, 2])
def test_exponent(power):
    sizes = np.array([32, 64, 128, 256])
    assert bench.exponent(sizes, 3e-4 * sizes**power) == pytest.approx(power)


@pytest.mark.parametrize(
    ("value", "bound", "highest", "holds"),
    [(5, 6, True, True), (7, 6, True, False), (7, 6, False, True), (5, 6, False, False), (5, None, True, None)],
)
def test_bounds(value, bound, highest, holds):
    measured = bench.Measurement("latency", value, bound, highest, {"p99_ms": 9.0})
    assert measured.holds is holds
    row = measured.row()
    assert row["at_most" if highest else "at_least"] == bound
    assert row["p99_ms"] == 9.0


@pytest.mark.parametrize("measure", [bench.latency, bench.gemm_fraction, bench.overhead, bench.onnx])
def test_every_row_measures_something(measure, quick, monkeypatch):
    monkeypatch.setattr(bench, "STEPS", 2)
    found = measure(quick)
    assert found.value > 0
    assert found.row()["row"] == found.name


def test_sampling_costs_many_passes(monkeypatch):
    """16 samples of 16 rounds are 256 passes for each one of ours."""
    prior, passes = make_absorbing(shape=(1, 32, 32)), []
    predict = prior.predict

    def counted(y, label, t):
        passes.append(len(y))
        return predict(y, label, t)

    monkeypatch.setattr(prior, "predict", counted)
    monkeypatch.setattr(bench, "STEPS", 2)
    found = bench.acquire_vs_sampling(prior, images=2)
    assert found.details["errors_ours"] > 0
    ours = 2 * (2 + 1)  # two steps and the reconstruction
    sampling, timed = 2 * (2 * 256 + 1), 2 * 2 * 8  # then ours again: once to warm up, seven times to measure
    assert sum(passes) == ours + sampling + timed


def test_the_table_says_what_holds():
    rows = [bench.Measurement("overhead", 1.2, 1.1, True, {}).row(), bench.Measurement("a", 70, 60, False, {}).row()]
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(bench_table(rows))
    text = console.export_text()
    assert "<= 1.1" in text
    assert ">= 60" in text
    assert "no" in text
    assert "yes" in text
