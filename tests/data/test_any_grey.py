"""Pictures to train a prior of any size on: what is made of which source, splits by file, crops."""

import io
import json
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from sensewise.data import any_grey, find, load
from sensewise.data.any_grey import Amounts, build, load_pictures, save_pictures, unpack_debian
from sensewise.data.crops import Pictures, tone
from sensewise.data.drawn import DRAWN, TILE, drawn
from sensewise.errors import DataError

QUIET = Console(quiet=True)
FEW = Amounts(drawn=12, cifar10=3, letters=4, clothes=4, slices=4)


def png(values):
    stream = io.BytesIO()
    Image.fromarray(values).save(stream, "PNG")
    return stream.getvalue()


def noise(shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """One tiny file of everything but CIFAR-10."""
    root = tmp_path_factory.mktemp("data")
    folder = root / "any-grey"
    for name, size in {"meadow.png": (140, 200, 3), "tulip-d.png": (150, 130, 3), "small.png": (40, 40, 3)}.items():
        (folder / "photographs").mkdir(parents=True, exist_ok=True)
        (folder / "photographs" / name).write_bytes(png(noise(size)))
    (folder / "photographs" / "budgie_meadow.png").write_bytes(png(noise((140, 200, 3), 1)))  # the same once more
    for split in ("train", "val"):
        (folder / "slices" / split).mkdir(parents=True)
        (folder / "slices" / split / "1.png").write_bytes(png(noise((300, 300), 2)))
    for name in any_grey.LETTERS:
        with zipfile.ZipFile(folder / name, "w") as archive:
            for i in range(30):
                archive.writestr(f"a/{i}.png", png(noise((105, 105), i)))
    for kind in range(10):
        rows = [noise(784, kind).tolist(), [1, 2, 3], noise(784, 3).tolist()]
        (folder / f"{kind}.json").write_text(json.dumps({"data": rows}))
    save_pictures(folder, build(folder, root, QUIET, FEW))
    return root


def test_every_source_has_its_place_and_splits_go_by_file(root):
    train, held_out = (load_pictures(split, root) for split in ("train", "validation"))
    assert list(train.photographs) == ["meadow"]  # the copy is left out, the small one has no size that is kept
    assert list(held_out.photographs) == ["tulip-d"]
    assert [min(level.shape) for level in train.photographs["meadow"]] == [128, 96]
    assert {kind: len(tiles) for kind, tiles in train.tiles.items()} == {
        "drawn": 12,
        "letters": 4,
        "clothes": 4,
        "slices": 4,
    }
    for tiles in (*train.tiles.values(), *held_out.tiles.values()):
        assert tiles.dtype == np.uint8
        assert tiles.shape[1:] == (TILE, TILE)
    assert held_out.whole().shape == (1 + 4 * 8, 1, TILE, TILE)


@pytest.mark.parametrize("shape", [(64, 64), (38, 53), (128, 100)])
def test_crops(root, shape):
    pictures = load_pictures("train", root)
    one, again, other = (pictures.crops(40, shape, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert one.shape == (40, 1, *shape)
    assert one.dtype == np.float32
    assert one.min() >= 0
    assert one.max() <= 1
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_crops_are_pieces_of_their_pictures(monkeypatch):
    """Up to turning and mirroring: without a change of tone every crop is found in its picture."""
    monkeypatch.setattr("sensewise.data.crops.tone", lambda crop, rng: crop)
    tile = noise((TILE, TILE))
    pictures = Pictures("mine", "train", "", {}, {"drawn": tile[None]})
    for crop in pictures.crops(20, (20, 30), np.random.default_rng(0))[:, 0]:
        found = (255 * crop).round().astype(np.uint8)
        sides = [turned for flat in (tile, tile.T) for turned in (flat, flat[::-1], flat[:, ::-1], flat[::-1, ::-1])]
        windows = [np.lib.stride_tricks.sliding_window_view(side, (20, 30)) for side in sides]
        assert any((window[..., 0, :4] == found[0, :4]).all(-1).any() for window in windows)
        assert any((view == found).all((2, 3)).any() for view in windows)


def test_no_picture_is_large_enough():
    with pytest.raises(DataError, match="large enough"):
        Pictures("mine", "train", "", {}, {"drawn": noise((2, TILE, TILE))}).crops(
            1, (200, 200), np.random.default_rng(0)
        )
    with pytest.raises(DataError, match="no picture"):
        Pictures("mine", "validation", "", {}, {}).whole()


def test_tones_stay_in_range():
    rng = np.random.default_rng(0)
    for _ in range(50):
        found = tone(rng.random((8, 8)).astype(np.float32), rng)
        assert found.dtype == np.float32
        assert 0 <= found.min() <= found.max() <= 1


@pytest.mark.parametrize("kind", DRAWN)
def test_everything_that_is_drawn_is_an_image(kind):
    draw, share = DRAWN[kind]
    found = draw(np.random.default_rng(3))
    assert found.shape == (TILE, TILE)
    assert np.isfinite(found).all()
    assert share > 0


def test_the_seed_decides_what_is_drawn():
    assert np.array_equal(drawn(3, 5), drawn(3, 5))
    assert not np.array_equal(drawn(3, 5), drawn(3, 6))


def test_pictures_of_a_debian_package(tmp_path):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:xz") as archive:
        for name, content in {"usr/share/a.jpg": b"one", "usr/share/deep/b.webp": b"two", "usr/doc": b"no"}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    package = b"!<arch>\n"
    for name, content in {"debian-binary": b"2.0", "data.tar.xz": stream.getvalue()}.items():
        package += (
            f"{name:<16}{0:<12}{0:<6}{0:<6}{0:<8}{len(content):<10}`\n".encode() + content + b"\n" * (len(content) % 2)
        )
    (tmp_path / "package.deb").write_bytes(package)
    unpack_debian(tmp_path / "package.deb", tmp_path / "out")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {
        "a.jpg": b"one",
        "b.webp": b"two",
    }


def test_what_is_not_there(tmp_path):
    with pytest.raises(DataError, match="sensewise data fetch any-grey"):
        load_pictures("train", tmp_path)
    with pytest.raises(DataError, match="many sizes"):
        load("any-grey", "train")
    assert find("any-grey").pictures is load_pictures
