"""Everything follows the device of its input: shown on `meta`, where an operation with a CPU tensor raises.

Generators stay on the CPU, so that a seed gives the same numbers everywhere; what they draw is moved.
"""

import pytest
import torch

import zoo
from conftest import make_context, seeded
from sensewise import kspace, masks
from sensewise.channels import BitFlip, Gaussian, Poisson
from sensewise.diffusion import AbsorbingProcess
from sensewise.estimators import exact_gradient
from sensewise.loop import acquire
from sensewise.networks.loupe import LoupeRows
from sensewise.policies.base import Context
from sensewise.predictions import Categorical, Mixture
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


@pytest.mark.parametrize("name", [name for name in zoo.PRIORS if name not in ("empirical", "mirrored", "mean")])
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


@pytest.mark.parametrize(
    ("name", "grid"),
    [*((name, (8, 8)) for name in zoo.PIXEL_CHOICES), *((name, (16,)) for name in zoo.CHOICES)],
)
def test_choices(name, grid):
    scores = torch.zeros(BATCH, torch.Size(grid).numel(), device=META)
    y, label = pixels(META)
    chosen = zoo.PIXEL_CHOICES[name](scores, 5, make_context(grid=grid, label=label, observation=y))
    assert chosen.device == META
    assert chosen.dtype == torch.bool


@every(STARTS)
def test_the_loop_with_every_start(kind, name):
    """`acquire` from start to end: a start is drawn on the CPU, counted there and then moved."""
    sensor, side = sensor_of(kind, META)
    policy = zoo.PIXEL_POLICIES["entropy"] if kind == "pixels" else zoo.ROW_POLICIES["plan"]
    for choose in (zoo.PIXEL_CHOICES if kind == "pixels" else zoo.CHOICES).values():
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


PROCESS = AbsorbingProcess(10)
CHANNELS = {"gaussian": Gaussian(0.1), "poisson": Poisson(20.0), "flips": BitFlip(0.1)}


@pytest.mark.parametrize("channel", CHANNELS.values(), ids=CHANNELS)
def test_channels(channel):
    truth = torch.zeros(BATCH, 4, device=META)
    read = truth if isinstance(channel, Poisson) else channel.read(truth, seeded())  # counts need a rate
    value, noise = channel.combine(read, torch.ones(BATCH, 4, dtype=torch.bool, device=META))
    gain = Categorical(torch.zeros(BATCH, 1, 2, 2, 2, device=META)).gain(channel)
    assert {read.device, value.device, noise.device, gain.device, channel.noise(read).device} == {META}


def test_masks_and_rows():
    values = torch.zeros(BATCH, 6, device=META)
    found = [
        masks.around(values, (2, 3), 1.0),
        masks.nearness(4, 1.0, META),
        masks.room(values > 0, (2, 3)),
        masks.top_k(values, 2),
        masks.bottom_k(values, values[:, 0].long()),
        masks.spread_top_k(values, 2, (2, 3), 0.5, 1.0),
        masks.joint_top_k(values, 2, torch.zeros(BATCH, 6, 6, device=META)),
        kspace.sensitivities(torch.zeros(BATCH, 2, 6, 4, dtype=torch.complex64, device=META), values),
        PROCESS.corrupt(values.long().view(BATCH, 1, 2, 3), values[:, 0].long(), seeded()),
        PROCESS.timestep_for(values),
    ]
    assert {tensor.device for tensor in found} == {META}


TOKENS = torch.ones(2, 1, 2, 3, dtype=torch.int64)
PARTS = torch.zeros(3, 2, 1, 4, 2, 3) + 0.2
DRAWS = {
    "uniform": lambda draw: masks.uniform((20,), draw),
    "gumbel": lambda draw: masks.gumbel((20,), draw),
    "logistic": lambda draw: masks.logistic((20,), draw),
    "corrupt": lambda draw: PROCESS.corrupt(TOKENS, TOKENS[:, 0, 0, 0], draw),
    "categorical": lambda draw: Categorical(torch.zeros(2, 1, 2, 3, 4, device="cpu")).sample(3, draw),
    "mixture": lambda draw: Mixture(*PARTS, 16).sample(3, draw),
    **{name: lambda draw, channel=channel: channel.read(PARTS, draw) for name, channel in CHANNELS.items()},
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers_are_drawn_where_the_generator_is(name):
    """Whatever device new tensors have by default: numbers of a seed are the same everywhere."""
    expected = DRAWS[name](seeded())
    draw = seeded()
    with torch.device("meta"):
        found = DRAWS[name](draw)
    assert found.device == CPU
    assert torch.equal(found, expected)
