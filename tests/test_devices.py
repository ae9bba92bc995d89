"""Everything follows the device of its input: shown on `meta`, where an operation with a CPU tensor raises.

Generators stay on the CPU, so that a seed gives the same numbers everywhere; what they draw is moved.
"""

import pytest
import torch

import zoo
from conftest import make_context, seeded
from sensewise.estimators import exact_gradient
from sensewise.loop import acquire
from sensewise.networks.loupe import LoupeRows
from sensewise.policies.base import Context
from sensewise.predictions import Mixture
from sensewise.sensors.base import Side
from sensewise.sensors.pixels import PixelSensor
from sensewise.sensors.rows import RowSensor

META, CPU = torch.device("meta"), torch.device("cpu")
BATCH = 3


def on(device, *tensors):
    return [None if tensor is None else tensor.to(device) for tensor in tensors]


def pixels(device, side=8):
    """Tokens, labels and a summary on a device."""
    return on(device, torch.zeros(BATCH, 1, side, side, dtype=torch.int64), torch.zeros(BATCH, dtype=torch.int64))


def sensor_of(kind, device):
    if kind == "pixels":
        x = torch.ones(BATCH, 1, 8, 8, dtype=torch.int64, device=device)
        sensor = PixelSensor(x)
        return sensor, Side(torch.zeros(BATCH, dtype=torch.int64, device=device), sensor.summary(2))
    sensor = RowSensor(torch.ones(BATCH, zoo.ROWS, zoo.COLUMNS, dtype=torch.complex64, device=device))
    return sensor, Side(summary=sensor.summary(zoo.ACS))


POLICIES = {"pixels": zoo.PIXEL_POLICIES, "rows": zoo.ROW_POLICIES}
STARTS = {"pixels": zoo.PIXEL_STARTS, "rows": zoo.ROW_STARTS}
RECONSTRUCTORS = {"pixels": zoo.PIXEL_RECONSTRUCTORS, "rows": zoo.ROW_RECONSTRUCTORS}


def every(families):
    return pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in families for name in families[kind]])


@pytest.mark.parametrize("answer", ["entropy", "variance", "mean", "mode", "expected_errors"])
@pytest.mark.parametrize("name", zoo.PRIORS)
def test_priors(name, answer):
    prior = zoo.PRIORS[name](META)
    y, label = pixels(META)
    found = prior.in_chunks(lambda prediction: getattr(prediction, answer)(), y, label)
    assert found.device == META
    assert found.shape == y.shape
    known = zoo.PRIORS[name](CPU)(*pixels(CPU))
    assert found.dtype == getattr(known, answer)().dtype


@pytest.mark.parametrize("name", zoo.PRIORS)
def test_raw_predictions_losses_and_samples(name):
    prior = zoo.PRIORS[name](META)
    y, label = pixels(META)
    t = torch.zeros(BATCH, dtype=torch.int64, device=META)
    prediction = prior(y, None, t)
    assert prior.predict(y, label, None).log_prob(y).device == META
    assert prediction.cross_entropy(y, y == 0).shape == (BATCH,)
    assert prediction.sample(2, seeded()).shape == (2, *y.shape)
    assert prior.sample(y, label, seeded(), steps=2, samples=2).shape == (2, *y.shape)


@pytest.mark.parametrize("name", [name for name in zoo.PRIORS if name not in ("empirical", "mirrored")])
def test_padded_pictures(name):
    y = torch.zeros(1, 1, 9, 11, dtype=torch.int64, device=META)
    assert zoo.PRIORS[name](META)(y).mean().shape == (1, 1, 9, 11)


def test_mixtures():
    weights, centres, widths = torch.zeros(3, BATCH, 1, 4, 5, 6, device=META)
    y = torch.zeros(BATCH, 1, 5, 6, dtype=torch.int64, device=META)
    prediction = Mixture(weights, centres, widths, 16).given(y)
    answers = (
        prediction.entropy(),
        prediction.variance(),
        prediction.mean(),
        prediction.mode(),
        prediction.log_prob(y),
    )
    assert all(answer.shape == y.shape and answer.device == META for answer in answers)
    assert prediction.sample(2, seeded()).shape == (2, *y.shape)
    assert prediction.categorical().entropy().device == META


@every(POLICIES)
def test_policies(kind, name):
    policy = POLICIES[kind][name](META)
    sensor, side = sensor_of(kind, META)
    mask = torch.zeros(BATCH, sensor.num_actions, dtype=torch.bool, device=META)
    context = Context(side, zoo.BUDGET, seeded(), 1, sensor.grid)
    scores = policy.scores(sensor(mask), mask, context)
    assert scores.device == META
    assert scores.shape == (BATCH, sensor.num_actions)
    assert scores.dtype == torch.float32


@pytest.mark.parametrize("name", zoo.CHOICES)
@pytest.mark.parametrize("grid", [(8, 8), (16,)])
def test_choices(name, grid):
    scores = torch.zeros(BATCH, torch.Size(grid).numel(), device=META)
    chosen = zoo.CHOICES[name](scores, 5, make_context(grid=grid))
    assert chosen.device == META
    assert chosen.dtype == torch.bool


@every(STARTS)
def test_the_loop_with_every_start(kind, name):
    """`acquire` from start to end: a start is drawn on the CPU, counted there and then moved."""
    sensor, side = sensor_of(kind, META)
    policy = zoo.PIXEL_POLICIES["entropy"] if kind == "pixels" else zoo.ROW_POLICIES["plan"]
    for choose in zoo.CHOICES.values():
        taken = acquire(
            policy(META),
            sensor,
            zoo.BUDGET,
            side=side,
            steps=2,
            start=STARTS[kind][name],
            choose=choose,
            keep_scores=True,
        )
        assert {taken.observation.device, taken.mask.device, taken.scores[1].device} == {META}


@every(RECONSTRUCTORS)
def test_reconstructors(kind, name):
    sensor, side = sensor_of(kind, META)
    mask = torch.zeros(BATCH, sensor.num_actions, dtype=torch.bool, device=META)
    drawn = RECONSTRUCTORS[kind][name](META)(sensor(mask), mask, side)
    assert drawn.device == META
    assert drawn.shape == sensor(mask).shape


def test_networks_of_their_own_masks():
    model = LoupeRows(zoo.ROWS, 0.5, 8).to(META)
    image = torch.zeros(BATCH, zoo.ROWS, zoo.COLUMNS, device=META)
    assert model(image, torch.zeros(BATCH, zoo.ROWS, device=META)).device == META
    loupe = zoo.loupe(META)
    x = torch.ones(BATCH, 1, 8, 8, dtype=torch.int64, device=META)
    assert loupe(x, torch.zeros(BATCH, 8, 8, device=META)).device == META


def test_estimators():
    logits, mask = torch.zeros(2, 6, device=META), torch.zeros(2, 6, dtype=torch.bool, device=META)
    found = exact_gradient(logits, mask, lambda masks, index: masks.float().sum(1) + index)
    assert found.device == META
