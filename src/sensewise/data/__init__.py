"""Data sets: token images with labels and MR slices, from a local folder, a download or the bundled samples.

One file per data set, each with a `Dataset`; `DATASETS` lists them by name. This package knows no model.
"""

from sensewise.data.any_grey import ANY_GREY
from sensewise.data.cifar10 import CIFAR10, bundled_cifar10
from sensewise.data.fastmri import FASTMRI
from sensewise.data.gallery import PICTURES
from sensewise.data.imported import import_images, is_imported, load_imported
from sensewise.data.mnist import MNIST, bundled_mnist
from sensewise.data.phantom import PHANTOM, bundled_phantom
from sensewise.data.prepare import KNEE, bundled_knee
from sensewise.data.scenes import SPLITS, Dataset, Root, Scenes
from sensewise.errors import DataError
from sensewise.files import from_text

_ALL = (MNIST, CIFAR10, FASTMRI, KNEE, PHANTOM, ANY_GREY, PICTURES)
DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in _ALL}
"""Every data set that comes with a reader."""

__all__ = [
    "DATASETS",
    "SPLITS",
    "Dataset",
    "Scenes",
    "bundled_cifar10",
    "bundled_knee",
    "bundled_mnist",
    "bundled_phantom",
    "find",
    "import_images",
    "is_imported",
    "load",
    "load_imported",
]


def find(name: str) -> Dataset:
    """The data set of a name or of `module:DATASET`, an object of another module."""
    if name in DATASETS:
        return DATASETS[name]
    if ":" in name:
        return from_text(name, Dataset)
    raise DataError(f"no data set {name!r}: choose one of {', '.join(DATASETS)}, or give module:DATASET")


def load(name: str, split: str, root: Root = None) -> Scenes:
    """One split of a data set.

    Args:
        name: one of `DATASETS`, the folder of a data set made by `sensewise data import`, or `module:DATASET`.
        split: "train", "validation" or "test"; "train" or "val" for slices.
        root: the folder of all data sets; default `SENSEWISE_DATA`, else the user's cache.
    """
    if name not in DATASETS and is_imported(name):
        return load_imported(name, split)
    return find(name).load(split, root)
