"""Pictures from files: what is read, what is refused."""

import warnings

import numpy as np
import pytest
from PIL import Image

from sensewise.data import pictures
from sensewise.data.pictures import FORMATS, find_pictures, read_picture
from sensewise.errors import DataError


def test_sixteen_bits_alpha_palette_animation_and_shape(tmp_path):
    half = np.zeros((24, 24), np.uint16)
    half[:, 12:] = 65535
    Image.fromarray(half).save(tmp_path / "deep.png")
    clear = np.zeros((24, 24, 4), np.uint8)
    clear[:, :12, 3] = 255  # opaque black on the left, nothing on the right
    Image.fromarray(clear).save(tmp_path / "alpha.png")
    flat = [Image.fromarray((half > 0).astype(np.uint8) * 255), Image.new("L", (24, 24))]
    flat[0].save(tmp_path / "film.gif", save_all=True, append_images=flat[1:])
    for name in ("deep.png", "alpha.png", "film.gif"):
        values = read_picture(tmp_path / name, (1, 24, 24))
        assert (values[0, :, :12] == 0).all(), name
        assert (values[0, :, 12:] == 1).all(), name
    wide = np.zeros((24, 72), np.uint8)
    wide[:, 24:48] = 255
    Image.fromarray(wide).save(tmp_path / "wide.png")
    assert (read_picture(tmp_path / "wide.png", (3, 24, 24)) == 1).all()  # the middle square


def test_pictures_that_are_refused(tmp_path):
    (tmp_path / "text.png").write_text("not a picture")
    with pytest.raises(DataError, match=r"text\.png is not a picture that can be read"):
        read_picture(tmp_path / "text.png", (1, 24, 24))
    Image.new("1", (20_000, 20_000)).save(tmp_path / "huge.png")
    with warnings.catch_warnings(), pytest.raises(DataError, match="too large: at most 16,000,000"):
        read_picture(tmp_path / "huge.png", (1, 24, 24))
    Image.new("1", (5_000, 5_000)).save(tmp_path / "big.png")
    with pytest.raises(DataError, match="5,000 x 5,000 pixels"):
        read_picture(tmp_path / "big.png", (1, 24, 24))
    with pytest.raises(DataError, match="does not exist"):
        read_picture(tmp_path / "none.png", (1, 24, 24))
    Image.fromarray(np.ones((4, 4), np.float32)).save(tmp_path / "float.tiff")
    with pytest.raises(DataError, match="floating-point"):
        read_picture(tmp_path / "float.tiff", (1, 24, 24))


@pytest.mark.parametrize("kind", ["png", "jpeg", "tiff", "bmp", "gif", "webp", "ppm", "pgm"])
def test_common_formats_are_read(tmp_path, kind):
    Image.new("L", (24, 24), 255).save(tmp_path / f"white.{kind}")
    assert read_picture(tmp_path / f"white.{kind}", (1, 24, 24)).min() > 0.99


@pytest.mark.parametrize("kind", ["dds", "eps", "ico", "pcx", "tga", "sgi", "avif", "jp2", "pdf"])
def test_other_formats_never_reach_their_decoder(tmp_path, kind, monkeypatch):
    path = tmp_path / f"picture.{kind}"
    try:
        Image.new("RGB", (24, 24), "white").save(path)
    except (KeyError, ValueError, OSError):
        pytest.skip("this Pillow cannot write it")
    asked = []
    opened = pictures.Image.open

    def watched(file, **options):
        asked.append(options["formats"])
        return opened(file, **options)

    monkeypatch.setattr(pictures.Image, "open", watched)
    with pytest.raises(DataError, match="is not a picture that can be read; read are PNG, JPEG, TIFF"):
        read_picture(path, (1, 24, 24))
    assert asked == [FORMATS]


@pytest.mark.parametrize("error", [KeyError("x"), NotImplementedError(), IndexError(), MemoryError(), RuntimeError()])
def test_whatever_a_decoder_raises_is_one_sentence(tmp_path, monkeypatch, error):
    def broken(*_a, **_o):
        raise error

    (tmp_path / "a.png").touch()
    monkeypatch.setattr(pictures.Image, "open", broken)
    with pytest.raises(DataError, match="is not a picture that can be read"):
        read_picture(tmp_path / "a.png", (1, 24, 24))


def test_pictures_of_a_folder_are_regular_files(tmp_path):
    import os

    (tmp_path / "inner").mkdir()
    (tmp_path / "folder.png").mkdir()
    for name in ("b.PNG", "a.jpg", "notes.txt", "inner/c.gif"):
        (tmp_path / name).write_bytes(b"")
    os.mkfifo(tmp_path / "pipe.png")  # reading it would wait for ever
    with pytest.raises(DataError, match=r"pipe\.png is not a file"):
        read_picture(tmp_path / "pipe.png", (1, 24, 24))
    assert [path.name for path in find_pictures(tmp_path)] == ["a.jpg", "b.PNG"]
    assert [path.name for path in find_pictures(tmp_path, "**/*")] == ["a.jpg", "b.PNG", "c.gif"]


@pytest.mark.parametrize("kind", ["png", "gif", "jpeg", "bmp"])
def test_pictures_cut_short(tmp_path, kind):
    path = tmp_path / f"picture.{kind}"
    noise = np.random.default_rng(0).integers(0, 256, (16, 16), dtype=np.uint8)
    Image.fromarray(noise).save(path, kind)
    content = path.read_bytes()
    for kept in range(0, len(content) // 2, 7):
        path.write_bytes(content[:kept])
        with pytest.raises(DataError, match="not a picture"):
            read_picture(path, (1, 32, 32))
