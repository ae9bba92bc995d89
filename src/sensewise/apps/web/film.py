"""A film: one acquisition as the page shows it, shot by shot. NumPy only; knows no model and no browser."""

import io
from dataclasses import dataclass, field

import numpy as np

from sensewise.report.figures import recording as pictures
from sensewise.report.figures.style import HIDDEN


@dataclass(frozen=True)
class Title:
    """What is known before anything is measured.

    Attributes:
        target: the truth to look at, uint8 `(C, H, W)`.
        grid: how the actions lie: `(H, W)` for pixels, `(rows,)` for rows of k-space.
        budget: actions, at most.
        steps: `R`, at most.
    """

    target: np.ndarray
    grid: tuple[int, ...]
    budget: int
    steps: int

    @property
    def nbytes(self) -> int:
        return self.target.nbytes


@dataclass(frozen=True)
class Shot:
    """What there is to see after one step.

    Attributes:
        actions: what was measured in this step, int32 `(n,)` in raster order.
        values: what it showed, uint8 `(n, C)`; for rows their k-space, `(n, W)`.
        picture: the reconstruction to look at, uint8 `(C, H, W)`.
        doubt: how uncertain each pixel is, uint8 `(H, W)` up to what the exhibit says; for rows their true error.
        numbers: by name.
        probs: of every state, `(C, H, W, N)`, where a pixel can be looked into; else None.
    """

    actions: np.ndarray
    values: np.ndarray
    picture: np.ndarray
    doubt: np.ndarray
    numbers: dict[str, float]
    probs: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        parts = (self.actions, self.values, self.picture, self.doubt, self.probs)
        return sum(part.nbytes for part in parts if part is not None)


@dataclass(frozen=True)
class Ending:
    """How it ended.

    Attributes:
        stopped: whether a stop ended it before the budget was spent.
        audit: pixels that said whether the prior fits; 0 where none were asked.
        ratio: how many times as wrong as the prior expected they were.
        fits: False if the prior does not know pictures like this one.
    """

    stopped: bool = False
    audit: int = 0
    ratio: float = 1.0
    fits: bool = True

    nbytes = 0


Event = Title | Shot | Ending


@dataclass(frozen=True)
class Film:
    """A whole acquisition; shot 0 is before the first step.

    Attributes:
        title: what was known beforehand.
        shots: one for the start and one for each step.
        ending: how it ended.
    """

    title: Title
    shots: tuple[Shot, ...]
    ending: Ending
    nbytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nbytes", sum(event.nbytes for event in self.events))

    @property
    def events(self) -> list[Event]:
        """All of it, in order."""
        return [self.title, *self.shots, self.ending]

    def mask(self, last: int | None = None) -> np.ndarray:
        """True where measured up to a shot, by default the last one; of the shape of the grid."""
        taken = np.zeros(int(np.prod(self.title.grid)), dtype=bool)
        for shot in self.shots if last is None else self.shots[: last + 1]:
            taken[shot.actions] = True
        return taken.reshape(self.title.grid)


def _seen(film: Film) -> list[np.ndarray]:
    """What was measured up to each shot, as pictures `(H, W, 3)` in [0, 1]."""
    _, height, width = film.title.target.shape
    rows = len(film.title.grid) == 1
    picture = np.tile(np.array(HIDDEN), (height * (1 if rows else width), width if rows else 1, 1))
    found = []
    for shot in film.shots:
        values = shot.values / 255
        picture[shot.actions] = values[:, :, None] if rows else values[:, None, :]
        found.append(picture.reshape(height, width, 3).copy())
    return found


def gif(film: Film) -> bytes:
    """The truth, what was measured of it, and the reconstruction, as a looping animation."""
    truth = _colour(film.title.target)
    panels = [[truth, seen, _colour(shot.picture)] for seen, shot in zip(_seen(film), film.shots, strict=True)]
    return pictures.animation(panels)


def picture_png(film: Film) -> bytes:
    """The last reconstruction, at its own size."""
    return pictures.png(_colour(film.shots[-1].picture))


def mask_png(film: Film) -> bytes:
    """What was measured in all: one pixel per pixel; rows as wide as the picture."""
    mask = film.mask()
    return pictures.png(mask if mask.ndim == 2 else np.repeat(mask[:, None], film.title.target.shape[2], axis=1))


def mask_npy(film: Film) -> bytes:
    """What was measured in all, bool."""
    buffer = io.BytesIO()
    np.save(buffer, film.mask(), allow_pickle=False)
    return buffer.getvalue()


def _colour(picture: np.ndarray) -> np.ndarray:
    """A picture `(C, H, W)` as `(H, W, 3)` in [0, 1]."""
    return np.moveaxis(picture[[0, 0, 0] if len(picture) < 3 else [0, 1, 2]], 0, 2) / 255
