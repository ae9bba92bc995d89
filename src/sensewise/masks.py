"""Masks with exact budgets.

A mask is boolean with shape `(B, K)`: True = measured. A budget is a fraction `s` of the `K` actions, or a count;
either way a mask holds exactly `count(budget, K)` ones. Nothing here knows about images, priors or policies.
"""

import math
from numbers import Integral, Real

import numpy as np
import torch
from scipy.ndimage import distance_transform_edt
from torch import Generator, Tensor

from sensewise.errors import BudgetError

UNNOTICED = 1e-30  # of a weight beside others of 1


def count(budget: float | int, num_actions: int) -> int:
    """The exact number of measurements, `round(s K)`.

    Args:
        budget: a fraction strictly between 0 and 1, or a whole number of measurements from 2 to `K - 1`.
        num_actions: `K`.
    """
    allowed = f"a fraction between 0 and 1 (such as 0.1) or a count from 2 to {num_actions - 1}"
    if isinstance(budget, bool) or not isinstance(budget, Real) or budget != budget:
        raise BudgetError(f"budget {budget!r} is not a number: give {allowed}")
    if 0 < budget < 1:
        k = round(budget * num_actions)
        if k == 0:
            raise BudgetError(f"budget {budget:g} of {num_actions} actions rounds to none: give {allowed}")
        return k
    if isinstance(budget, Integral) and 2 <= budget < num_actions:
        return int(budget)
    raise BudgetError(f"budget {budget} is not possible: give {allowed}")


def step_sizes(total: int, steps: int) -> list[int]:
    """`total` measurements over `steps` steps, as even as whole numbers allow."""
    if isinstance(steps, bool) or not isinstance(steps, Integral) or steps < 1:
        raise BudgetError(f"steps must be a whole number of at least 1, got {steps!r}")
    if steps > total:
        raise BudgetError(f"{steps} steps need at least {steps} measurements, but the budget leaves {total}")
    return [total * (r + 1) // steps - total * r // steps for r in range(steps)]


def top_k(scores: Tensor, k: int) -> Tensor:
    """The `k` highest scores of each row, as a mask `(B, K)`."""
    mask = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
    return mask.scatter_(1, scores.topk(k, dim=1, sorted=False).indices, True)


def bottom_k(values: Tensor, count: Tensor) -> Tensor:
    """The `count[b]` lowest values of each row `b`, as a mask `(B, K)`; infinite values are never chosen."""
    rank = values.argsort(dim=1).argsort(dim=1)
    return (rank < count[:, None]) & values.isfinite()


def random(batch: int, num_actions: int, k: int, generator: Generator) -> Tensor:
    """Uniform without replacement."""
    return top_k(uniform((batch, num_actions), generator), k)


def uniform(shape: tuple[int, ...], generator: Generator) -> Tensor:
    """Uniform noise on [0, 1), on the generator's device."""
    return torch.rand(shape, generator=generator, device=generator.device)


def gumbel(shape: tuple[int, ...], generator: Generator) -> Tensor:
    """Standard Gumbel noise: the top-k of `log w + gumbel` is a draw without replacement with weights `w`."""
    return -torch.log(torch.empty(shape, device=generator.device).exponential_(generator=generator))


def nearness(side: int, sigma: float, device: torch.device | None = None) -> Tensor:
    """`exp(-d^2 / 2 sigma^2)` between all places along a side, `(side, side)`.

    What no sum in float32 would notice is 0: products of numbers below the normal range take ten times as long.
    """
    place = torch.arange(side, dtype=torch.float32, device=device)
    near = torch.exp(-((place[:, None] - place) ** 2) / (2 * sigma**2))
    return near.masked_fill(near < UNNOTICED, 0.0)


def around(values: Tensor, shape: tuple[int, int], reach: float) -> Tensor:
    """Sums over each pixel's neighbourhood, weights falling as a Gaussian of width `reach`; `(B, H W)` to the same."""
    height, width = shape
    images = values.view(-1, height, width)
    rows, columns = nearness(height, reach, values.device), nearness(width, reach, values.device)
    return (rows @ images @ columns).flatten(1)


def plane(grid: tuple[int, ...]) -> tuple[int, int]:
    """How places lie to each other, `(H, W)`: rows have a width of 1, repeated readings of a pixel lie in one place."""
    height, width = grid[-2:] if len(grid) > 1 else (grid[0], 1)
    return height, width


def room(mask: Tensor, shape: tuple[int, int]) -> Tensor:
    """The distance of each pixel to the nearest measured one, in pixels; 1 where nothing is measured.

    Args:
        mask: True where measured, with shape `(B, H W)`.

    Returns:
        float32, same shape; 0 where measured.
    """
    if mask.is_meta:
        return torch.ones(mask.shape, device=mask.device)
    images = mask.view(-1, *shape).cpu().numpy()
    sizes = [_distances(image) if image.any() else np.ones(shape, dtype=np.float32) for image in images]
    return torch.from_numpy(np.stack(sizes)).flatten(1).to(mask.device)


def _distances(image: np.ndarray) -> np.ndarray:
    """From each pixel to the nearest that is True; from SciPy's places, whose own distances take 50 bytes per pixel."""
    rows, columns = distance_transform_edt(~image, return_distances=False, return_indices=True)
    rows -= np.arange(image.shape[0], dtype=rows.dtype)[:, None]
    columns -= np.arange(image.shape[1], dtype=columns.dtype)
    return np.sqrt((rows * rows + columns * columns).astype(np.float32))


def spread_top_k(
    scores: Tensor, k: int | Tensor, shape: tuple[int, int], damping: float | Tensor, sigma: float | Tensor
) -> Tensor:
    r"""The highest score, then the highest after scores around it were damped, and so on, `k` times.

    A pick at distance d multiplies a score by $1 - \rho e^{-d^2 / 2 \sigma^2}$, $\rho$ the damping. In float32 that is
    exactly 1 beyond 5.9 sigma, so a pick only ever touches a window: large images are updated window by window, small
    ones whole, all of a batch at a time. Both give the same picks, the first of equal scores in raster order.

    Args:
        scores: at least 0, or -inf for what may not be picked, with shape `(B, H W)`.
        k: how many, as `damping` and `sigma` one number, or one for each row, with shape `(B,)`.
    """
    if scores.device.type != "cpu" or (len(scores) > 1 and scores.shape[1] < WINDOWED):
        return _spread_whole(scores, k, shape, damping, sigma)
    settings = [torch.as_tensor(value).expand(len(scores)).tolist() for value in (k, damping, sigma)]
    chosen = torch.zeros(scores.shape, dtype=torch.bool)
    for image, (count, strength, width) in enumerate(zip(*settings, strict=True)):
        left = scores[image].view(shape).float().numpy().copy()
        chosen[image, _spread_windows(left, int(count), _window(strength, width, max(shape)))] = True
    return chosen


WINDOWED = 48 * 48  # pixels from which on windows are faster than whole maps; for one image they always are


def _window(damping: float, sigma: float, side: int) -> np.ndarray:
    """What a pick multiplies its surroundings by, out to where the factor rounds to 1; `(2 r + 1, 2 r + 1)`."""
    radius = math.ceil(sigma * math.sqrt(2 * math.log(max(damping * 2**25, 1.0)))) if damping > 0 else 0
    offset = torch.arange(-min(radius, side - 1), min(radius, side - 1) + 1)
    near = torch.exp(-0.5 / torch.tensor(sigma, dtype=torch.float32) ** 2 * offset**2)
    return (1 - (damping * near)[:, None] * near).numpy()


def _spread_windows(left: np.ndarray, count: int, factors: np.ndarray) -> Tensor:
    """Places in raster order of the picks of one image `(H, W)`, whose scores are used up."""
    height, width = left.shape
    radius = len(factors) // 2
    highest = left.max(axis=1)  # (H,), kept up to date
    picks = []
    for _ in range(min(count, left.size)):
        row = int(highest.argmax())
        if highest[row] == -np.inf:
            break
        column = int(left[row].argmax())
        picks.append(row * width + column)
        top, bottom = max(row - radius, 0), min(row + radius + 1, height)
        first, last = max(column - radius, 0), min(column + radius + 1, width)
        rows = slice(top - row + radius, bottom - row + radius)
        columns = slice(first - column + radius, last - column + radius)
        left[top:bottom, first:last] *= factors[rows, columns]
        left[row, column] = -np.inf
        left[top:bottom].max(axis=1, out=highest[top:bottom])
    return torch.tensor(picks, dtype=torch.int64)


def _spread_whole(
    scores: Tensor, k: int | Tensor, shape: tuple[int, int], damping: float | Tensor, sigma: float | Tensor
) -> Tensor:
    """One pick of every image at a time, on the whole maps."""
    (height, width), left, batch = shape, scores.clone(), len(scores)
    rows, columns = torch.arange(height, device=scores.device), torch.arange(width, device=scores.device)

    def per_row(value: float | Tensor) -> Tensor:
        return torch.as_tensor(value, dtype=scores.dtype, device=scores.device).expand(batch)[:, None]

    wanted, strength, scale = per_row(k), per_row(damping), -0.5 / per_row(sigma) ** 2
    chosen = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
    most = k if isinstance(k, int) else int(k.max()) if batch else 0
    for picked in range(most):
        best, pick = left.max(1, keepdim=True)  # (B, 1)
        chosen.scatter_(1, pick, ((best > -torch.inf) & (wanted > picked)) | chosen.gather(1, pick))
        near_row = strength * torch.exp(scale * (rows - pick // width) ** 2)  # (B, H)
        near_column = torch.exp(scale * (columns - pick % width) ** 2)  # (B, W)
        left *= 1 - (near_row.unsqueeze(2) * near_column.unsqueeze(1)).flatten(1)
        left.scatter_(1, pick, -torch.inf)
    return chosen


def joint_top_k(scores: Tensor, k: int | Tensor, correlation: Tensor) -> Tensor:
    r"""The highest score, then the highest of what the picks before it leave of each score, and so on, `k` times.

    Given the picks $S$, a score counts as much as is left of its variance, $1 - \rho_{iS} \rho_{SS}^{-1} \rho_{Si}$, in
    a Gaussian of this correlation $\rho$: the Schur complement, kept up to date by a pivoted Cholesky decomposition.
    Repetitions are counted once: what two picks say together is not taken off twice.

    Args:
        scores: at least 0, or -inf for what may not be picked, with shape `(B, K)`.
        k: how many; one number, or one for each row, with shape `(B,)`.
        correlation: symmetric, without negative eigenvalues, 1 on the diagonal, with shape `(B, K, K)`.
    """
    row = torch.arange(len(scores), device=scores.device)
    wanted = torch.as_tensor(k, device=scores.device).expand(len(scores))
    most = k if isinstance(k, int) else scores.shape[1] if k.is_meta else int(k.max()) if len(k) else 0
    chosen = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
    offered, rest = ~scores.isneginf(), torch.ones_like(scores)
    factor = scores.new_zeros(len(scores), most, scores.shape[1])  # (B, k, K): rows of the Cholesky factor
    for picked in range(most):
        left = torch.where(offered, scores * rest, -torch.inf)
        best, pick = left.max(1)  # (B,)
        chosen[row, pick] |= (best > -torch.inf) & (wanted > picked)
        known = (factor[row, :picked, pick].unsqueeze(1) @ factor[:, :picked]).squeeze(1)  # (B, K)
        own = rest[row, pick].clamp(min=SINGULAR).sqrt().unsqueeze(1)
        factor[:, picked] = (correlation[row, pick] - known) / own
        rest = (rest - factor[:, picked].square()).clamp(min=0)
        offered[row, pick] = False
    return chosen


SINGULAR = 1e-4  # of a variance: less than this is left only by rounding


def logistic(shape: tuple[int, ...], generator: Generator) -> Tensor:
    """Standard logistic noise: `logits + logistic > 0` is a Bernoulli draw with probability `sigmoid(logits)`."""
    return logistic_from(uniform(shape, generator))


def logistic_from(u: Tensor) -> Tensor:
    """Uniform noise made logistic."""
    u = u.clamp(1e-7, 1 - 1e-7)
    return u.log() - (-u).log1p()


def centre_log_density(height: int, width: int, sigma: float) -> Tensor:
    """Log-weights that decay from the centre, `-r^2 / (2 sigma^2)` with `r = 1` at the middle of an edge; `(H W,)`."""
    rows = torch.linspace(-1, 1, height).view(-1, 1) if height > 1 else torch.zeros(1, 1)
    columns = torch.linspace(-1, 1, width).view(1, -1) if width > 1 else torch.zeros(1, 1)
    return (-(rows**2 + columns**2) / (2 * sigma**2)).flatten()


def variable_density(batch: int, shape: tuple[int, int], k: int, generator: Generator, *, sigma: float = 0.5) -> Tensor:
    """Pixels drawn without replacement from a Gaussian density around the image centre, redrawn for each image."""
    log_density = centre_log_density(*shape, sigma)
    return top_k(log_density + gumbel((batch, log_density.numel()), generator), k)


def _grid_cells(shape: tuple[int, int], k: int) -> Tensor:
    """`k` disjoint rectangles that tile an image, as `(k, 4)`: first row, first column, rows, columns."""
    height, width = shape
    bands = min(height, max(round(math.sqrt(k * height / width)), math.ceil(k / width), 1))
    cells = []
    for band, columns in enumerate(step_sizes(k, min(bands, k))):
        top, bottom = height * band // min(bands, k), height * (band + 1) // min(bands, k)
        for column in range(columns):
            left, right = width * column // columns, width * (column + 1) // columns
            cells.append((top, left, bottom - top, right - left))
    return torch.tensor(cells)


def regular_grid(shape: tuple[int, int], k: int) -> Tensor:
    """The middle pixel of each of `k` cells that tile the image, bool `(H W,)`."""
    top, left, rows, columns = _grid_cells(shape, k).unbind(1)  # (k,)
    mask = torch.zeros(shape[0] * shape[1], dtype=torch.bool)
    mask[(top + rows // 2) * shape[1] + left + columns // 2] = True
    return mask


def jittered_grid(batch: int, shape: tuple[int, int], k: int, generator: Generator) -> Tensor:
    """One random pixel in each of `k` cells that tile the image: even coverage without a fixed lattice."""
    top, left, rows, columns = _grid_cells(shape, k).unbind(1)  # (k,)
    jitter = torch.rand(2, batch, k, generator=generator)
    row = top + (jitter[0] * rows).long().clamp(max=rows - 1)  # (B, k)
    column = left + (jitter[1] * columns).long().clamp(max=columns - 1)  # (B, k)
    mask = torch.zeros(batch, shape[0] * shape[1], dtype=torch.bool)
    return mask.scatter_(1, row * shape[1] + column, True)


def sample_on_budget(logits: Tensor, k: int, generator: Generator) -> Tensor:
    """A draw of independent keep decisions, moved onto the budget: the top-k of log-odds plus logistic noise.

    It is a Bernoulli draw's own noise with its threshold moved so that exactly `k` are kept (paper, Appendix A).

    Args:
        logits: log-odds of keeping, with shape `(B, K)`.
    """
    return top_k(logits + logistic((logits.shape[0], logits.shape[1]), generator), k)


def bernoulli(logits: Tensor, generator: Generator) -> Tensor:
    """A plain draw of independent keep decisions, `(B, K)`: on budget only on average, if at all. For comparison."""
    return logits + logistic((logits.shape[0], logits.shape[1]), generator) > 0
