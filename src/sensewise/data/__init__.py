"""Data sets: token images with labels, from a local folder, a download or the bundled samples."""

from sensewise.data.images import Images
from sensewise.data.mnist import bundled_mnist, fetch_mnist, load_mnist

__all__ = ["Images", "bundled_mnist", "fetch_mnist", "load_mnist"]
