"""Tables and figures that the paper does not have, one file each, as in `sensewise.paper`."""

from sensewise import paper
from sensewise.evaluate.experiment import Experiments

EXPERIMENTS = Experiments(
    {
        **paper.EXPERIMENTS.homes,
        **dict.fromkeys(("amortised", "mri-phantom", "stopping", "noise", "pictures"), __name__),
    }
)
"""Every experiment there is, the paper's first, by name."""
