"""The paper's tables and figures, one file each: task, methods, the paper's values, its section of the report."""

from sensewise.evaluate.experiment import Experiments

EXPERIMENTS = Experiments(
    dict.fromkeys(
        (
            "mnist-sequential",
            "mnist-one-shot",
            "side-information",
            "gradient-estimators",
            "mask-state",
            "baselines",
            "cifar10-one-shot",
            "cifar10-sequential",
            "mri-masks",
            "mri-sequential",
        ),
        __name__,
    )
)
"""Every experiment of the paper, by name."""
