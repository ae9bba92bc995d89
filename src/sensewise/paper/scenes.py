"""The images that the paper's pixel experiments measure."""

from sensewise.data.cifar10 import bundled_cifar10, load_cifar10
from sensewise.data.mnist import bundled_mnist, load_mnist
from sensewise.data.scenes import Scenes
from sensewise.errors import DataError

IMAGES = 2560
KNOWN = 4096  # training images that a digit is compared with


def digits(count: int | None = None) -> Scenes:
    """The first test digits of MNIST: 2,560 come with the package."""
    return bundled_mnist(count)


def all_digits(notes: list[str]) -> Scenes | None:
    """All 10,000 test digits if MNIST is on this machine; else a note."""
    try:
        return load_mnist("test")
    except DataError:
        notes.append("All 10,000 test images were left out: MNIST is not on this machine.")
        return None


def known_digits(notes: list[str]) -> Scenes | None:
    """Digits to learn from that `Joint` compares with, if MNIST is on this machine; else a note."""
    try:
        return load_mnist("train").first(KNOWN)
    except DataError:
        notes.append(f"joint-greedy was left out: the {KNOWN:,} digits it compares with are not on this machine.")
        return None


def photographs(notes: list[str]) -> Scenes:
    """The first 2,560 test images if CIFAR-10 is on this machine; else the bundled ones, with a note."""
    try:
        return load_cifar10("test").first(IMAGES)
    except DataError as error:
        images = bundled_cifar10()
        notes.append(f"Only the {len(images)} bundled images of {IMAGES} were measured: {error}")
        return images
