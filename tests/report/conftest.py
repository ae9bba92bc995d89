"""A results file that no model made: two digits, two priors, a few methods, and the arrays of its figures."""

import numpy as np
import pytest

from sensewise.evaluate.recording import Recording
from sensewise.evaluate.results import Results
from sensewise.evaluate.rows import Row

METHODS = {
    ("random", 1): (60.5, 46.7),
    ("variable-density", 1): (None, None),
    ("probe-greedy", 1): (40.0, 26.1),
    ("label-greedy", 16): (22.9, 5.63),
}
OURS = {
    "random": (53.0, 39.0),
    "variable-density": (40.0, 27.0),
    "probe-greedy": (31.0, 19.0),
    "label-greedy": (13.0, 1.5),
}


def make_row(**columns):
    """A row with something in every column that a row needs."""
    usual = {"dataset": "mnist", "method": "random", "steps": 1, "budget": 0.1, "density": 0.1, "metric": "errors"}
    return Row(**(usual | {"mean": 20.0, "sd": 0.0, "images": 2, "seeds": 2} | columns))


def make_rows():
    """Errors and exact fractions of `METHODS` at two budgets, with both priors."""
    rows = []
    for prior in ("random-masks", "on-policy"):
        for (method, steps), paper in METHODS.items():
            for place, budget in enumerate((0.05, 0.1)):
                cell = {"method": method, "steps": steps, "budget": budget, "density": budget, "prior": prior}
                rows.append(make_row(**cell, mean=OURS[method][place], sd=0.28, paper=paper[place]))
                rows.append(make_row(**cell, metric="exact", mean=0.25, paper=None if paper[place] is None else 0.5))
    return rows


def make_recording(levels=2, channels=1, steps=3, size=32):
    """102 pixels in some steps, chosen blindly."""
    draw = np.random.default_rng(0)
    shape = (channels, size, size)
    target = draw.integers(1, levels + 1, shape, dtype=np.uint8)
    step = np.full(size * size, -1, dtype=np.int32)
    step[draw.permutation(size * size)[:102]] = draw.integers(1, steps + 1, 102)
    mode = draw.integers(1, levels + 1, (steps + 1, *shape), dtype=np.uint8)
    mean = draw.random((steps + 1, *shape), dtype=np.float32)
    entropy = draw.random((steps + 1, size, size), dtype=np.float32)
    return Recording(target, step.reshape(size, size), levels, mode, mean, entropy)


def make_examples(levels=2, channels=1, place="example", images=2, size=32):
    """What two methods measured of a few images."""
    draw = np.random.default_rng(1)
    shape = (images, channels, size, size)
    target = draw.integers(1, levels + 1, shape, dtype=np.uint8)
    arrays = {f"{place}/target": target, f"{place}/budget": np.array(0.1)}
    for name in ("random/1", "label-greedy/16"):
        seen = draw.random((images, 1, size, size)) < 0.1
        arrays[f"{place}/{name}/observation"] = np.where(seen, target, 0)
        arrays[f"{place}/{name}/reconstruction"] = draw.integers(1, levels + 1, shape, dtype=np.uint8)
        if levels > 2:
            arrays[f"{place}/{name}/mean"] = draw.random(shape).astype(np.float16)
            arrays[f"{place}/{name}/psnr"] = np.linspace(20, 30, images)
    return arrays


@pytest.fixture
def row():
    return make_row


@pytest.fixture
def rows():
    return [row for row in make_rows() if row.prior == "on-policy"]


@pytest.fixture
def recorded():
    return make_recording


@pytest.fixture
def examples():
    return make_examples


@pytest.fixture
def tiny_results(tmp_path):
    """`mnist-sequential.json` and its arrays in a folder of their own."""
    arrays = make_examples() | make_recording().store()
    results = Results("mnist-sequential", "cpu", "mnist", make_rows(), {"on-policy": "abc"}, ["A note."], arrays)
    path = tmp_path / "results" / "mnist-sequential.json"
    results.write(path)
    return path
