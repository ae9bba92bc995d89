import numpy as np
import pytest
import torch

from conftest import awake, fresh, make_absorbing, seeded
from sensewise import Greedy, Session, predictions
from sensewise.errors import ConfigError, SessionError
from sensewise.instruments.scan import Scan
from sensewise.networks.any_size import AnySize
from sensewise.priors.readings import ReadingPrior
from sensewise.sensors.readings import Readings

ROWS, COLUMNS = np.linspace(-1, 1, 8), np.linspace(10, 17, 8)


def make_session():
    return Session(Greedy(make_absorbing()), (1, 8, 8), 12, steps=3)


def test_readings_may_come_one_by_one_and_in_any_order():
    picture = (torch.rand(8, 8, generator=seeded()) > 0.5).double().numpy()
    scan, session = Scan(make_session(), ROWS, COLUMNS, low=100, high=300), make_session()
    while places := scan.next():
        for place in places[::-1]:
            row, column = divmod(place.number, 8)
            assert (place.row, place.column) == (ROWS[row], COLUMNS[column])
            scan.take({place.number: 100 + 200 * picture[row, column]})
    while (pixels := session.ask()) is not None:
        session.tell(picture[pixels[:, 0], pixels[:, 1]])
    assert torch.equal(scan.session.observation, session.observation)


def test_noise_is_in_the_units_of_the_readings():
    network = awake(fresh(AnySize, widths=(8, 12), blocks=(1, 1), components=3, embedding=8), std=0.05)
    policy = Greedy(ReadingPrior(network).eval().requires_grad_(False), predictions.variance, view=Readings())
    scan = Scan(Session(policy, (1, 16, 16), 4, steps=1), range(16), range(16), low=100, high=300, sigma=20)
    scan.take({place.number: 150.0 for place in scan.next()})
    values, noise = scan.session.observation
    assert values[scan.session.mask].tolist() == [0.25] * 4
    assert noise[scan.session.mask].tolist() == pytest.approx([0.1] * 4)


def test_settings_that_do_not_fit():
    with pytest.raises(ConfigError, match="positions"):
        Scan(make_session(), [1, 2], COLUMNS)
    with pytest.raises(ConfigError, match="black"):
        Scan(make_session(), ROWS, COLUMNS, low=1, high=1)


def test_what_was_not_asked_for_is_refused():
    scan = Scan(make_session(), ROWS, COLUMNS)
    asked = scan.next()
    with pytest.raises(SessionError, match="was not asked for"):
        scan.take({asked[0].number: 1.0, 99: 1.0})
    assert scan.next() == asked
