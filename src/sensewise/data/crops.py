"""Grey pictures of many sizes, and random crops of them: turned, mirrored, with another tone."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from PIL import Image

from sensewise.data.drawn import TILE
from sensewise.errors import DataError

SHARES = {"photograph": 0.4, "drawn": 0.32, "slices": 0.11, "cifar10": 0.08, "letters": 0.05, "clothes": 0.04}
"""How often a crop is taken from each kind; kinds that are not there leave their share to the others."""


@dataclass(frozen=True)
class Pictures:
    """Grey pictures of many sizes.

    Attributes:
        name: of the data set.
        split: "train" or "validation".
        licence: of the sources.
        photographs: by name, each at several sizes, largest first; uint8.
        tiles: by kind, uint8 `(n, TILE, TILE)`.
    """

    name: str
    split: str
    licence: str
    photographs: Mapping[str, tuple[np.ndarray, ...]]
    tiles: Mapping[str, np.ndarray]

    def crops(self, count: int, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
        """Random crops, turned, mirrored and with another tone; float32 in [0, 1] with shape `(count, 1, H, W)`."""
        shares = {kind: share for kind, share in SHARES.items() if kind in self.tiles}
        names = [name for name, levels in self.photographs.items() if min(levels[0].shape) >= max(shape)]
        shares |= {"photograph": SHARES["photograph"]} if names else {}
        if not shares or (not names and max(shape) > TILE):
            raise DataError(f"no picture of {self.name} is large enough for crops of {shape[0]} x {shape[1]}")
        kinds, weights = list(shares), np.array(list(shares.values()))
        return np.stack(
            [
                self._crop(kinds[kind], names, shape, rng)
                for kind in rng.choice(len(kinds), count, p=weights / weights.sum())
            ]
        )[:, None]

    def _crop(self, kind: str, names: list[str], shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
        if kind == "photograph":
            fits = [
                level for level in self.photographs[names[rng.integers(len(names))]] if min(level.shape) >= max(shape)
            ]
            weights = np.arange(1, len(fits) + 1.0)  # small ones, rich in detail, more often
            source = fits[rng.choice(len(fits), p=weights / weights.sum())]
        else:
            source = self.tiles[kind][rng.integers(len(self.tiles[kind]))]
        if rng.random() < 0.5:
            source = source.T
        top, left = (int(rng.integers(have - want + 1)) for have, want in zip(source.shape, shape, strict=True))
        crop = source[top : top + shape[0], left : left + shape[1]].astype(np.float32) / 255
        if rng.random() < 0.5:
            crop = crop[::-1]
        if rng.random() < 0.5:
            crop = crop[:, ::-1]
        return tone(crop, rng)

    def whole(self) -> np.ndarray:
        """Every photograph shrunk to a tile, and the tiles; float32 in [0, 1] with shape `(n, 1, TILE, TILE)`."""
        found = []
        for levels in self.photographs.values():
            side = min(levels[0].shape)
            top, left = ((have - side) // 2 for have in levels[0].shape)
            square = Image.fromarray(levels[0][top : top + side, left : left + side])
            found.append(np.asarray(square.resize((TILE, TILE), Image.Resampling.BOX)))
        found += [tile for tiles in self.tiles.values() for tile in tiles]
        if not found:
            raise DataError(f"{self.name} has no picture to look at while training")
        return np.stack(found).astype(np.float32)[:, None] / 255


def tone(crop: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Contrast, gamma, inversion, and now and then a grain that belongs to the picture."""
    way = rng.random()
    if way < 0.3:  # the full range
        low, high = crop.min(), crop.max()
        if high - low > 0.05:
            crop = (crop - low) / (high - low)
    elif way < 0.7:
        crop = crop ** np.float32(np.exp(rng.normal() * 0.35))
        span = rng.uniform(0.1, 1) ** 0.5
        crop = rng.uniform(0, 1 - span) + span * crop
    if rng.random() < 0.4:
        crop = 1 - crop
    if rng.random() < 0.12:
        grain = rng.normal(size=crop.shape) * np.exp(rng.uniform(np.log(0.003), np.log(0.08)))
        crop = np.clip(crop + grain, 0, 1)
    return np.ascontiguousarray(crop, dtype=np.float32)
