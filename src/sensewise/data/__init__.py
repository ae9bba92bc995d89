"""Data sets: token images with labels, from a local folder, a download or the bundled samples."""

from sensewise.data.images import Images
from sensewise.data.imported import import_images, is_imported, load_imported
from sensewise.data.mnist import bundled_mnist, fetch_mnist, load_mnist

__all__ = [
    "Images",
    "bundled_mnist",
    "fetch_mnist",
    "import_images",
    "is_imported",
    "load_imported",
    "load_mnist",
]
