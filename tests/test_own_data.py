"""Import, card, training on imported images, evaluation with its report, acquire for files and folders; bad input."""

import json
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from sensewise import cli
from sensewise.acquire_image import acquire_image
from sensewise.card import card
from sensewise.checkpoint import build_prior, save_run
from sensewise.data import import_images, load_imported
from sensewise.data.pictures import read_picture
from sensewise.errors import CheckpointError, DataError
from tiny_runs import PRESET
from web_fixtures import tiny_config


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


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    config = tiny_config("stripes", (1, 24, 24), 4, 2)
    save_run(folder, config, build_prior(config))
    return folder


def invoke(*arguments):
    """A command as the console script runs it; a mistake of the user is its exception."""
    return CliRunner().invoke(cli.app, [str(a) for a in arguments], catch_exceptions=False)


def test_from_a_folder_to_the_report_in_three_commands(tmp_path):
    pictures, data, prior, out = (tmp_path / name for name in ("pictures", "mydata", "prior", "report"))
    write_folder(pictures)
    (tmp_path / "tiny.toml").write_text(PRESET.format(steps=2, save_minutes=1))
    made = invoke("data", "import", pictures, "--size", 24, "--labels", "folders", "--out", data, "--licence", "CC0")
    assert "32 train, 4 validation, 4 test images, 2 classes" in made.output
    assert invoke("train", "prior", "--data", data, "--preset", tmp_path / "tiny.toml", "--out", prior).exit_code == 0
    done = invoke("evaluate", "--prior", prior, "--data", data, "--seeds", 1, "--out", out)
    assert "label-greedy, 16 steps" in done.output
    assert "paper" not in done.output
    rows = json.loads((out / "results.json").read_text())["rows"]
    assert {row["budget"] for row in rows} == {0.05, 0.1, 0.2, 0.3}
    assert {row["method"] for row in rows} >= {"random", "variable-density", "probe-greedy", "variance-greedy"}
    page = (out / "report.html").read_text()
    assert "What to measure on mydata" in page
    assert page.count("data:image/") == 5  # with the PSNR curves of four levels
    assert "PSNR in dB" in page
    told = invoke("info", prior).output
    assert "CC0" in told
    assert "24 x 24, 1 channel, 4 states" in told
    assert "greedy errors 0.1" in told


def test_splits_share_no_image_and_are_the_same_again(tmp_path):
    folder = write_folder(tmp_path / "pictures")
    for name in ("one", "two"):
        import_images(folder, tmp_path / name, size=24, labels="folders")
    one, two = ([load_imported(tmp_path / n, s) for s in ("train", "validation", "test")] for n in ("one", "two"))
    assert all(torch.equal(a.tokens, b.tokens) for a, b in zip(one, two, strict=True))
    images = [tokens.numpy().tobytes() for part in one for tokens in part.tokens]
    assert len(set(images)) == len(images) == 40
    for part in one:
        bright = part.tokens[:, 0, :, :12].float().mean((1, 2)) > part.tokens[:, 0, :, 12:].float().mean((1, 2))
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
    assert torch.equal(a.tokens, b.tokens)
    assert (a.labels, b.num_labels) == (None, 3)


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


def test_acquire_a_file_and_a_folder(tmp_path, run):
    folder = write_folder(tmp_path / "pictures", 2, classes=("all",)) / "all"
    told = acquire_image(str(folder / "000.png"), 0.1, 4, 1, str(run), tmp_path / "one", 2, 0)
    assert told.startswith("58 of 576 pixels measured in 4 steps")
    names = {path.name for path in (tmp_path / "one").iterdir()}
    assert names == {
        "acquisition.json",
        "animation.gif",
        "mask.npy",
        "mask.png",
        "reconstruction.png",
        "samples.png",
        "steps.png",
        "uncertainty.npy",
        "uncertainty.png",
    }
    assert np.load(tmp_path / "one" / "mask.npy", allow_pickle=False).sum() == 58
    with Image.open(tmp_path / "one" / "animation.gif") as film:
        assert film.n_frames == 5
    (folder / "text.png").write_text("no picture")
    told = acquire_image(str(folder), 0.1, 2, None, str(run), tmp_path / "many", 0, 0)
    assert told.count("58 of 576") == 2
    assert "left out" in told
    assert (tmp_path / "many" / "001.png" / "mask.npy").is_file()
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no picture that can be read"):
        acquire_image(str(tmp_path / "empty"), 0.1, 2, None, str(run), tmp_path / "none", 0, 0)


def test_card_of_a_run_without_a_log(run):
    found = card(run)
    assert (found.shape, found.num_states, found.num_labels, found.minutes) == ((1, 24, 24), 4, 2, None)
    assert len(found.sha256) == 64
    with pytest.raises(CheckpointError, match="no model called"):
        card("nothing")


def test_evaluate_refuses_a_prior_of_another_shape(tmp_path, run):
    import_images(write_folder(tmp_path / "pictures", 20), tmp_path / "data", size=32)
    with pytest.raises(DataError, match="train one with"):
        invoke("evaluate", "--prior", run, "--data", tmp_path / "data", "--out", tmp_path / "out")


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_a_damaged_array_is_one_sentence(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(DataError, match="cannot be read as an array"):
        import_images(tmp_path / name, tmp_path / "out", size=24)
    np.savez(tmp_path / "b.npz", pictures=np.zeros(3))
    with pytest.raises(DataError, match="must be called images"):
        import_images(tmp_path / "b.npz", tmp_path / "out", size=24)
