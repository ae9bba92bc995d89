"""Your own images as a data set: import, splits, bad input."""

import numpy as np
import pytest
import torch
from PIL import Image

from sensewise.data import import_images, load_imported
from sensewise.errors import DataError


def stripes(count, size=24, classes=("left", "right")):
    """Pictures with one bright block each, all different, in folders by side."""
    rng = np.random.default_rng(0)
    for number in range(count):
        picture = np.zeros((size, size), np.uint8)
        side = number % len(classes)
        row, column = rng.integers(0, size - 6), side * size // 2
        picture[row : row + 6, column : column + 6] = 255
        picture[number // size, number % size] = 128
        yield classes[side], picture


def write_folder(folder, count=40, classes=("left", "right")):
    for number, (name, picture) in enumerate(stripes(count, classes=classes)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / name / f"{number:03d}.png")
    return folder


def test_splits_share_no_image_and_are_the_same_again(tmp_path):
    folder = write_folder(tmp_path / "pictures")
    for name in ("one", "two"):
        import_images(folder, tmp_path / name, size=24, labels="folders")
    one, two = ([load_imported(tmp_path / n, s) for s in ("train", "validation", "test")] for n in ("one", "two"))
    assert all(torch.equal(a.values, b.values) for a, b in zip(one, two, strict=True))
    images = [tokens.numpy().tobytes() for part in one for tokens in part.values]
    assert len(set(images)) == len(images) == 40
    for part in one:
        bright = part.values[:, 0, :, :12].float().mean((1, 2)) > part.values[:, 0, :, 12:].float().mean((1, 2))
        assert (part.labels == (~bright).long()).all()  # class 0 is left


@pytest.mark.parametrize("dtype", ["bool", "uint8", "uint16", "float32"])
def test_arrays_of_every_kind_agree(tmp_path, dtype):
    images = np.stack([picture >= 128 for _, picture in stripes(30)])
    largest = {"bool": True, "uint8": 255, "uint16": 65535, "float32": 1.0}[dtype]
    np.save(tmp_path / "a.npy", (images * largest).astype(dtype))
    np.savez(tmp_path / "b.npz", images=images[..., None], labels=np.arange(30) % 3)
    import_images(tmp_path / "a.npy", tmp_path / "a", size=24, levels=2)
    import_images(tmp_path / "b.npz", tmp_path / "b", size=24, levels=2)
    a, b = load_imported(tmp_path / "a", "train"), load_imported(tmp_path / "b", "train")
    assert torch.equal(a.values, b.values)
    assert (a.labels, b.num_labels) == (None, 3)


def test_folders_that_are_refused_or_mended(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no picture that can be read"):
        import_images(tmp_path / "empty", tmp_path / "out", size=24)
    with pytest.raises(DataError, match="neither a folder"):
        import_images(tmp_path / "nowhere", tmp_path / "out", size=24)
    with pytest.raises(DataError, match="3 different images: at least 20"):
        import_images(write_folder(tmp_path / "three", 3), tmp_path / "out", size=24)
    for number in range(30):
        (tmp_path / "equal").mkdir(exist_ok=True)
        Image.new("L", (9, 9), 7).save(tmp_path / "equal" / f"{number}.png")
    with pytest.raises(DataError, match="all 30 images are the same"):
        import_images(tmp_path / "equal", tmp_path / "out", size=24)
    one = write_folder(tmp_path / "one", 30, classes=("only",))
    (one / "only" / "text.png").write_text("no")
    made = import_images(one, tmp_path / "out", size=24, labels="folders")
    assert made.classes == ()
    assert any("one class only" in note for note in made.notes)
    assert any("1 files were left out" in note for note in made.notes)
    with pytest.raises(DataError, match="holds a data set already"):
        import_images(one, tmp_path / "out", size=24)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"size": 20}, "multiple of 8"), ({"levels": 1}, "levels 2 to"), ({"labels": "names"}, "is not known")],
)
def test_wrong_options(tmp_path, options, words):
    with pytest.raises(DataError, match=words):
        import_images(tmp_path, tmp_path / "out", **options)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((4, 5)), "is needed"),
        (np.full((30, 24, 24), 7.0), "divide 8-bit"),
        (np.zeros((30, 24, 24), np.int64), "are int64"),
        (np.zeros((0, 24, 24)), "is needed"),
        (np.full((30, 24, 24), np.nan), "divide 8-bit"),
    ],
)
def test_arrays_that_are_refused(tmp_path, array, words):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(DataError, match=words):
        import_images(tmp_path / "a.npy", tmp_path / "out", size=24)


def test_a_damaged_data_set_is_one_sentence(tmp_path):
    import_images(write_folder(tmp_path / "pictures", 20), tmp_path / "data", size=24)
    (tmp_path / "data" / "images.npz").write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(DataError, match="not a complete data set"):
        load_imported(tmp_path / "data", "train")
    with pytest.raises(DataError, match="holds no data set"):
        load_imported(tmp_path, "train")


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_a_damaged_array_is_one_sentence(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(DataError, match="cannot be read as an array"):
        import_images(tmp_path / name, tmp_path / "out", size=24)
    np.savez(tmp_path / "b.npz", pictures=np.zeros(3))
    with pytest.raises(DataError, match="must be called images"):
        import_images(tmp_path / "b.npz", tmp_path / "out", size=24)


@pytest.mark.parametrize("kind", ["dds", "avif", "blp", "im", "eps", "png", "gif", "tiff", "pcx", "icns"])
def test_one_bad_picture_never_ends_an_import(tmp_path, kind):
    """Whatever a decoder could raise: the file is left out, and said so."""
    folder = write_folder(tmp_path / "pictures", 30)
    starts = {
        "dds": b"DDS ",
        "blp": b"BLP2",
        "im": b"Image type: ",
        "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n",
        "gif": b"GIF89a",
    }
    (folder / f"bad.{kind}").write_bytes(starts.get(kind, b"") + bytes(range(256)))
    made = import_images(folder, tmp_path / "data", size=24)
    assert sum(made.counts.values()) == 30
    assert [note for note in made.notes if f"1 files were left out, such as {folder}/bad.{kind}" in note]
