"""The page under load and under attack: queue, deadlines, clients that leave. On this machine only, and in seconds."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlsplit

import httpx
import pytest

from apps.web_fixtures import running, write_assets
from sensewise.apps.web import middleware, protocol
from sensewise.apps.web.app import create_app
from sensewise.apps.web.orders import Orders
from sensewise.apps.web.recorder import Recorder, StoppablePrior, Stopped
from sensewise.apps.web.server import MOST_REQUESTS

ORDER = {"prior": "mnist", "image": 3, "label": 0, "budget": 0.1, "steps": 4, "policy": "greedy"}
SOON = 0.2  # seconds


class SlowRecorder(Recorder):
    """Counts its acquisitions; each waits for `go`, or until it is stopped."""

    def __init__(self, assets):
        super().__init__(assets)
        self.go, self.begun, self.stopped = threading.Event(), [], []

    def _record(self, request, stop, show):
        self.begun.append(request)
        while not self.go.wait(0.01):
            if stop.is_set():
                self.stopped.append(request)
                raise Stopped
        return super()._record(request, stop, show)


@pytest.fixture(scope="module")
def assets(tmp_path_factory):
    return write_assets(tmp_path_factory.mktemp("assets"))


@pytest.fixture
def recorder(assets):
    recorder = SlowRecorder(assets)
    yield recorder
    recorder.go.set()


@contextmanager
def serving(recorder, **options):
    with running(create_app(recorder, orders=Orders(recorder, **options))) as address:
        yield address


def post(address, **change):
    return httpx.post(f"{address}/api/acquire", json=ORDER | change, timeout=30)


def wait_for(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def seconds_of(address, path="/"):
    """Of a request on a connection of its own."""
    begun = time.monotonic()
    with connect(address) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        assert until_closed(connection).startswith(b"HTTP/1.1 200")
    return time.monotonic() - begun


def connect(address):
    parts = urlsplit(address)
    return socket.create_connection((parts.hostname, parts.port), timeout=20)


def request_head(length):
    kind = "Content-Type: application/json\r\n"
    return f"POST /api/acquire HTTP/1.1\r\nHost: 127.0.0.1\r\n{kind}Content-Length: {length}\r\n\r\n".encode()


def send_order(address, **change):
    """A connection on which an order was sent whole."""
    body = json.dumps(ORDER | change).encode()
    connection = connect(address)
    connection.sendall(request_head(len(body)) + body)
    return connection


def test_pages_do_not_wait_for_acquisitions(recorder):
    with serving(recorder, waiting=60) as address, ThreadPoolExecutor(50) as people:
        answers = [people.submit(post, address, image=number) for number in range(50)]
        wait_for(lambda: len(recorder.begun) == 2)
        for path in ("/", "/app.js", "/api/catalog", "/api/images?prior=mnist"):
            assert min(seconds_of(address, path) for _ in range(3)) < SOON
        recorder.go.set()
        assert {answer.result().status_code for answer in answers} == {200}


def test_a_full_queue_is_said_at_once(recorder):
    orders = Orders(recorder, at_once=1, waiting=2)
    with running(create_app(recorder, orders=orders)) as address, ThreadPoolExecutor(3) as people:
        answers = [people.submit(post, address, image=number) for number in range(3)]
        wait_for(lambda: len(orders.under_way) == 3)
        with send_order(address, image=9) as connection:
            connection.settimeout(10 * SOON)
            assert connection.recv(100).startswith(b"HTTP/1.1 503")
        refused = post(address, image=9)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert "under way" in refused.json()["error"]
        recorder.go.set()
        assert {answer.result().status_code for answer in answers} == {200}
        assert post(address, image=9).status_code == 200


def test_identical_orders_are_computed_once(recorder):
    with serving(recorder) as address, ThreadPoolExecutor(20) as people:
        answers = [people.submit(post, address) for _ in range(20)]
        wait_for(lambda: recorder.begun)
        time.sleep(0.3)
        recorder.go.set()
        assert len({answer.result().text for answer in answers}) == 1
    assert len(recorder.begun) == 1


def test_an_order_is_dropped_when_its_client_leaves(recorder):
    orders = Orders(recorder, at_once=1, waiting=8)
    with running(create_app(recorder, orders=orders)) as address:
        computing, waiting = send_order(address, image=1), send_order(address, image=2)
        wait_for(lambda: len(orders.under_way) == 2 and recorder.begun)
        waiting.close()
        wait_for(lambda: len(orders.under_way) == 1)
        computing.close()
        wait_for(lambda: recorder.stopped)
        assert not orders.under_way
        recorder.go.set()
        assert post(address, image=3).status_code == 200
    assert [request.image for request in recorder.begun] == [1, 3]


class SteppingRecorder(Recorder):
    """Makes one event at a time, each when it is allowed to."""

    def __init__(self, assets):
        super().__init__(assets)
        self.allowed, self.shown, self.ended, self.begun = threading.Semaphore(0), 0, [], []

    def _record(self, request, stop, show):
        self.begun.append(request)

        def when_allowed(event):
            while not self.allowed.acquire(timeout=0.01):
                if stop.is_set():
                    raise Stopped
            show(event)
            self.shown += 1

        try:
            return super()._record(request, stop, when_allowed)
        except Stopped:
            self.ended.append(request)
            raise


def send_stream(address):
    body = json.dumps(ORDER).encode()
    connection = connect(address)
    head = request_head(len(body)).replace(b"/api/acquire", b"/api/stream")
    connection.sendall(head + body)
    return connection


def read_events(connection, count, found=b""):
    """What came until there are so many events."""
    while found.count(b"event: ") < count:
        piece = connection.recv(2**16)
        assert piece, "the connection was closed"
        found += piece
    return found


def test_steps_are_streamed_as_they_are_made(assets):
    recorder = SteppingRecorder(assets)
    with serving(recorder) as address, send_stream(address) as first:
        for count in range(1, 4):
            recorder.allowed.release()
            read_events(first, 1)
            wait_for(lambda count=count: recorder.shown == count)
        with send_stream(address) as second:  # sees what was made before it came
            assert read_events(second, 3).count(b"event: shot") == 2
            assert len(recorder.begun) == 1
            recorder.allowed.release(20)
            for connection in (first, second):
                connection.settimeout(20)
                assert b"event: ending" in until(connection, b"event: ending")
    assert len(recorder.begun) == 1


def until(connection, words):
    found = b""
    while words not in found:
        piece = connection.recv(2**16)
        assert piece, "the connection was closed"
        found += piece
    return found


def test_a_stream_that_nobody_reads_any_more_ends(assets):
    recorder = SteppingRecorder(assets)
    orders = Orders(recorder)
    with running(create_app(recorder, orders=orders)) as address:
        connection = send_stream(address)
        recorder.allowed.release(2)
        read_events(connection, 2)
        connection.close()
        wait_for(lambda: recorder.ended)
        assert not orders.under_way
        recorder.allowed.release(100)
        assert post(address).status_code == 200


def test_a_full_queue_refuses_a_stream_before_it_begins(recorder):
    with serving(recorder, at_once=1, waiting=0) as address:
        with send_order(address, image=7):
            wait_for(lambda: recorder.begun)
            with send_stream(address) as connection:
                answer = connection.recv(2**12)
            assert answer.startswith(b"HTTP/1.1 503")
            assert b"retry-after" in answer.lower()
        recorder.go.set()


def test_an_order_goes_on_for_those_who_stay(recorder):
    with serving(recorder) as address, ThreadPoolExecutor(1) as people:
        leaving = send_order(address)
        wait_for(lambda: recorder.begun)
        staying = people.submit(post, address)
        time.sleep(0.3)
        leaving.close()
        time.sleep(0.3)
        recorder.go.set()
        assert staying.result().status_code == 200
    assert len(recorder.begun) == 1
    assert not recorder.stopped


def test_a_server_may_begin_anew(recorder):
    recorder.go.set()
    orders = Orders(recorder, at_once=1, waiting=1)
    app = create_app(recorder, orders=orders)
    for image in range(4):  # more often than there are places in the queue
        with running(app) as address:
            assert post(address, image=image).status_code == 200


def test_an_acquisition_ends_between_its_steps(absorbing):
    import torch

    stop = threading.Event()
    prior = StoppablePrior(absorbing, stop)
    y = torch.zeros(1, *prior.shape, dtype=torch.int64)
    assert torch.equal(prior(y).entropy(), absorbing(y).entropy())
    stop.set()
    with pytest.raises(Stopped):
        prior(y)


def test_half_sent_headers_do_not_close_the_door(recorder, monkeypatch):
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 1.0)
    with serving(recorder) as address, ExitStack() as stack:
        for _ in range(MOST_REQUESTS):
            stack.enter_context(connect(address)).sendall(b"GET / HTTP/1.1\r\nHost:")
        time.sleep(0.2)
        assert httpx.get(address).status_code == 503
        wait_for(lambda: httpx.get(address).status_code == 200, 10)


def test_the_second_header_of_a_connection_has_a_deadline_too(recorder, monkeypatch):
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.5)
    with serving(recorder) as address, connect(address) as connection:
        connection.sendall(b"GET /icon.svg HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert connection.recv(10_000).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET / HTTP/1.1\r\nHo")
        begun = time.monotonic()
        until_closed(connection)
        assert 0.3 < time.monotonic() - begun < 10


def until_closed(connection):
    """What the server sends until it closes the connection."""
    found = b""
    with suppress(ConnectionError):
        while piece := connection.recv(2**16):
            found += piece
    return found


def test_a_half_sent_body_has_a_deadline(recorder, monkeypatch):
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.5)
    with serving(recorder) as address, connect(address) as connection:
        connection.sendall(request_head(1000) + b'{"prior":')
        answer = until_closed(connection)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"0.5 seconds" in answer


def test_a_client_that_does_not_read_is_left(recorder, monkeypatch):
    monkeypatch.setattr(protocol, "WRITE_SECONDS", 0.5)
    app = create_app(recorder)

    @app.get("/long")
    async def long() -> str:
        return "x" * 50_000_000

    with running(app) as address, connect(address) as connection:
        connection.sendall(b"GET /long HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        time.sleep(1.5)
        assert len(until_closed(connection)) < 50_000_000
        assert seconds_of(address) < 10 * SOON


def test_bodies_in_crumbs_do_not_stall_the_others(recorder):
    head = b"POST /api/acquire HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    with serving(recorder) as address, connect(address) as connection, ThreadPoolExecutor(1) as people:
        slowest = people.submit(lambda: max(seconds_of(address) for _ in range(20)))
        with suppress(OSError):  # it may be closed meanwhile, as it should be
            connection.sendall(head + b"1\r\n \r\n" * 500_000)
        assert b"400 Bad Request" in until_closed(connection)
        assert slowest.result() < 5 * SOON


def test_many_small_pieces_of_a_good_order_are_fine(recorder):
    recorder.go.set()
    body = json.dumps(ORDER).encode()
    with serving(recorder) as address, connect(address) as connection:
        connection.sendall(request_head(len(body)))
        for byte in body:
            connection.sendall(bytes([byte]))
        assert connection.recv(100).startswith(b"HTTP/1.1 200")


def send_half_a_body(address):
    connection = connect(address)
    connection.sendall(request_head(1000) + b'{"prior":')
    return connection


def send_half_a_header(address):
    connection = connect(address)
    connection.sendall(b"POST /api/acq")
    return connection


def send_long_order(address):
    return send_order(address, steps=64, budget=0.5)


ATTACKS = {"body": send_half_a_body, "header": send_half_a_header, "order": send_long_order}


@pytest.fixture
def listening():
    """Ctrl-C is heard by what a test starts, even where the tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize("attack", ATTACKS)
def test_one_ctrl_c_is_enough(attack):
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1")
    command = [sys.executable, "-m", "sensewise", "serve", "--no-open"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        address = server.stdout.readline().split()[1].rstrip(",")
        wait_for(lambda: reachable(address), 30)
        with ATTACKS[attack](address):
            time.sleep(0.3)
            server.send_signal(signal.SIGINT)
            _, shown = server.communicate(timeout=60)
    finally:
        server.kill()
        server.wait()
    assert server.returncode == 130
    assert "Traceback" not in shown


def reachable(address):
    try:
        return httpx.get(address).status_code == 200
    except httpx.TransportError:
        return False
