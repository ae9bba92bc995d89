"""Interpolation of readings, without any model: what every instrument's software can do."""

from collections.abc import Callable

import numpy as np
import torch
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator
from scipy.spatial import QhullError, cKDTree
from torch import Tensor

from sensewise.reconstruct.base import NOTHING, Reconstructor
from sensewise.sensors.base import Side
from sensewise.tokens import unpack

NEIGHBOURS = 10
Fill = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Points `(n, 2)`, their values `(n,)` and places `(m, 2)` to the values there `(m,)`."""


class Interpolation(Reconstructor):
    """Intensities `(B, 1, H, W)` from readings, picture by picture, on the CPU.

    Args:
        fill: `linear` or `inverse_distance`.
    """

    def __init__(self, fill: Fill) -> None:
        self.fill = fill

    def __call__(self, observation: Tensor, mask: Tensor, side: Side = NOTHING) -> Tensor:
        values, _, seen = unpack(observation.cpu())
        height, width = values.shape[2:]
        places = np.indices((height, width)).reshape(2, -1).T
        filled = []
        for picture, known in zip(values[:, 0], seen[:, 0], strict=True):
            found = self.fill(known.nonzero().numpy(), picture[known].double().numpy(), places)
            filled.append(torch.from_numpy(found).float().view(1, height, width))
        return torch.stack(filled).clamp(0, 1).to(observation.device)


def linear(points: np.ndarray, values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Linear on Delaunay triangles, the nearest reading's value outside of them."""
    nearest = NearestNDInterpolator(points, values)
    try:
        filled = np.asarray(LinearNDInterpolator(points, values)(places))
    except QhullError:  # fewer than three readings, or all on a line
        return np.asarray(nearest(places))
    outside = np.isnan(filled)
    filled[outside] = nearest(places[outside])
    return filled


def inverse_distance(points: np.ndarray, values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The mean of the ten nearest readings, weighted by one over their squared distance."""
    count = min(NEIGHBOURS, len(points))
    distance, index = cKDTree(points).query(places, k=count)
    weight = 1 / np.maximum(distance.reshape(-1, count), 1e-6) ** 2
    return np.asarray((weight * values[index.reshape(-1, count)]).sum(1) / weight.sum(1))
