"""In which order to visit places: short paths, their length, and which places are not worth their detour.

Pure functions of places `(n, 2)` and the Euclidean distance between them, in pixels. A path is open: it may begin where
the last one ended, and ends anywhere. Nearest neighbour, then 2-opt; the order given is kept if neither beats it.
"""

import numpy as np

from sensewise import masks

WINDOW = 512  # places untangled at a time: a table of all distances of more of them would grow too large
FEW = 64  # places up to which two first guesses are tried
MANY = 2048  # places from which on nearest neighbours take too long to find
ROUNDS = 64  # of moves that do not touch each other; a dozen or two are enough


def places(actions: np.ndarray, grid: tuple[int, ...]) -> np.ndarray:
    """Where actions lie on a grid, see `masks.plane`: rows and columns, `(n, 2)`."""
    height, width = masks.plane(grid)
    return np.stack(np.divmod(actions % (height * width), width), axis=-1)


def length(points: np.ndarray) -> float:
    """Length of the path through places `(n, 2)` in the order given."""
    return float(np.linalg.norm(np.diff(points.astype(np.float64), axis=0), axis=1).sum())


def short_path(points: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    """An order `(n,)` of places `(n, 2)` that makes a short path; never a longer one than the order given.

    Args:
        start: where the path comes from, `(2,)`; None lets it begin anywhere.
    """
    given = np.arange(len(points))
    if len(points) < 2:
        return given
    first_guess = _nearest_neighbours(points, start) if len(points) <= MANY else _strips(points)
    orders = [_untangle(points, first_guess, start), given]
    if len(points) <= FEW:
        orders.append(_untangle(points, given, start))
    return min(orders, key=lambda order: _total(points[order], start))


def _total(points: np.ndarray, start: np.ndarray | None) -> float:
    return length(points if start is None else np.concatenate([start[None], points]))


def _nearest_neighbours(points: np.ndarray, start: np.ndarray | None) -> np.ndarray:
    """Always on to the nearest place that is left, the first of equal ones."""
    left = points.astype(np.float64)
    here = left[0] if start is None else start
    order = np.empty(len(points), dtype=np.int64)
    for turn in range(len(points)):
        order[turn] = np.square(left - here).sum(axis=1).argmin()
        here = points[order[turn]]
        left[order[turn]] = np.inf
    return order


def _strips(points: np.ndarray) -> np.ndarray:
    """Strip by strip, there and back: at most some 30% longer than the shortest path of many random places."""
    sides = np.ptp(points, axis=0) + 1
    strip = np.sqrt(3 * sides.prod() / len(points))
    number = (points[:, 0] // strip).astype(np.int64)
    return np.lexsort((np.where(number % 2, -points[:, 1], points[:, 1]), number))


def _untangle(points: np.ndarray, order: np.ndarray, start: np.ndarray | None) -> np.ndarray:
    """2-opt on a whole path, or on overlapping windows of a long one."""
    order = order.copy()
    for first in range(0, max(len(order) - WINDOW // 2, 1), WINDOW // 2):
        part = order[first : first + WINDOW]
        before = points[order[first - 1]] if first else start
        after = points[order[first + WINDOW]] if first + WINDOW < len(order) else None
        order[first : first + WINDOW] = part[_two_opt(points[part], before, after)]
    return order


def _two_opt(points: np.ndarray, before: np.ndarray | None, after: np.ndarray | None) -> np.ndarray:
    """Reverse pieces of a path while that makes it shorter; ends that are None are free.

    A free end is a place at no distance from any other, so that all pieces are alike. Moves of one round do not
    overlap: each saves what it would save alone.
    """
    count = len(points)
    ends = [points[0] if end is None else end for end in (before, after)]
    nodes = np.concatenate([ends[:1], points, ends[1:]]).astype(np.float64)  # (n + 2, 2)
    distance = np.linalg.norm(nodes[:, None] - nodes, axis=2)  # (n + 2, n + 2)
    for node, end in ((0, before), (count + 1, after)):
        if end is None:
            distance[node] = distance[:, node] = 0.0
    path = np.arange(count + 2)
    for _ in range(ROUNDS):
        along = distance[np.ix_(path, path)]
        edges = along.diagonal(1)  # (n + 1,)
        saved = np.triu(edges[:, None] + edges - along[:-1, :-1] - along[1:, 1:], k=1)
        moves = _disjoint(saved)
        if not moves:
            break
        for first, last in moves:
            path[first + 1 : last + 1] = path[first + 1 : last + 1][::-1]
    return path[1:-1] - 1


def _disjoint(saved: np.ndarray) -> list[tuple[int, int]]:
    """The best reversals of a round, best first, none of which shares an edge or a piece with another."""
    best = saved.argmax(axis=1)  # the best end for every beginning
    gain = saved[np.arange(len(saved)), best]
    taken = np.zeros(len(saved) + 1, dtype=bool)
    moves = []
    for first in np.argsort(-gain, kind="stable"):
        if gain[first] <= 1e-9:
            break
        piece = slice(first, best[first] + 1)
        if not taken[piece].any():
            taken[piece] = True
            moves.append((int(first), int(best[first])))
    return moves


def path(step: np.ndarray, grid: tuple[int, ...]) -> np.ndarray:
    """The actions of one scene in the order of a short path through each step, one step after the other; `(n,)`.

    Args:
        step: when each action was taken, negative for never, `(K,)`.
    """
    actions = np.empty(0, dtype=np.int64)
    for number in np.unique(step[step >= 0]):
        actions = np.concatenate([actions, onward(actions, np.flatnonzero(step == number), grid)])
    return actions


def onward(before: np.ndarray, actions: np.ndarray, grid: tuple[int, ...]) -> np.ndarray:
    """The `actions` of a step in the order of a short path that goes on from where those `before` ended."""
    start = places(before[-1:], grid)[0] if len(before) else None
    return actions[short_path(places(actions, grid), start)]


def drop_detours(points: np.ndarray, worth: np.ndarray, keep: int) -> np.ndarray:
    """Which `keep` of the places along a path to visit: those are dropped first that are worth least per detour.

    Args:
        points: places in the order of a path, `(n, 2)`.
        worth: what each is worth, at least 0, `(n,)`.

    Returns:
        Their numbers in the order of the path, `(keep,)`.
    """
    kept = np.arange(len(points))
    while len(kept) > keep:
        hops = np.linalg.norm(np.diff(points[kept].astype(np.float64), axis=0), axis=1)
        detour = np.concatenate([hops[:1], hops[:-1] + hops[1:], hops[-1:]])
        detour[1:-1] -= np.linalg.norm(points[kept[2:]] - points[kept[:-2]], axis=1)
        kept = np.delete(kept, (worth[kept] / (detour + 1.0)).argmin())  # a place on the way costs one reading too
    return kept
