import hashlib

import pytest

from sensewise.data import sources
from sensewise.data.sources import Source, fetch, npm_unpack
from sensewise.errors import DataError, OutputError

CONTENT = {"one": b"first", "two": b"second"}
HASHES = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()}


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
    assert fetch("set", HASHES, served["sources"], tmp_path, console) == tmp_path / "set"
    assert fetched(tmp_path / "set") == CONTENT
    assert served["asked"] == [("official", ("one", "two"))]


@pytest.mark.parametrize("official", [{}, {"one": b"tampered", "two": b"second"}])
def test_fetch_from_the_mirror(served, tmp_path, console, official):
    served["official"] = official
    fetch("set", HASHES, served["sources"], tmp_path, console)
    assert fetched(tmp_path / "set") == CONTENT
    assert [name for name, _ in served["asked"]] == ["official", "mirror"]


def test_the_mirror_is_asked_only_for_what_is_missing(served, tmp_path, console):
    served["official"] = {"one": b"first"}
    fetch("set", HASHES, served["sources"], tmp_path, console)
    assert served["asked"] == [("official", ("one", "two")), ("mirror", ("two",))]


def test_good_files_are_not_fetched_again(served, tmp_path, console):
    fetch("set", HASHES, served["sources"], tmp_path, console)
    (tmp_path / "set" / "two").write_bytes(b"damaged")
    served["asked"].clear()
    fetch("set", HASHES, served["sources"], tmp_path, console)
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
        fetch("set", HASHES, served["sources"], tmp_path, console)
    assert f"Put the files into {tmp_path / 'set'}" in str(caught.value)
    assert "SENSEWISE_DATA" in str(caught.value)
    assert not (tmp_path / "set").exists()


def test_fetch_into_a_folder_that_cannot_be(served, tmp_path, console):
    (tmp_path / "file").write_text("here")
    with pytest.raises(OutputError, match="cannot write"):
        fetch("set", HASHES, served["sources"], tmp_path / "file", console)


def test_download_failures_are_data_errors(monkeypatch):
    def retrieve(url, **options):
        raise OSError("down")

    monkeypatch.setattr(sources.pooch, "retrieve", retrieve)
    with pytest.raises(DataError, match="OSError"):
        sources.download("https://first/x.gz")


def test_no_npm_client(monkeypatch, tmp_path):
    monkeypatch.setattr(sources.shutil, "which", lambda name: None)
    with pytest.raises(DataError, match="no npm client"):
        npm_unpack("pack@1", tmp_path)
