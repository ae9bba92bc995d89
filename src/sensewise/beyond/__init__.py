"""Tables and figures that the paper does not have, one file each, as in `sensewise.paper`."""

from sensewise.evaluate.experiment import Experiments

EXPERIMENTS = Experiments("sensewise.beyond", ("mri-phantom",))
"""Every experiment beyond the paper, by name."""
