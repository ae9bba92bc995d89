"""Adaptive scans with Micro-Manager: events for `run_mda` of pymmcore-plus (needs the extra `micromanager`).

The session decides on a thread of its own. The thread of the acquisition only ever hands over a frame and takes an
event: while there is no decision yet, that is an event without an action, so that the runner can pause and cancel.
"""

import queue
import threading
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from pymmcore_plus import CMMCorePlus
from useq import CustomAction, MDAEvent, MDASequence

from sensewise.errors import SessionError
from sensewise.instruments.scan import Position, Scan

NUMBER = "sensewise"  # in the metadata of an event: the number of its pixel
PATIENCE = 0.02  # seconds: how long the acquisition may be kept waiting for an event
LOST = 250  # events without an action after which a frame that has not come is lost


def brightness(frame: np.ndarray) -> float:
    """The mean of a frame."""
    return float(frame.mean())


class AdaptiveEvents:
    """An iterator of events that goes where the session wants to look next.

    Args:
        scan: positions of the XY stage in micrometres, rows along y, and the session.
        measure: a frame to its reading; on the session's thread.
        exposure: in milliseconds; None leaves it as it is.
    """

    def __init__(
        self, scan: Scan, measure: Callable[[np.ndarray], float] = brightness, exposure: float | None = None
    ) -> None:
        self.scan, self.measure, self.exposure = scan, measure, exposure
        self.error: Exception | None = None
        self._events: queue.SimpleQueue[MDAEvent | None] = queue.SimpleQueue()  # None: there are no more
        self._frames: queue.SimpleQueue[tuple[int, np.ndarray] | None] = queue.SimpleQueue()  # None: go no further
        self._worker: threading.Thread | None = None
        self._due = 0  # frames of events handed out
        self._idle = 0  # events without an action since the last of them

    def run(self, core: CMMCorePlus) -> None:
        """Run the whole scan; returns when it has ended or was cancelled, and raises what went wrong in it."""
        cancelled = threading.Event()

        def note(_: MDASequence) -> None:
            cancelled.set()

        core.mda.events.frameReady.connect(self.frame)
        core.mda.events.sequenceCanceled.connect(note)
        try:
            core.run_mda(self).join()
        finally:
            core.mda.events.frameReady.disconnect(self.frame)
            core.mda.events.sequenceCanceled.disconnect(note)
            self.close()
        if self.error is not None:
            raise self.error
        if not cancelled.is_set() and self.scan.next():
            raise SessionError("Micro-Manager ended the acquisition before the session did: its log says why")

    def frame(self, image: np.ndarray, event: MDAEvent, metadata: Any = None) -> None:
        """Hand a frame over to the session: connect it to `core.mda.events.frameReady`."""
        if NUMBER in event.metadata:
            self._due -= 1
            self._frames.put((event.metadata[NUMBER], image.copy()))  # the core may use its buffer again

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MDAEvent:
        if self._worker is None:
            self._worker = threading.Thread(target=self._decide, name="sensewise", daemon=True)
            self._worker.start()
        try:
            event = self._events.get(timeout=PATIENCE)
        except queue.Empty:
            return self._no_action()
        if event is None:
            self._events.put(None)  # the same again, should it be asked
            raise StopIteration
        self._due, self._idle = self._due + 1, 0
        return event

    def _no_action(self) -> MDAEvent:
        """An event that does nothing; ends the scan if a frame is overdue, because the camera has failed."""
        self._idle += 1
        if self._due and self._idle > LOST:
            self.error = SessionError(f"{self._due} frames did not come: Micro-Manager's log says why")
            raise StopIteration
        return MDAEvent(action=CustomAction(name="deciding"))

    def close(self) -> None:
        """End the session's thread; what was read of a step under way is lost, the steps before it are not."""
        self._frames.put(None)
        if self._worker is not None:
            self._worker.join()

    def _decide(self) -> None:
        """The session's thread: events out, frames in, step by step."""
        try:
            while places := self.scan.next():
                for place in places:
                    self._events.put(self._event(place))
                for _ in places:
                    found = self._frames.get()
                    if found is None:
                        return
                    self.scan.take({found[0]: self.measure(found[1])})
        except Exception as error:  # whatever it is belongs to the one who waits for the scan
            self.error = error
        finally:
            self._events.put(None)

    def _event(self, place: Position) -> MDAEvent:
        return MDAEvent(x_pos=place.column, y_pos=place.row, exposure=self.exposure, metadata={NUMBER: place.number})
