import numpy as np
import pytest
import torch

from conftest import make_absorbing, seeded
from sensewise import Greedy, Session
from sensewise.errors import ConfigError, SessionError
from sensewise.instruments.bluesky import RunReadings, ScanOptimizer
from sensewise.instruments.scan import Scan

ROWS, COLUMNS = np.linspace(-1, 1, 8), np.linspace(10, 17, 8)
PICTURE = (torch.rand(8, 8, generator=seeded()) > 0.5).double().numpy()


def make(budget=12, steps=3, **options):
    session = Session(Greedy(make_absorbing()), (1, 8, 8), budget, steps=steps)
    return ScanOptimizer(Scan(session, ROWS, COLUMNS, low=100, high=300), "y", "x", "counts", **options)


def outcome(point):
    """What the detector shows at a position."""
    row = int(np.abs(ROWS - point["y"]).argmin())
    column = int(np.abs(COLUMNS - point["x"]).argmin())
    return {"_id": point["_id"], "counts": 100 + 200 * PICTURE[row, column]}


def finish(optimizer, number=None, shuffle=None):
    while not optimizer.should_stop()[0]:
        points = optimizer.suggest(number)
        if shuffle is not None:
            shuffle.shuffle(points)
        optimizer.ingest([outcome(point) for point in points])
    return optimizer


def test_it_is_an_optimizer_of_bluesky_adaptive():
    protocols = pytest.importorskip("bluesky_adaptive.protocols")
    for protocol in (protocols.Optimizer, protocols.SupportsStoppingCriteria, protocols.Checkpointable):
        assert isinstance(make(), protocol)
    assert isinstance(RunReadings("value", "counts"), protocols.EvaluationFunction)


@pytest.mark.parametrize("number", [None, 1, 3, 100])
def test_the_scan_is_the_session_s_whatever_the_size_of_a_batch_and_its_order(number):
    optimizer = finish(make(), number, np.random.default_rng(0))
    session = Session(Greedy(make_absorbing()), (1, 8, 8), 12, steps=3)
    while (pixels := session.ask()) is not None:
        session.tell(PICTURE[pixels[:, 0], pixels[:, 1]])
    assert torch.equal(optimizer.scan.session.observation, session.observation)
    assert optimizer.should_stop() == (True, "the budget is spent")
    assert optimizer.suggest() == []


def test_points_are_places_with_a_number_and_come_again_until_they_are_read():
    optimizer = make()
    points = optimizer.suggest()
    assert [point["_id"] for point in optimizer.suggest()] == [point["_id"] for point in points]
    assert len(points) == 4
    for point in points:
        row, column = divmod(point["_id"], 8)
        assert (point["y"], point["x"]) == (ROWS[row], COLUMNS[column])
    optimizer.ingest([outcome(points[1])])
    assert [point["_id"] for point in optimizer.suggest(2)] == [points[0]["_id"], points[2]["_id"]]


def test_the_best_point_is_the_brightest():
    optimizer = make()
    assert optimizer.get_best_points() == []
    ((number, point, found),) = finish(optimizer).get_best_points()
    assert outcome(point) == {"_id": number, **found}
    assert found["counts"] == 300


def test_a_checkpoint_goes_on_in_another_optimizer(tmp_path):
    optimizer = make(path=tmp_path / "scan")
    optimizer.ingest([outcome(point) for point in optimizer.suggest()])
    optimizer.suggest()
    optimizer.checkpoint()
    other = make()
    other.scan.session.restore(tmp_path / "scan")
    assert [p["_id"] for p in other.suggest()] == [p["_id"] for p in optimizer.suggest()]
    assert torch.equal(finish(other).scan.session.mask, finish(optimizer).scan.session.mask)
    with pytest.raises(ConfigError, match="path="):
        make().checkpoint()


@pytest.mark.parametrize("point", [{}, {"_id": 99, "counts": 1}, {"_id": "baseline", "counts": 1}])
def test_points_that_nobody_suggested_are_refused(point):
    with pytest.raises(SessionError, match="was not suggested"):
        make().ingest([point])


@pytest.mark.parametrize("counts", [{}, {"counts": None}, {"counts": "many"}])
def test_points_without_a_reading_are_refused_and_nothing_is_kept(counts):
    optimizer = make()
    points = optimizer.suggest()
    with pytest.raises(SessionError, match="no number 'counts'"):
        optimizer.ingest([outcome(points[0]), {"_id": points[1]["_id"], **counts}])
    assert optimizer.suggest() == points


def test_readings_are_found_by_number_in_the_documents_of_a_run():
    readings = RunReadings("value", "counts")
    readings.listen("start", {"uid": "other"})
    readings.listen("start", {"uid": "run", "blop_acquisition_order": [7, 3]})
    for descriptor, run in (("d", "run"), ("e", "other")):
        readings.listen("descriptor", {"uid": descriptor, "run_start": run})
    for descriptor, value in (("d", 1.5), ("e", 9.0), ("d", 2.5)):
        readings.listen("event", {"descriptor": descriptor, "data": {"value": value}})
    readings.listen("stop", {"run_start": "run"})
    assert readings("run", []) == [{"_id": 7, "counts": 1.5}, {"_id": 3, "counts": 2.5}]
    with pytest.raises(SessionError, match="was not heard"):
        readings("run", [])
    readings.listen("start", {"uid": "short", "blop_acquisition_order": [1, 2]})
    with pytest.raises(SessionError, match="0 readings of 2 points"):
        readings("short", [])
