"""Experiments: one file a table or figure of the paper. Each has `run(preset, seeds, progress) -> Results`."""

from sensewise.experiments import mnist_sequential, mri_masks, mri_sequential

EXPERIMENTS = {
    "mnist-sequential": mnist_sequential.run,
    "mri-masks": mri_masks.run,
    "mri-sequential": mri_sequential.run,
}
