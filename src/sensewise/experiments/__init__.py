"""Experiments: one file a table or figure of the paper. Each has `run(preset, seeds, progress) -> Results`."""

from sensewise.experiments import (
    baselines,
    cifar10_one_shot,
    cifar10_sequential,
    gradient_estimators,
    mask_state,
    mnist_one_shot,
    mnist_sequential,
    mri_masks,
    mri_sequential,
    side_information,
)

EXPERIMENTS = {
    "mnist-sequential": mnist_sequential.run,
    "mnist-one-shot": mnist_one_shot.run,
    "side-information": side_information.run,
    "gradient-estimators": gradient_estimators.run,
    "mask-state": mask_state.run,
    "baselines": baselines.run,
    "cifar10-one-shot": cifar10_one_shot.run,
    "cifar10-sequential": cifar10_sequential.run,
    "mri-masks": mri_masks.run,
    "mri-sequential": mri_sequential.run,
}
