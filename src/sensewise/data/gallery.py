"""The pictures of experiment `pictures`: microscopes, cameras, drawings. No prior was trained on any of them.

An X-ray map of a WSe2 flake (FAST, Argonne), scans of atomic force microscopes (AFMReader), pictures that come with
scikit-image, and a depth map. They are fetched, never shipped.
"""

import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console

from sensewise.data.any_picture import AFM, read_any
from sensewise.data.arrays import load_arrays
from sensewise.data.pictures import find_pictures
from sensewise.data.scenes import Dataset, Root, Scenes
from sensewise.data.sources import Known, Source, data_root, download, fetch
from sensewise.errors import DataError

NAME, SIDE = "pictures", 128
FILES = {
    "wse2.tif": Known(1920272, "6d5c9e842d147b8c9e20c1493eb687b2ba25f63261c692a0c1a752248d9881df"),
    "afm-gwy.gwy": Known(16964209, "5b959fba2ba5da8daf5b3336b9cee5ea60d3285c47cf58b036ceae79b98255eb"),
    "afm-ibw.ibw": Known(8533952, "84a7fad6032cc735fef6db2781c1d74d385f25b9ead4c3561f50560943233985"),
    "afm-jpk.jpk": Known(2646744, "7b1945c97936f005446b2d75be49643a364ecaf8798a2d2b97b092d40f21de2e"),
    "afm-spm.spm": Known(33635392, "d662c5a4f18c8dc73572f33c3c999259ca1e1e5cc52d0e96d5d8af49ba1b63d5"),
    "afm-stp.stp": Known(2102424, "977569f7fdbdc5de92fd8b2172c9ff8fd38f3b8df6de0b4f95a547a8b12da8c5"),
    "microaneurysms.png": Known(4950, "a1e1be59aa447f8ce082f7fa809997ab369a2b137cb6c4202abc647c7ccf6456"),
    "cell.png": Known(74183, "8d23a7fb81f7cc877cd09f330357fc7f595651306e84e17252f6e0a1b3f61515"),
    "moon.png": Known(50177, "78739619d11f7eb9c165bb5d2efd4772cee557812ec847532dbb1d92ef71f577"),
    "coins.png": Known(75825, "f8d773fc9cfa6f4d8e5942dc34d0a0788fcaed2a4fefbbed0aef5398d7ef4cba"),
    "page.png": Known(47679, "341a6f0a61557662b02734a9b6e56ec33a915b2c41886b97509dedf2a43b47a3"),
    "text.png": Known(42704, "bd84aa3a6e3c9887850d45d606c96b2e59433fbef50338570b63c319e668e6d1"),
    "clock_motion.png": Known(58784, "f029226b28b642e80113d86622e9b215ee067a0966feaf5e60604a1e05733955"),
    "grass.png": Known(217893, "b6b6022426b38936c43a4ac09635cd78af074e90f42ffa8227ac8b7452d39f89"),
    "brick.png": Known(106634, "7966caf324f6ba843118d98f7a07746d22f6a343430add0233eca5f6eaaa8fcf"),
    "gravel.png": Known(194247, "c48615b451bf1e606fbd72c0aa9f8cc0f068ab7111ef7d93bb9b0f2586440c12"),
    "hubble_deep_field.jpg": Known(527940, "3a19c5dd8a927a9334bb1229a6d63711b1c0c767fb27e2286e7c84a3e2c2f5f4"),
    "astronaut.png": Known(791555, "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5"),
    "chelsea.png": Known(240512, "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb"),
    "retina.jpg": Known(269564, "38a07f36f27f095e818aea7b96d34202c05176d30253c66733f2e00379e9e0e6"),
    "phantom.png": Known(3386, "552ff698167aa402cceb17981130607a228a0a0aa7c519299eaa4d5f301ba36c"),
    "coffee.png": Known(466706, "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7"),
    "motorcycle_disp.npz": Known(1146173, "2e49c8cebff3fa20359a0cc6880c82e1c03bbb106da81a177218281bc2f113d7"),
    "camera.png": Known(139512, "b0793d2adda0fa6ae899c03989482bff9a42d3d5690fc7e3648f2795d730c23a"),
}
CAMERA = "camera"  # FAST's network was trained on this one
LICENCE = "WSe2: 3-clause (FAST, Argonne); AFM: LGPL-3 (AFMReader 0.0.7); others: see scikit-image 0.26.0, data/README"
WSE2 = (
    "https://raw.githubusercontent.com/saugatkandel/fast_smart_scanning/23361bb8a62985d51001c9785a3db6a9219aa507/"
    "work_directory/sims_paper/fused_full.tif"
)
PYPI = "https://files.pythonhosted.org/packages"
AFM_READER = f"{PYPI}/5b/c4/0209c3bb0b6c3edf564dad963e7d8079173c6d8cd34803e789bb9c3bdb9f/afmreader-0.0.7.tar.gz"
SCIKIT_IMAGE = (
    f"{PYPI}/a5/2a/e71c1a7d90e70da67b88ccc609bd6ae54798d5847369b15d3a8052232f9d/"
    "scikit_image-0.26.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl"
)
LARGEST_ARCHIVE = 150_000_000  # bytes


def _is_scan(file: str) -> bool:
    return Path(file).suffix in AFM


def _wse2(missing: list[str], _scratch: Path) -> Iterator[tuple[str, bytes]]:
    if "wse2.tif" in missing:
        yield "wse2.tif", download(WSE2, FILES["wse2.tif"].size)


def _scans(missing: list[str], _scratch: Path) -> Iterator[tuple[str, bytes]]:
    wanted = [file for file in missing if _is_scan(file)]
    if not wanted:
        return
    with tarfile.open(fileobj=io.BytesIO(download(AFM_READER, LARGEST_ARCHIVE))) as archive:
        for file in wanted:
            content = archive.extractfile(f"afmreader-0.0.7/tests/resources/sample_0{Path(file).suffix}")
            if content is None:
                raise DataError(f"{file} is not a file of the archive")
            yield file, content.read(FILES[file].size + 1)


def _named(missing: list[str], _scratch: Path) -> Iterator[tuple[str, bytes]]:
    wanted = [file for file in missing if not _is_scan(file) and file != "wse2.tif"]
    if not wanted:
        return
    with zipfile.ZipFile(io.BytesIO(download(SCIKIT_IMAGE, LARGEST_ARCHIVE))) as archive:
        for file in wanted:
            with archive.open(f"skimage/data/{file}") as content:
                yield file, content.read(FILES[file].size + 1)


def fetch_pictures(root: Root, console: Console) -> Path:
    """Bring all pictures into `root/pictures`."""
    sources = (
        Source("FAST's repository", _wse2),
        Source("AFMReader 0.0.7 on PyPI", _scans),
        Source("scikit-image 0.26.0 on PyPI", _named),
    )
    return fetch(NAME, FILES, sources, root, console)


def read_picture(path: Path) -> np.ndarray:
    """One of `FILES` at its own size, float64 `(H, W)`, in any range; scans are clipped as a viewer would."""
    if not path.is_file():
        raise DataError(f"{path} does not exist: run `sensewise data fetch {NAME}`, or set SENSEWISE_DATA")
    if path.suffix == ".npz":  # a depth map, infinite where nothing is known
        depth = load_arrays(path)["arr_0"].astype(np.float64)
        return np.where(np.isfinite(depth), depth, depth[np.isfinite(depth)].min())
    values = read_any(path).values.astype(np.float64)
    if not _is_scan(path.name):
        return values
    low, high = np.quantile(values, [0.001, 0.999])
    return np.clip(values, low, high)


def _middle(picture: np.ndarray, side: int) -> np.ndarray:
    """The `side` x `side` pixels in the middle."""
    top, left = ((length - side) // 2 for length in picture.shape)
    return picture[top : top + side, left : left + side]


def middle_square(picture: np.ndarray, side: int) -> np.ndarray:
    """The middle square at `side` x `side` pixels, averaged, scaled to fill [0, 1]; float32."""
    short = min(picture.shape)
    image = Image.fromarray(_middle(picture, short).astype(np.float32))
    way = Image.Resampling.BOX if short >= side else Image.Resampling.BICUBIC
    small = np.asarray(image.resize((side, side), way), np.float64)
    low, high = small.min(), small.max()
    if low == high:
        raise DataError("a picture is the same everywhere: there is nothing to find out")
    return ((small - low) / (high - low)).astype(np.float32)


def load_pictures(side: int = SIDE, root: Root = None) -> Scenes:
    """Every picture as its middle square, intensities `(n, 1, side, side)`; `sources` has their names."""
    folder = data_root(root) / NAME
    values = [middle_square(read_picture(folder / file), side) for file in FILES]
    names = tuple("depth" if file.startswith("motorcycle") else Path(file).stem for file in FILES)
    return Scenes(NAME, "test", torch.from_numpy(np.stack(values))[:, None], licence=LICENCE, sources=names)


def views(picture: np.ndarray, side: int) -> list[np.ndarray]:
    """The middle square and its four quarters, `side` x `side`, filling [0, 1]; what is constant is left out."""
    half = min(picture.shape) // 2
    whole, even = _middle(picture, min(picture.shape)), _middle(picture, 2 * half)
    quarters = [even[top : top + half, left : left + half] for top in (0, half) for left in (0, half)]
    return [middle_square(part, side) for part in (whole, *quarters) if part.min() < part.max()]


def _as_scenes(found: dict[str, list[np.ndarray]], name: str, split: str, licence: str = "") -> Scenes:
    """Squares by the names of their pictures, as intensities `(n, 1, side, side)`."""
    values = [square for squares in found.values() for square in squares]
    names = tuple(source for source, squares in found.items() for _ in squares)
    return Scenes(name, split, torch.from_numpy(np.stack(values))[:, None], licence=licence, sources=names)


def load_views(side: int, root: Root = None) -> Scenes:
    """Every picture as its `views`: five times as many scenes, in which things are of two sizes."""
    folder = data_root(root) / NAME
    return _as_scenes({file: views(read_picture(folder / file), side) for file in FILES}, NAME, "test", LICENCE)


def folder_views(folder: Path, side: int) -> Scenes:
    """Every picture of a folder as its `views`; those whose shorter side is below `side` are left out."""
    found = {}
    for path in find_pictures(folder):
        values = read_any(path).values.astype(np.float64)
        if min(values.shape) >= side:
            found[path.name] = views(values, side)
    if not any(found.values()):
        raise DataError(f"{folder} holds no pictures of at least {side} x {side} pixels")
    return _as_scenes(found, folder.name, "validation")


def _load(split: str, root: Root) -> Scenes:
    if split != "test":
        raise DataError(f"{NAME} has no split {split!r}: no prior learns from these pictures, all are for the test")
    return load_pictures(root=root)


PICTURES = Dataset(name=NAME, title="Pictures of any size", licence=LICENCE, load=_load, fetch=fetch_pictures)
