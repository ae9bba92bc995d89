"""Data sets: token images with labels, from a local folder, a download or the bundled samples."""

from sensewise.data.cifar10 import bundled_cifar10, fetch_cifar10, load_cifar10
from sensewise.data.images import Images
from sensewise.data.imported import import_images, is_imported, load_imported
from sensewise.data.mnist import bundled_mnist, fetch_mnist, load_mnist

BUNDLED = {"mnist": bundled_mnist, "cifar10": bundled_cifar10}
FETCH = {"mnist": fetch_mnist, "cifar10": fetch_cifar10}
LOAD = {"mnist": load_mnist, "cifar10": load_cifar10}

__all__ = [
    "BUNDLED",
    "FETCH",
    "LOAD",
    "Images",
    "bundled_cifar10",
    "bundled_mnist",
    "fetch_cifar10",
    "fetch_mnist",
    "import_images",
    "is_imported",
    "load_cifar10",
    "load_imported",
    "load_mnist",
]
