"""The loop on Micro-Manager's own DemoCamera; examples/micromanager_scan.py has the stage above a large sample."""

import logging
import threading
import time
from pathlib import Path

import pytest
import torch

from conftest import make_absorbing
from sensewise import Greedy, Session
from sensewise.errors import SessionError
from sensewise.instruments.scan import Scan
from sensewise.policies.base import Policy

pytest.importorskip("pymmcore_plus", reason="needs the extra micromanager")
adapters = pytest.importorskip("mm_test_adapters", reason="needs the extra micromanager")
FIELD = 100.0  # micrometres between two positions


@pytest.fixture(scope="module")
def core():
    from pymmcore_plus import CMMCorePlus

    logging.getLogger("pymmcore-plus").setLevel(logging.ERROR)
    found = CMMCorePlus(adapter_paths=[adapters.device_adapter_path()])
    try:
        found.loadSystemConfiguration(Path(adapters.device_adapter_path()) / "MMConfig_demo.cfg")
    except (OSError, RuntimeError) as error:
        pytest.skip(f"Micro-Manager's demo devices cannot be loaded here: {error}")
    found.setExposure(1)
    yield found
    found.unloadAllDevices()


def make_events(policy=None, **options):
    from sensewise.instruments.micromanager import AdaptiveEvents

    prior = make_absorbing()
    session = Session(policy or Greedy(prior), (1, 8, 8), 12, steps=3, prior=prior)
    places = [FIELD * i for i in range(8)]
    return AdaptiveEvents(Scan(session, places, places, high=65535), **options)


class Slow(Policy):
    """Takes its time."""

    def scores(self, observation, mask, context):
        time.sleep(0.3)
        return torch.arange(64.0).repeat(len(mask), 1)


def test_the_loop_on_the_demo_camera(core):
    """Every position of the session is visited once, its frame measured, its reading taken."""
    visited, measured = [], []

    def light(frame):
        measured.append(frame.shape)
        row, column = divmod(visited[len(measured) - 1], 8)
        return 65535.0 * ((row + column) % 2)

    events = make_events(measure=light)
    follow = core.mda.events.frameReady.connect(lambda image, event, meta: visited.append(event.metadata["sensewise"]))
    events.run(core)
    core.mda.events.frameReady.disconnect(follow)
    session = events.scan.session
    assert len(visited) == len(set(visited)) == 12
    assert session.mask.flatten().nonzero()[:, 0].tolist() == sorted(visited)
    assert set(measured) == {(512, 512)}
    rows, columns = session.mask.nonzero(as_tuple=True)
    assert torch.equal(session.observation[0, rows, columns], (rows + columns) % 2 + 1)
    assert (core.getXPosition(), core.getYPosition()) == pytest.approx(
        (FIELD * (visited[-1] % 8), FIELD * (visited[-1] // 8)), abs=0.1
    )


def test_the_thread_of_the_acquisition_never_waits_for_a_decision(core):
    """Each event comes within a moment, though a decision takes long; the frames are measured on another thread."""
    waits, threads = [], set()

    class Watched:
        def __iter__(self):
            return self

        def __next__(self):
            before = time.perf_counter()
            try:
                return next(events)
            finally:
                waits.append(time.perf_counter() - before)
                acquiring.add(threading.get_ident())

    def measure(frame):
        threads.add(threading.get_ident())
        return 0.0

    acquiring, events = set(), make_events(Slow(), measure=measure)
    core.mda.events.frameReady.connect(events.frame)
    core.run_mda(Watched()).join()
    core.mda.events.frameReady.disconnect(events.frame)
    assert int(events.scan.session.mask.sum()) == 12
    assert len(waits) > 12 + 3 * 5  # events without an action while three decisions were made
    assert max(waits) < 0.2
    assert not threads & acquiring


def test_a_scan_can_be_cancelled_while_it_decides(core):
    class Forever(Slow):
        def scores(self, observation, mask, context):
            if mask.any():
                core.mda.cancel()
            return super().scores(observation, mask, context)

    events = make_events(Forever())
    events.run(core)
    assert int(events.scan.session.mask.sum()) == 4
    assert events.error is None


def test_what_goes_wrong_on_the_session_s_thread_is_raised_where_the_scan_was_started(core):
    def broken(frame):
        raise SessionError("the lamp is off")

    with pytest.raises(SessionError, match="the lamp is off"):
        make_events(measure=broken).run(core)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_acquisition_that_micro_manager_ends_by_itself_is_noticed(core, monkeypatch):
    def unplugged(event):
        raise RuntimeError("no camera")

    monkeypatch.setattr(core.mda.engine, "exec_event", unplugged)
    with pytest.raises(SessionError, match="its log says why"):
        make_events().run(core)


def test_frames_that_never_come_end_the_scan(core, monkeypatch):
    monkeypatch.setattr("sensewise.instruments.micromanager.LOST", 5)
    monkeypatch.setattr(core.mda.engine, "exec_event", lambda event: ())
    with pytest.raises(SessionError, match="4 frames did not come"):
        make_events().run(core)
