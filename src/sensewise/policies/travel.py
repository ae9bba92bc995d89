"""In which order to visit places: short paths, their length, and which places are not worth their detour.

Pure functions of places `(n, 2)` and the Euclidean distance between them, in pixels. A path is open: it may begin where
the last one ended, and ends anywhere. Nearest neighbour, then 2-opt; the order given is kept if neither beats it.
"""

import numpy as np

from sensewise import masks

WINDOW = 512  # places untangled at a time: a table of all distances of more of them would grow too large
FEW = 64  # places up to which two first guesses are tried
MANY = 2048  # places from which on nearest neighbours take too long to find
NEAR = 8  # places near each one that long paths try first
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
    rows, columns = points.T.astype(np.float64)  # (n,) each: the quickest to compute with
    row, column = points[0] if start is None else start
    left, order = rows.copy(), np.empty(len(points), dtype=np.int64)
    for turn in range(len(points)):
        down, right = left - row, columns - column
        order[turn] = chosen = (down * down + right * right).argmin()
        row, column, left[chosen] = rows[chosen], columns[chosen], np.inf
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
    down, right = (side[:, None] - side for side in nodes.T)
    distance = np.sqrt(down * down + right * right)  # (n + 2, n + 2)
    for node, end in ((0, before), (count + 1, after)):
        if end is None:
            distance[node] = distance[:, node] = 0.0
    path = np.arange(count + 2)
    near = np.argpartition(distance, NEAR, axis=1)[:, : NEAR + 1] if count > FEW else None  # (n + 2, NEAR + 1)
    for _ in range(ROUNDS):
        best, gain = _all_moves(distance, path) if near is None else _near_moves(distance, path, near)
        moves = _disjoint(best, gain)
        for first, last in moves:
            path[first + 1 : last + 1] = path[first + 1 : last + 1][::-1]
        if not moves and near is None:
            break
        near = near if moves else None  # what is left is looked for everywhere
    return path[1:-1] - 1


def _all_moves(distance: np.ndarray, path: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For every edge of a path where a reversal may begin, the best edge for its end, and what that saves."""
    along = distance[np.ix_(path, path)]
    edges = along.diagonal(1)  # (n + 1,)
    saved = np.triu(edges[:, None] + edges - along[:-1, :-1] - along[1:, 1:], k=1)
    best = saved.argmax(axis=1)
    return best, saved[np.arange(len(saved)), best]


def _near_moves(distance: np.ndarray, path: np.ndarray, near: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same among reversals that join a place to one of those near it: a small part of all."""
    place = np.empty_like(path)  # of every node along the path
    place[path] = np.arange(len(path))
    here, there = place[:, None], place[near]
    first, last = np.minimum(here, there).ravel(), np.maximum(here, there).ravel()
    first, last = np.concatenate([first, first - 1]), np.concatenate([last, last - 1])  # beginnings joined, or ends
    fits = (first >= 0) & (last < len(path) - 1) & (first < last)
    first, last = first[fits], last[fits]
    a, b, c, d = path[first], path[first + 1], path[last], path[last + 1]
    saved = distance[a, b] + distance[c, d] - distance[a, c] - distance[b, d]
    order = np.argsort(saved)  # of several ends the best is written last
    best, gain = np.zeros(len(path) - 1, dtype=np.int64), np.zeros(len(path) - 1)
    best[first[order]], gain[first[order]] = last[order], saved[order]
    return best, gain


def _disjoint(best: np.ndarray, gain: np.ndarray) -> list[tuple[int, int]]:
    """The reversals of a round, best first, none of which shares an edge or a piece with another."""
    taken = np.zeros(len(best) + 1, dtype=bool)
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
