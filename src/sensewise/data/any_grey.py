"""The pictures behind the prior `any-grey`: photographs, pieces of other data sets on grounds, pictures drawn by code.

| source | licence | what is taken |
|---|---|---|
| gnome-backgrounds 43.1, the Debian package | CC BY-SA 3.0 | photographs and renderings, at several sizes |
| any other picture in `any-grey/photographs` | its own | the same |
| CIFAR-10, training batches | none stated | in grey, mosaics of 2 x 2 and 4 x 4 |
| Fashion-MNIST, npm package 1.1.0 | MIT | pieces scattered over grounds |
| Omniglot, background_small1 and 2 | MIT | characters scattered over grounds |
| slices in `any-grey/slices/{train,val}`, such as brain-t1 | CC BY 4.0 | whole or cut |
| `data.drawn` | ours | text, stars, lines, surfaces ... |

The shipped weights have also seen budgie-backgrounds (CC0) and older pictures of gnome-backgrounds. Their repositories
have no archive with a fixed checksum: put them into `any-grey/photographs`; those of `HELD_OUT` are among them.

The split goes by file: variants of one photograph stay together, and those of `HELD_OUT` are for validation only.
Everything is written once into `any-grey/pictures.npz`; `crops.Pictures` draws from it.
"""

import io
import json
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from rich.console import Console
from rich.progress import track

from sensewise.data.arrays import load_arrays
from sensewise.data.cifar10 import read_pixels
from sensewise.data.crops import Pictures
from sensewise.data.drawn import TILE, as_bytes, drawn, ground, ink_for
from sensewise.data.pictures import FORMATS, find_pictures
from sensewise.data.scenes import Dataset, Root, Scenes
from sensewise.data.sources import Known, Source, data_root, download, fetch, npm_unpack
from sensewise.errors import DataError
from sensewise.files import atomic, read_bytes, write_bytes

NAME, BANK = "any-grey", "pictures.npz"
LICENCE = (
    "CC-BY-SA-3.0 AND CC0-1.0 AND LicenseRef-CIFAR-10 AND MIT AND CC-BY-4.0 AND Apache-2.0 (gnome-backgrounds: "
    "CC-BY-SA-3.0; budgie-backgrounds: CC0-1.0; CIFAR-10, training images: no licence stated, cite Krizhevsky, 2009; "
    "Fashion-MNIST: MIT; Omniglot, background_small1 and 2: MIT; brain-t1, training slices: CC-BY-4.0, J. Cheng, "
    "figshare 1512427; pictures drawn by code: Apache-2.0)"
)
DEBIAN = "gnome-backgrounds_43.1-1_all.deb"
CLOTHES = "fashion-mnist@1.1.0"
LETTERS = ("images_background_small1.zip", "images_background_small2.zip")
FILES = {
    DEBIAN: Known(32_546_832, "a670dea21572652127d6e55f9cdb3a226d0037854fdbfd037003c7d00ee0dc4e"),
    LETTERS[0]: Known(1_319_022, "f38eb80f801274ac2b4dff5b24289016bfaba4a7d5bb50deebf27104ad6cb8a4"),
    LETTERS[1]: Known(1_580_917, "3ccaa407515a8778e5d0861875af38b17e418f301ad5bb3b5a6b65d901a41c7f"),
    "0.json": Known(16_261_761, "059bd606bea89f6ea083240f41a38c73296e3e5a18a420d824fc2567b6ad6ab5"),
    "1.json": Known(14_392_718, "ef2a14998a678443cf78de167e8306ceef9b742c109d3af22329babddcc8f63e"),
    "2.json": Known(16_979_247, "d6ae6aa65064965f26fdf47c84463dab4e083f055c7e10c01dee1c1a20e2c361"),
    "3.json": Known(14_982_219, "58056290f068726f8dc3c6b731be69c64fc2ab814b9fe31b4f0b5f1031e3afdd"),
    "4.json": Known(16_815_157, "71112de794ecb88774c383cbd14ca3eaf2078d0cb17f3e18406fe0729e65bfd8"),
    "5.json": Known(13_407_105, "999ecd7995548c9d28ad8b7e9694080fe95b42273fe98df4913aad76f5d973be"),
    "6.json": Known(16_543_860, "2f52a16014d93515a4e2709a22187d3369222e4cd4443d28865b728dc2335659"),
    "7.json": Known(13_822_380, "ce9e0f75df944d1876edcd320979daac450ce4d894d480aa8882b0a704bd1d11"),
    "8.json": Known(16_482_589, "a0c6f3d3ce22c98b232ec8a9ffaa18bbce3c577d5622a60c26e858e753cc6cb4"),
    "9.json": Known(15_523_046, "c8d0fe2375398eb0d949485c7801dc1963f669bcb21bb57a2740b2096e365b62"),
}
ADDRESSES = {
    DEBIAN: f"https://deb.debian.org/debian/pool/main/g/gnome-backgrounds/{DEBIAN}",
    **{name: f"https://raw.githubusercontent.com/brendenlake/omniglot/master/python/{name}" for name in LETTERS},
}
SIDES = (512, 362, 256, 181, 128, 96)  # short sides at which a photograph is kept
PREFIXES = ("gnome_backgrounds_", "gnome_nature_", "gnome_cosmos_", "gnome_abstract_", "budgie_")  # of file names
HELD_OUT = {  # photographs for validation
    "casa-mila",
    "galaxy-ngc3370",
    "keys",
    "ladybird",
    "perched-osprey",
    "road",
    "sandstone",
    "singaporean-cityscape",
    "stamps",
    "tulip",
}


@dataclass(frozen=True)
class Amounts:
    """How many tiles are made of each kind, for training; for validation one in a hundred of them, at least 8."""

    drawn: int = 8800
    cifar10: int = 2500
    letters: int = 1200
    clothes: int = 800
    slices: int = 1500


def photograph_name(path: Path) -> str:
    """The name that the same photograph has in other folders and formats; dark and light variants keep -d and -l."""
    name = path.stem.lower()
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name


def is_held_out(name: str) -> bool:
    """Whether a photograph is for validation, as all its variants are."""
    return name.removesuffix("-d").removesuffix("-l") in HELD_OUT


def pyramid(path: Path) -> list[np.ndarray]:
    """A photograph in grey at those short sides of `SIDES` that it has, largest first, uint8; empty ones left out."""
    with Image.open(path, formats=FORMATS) as opened:
        opened.draft("L", (1024, 1024))
        image = opened.convert("RGB").convert("L")
    levels = []
    for side in SIDES:
        factor = side / min(image.size)
        if factor > 1:
            continue
        size = (round(image.size[0] * factor), round(image.size[1] * factor))
        small = image.resize(size, Image.Resampling.LANCZOS if side > 128 else Image.Resampling.BOX)
        levels.append(np.asarray(small))
        image = small if side > 256 else image
    return [level for level in levels if level.std() > 1.5]


def mosaics(images: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Mosaics of grey images `(n, 32, 32)`, 4 x 4, or 2 x 2 enlarged twice; uint8 `(count, TILE, TILE)`."""
    rng = np.random.default_rng(seed)
    stack = np.empty((count, TILE, TILE), np.uint8)
    for tile in stack:
        n = 4 if rng.random() < 0.6 else 2
        cells = [Image.fromarray(images[i]) for i in rng.integers(len(images), size=n * n)]
        side = TILE // n
        large = [np.asarray(cell.resize((side, side), Image.Resampling.BICUBIC)) for cell in cells]
        tile[:] = np.block([large[row * n : (row + 1) * n] for row in range(n)])
    return stack


def scattered(pieces: list[np.ndarray], count: int, seed: int, *, ink: bool) -> np.ndarray:
    """Small pictures over grounds, at several sizes, as ink or as they are; uint8 `(count, TILE, TILE)`."""
    rng = np.random.default_rng(seed)
    stack = np.empty((count, TILE, TILE), np.uint8)
    for tile in stack:
        picture = ground(rng) if rng.random() < 0.6 else np.full((TILE, TILE), float(rng.integers(2)))
        level, size = ink_for(rng, picture), int(rng.integers(16, 64))
        for _ in range(int(rng.integers(2, 24))):
            piece = Image.fromarray(pieces[rng.integers(len(pieces))])
            side = max(8, int(size * rng.uniform(0.7, 1.4)))
            alpha = np.asarray(piece.resize((side, side), Image.Resampling.BOX), np.float64) / 255
            y, x = rng.integers(-side // 2, TILE - side // 2, 2)
            rows, columns = slice(max(y, 0), min(y + side, TILE)), slice(max(x, 0), min(x + side, TILE))
            part = alpha[rows.start - y : rows.stop - y, columns.start - x : columns.stop - x]
            cover, shown = (part, level) if ink else (np.clip(part * 8, 0, 1), part)
            picture[rows, columns] = picture[rows, columns] * (1 - cover) + shown * cover
        tile[:] = as_bytes(picture)
    return stack


def cut_slices(files: list[Path], count: int, seed: int) -> np.ndarray:
    """Slices shrunk whole, or cut; uint8 `(count, TILE, TILE)`."""
    rng = np.random.default_rng(seed)
    stack = np.empty((count, TILE, TILE), np.uint8)
    for tile in stack:
        with Image.open(files[rng.integers(len(files))], formats=FORMATS) as opened:
            image = opened.convert("L")
        side = TILE if rng.random() < 0.5 else int(rng.integers(TILE, 280))
        y, x = rng.integers(0, side - TILE + 1, 2)
        tile[:] = np.asarray(image.resize((side, side), Image.Resampling.BOX))[y : y + TILE, x : x + TILE]
    return stack


def letters(folder: Path) -> list[np.ndarray]:
    """Every third character of Omniglot, white on black."""
    pieces = []
    for name in LETTERS:
        with zipfile.ZipFile(folder / name) as archive:
            files = [file for file in archive.namelist() if file.endswith(".png") and not file.startswith("__MACOSX")]
            for file in files[::3]:
                with Image.open(io.BytesIO(archive.read(file)), formats=("PNG",)) as opened:
                    pieces.append(255 - np.asarray(opened.convert("L")))
    return pieces


def clothes(folder: Path) -> list[np.ndarray]:
    """600 pieces of each kind of Fashion-MNIST; malformed rows are left out."""
    pieces = []
    for kind in range(10):
        rows = json.loads((folder / f"{kind}.json").read_text())["data"][:600]
        pieces += [np.array(row, np.uint8).reshape(28, 28) for row in rows if len(row) == 28 * 28]
    return pieces


def build(folder: Path, root: Root, console: Console, amounts: Amounts | None = None) -> dict[str, np.ndarray]:
    """All pictures, by `SPLIT/KIND` or `SPLIT/photograph/NAME/LEVEL`; what is not there is left out, and said so."""
    many = amounts or Amounts()
    found: dict[str, np.ndarray] = {}
    few = {kind: max(8, count // 100) for kind, count in vars(many).items()}
    known = set()
    for path in track(find_pictures(folder / "photographs"), "photographs", console=console, transient=True):
        if (name := photograph_name(path)) not in known:
            split = "validation" if is_held_out(name) else "train"
            found |= {f"{split}/photograph/{name}/{i}": level for i, level in enumerate(pyramid(path))}
        known.add(name)
    found["train/drawn"], found["validation/drawn"] = drawn(many.drawn, 1), drawn(few["drawn"], 2)
    for number, split in enumerate(("train", "validation")):
        count = vars(many) if split == "train" else few
        try:
            colour, _ = read_pixels(split, root)
            grey = np.tensordot(colour[:30_000] / 255, np.array([0.299, 0.587, 0.114]), axes=(1, 0))
            found[f"{split}/cifar10"] = mosaics(as_bytes(grey), count["cifar10"], 3 + number)
        except DataError as error:
            console.print(f"without CIFAR-10: {error}", soft_wrap=True)
        if slices := find_pictures(folder / "slices" / ("train" if split == "train" else "val")):
            found[f"{split}/slices"] = cut_slices(slices, count["slices"], 9 + number)
    if all((folder / name).is_file() for name in LETTERS):
        pieces = letters(folder)
        cut = len(pieces) * 9 // 10
        found["train/letters"] = scattered(pieces[:cut], many.letters, 5, ink=True)
        found["validation/letters"] = scattered(pieces[cut:], few["letters"], 6, ink=True)
    if (folder / "9.json").is_file():
        pieces = clothes(folder)
        found["train/clothes"] = scattered(pieces[::2], many.clothes, 7, ink=False)
        found["validation/clothes"] = scattered(pieces[1::2], few["clothes"], 8, ink=False)
    return found


def save_pictures(folder: Path, found: Mapping[str, np.ndarray]) -> None:
    """Write what `build` made."""
    with atomic(folder / BANK) as temporary, temporary.open("wb") as file:
        np.savez(file, **dict(found))  # type: ignore[arg-type]


def load_pictures(split: str, root: Root = None) -> Pictures:
    """The pictures of a split, "train" or "validation"."""
    path = data_root(root) / NAME / BANK
    if not path.is_file():
        raise DataError(f"{path} does not exist: run `sensewise data fetch {NAME}`, which makes it")
    photographs: dict[str, list[np.ndarray]] = {}
    tiles = {}
    for name, values in load_arrays(path).items():
        of, kind, *rest = name.split("/")
        if of == split and kind == "photograph":
            photographs.setdefault(rest[0], []).append(values)
        elif of == split:
            tiles[kind] = values
    return Pictures(NAME, split, LICENCE, {name: tuple(levels) for name, levels in photographs.items()}, tiles)


def _from_addresses(missing: list[str], _scratch: Path) -> Iterator[tuple[str, bytes]]:
    for name in missing:
        if name in ADDRESSES:
            yield name, download(ADDRESSES[name], FILES[name].size)


def _from_npm(missing: list[str], scratch: Path) -> Iterator[tuple[str, bytes]]:
    wanted = [name for name in missing if name.endswith(".json")]
    folder = npm_unpack(CLOTHES, scratch) / "src" / "clothes" if wanted else scratch
    return ((name, read_bytes(folder / name, FILES[name].size)) for name in wanted)


def unpack_debian(path: Path, folder: Path) -> None:
    """Write the pictures of a Debian package into a folder, without the folders that they lie in."""
    content, start = path.read_bytes(), 8  # an ar archive: headers of 60 bytes, contents at even places
    while start < len(content):
        name, size = content[start : start + 16].decode().strip(" /"), int(content[start + 48 : start + 58])
        if name.startswith("data.tar"):
            with tarfile.open(fileobj=io.BytesIO(content[start + 60 : start + 60 + size])) as archive:
                for member in archive:
                    picture = archive.extractfile(member) if member.isfile() else None
                    if picture is not None and Path(member.name).suffix in (".jpg", ".png", ".webp"):
                        write_bytes(folder / Path(member.name).name, picture.read())
        start += 60 + size + size % 2


def fetch_pictures(root: Root, console: Console) -> Path:
    """Bring all files into `root/any-grey` and make the pictures of them; a few minutes."""
    sources = (Source(f"npm package {CLOTHES}", _from_npm), Source("Debian and GitHub", _from_addresses))
    folder = fetch(NAME, FILES, sources, root, console)
    unpack_debian(folder / DEBIAN, folder / "photographs")
    with console.status("making pictures, a few minutes"):
        save_pictures(folder, build(folder, root, console))
    return folder


def _no_scenes(_split: str, _root: Root) -> Scenes:
    raise DataError(f"{NAME} holds pictures of many sizes: it is for `sensewise train prior --dataset {NAME}` alone")


ANY_GREY = Dataset(
    name=NAME,
    title="Grey pictures of any size",
    licence=LICENCE,
    load=_no_scenes,
    fetch=fetch_pictures,
    pictures=load_pictures,
)
