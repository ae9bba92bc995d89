import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensewise import Session, hub
from sensewise.apps.cli import app
from sensewise.errors import ConfigError
from sensewise.evaluate.method import pixel_methods
from sensewise.instruments import bridge as lines
from sensewise.instruments.bridge import Bridge

DOCS = Path(__file__).parents[2] / "docs"
PICTURE = np.zeros((32, 32))
PICTURE[8:24, 12:18] = 1.0


@pytest.fixture(scope="module")
def settings(quick_run):
    """A session on a prior that answers at once, readings of a camera of 12 bits."""
    return {"do": "begin", "shape": [32, 32], "budget": 12, "steps": 3, "prior": str(quick_run), "high": 4095}


def reply(bridge, request):
    return json.loads(bridge.answer(json.dumps(request)))


def read(pixels):
    return [4095 * PICTURE[row, column] for row, column in pixels]


def finish(send):
    while not (asked := send({"do": "ask"}))["done"]:
        assert send({"do": "tell", "values": read(asked["pixels"])})["ok"]
    return send({"do": "look"})


def test_a_session_over_the_bridge_is_a_session(settings, quick_run):
    bridge = Bridge()
    assert reply(bridge, settings) == {"ok": True, "measured": 0, "travel": 0.0}
    found = finish(lambda request: reply(bridge, request))
    method = pixel_methods(hub.load_prior(quick_run), 3)["greedy"]
    session = Session(method.policy, (1, 32, 32), 12, steps=3, choose=method.choose)
    while (pixels := session.ask()) is not None:
        session.tell(PICTURE[pixels[:, 0], pixels[:, 1]])
    assert found["mask"] == session.mask.int().tolist()
    assert found["measured"] == 12
    np.testing.assert_allclose(found["picture"], 4095 * session.mean[0], rtol=1e-5)
    np.testing.assert_allclose(found["uncertainty"], 4095 * session.variance[0].sqrt(), rtol=1e-5, atol=1e-3)
    assert found["fits"] is None
    assert reply(bridge, {"do": "ask"})["reason"] == "the budget is spent"


def test_saved_and_restored_between_ask_and_tell(settings, tmp_path):
    whole, first = Bridge(tmp_path), Bridge(tmp_path)
    reply(whole, settings)
    wanted = finish(lambda request: reply(whole, request))
    reply(first, settings)
    reply(first, {"do": "tell", "values": read(reply(first, {"do": "ask"})["pixels"])})
    asked = reply(first, {"do": "ask"})
    assert reply(first, {"do": "save", "name": "scan-1"}) == {"ok": True, "name": "scan-1"}
    second = Bridge(tmp_path)
    reply(second, settings)
    assert reply(second, {"do": "restore", "name": "scan-1"})["measured"] == 4
    assert reply(second, {"do": "ask"}) == asked
    assert finish(lambda request: reply(second, request)) == wanted


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ("hello", "should be an object"),
        ({}, "discriminator"),
        ({"do": "dance"}, "'dance'"),
        ({"do": "ask", "now": True}, "now: Extra inputs"),
        ({"do": "tell"}, "values: Field required"),
        ({"do": "tell", "values": ["bright"]}, "values"),
        ({"do": "begin", "shape": [32], "budget": 5}, "shape"),
        ({"do": "begin", "shape": [10**9, 10**9], "budget": 5}, "at most"),
        ({"do": "begin", "shape": [0, 32], "budget": 5}, "not possible"),
        ({"do": "begin", "shape": [32, 32], "budget": "all"}, "budget"),
        ({"do": "begin", "shape": [32, 32], "budget": 5, "prior": "nobody"}, "nobody"),
        ({"do": "begin", "shape": [32, 32], "budget": 5, "low": 1.0}, "low must be below high"),
        ({"do": "save", "name": "../outside"}, "name"),
        ({"do": "save", "name": "/etc/passwd"}, "name"),
        ({"do": "restore", "name": "nothing"}, "does not exist"),
        ({"do": "tell", "values": [1.0, 2.0]}, "tell was called before ask"),
    ],
)
def test_mistakes_are_answered_with_a_sentence_and_change_nothing(settings, tmp_path, request_, message):
    bridge = Bridge(tmp_path)
    reply(bridge, settings)
    before = bridge.session
    found = reply(bridge, request_)
    assert not found["ok"]
    assert message in found["error"]
    assert bridge.session is before
    assert reply(bridge, {"do": "ask"})["ok"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": "os:system"}, "choose one of"),
        ({"budget": 5000}, "not possible"),
        ({"steps": 0}, "steps"),
        ({"label": 99}, "label 99"),
        ({"shape": [16, 16]}, "tokens of shape"),
        ({"above": 30.0, "below": 1.0}, "two ways to stop"),
        ({"above": 300.0}, "0 to 100 dB"),
    ],
)
def test_settings_that_are_not_possible(settings, change, message):
    assert message in reply(Bridge(), settings | change)["error"]


def test_readings_that_do_not_fit(settings):
    bridge = Bridge()
    for request in ({"do": "ask"}, {"do": "tell", "values": []}, {"do": "look"}, {"do": "save", "name": "x"}):
        assert "begin one first" in reply(bridge, request)["error"]
    reply(bridge, settings)
    asked = reply(bridge, {"do": "ask"})
    for values in ([1.0], [1.0] * 5, [[1.0, 2.0], [1.0]], [9999.0] * 4, [float("nan")] * 4):
        assert not reply(bridge, {"do": "tell", "values": values})["ok"]
    assert "leave sigma out" in reply(bridge, {"do": "tell", "values": [0.0] * 4, "sigma": 0.1})["error"]
    assert reply(bridge, {"do": "ask"}) == asked


def test_noise_audits_stops_and_warnings_with_a_prior_over_readings():
    bridge = Bridge()
    begun = {"do": "begin", "shape": [24, 20], "budget": 0.4, "steps": 8, "low": -1.0, "high": 1.0, "audit": 0.1}
    assert reply(bridge, begun | {"above": 12.0, "travel": 1.0})["ok"]
    while not (asked := reply(bridge, {"do": "ask"}))["done"]:
        count = len(asked["pixels"])
        told = reply(
            bridge, {"do": "tell", "values": [3.0] + [0.0] * (count - 1), "sigma": [0.0] + [0.1] * (count - 1)}
        )
        assert "clipped" in told["warnings"][0]
        assert not reply(bridge, {"do": "tell", "values": [0.0], "sigma": [0.1, 0.2]})["ok"]
    assert asked["reason"] == "the picture is good enough"
    found = reply(bridge, {"do": "look"})
    assert found["measured"] < 0.4 * 480
    assert found["travel"] > 0
    assert found["fits"] in (True, False)
    assert bridge.session.observation[1][bridge.session.mask].max() == pytest.approx(0.05)


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_whatever_a_line_holds_its_answer_is_json(line):
    assert json.loads(Bridge().answer(line))["ok"] is False


def test_a_deep_line_and_a_long_one(monkeypatch):
    assert not json.loads(Bridge().answer("[" * 100_000))["ok"]
    monkeypatch.setattr(lines, "LONGEST", 64)
    source, target = os.pipe(), os.pipe()
    with open(source[1], "wb") as end:
        end.write(b"x" * 1000 + b"\n" + b'{"do": "hello"}\n' + b"y" * 65)
    with open(source[0], "rb") as begin, open(target[1], "wb") as out:
        lines.serve_lines(Bridge(), begin, out)
    with open(target[0], "rb") as found:
        assert [json.loads(line)["ok"] for line in found] == [False, True, False]


def test_what_goes_wrong_inside_is_answered_too(settings, monkeypatch):
    bridge = Bridge()
    reply(bridge, settings)
    monkeypatch.setattr(Session, "ask", lambda self: 1 / 0)
    assert "ZeroDivisionError" in reply(bridge, {"do": "ask"})["error"]


def start(*arguments):
    command = [sys.executable, "-m", "sensewise", "bridge", *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_from_another_process_over_standard_input_and_output(settings, tmp_path):
    """Stopped in the middle and taken up by a second process."""

    def talk(process):
        def send(request):
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        return send

    with start("--folder", tmp_path) as process:
        send = talk(process)
        assert not send("nonsense")["ok"]
        assert send(settings)["ok"]
        send({"do": "tell", "values": read(send({"do": "ask"})["pixels"])})
        assert send({"do": "save", "name": "half"})["ok"]
        process.stdin.close()
        assert process.wait(timeout=30) == 0
    with start("--folder", tmp_path) as process:
        send = talk(process)
        send(settings)
        assert send({"do": "restore", "name": "half"})["measured"] == 4
        assert finish(send)["measured"] == 12
        process.stdin.close()


def test_from_another_process_over_a_socket(settings):
    """A client may go away, even in the middle of a line; the next one finds the session as it was."""

    def talk(port, *requests):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            file = connection.makefile("rwb")
            for request in requests:
                file.write(json.dumps(request).encode() + b"\n")
                file.flush()
                yield json.loads(file.readline())

    with start("--port", "0") as process:
        try:
            port = json.loads(process.stdout.readline())["port"]
            assert [answer["ok"] for answer in talk(port, settings, {"do": "dance"}, {"do": "ask"})] == [
                True,
                False,
                True,
            ]
            with socket.create_connection(("127.0.0.1", port), timeout=30) as rude:
                rude.sendall(b'{"do": "ask"')
            with socket.create_connection(("127.0.0.1", port), timeout=30) as browser:
                browser.sendall(
                    b'POST / HTTP/1.1\r\nHost: localhost\r\n\r\n{"do": "begin", "shape": [32, 32], "budget": 5}\n'
                )
                with contextlib.suppress(ConnectionResetError):
                    assert browser.recv(100) == b""
            (hello,) = talk(port, {"do": "hello"})
            assert hello["begun"]
            assert finish(lambda request: next(talk(port, request)))["measured"] == 12
        finally:
            process.terminate()


def test_a_port_that_is_taken():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="choose another"):
            app(["bridge", "--port", str(taken.getsockname()[1])], standalone_mode=False)


@pytest.mark.skipif(not DOCS.is_dir(), reason="needs the source tree")
def test_the_schema_of_the_docs_is_the_one_in_use():
    """`sensewise bridge --schema > docs/bridge.schema.json` writes it."""
    assert json.loads((DOCS / "bridge.schema.json").read_text(encoding="utf-8")) == lines.schema()
