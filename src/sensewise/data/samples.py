"""Grey pictures that come with the package, to look at: none of them was trained on or tuned on.

From the wheel of scikit-image 0.26.0, all without copyright: cut, averaged down and made grey.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from sensewise.data.arrays import bundled_arrays


@dataclass(frozen=True)
class Sample:
    """A picture and where it comes from.

    Attributes:
        name: of its array.
        title: for people.
        file: in the folder `skimage/data`.
        box: what is cut out: left, top, right, bottom.
        size: width and height afterwards.
        source: who made it, and under which licence.
    """

    name: str
    title: str
    file: str
    box: tuple[int, int, int, int]
    size: tuple[int, int]
    source: str


SAMPLES = (
    Sample("rocket", "A rocket", "rocket.jpg", (120, 0, 547, 427), (256, 256), "SpaceX, public domain"),
    Sample("retina", "A retina", "retina.jpg", (0, 0, 1411, 1411), (256, 256), "Mikael Haggstrom, CC0-1.0"),
    Sample("cat", "A cat", "chelsea.png", (50, 0, 350, 300), (256, 256), "Stefan van der Walt, CC0-1.0"),
    Sample("coffee", "A cup of coffee", "coffee.png", (0, 0, 600, 400), (300, 200), "Rachel Michetti, CC0-1.0"),
    Sample("astronaut", "Eileen Collins", "astronaut.png", (0, 0, 512, 512), (256, 256), "NASA, public domain"),
    Sample("vessels", "Vessels", "microaneurysms.png", (0, 0, 102, 102), (102, 102), "Andreas Maier, CC0-1.0"),
)


def pack_pictures(folder: Path, path: Path) -> None:
    """Write the pictures from the folder `skimage/data`: how the bundled ones were made."""
    arrays = {}
    for sample in SAMPLES:
        with Image.open(folder / sample.file) as picture:
            grey = picture.convert("L").resize(sample.size, Image.Resampling.BOX, sample.box)
        arrays[sample.name] = np.asarray(grey)
    np.savez_compressed(path, allow_pickle=False, **arrays)


def bundled_pictures() -> list[np.ndarray]:
    """The pictures of `SAMPLES`, uint8 `(H, W)` each."""
    arrays = bundled_arrays("pictures.npz")
    return [arrays[sample.name] for sample in SAMPLES]
