"""What is known of each data set by name: the names of its classes, its licence, and the images that are bundled."""

from collections.abc import Callable
from dataclasses import dataclass

from sensewise.data.cifar10 import bundled_cifar10
from sensewise.data.images import Images
from sensewise.data.mnist import bundled_mnist


@dataclass(frozen=True)
class Entry:
    """One data set.

    Attributes:
        title: for people.
        licence: of the data.
        classes: names of the labels, in order; empty where there are none.
        bundled: the images that come with the package, or None.
    """

    title: str
    licence: str
    classes: tuple[str, ...] = ()
    bundled: Callable[[], Images] | None = None


CATALOG = {
    "mnist": Entry("MNIST digits", "CC BY-SA 3.0 (LeCun and Cortes)", tuple("0123456789"), bundled_mnist),
    "cifar10": Entry(
        "CIFAR-10 photographs",
        "no licence stated; cite Krizhevsky, 2009",
        ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        bundled_cifar10,
    ),
    "fastmri": Entry("fastMRI knee slices", "fastMRI data sharing agreement (NYU Langone Health)"),
}
