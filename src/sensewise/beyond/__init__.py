"""Tables and figures that the paper does not have, one file each, as in `sensewise.paper`."""

from sensewise import paper
from sensewise.evaluate.experiment import Experiments

EXPERIMENTS = Experiments(
    {**paper.EXPERIMENTS.homes, "mri-phantom": __name__, "stopping": __name__, "noise": __name__, "pictures": __name__}
)
"""Every experiment there is, the paper's first, by name."""
