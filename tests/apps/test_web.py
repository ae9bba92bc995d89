"""The server behind the live page, without a browser."""

import base64
import io
import json
import shutil
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
import torch
from PIL import Image

from apps.web_fixtures import running, write_assets
from sensewise.apps.web.app import DOWNLOADS, HEADERS, create_app
from sensewise.apps.web.middleware import MAX_BODY
from sensewise.apps.web.recorder import AcquireRequest, Recorder, bundled_exhibits, own_exhibits
from sensewise.apps.web.server import PORT, listen
from sensewise.errors import CheckpointError, ConfigError
from sensewise.evaluate.method import AMORTISED, PIXEL_METHODS
from sensewise.hub import ASSETS, load_prior
from sensewise.predictions import variance

ORDER = {"prior": "mnist", "image": 3, "label": 0, "budget": 0.1, "steps": 4, "policy": "greedy"}
GREY = {"prior": "any-grey", "image": 5, "budget": 0.05, "steps": 3, "policy": "spread-variance-greedy"}
KNEE = {"prior": "knee", "image": 0, "budget": 0.25, "steps": 3, "policy": "sequential-value"}
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


def test_visitors_do_not_meet_guides_and_controls_but_owners_do():
    shown = {exhibit.name for exhibit in bundled_exhibits(ASSETS)}
    assert {"mnist", "mnist-tiny", "cifar10", "any-grey"} <= shown
    assert shown.isdisjoint({"mnist-guide", "mnist-scalar", "mnist-noise"})
    assert [exhibit.name for exhibit in own_exhibits(["mnist-scalar"])] == ["own-mnist-scalar"]


def test_catalog_names_priors_and_policies(client):
    found = {prior["name"]: prior for prior in client.get("/api/catalog").json()["priors"]}
    assert list(found) == ["any-grey", "mnist", "colours", "knee", "phantom"]
    shapes = {"any-grey": None, "mnist": [1, 32, 32], "colours": [3, 8, 8], "knee": [1, 128, 128]}
    assert {name: found[name]["shape"] for name in shapes} == shapes
    assert [policy["name"] for policy in found["mnist"]["policies"]] == [*PIXEL_METHODS, *AMORTISED]
    assert "amortised" not in {policy["name"] for policy in found["colours"]["policies"]}  # no guide for such images
    for prior in found.values():
        assert {prior["best"], prior["rival"]} <= {policy["name"] for policy in prior["policies"]}


@pytest.mark.parametrize("policy", [*PIXEL_METHODS, *AMORTISED])
def test_acquire_is_exact_in_every_shot(client, policy):
    film = client.post("/api/acquire", json=ORDER | {"policy": policy}).json()
    target, seen = unpack(film["title"]["target"]), np.zeros(1024, bool)
    assert film["title"]["shape"] == [1, 32, 32]
    for shot in film["shots"]:
        actions = unpack(shot["actions"], "<i4")
        assert not seen[actions].any()
        seen[actions] = True
        assert (unpack(shot["values"]) == target[actions]).all()
        picture, numbers = unpack(shot["picture"]), shot["numbers"]
        assert (picture[seen] == target[seen]).all()
        assert not unpack(shot["doubt"])[seen].any()
        assert numbers["errors"] == (picture != target).sum()
        assert numbers["measured"] == seen.sum()
        assert 0 <= numbers["expected_errors"] <= 512
    assert seen.sum() == film["title"]["budget"] == 102


def test_colour_prior_takes_drawn_tokens(client):
    film = client.post("/api/acquire", json=COLOURS).json()
    assert [len(unpack(shot["picture"])) for shot in film["shots"]] == [3 * 64] * 3
    assert film["shots"][-1]["numbers"]["measured"] == 16
    pixel = client.post("/api/pixel", json=COLOURS | {"row": 1, "column": 2}).json()
    assert np.shape(pixel["probs"]) == (3, 3, 8)
    assert np.allclose(np.sum(pixel["probs"], -1), 1, atol=1e-3)


def own(height, width, **change):
    pixels = base64.b64encode((np.arange(height * width) % 251).astype(np.uint8)).decode()
    return GREY | {"image": None, "tokens": pixels, "height": height, "width": width} | change


@pytest.mark.parametrize("size", [(16, 16), (40, 33), (512, 512)])
def test_any_picture_at_its_own_size(client, size):
    film = client.post("/api/acquire", json=own(*size, steps=1, budget=0.02)).json()
    assert film["title"]["shape"] == [1, *size]
    assert film["title"]["grid"] == list(size)
    assert (unpack(film["title"]["target"]) == np.arange(size[0] * size[1]) % 251).all()
    assert film["ending"]["audit"] >= 1


def test_noise_is_seen_and_readings_are_what_the_sensor_said(client):
    clean, noisy = (client.post("/api/acquire", json=GREY | {"noise": noise}).json() for noise in (0.0, 0.2))
    target = unpack(clean["title"]["target"])
    for film, exact in ((clean, True), (noisy, False)):
        shot = film["shots"][-1]
        read = unpack(shot["values"]) == target[unpack(shot["actions"], "<i4")]
        assert read.all() == exact


@pytest.mark.parametrize("policy", ["spread-variance-greedy", "random"])
def test_a_stop_ends_early_for_every_policy(client, policy):
    film = client.post("/api/acquire", json=GREY | {"policy": policy, "steps": 16, "stop": 0.4}).json()
    assert film["ending"]["stopped"]
    assert len(film["shots"]) < 17
    assert film["shots"][-1]["numbers"]["expected_psnr"] > -20 * np.log10(0.4)
    to_the_end = client.post("/api/acquire", json=GREY | {"policy": policy, "steps": 16, "stop": 0.0001}).json()
    assert not to_the_end["ending"]["stopped"]
    assert to_the_end["shots"][-1]["numbers"]["measured"] == to_the_end["title"]["budget"]


def test_a_prior_that_does_not_know_the_picture_says_so(client, recorder, monkeypatch):
    def sure_of_black(_, values, seen, noise):
        return values * 0, values * 0, values * 0 + 0.002

    monkeypatch.setattr(type(recorder.exhibit("any-grey").prior.network), "forward", sure_of_black)
    ending = client.post("/api/acquire", json=own(32, 32, seed=7)).json()["ending"]
    assert not ending["fits"]
    assert ending["ratio"] > 4


def test_a_drawing_is_audited_and_a_bundled_digit_is_not(client):
    drawn = base64.b64encode(bytes([1, 2] * 512)).decode()  # stripes are no digit
    film = client.post("/api/acquire", json=ORDER | {"image": None, "tokens": drawn, "label": None}).json()
    assert film["ending"]["audit"] == len(unpack(film["shots"][0]["actions"], "<i4")) == 12
    assert film["shots"][-1]["numbers"]["measured"] == 102
    assert client.post("/api/acquire", json=ORDER).json()["ending"]["audit"] == 0


@pytest.mark.parametrize("policy", ["sequential-value", "static-search", "acs-random"])
@pytest.mark.parametrize("name", ["knee", "phantom"])
def test_rows(client, name, policy):
    film = client.post("/api/acquire", json=KNEE | {"prior": name, "policy": policy}).json()
    assert film["title"]["grid"] == [128]
    rows = np.concatenate([unpack(shot["actions"], "<i4") for shot in film["shots"]])
    assert len(set(rows)) == len(rows) == film["title"]["budget"] == 32
    assert len(unpack(film["shots"][0]["values"])) == 128 * len(unpack(film["shots"][0]["actions"], "<i4"))
    assert len(film["shots"]) == 4
    first, last = (film["shots"][i]["numbers"]["nmse"] for i in (0, -1))
    assert last < first


def events_of(client, order):
    """Server-sent events, and the seconds after which each came."""
    found, begun, name = [], time.monotonic(), None
    with client.stream("POST", "/api/stream", json=order) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line:
                found.append((name, json.loads(line.removeprefix("data: ")), time.monotonic() - begun))
    return found


@pytest.mark.parametrize("order", [ORDER | {"seed": 5}, GREY | {"seed": 5}, KNEE | {"seed": 5}, COLOURS | {"seed": 5}])
def test_a_stream_is_the_film_event_by_event(client, order):
    fresh = events_of(client, order)
    film = client.post("/api/acquire", json=order).json()
    again = events_of(client, order)  # kept
    whole = [("title", film["title"]), *(("shot", shot) for shot in film["shots"]), ("ending", film["ending"])]
    assert [event[:2] for event in fresh] == [event[:2] for event in again] == whole


def test_the_first_step_of_256_x_256_takes_a_few_passes():
    """The start, the first choice and what is shown of both: two passes of the prior, and little beside them."""
    torch.set_num_threads(1)
    bundled, prior = Recorder(), load_prior("any-grey")
    bundled.warm_up()
    ratios = []
    for seed in range(3):
        begun = time.thread_time()  # of this thread alone: the tests share their cores
        prior.in_chunks(variance, prior.blank((256, 256)), None)
        one_pass = time.thread_time() - begun
        shown, begun = [], time.thread_time()
        request = AcquireRequest("any-grey", 0, None, None, 0.1, 32, "spread-variance-greedy", seed)
        for event in bundled.exhibit("any-grey").film(request, threading.Event()):
            shown.append((event, time.thread_time() - begun))
            if len(shown) == 3:  # title, start, first step
                break
        assert len(shown[2][0].actions) > 100
        ratios.append(shown[2][1] / one_pass)
    assert min(ratios) < 4


def test_gallery(client):
    found = client.get("/api/images", params={"prior": "mnist", "first": 60}).json()["images"]
    assert len(found) == 60
    assert {image["name"] for image in found} <= set("0123456789")
    assert client.get("/api/images", params={"prior": "colours"}).json()["images"] == []
    pictures = client.get("/api/images", params={"prior": "any-grey"}).json()["images"]
    assert pictures[0]["name"] == "A rocket"
    assert len(unpack(pictures[0]["picture"])) == np.prod(pictures[0]["shape"])


def test_downloads(client):
    mask = np.load(io.BytesIO(client.post("/api/mask.npy", json=ORDER).content), allow_pickle=False)
    assert mask.shape == (32, 32)
    assert mask.sum() == 102
    png = np.asarray(Image.open(io.BytesIO(client.post("/api/mask.png", json=ORDER).content)))
    assert ((png > 0) == mask).all()
    for order in (ORDER, COLOURS, GREY, KNEE):
        assert {client.post(f"/api/{name}", json=order).status_code for name in DOWNLOADS} == {200}
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
        ({"noise": 0.1}, "without noise"),
        ({"stop": 0}, "stop"),
        ({"prior": "any-grey"}, "no policy"),
        ({**GREY, "image": 99, "label": None}, "0 to 5"),
        ({**GREY}, "label"),
        ({**own(600, 16), "label": None}, "16 to 512"),
        ({**own(20, 20), "label": None, "width": 21}, "420 bytes"),
        ({**own(20, 20), "label": None, "width": None}, "16 to 512"),
        ({**KNEE, "label": None, "budget": 0.05}, "ACS"),
        ({**KNEE}, "without"),
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
    first = recorder.film(request)
    assert recorder.film(request) is first
    monkeypatch.setattr("sensewise.apps.web.recorder.KEPT_BYTES", 5 * first.nbytes)
    for seed in range(10):
        recorder.film(AcquireRequest("mnist", 0, None, None, 0.05, 1, "random", seed))
    assert 1 < len(recorder._films) <= 5
    assert sum(kept.nbytes for kept in recorder._films.values()) == recorder._bytes <= 5 * first.nbytes
    assert recorder.kept(request) is None


def test_the_default_beats_random_on_the_first_photographs():
    bundled = Recorder()
    about = bundled.exhibit("cifar10").describe()
    for number in range(5):
        best, rival = (
            bundled.film(AcquireRequest("cifar10", number, None, None, 0.1, 16, about[name], 0)).shots[-1].numbers
            for name in ("best", "rival")
        )
        assert best["psnr"] > rival["psnr"]


@pytest.mark.slow
def test_the_default_beats_random_on_every_bundled_picture():
    bundled = Recorder()
    about = bundled.exhibit("any-grey").describe()
    for number in range(about["images"]):
        best, rival = (
            bundled.film(AcquireRequest("any-grey", number, None, None, 0.1, 32, about[name], 0)).shots[-1].numbers
            for name in ("best", "rival")
        )
        assert best["psnr"] > rival["psnr"]


def test_own_priors_come_first(tmp_path, recorder):
    folder = tmp_path / "mine"
    shutil.copytree(recorder.exhibit("mnist").folder, folder)
    found = Recorder(write_assets(tmp_path / "assets"), own=[str(folder)])
    assert next(iter(found.exhibits)) == "own-mine"
    film = found.film(AcquireRequest("own-mine", 0, None, None, 0.1, 2, "greedy", 0))
    assert film.mask().sum() == 102
    with pytest.raises(ConfigError, match="holds no prior for pictures"):
        Recorder(own=["mnist-generator"])
    with pytest.raises(CheckpointError, match="no model called"):
        Recorder(own=[str(tmp_path / "nothing")])


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
