"""The server behind the live page, without a browser."""

import base64
import io
import socket
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from PIL import Image

from apps.web_fixtures import running, write_assets
from sensewise.apps.web.app import HEADERS, MAX_BODY, create_app
from sensewise.apps.web.recorder import AcquireRequest, Recorder
from sensewise.apps.web.server import PORT, listen
from sensewise.errors import CheckpointError, ConfigError
from sensewise.evaluate.method import PIXEL_METHODS

ORDER = {"prior": "mnist", "image": 3, "label": 0, "budget": 0.1, "steps": 4, "policy": "greedy"}
COLOURS = {
    "prior": "colours",
    "tokens": base64.b64encode(bytes([1, 8] * 96)).decode(),
    "budget": 0.25,
    "steps": 2,
    "policy": "probe-greedy",
}


@pytest.fixture(scope="module")
def recorder(tmp_path_factory):
    return Recorder(write_assets(tmp_path_factory.mktemp("assets")))


@pytest.fixture(scope="module")
def client(recorder):
    app = create_app(recorder)

    @app.get("/broken")
    def broken() -> None:
        raise RuntimeError("a secret")

    with running(app) as address, httpx.Client(base_url=address, timeout=30) as client:
        yield client


def unpack(text, dtype=np.uint8):
    return np.frombuffer(base64.b64decode(text), dtype)


def test_page_and_files_are_served_with_safe_headers(client):
    for path in ("/", "/app.js", "/page.css", "/icon.svg"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "http" not in client.get("/").text.replace("http-equiv", "")  # nothing from another server


def test_catalog_names_priors_and_policies(client):
    catalog = client.get("/api/catalog").json()
    assert {p["name"]: p["shape"] for p in catalog["priors"]} == {"mnist": [1, 32, 32], "colours": [3, 8, 8]}
    assert [p["name"] for p in catalog["policies"]] == list(PIXEL_METHODS)


@pytest.mark.parametrize("policy", PIXEL_METHODS)
def test_acquire_is_exact_in_every_frame(client, policy):
    film = client.post("/api/acquire", json=ORDER | {"policy": policy}).json()
    step, target = unpack(film["step"], np.int8), unpack(film["target"])
    rebuilt = unpack(film["reconstruction"]).reshape(5, -1)
    entropy = unpack(film["entropy"]).reshape(5, -1)
    assert film["measured"][-1] == (step >= 0).sum() == 102
    for frame in range(5):
        seen = (step >= 0) & (step <= frame)
        assert (rebuilt[frame][seen] == target[seen]).all()
        assert not entropy[frame][seen].any()
        assert film["errors"][frame] == (rebuilt[frame] != target).sum()
    assert all(0 <= expected <= 512 for expected in film["expected"])


def test_colour_prior_takes_drawn_tokens(client):
    film = client.post("/api/acquire", json=COLOURS).json()
    assert len(unpack(film["reconstruction"])) == 3 * 3 * 64
    assert film["measured"][-1] == 16
    pixel = client.post("/api/pixel", json=COLOURS | {"row": 1, "column": 2}).json()
    assert np.shape(pixel["probs"]) == (3, 3, 8)
    assert np.allclose(np.sum(pixel["probs"], -1), 1, atol=1e-3)


def test_gallery(client):
    found = client.get("/api/images", params={"prior": "mnist", "first": 60}).json()
    assert len(found["tokens"]) == len(found["labels"]) == 60
    assert client.get("/api/images", params={"prior": "colours"}).json()["tokens"] == []


def test_downloads(client):
    mask = np.load(io.BytesIO(client.post("/api/mask.npy", json=ORDER).content), allow_pickle=False)
    assert mask.shape == (32, 32)
    assert mask.sum() == 102
    png = np.asarray(Image.open(io.BytesIO(client.post("/api/mask.png", json=ORDER).content)))
    assert ((png > 0) == mask).all()
    for order in (ORDER, COLOURS):
        answer = client.post("/api/animation.gif", json=order)
        assert Image.open(io.BytesIO(answer.content)).n_frames == order["steps"] + 1
        assert "attachment" in answer.headers["content-disposition"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prior": "../../etc/passwd"}, "no bundled prior"),
        ({"policy": "clairvoyance"}, "no policy"),
        ({"image": 999_999}, "0 to 2559"),
        ({"image": None}, "either"),
        ({"image": None, "tokens": "AQID"}, "1024 tokens"),
        ({"image": None, "tokens": "%%%"}, "base64"),
        ({"image": None, "tokens": base64.b64encode(bytes(1024)).decode()}, "tokens must be 1..2"),
        ({"label": 10}, "allowed are 0..9"),
        ({"budget": 1.5}, "budget"),
        ({"budget": 0.0001}, "rounds to none"),
        ({"budget": "0.1"}, "budget"),
        ({"steps": 65}, "steps"),
        ({"budget": 0.01, "steps": 64}, "64 steps need"),
        ({"path": "/etc/passwd"}, "path"),
    ],
)
def test_wrong_input_is_one_sentence(client, change, words):
    answer = client.post("/api/acquire", json=ORDER | change)
    assert answer.status_code == 422
    assert words in answer.json()["error"]
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_refuses_what_is_not_json_too_large_or_from_another_host(client):
    assert client.post("/api/acquire", content=b"{").status_code == 422
    assert client.post("/api/acquire", content=b" " * (MAX_BODY + 1)).status_code == 413
    chunks = (b" " * 100_000 for _ in range(20))
    assert client.post("/api/acquire", content=chunks).status_code == 413
    assert client.get("/", headers={"host": "evil.example"}).status_code == 400
    assert client.get("/api/../../secret").status_code == 404
    assert client.post("/api/pixel", json=ORDER | {"row": 32, "column": 0}).status_code == 422


def test_a_broken_server_shows_no_trace(client):
    answer = client.get("/broken")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


def test_ten_people_at_once(client):
    def one(number):
        return client.post("/api/acquire", json=ORDER | {"image": number}).status_code

    with ThreadPoolExecutor(10) as people:
        assert set(people.map(one, range(10))) == {200}


def test_recordings_are_kept_and_forgotten(recorder, monkeypatch):
    request = AcquireRequest("mnist", 0, None, None, 0.05, 1, "random", 0)
    first = recorder.recording(request)
    assert recorder.recording(request) is first
    monkeypatch.setattr("sensewise.apps.web.recorder.KEPT_BYTES", 5 * first.nbytes)
    for seed in range(10):
        recorder.recording(AcquireRequest("mnist", 0, None, None, 0.05, 1, "random", seed))
    assert 1 < len(recorder._recordings) <= 5
    assert sum(kept.nbytes for kept in recorder._recordings.values()) == recorder._bytes <= 5 * first.nbytes
    assert recorder.kept(request) is None


def test_no_weights_is_one_sentence(tmp_path):
    with pytest.raises(CheckpointError, match="no bundled weights"):
        Recorder(tmp_path)


def test_port_in_use():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} is in use"):
            listen(port)
    with listen() as first, listen() as second:
        assert PORT <= first.getsockname()[1] < second.getsockname()[1]
