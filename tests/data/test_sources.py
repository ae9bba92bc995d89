import hashlib
import io
import tarfile
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from sensewise.data import sources
from sensewise.data.sources import Known, Source, download, fetch, npm_unpack
from sensewise.errors import DataError, OutputError

CONTENT = {"one": b"first", "two": b"second"}
FILES = {name: Known(len(content), hashlib.sha256(content).hexdigest()) for name, content in CONTENT.items()}


@pytest.fixture
def served():
    """Two sources, what they give, and who was asked for what."""
    answers = {"official": dict(CONTENT), "mirror": dict(CONTENT), "asked": []}

    def source(name):
        def read(missing, scratch):
            answers["asked"].append((name, tuple(missing)))
            for file in missing:
                if file not in answers[name]:
                    raise DataError(f"no {file}")
                yield file, answers[name][file]

        return Source(name, read)

    answers["sources"] = [source("official"), source("mirror")]
    return answers


def fetched(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_fetch_from_the_official_source(served, tmp_path, console):
    assert fetch("set", FILES, served["sources"], tmp_path, console) == tmp_path / "set"
    assert fetched(tmp_path / "set") == CONTENT
    assert served["asked"] == [("official", ("one", "two"))]


@pytest.mark.parametrize("official", [{}, {"one": b"tampered", "two": b"second"}])
def test_fetch_from_the_mirror(served, tmp_path, console, official):
    served["official"] = official
    fetch("set", FILES, served["sources"], tmp_path, console)
    assert fetched(tmp_path / "set") == CONTENT
    assert [name for name, _ in served["asked"]] == ["official", "mirror"]


def test_the_mirror_is_asked_only_for_what_is_missing(served, tmp_path, console):
    served["official"] = {"one": b"first"}
    fetch("set", FILES, served["sources"], tmp_path, console)
    assert served["asked"] == [("official", ("one", "two")), ("mirror", ("two",))]


def test_good_files_are_not_fetched_again(served, tmp_path, console):
    fetch("set", FILES, served["sources"], tmp_path, console)
    (tmp_path / "set" / "two").write_bytes(b"damaged")
    served["asked"].clear()
    fetch("set", FILES, served["sources"], tmp_path, console)
    assert served["asked"] == [("official", ("two",))]
    assert fetched(tmp_path / "set") == CONTENT


@pytest.mark.parametrize(
    ("official", "mirror", "reason"),
    [
        ({}, {}, "official: no one; mirror: no one"),
        ({"one": b"tampered"}, {"one": b"tampered"}, "checksum of one did not match"),
        ({}, {"two": b"second"}, "one"),
    ],
)
def test_fetch_that_fails_says_where_to_put_the_files(served, tmp_path, console, official, mirror, reason):
    served["official"], served["mirror"] = official, mirror
    with pytest.raises(DataError, match=reason) as caught:
        fetch("set", FILES, served["sources"], tmp_path, console)
    assert f"Put the files into {tmp_path / 'set'}" in str(caught.value)
    assert "SENSEWISE_DATA" in str(caught.value)
    assert not (tmp_path / "set").exists()


def test_fetch_into_a_folder_that_cannot_be(served, tmp_path, console):
    (tmp_path / "file").write_text("here")
    with pytest.raises(OutputError, match="cannot write"):
        fetch("set", FILES, served["sources"], tmp_path / "file", console)


def test_a_file_of_another_size_is_not_even_hashed(served, tmp_path, console, monkeypatch):
    (tmp_path / "set").mkdir()
    for name in CONTENT:
        with (tmp_path / "set" / name).open("wb") as file:
            file.truncate(10**12)  # a hole: takes no room
    fetch("set", FILES, served["sources"], tmp_path, console)
    assert fetched(tmp_path / "set") == CONTENT


class Answers(BaseHTTPRequestHandler):
    """What a server can do wrong."""

    def do_GET(self):
        if self.path == "/headers":
            return self.drip(b"HTTP/1.1 200 OK\r\nX-Never-Ending: " + 200 * b"x")
        self.send_response(404 if self.path == "/missing" else 200)
        self.end_headers()
        with suppress(OSError):
            if self.path == "/silent":
                time.sleep(1)
            if self.path == "/drip":
                return self.drip(100 * b"c")
            self.wfile.write(b"content")

    def drip(self, content):
        with suppress(OSError):
            for byte in content:
                self.wfile.write(bytes([byte]))
                time.sleep(0.1)

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        server.daemon_threads = True  # those that drip are not waited for
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_download(server):
    assert download(f"{server}/file", 7) == b"content"


@pytest.mark.parametrize(
    ("path", "most", "message"),
    [
        ("missing", 7, "HTTPError"),
        ("file", 6, "larger than the 6 bytes that were expected"),
        ("silent", 7, "Timeout|ConnectionError"),
        ("drip", 10**6, "took more than"),
        ("headers", 10**6, "took more than"),
    ],
)
def test_downloads_that_fail(server, monkeypatch, path, most, message):
    monkeypatch.setattr(sources, "SILENCE", 0.3)
    monkeypatch.setattr(sources, "DOWNLOAD_SECONDS", 1.5)
    begun = time.monotonic()
    with pytest.raises(DataError, match=message):
        download(f"{server}/{path}", most)
    assert time.monotonic() - begun < 5  # the slowest would take twenty seconds


def test_download_failures_are_data_errors(monkeypatch):
    def get(url, **options):
        raise OSError("down")

    monkeypatch.setattr(sources.requests, "get", get)
    with pytest.raises(DataError, match="OSError"):
        download("https://first/x.gz", 7)


def test_an_address_with_https_is_not_left_for_one_without(server, monkeypatch):
    get = requests.get
    monkeypatch.setattr(sources.requests, "get", lambda url, **options: get(f"{server}/file", **options))
    with pytest.raises(DataError, match="without https"):
        download("https://first/x.gz", 7)


def test_no_npm_client(monkeypatch, tmp_path):
    monkeypatch.setattr(sources.shutil, "which", lambda name: None)
    with pytest.raises(DataError, match="no npm client"):
        npm_unpack("pack@1", tmp_path)


def npm(tmp_path, monkeypatch, script):
    """A client of our own in the place of npm."""
    client = tmp_path / "npm"
    client.write_text(f"#!/bin/sh\n{script}\n")
    client.chmod(0o755)
    monkeypatch.setattr(sources.shutil, "which", lambda name: str(client))
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def test_an_npm_client_that_does_not_answer(monkeypatch, tmp_path):
    monkeypatch.setattr(sources, "NPM_SECONDS", 0.3)
    with pytest.raises(DataError, match="did not answer"):
        npm_unpack("pack@1", npm(tmp_path, monkeypatch, "exec sleep 20"))


@pytest.mark.parametrize(("limit", "most"), [("LARGEST_PACKAGE", 5), ("MOST_FILES", 1)])
def test_packages_that_are_too_large(monkeypatch, tmp_path, limit, most):
    with tarfile.open(tmp_path / "made.tgz", "w:gz") as archive:
        for name in CONTENT:
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(CONTENT[name])
            archive.addfile(entry, io.BytesIO(CONTENT[name]))
    scratch = npm(tmp_path, monkeypatch, f"cp {tmp_path}/made.tgz .")
    assert fetched(npm_unpack("pack@1", scratch)) == CONTENT
    monkeypatch.setattr(sources, limit, most)
    with pytest.raises(DataError, match="the package is larger than"):
        npm_unpack("pack@1", scratch)
