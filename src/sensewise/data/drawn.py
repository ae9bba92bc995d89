"""Pictures drawn by code: text, stars, dots, lines, regions, shapes, soft blobs, surfaces, gratings, disks.

They bring into a training set what photographs have little of: flat grounds, small isolated things, sharp edges,
periodic patterns, surfaces as a scanning probe sees them. All are `TILE` x `TILE` intensities in [0, 1].
"""

from collections.abc import Callable
from pydoc_data import topics

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

TILE = 128  # pixels of a side
Draw = Callable[[np.random.Generator], np.ndarray]
WORDS = [word for topic in list(topics.topics.values())[:60] for word in topic.split() if word.isalpha()]


def fractal(rng: np.random.Generator, side: int, power: float) -> np.ndarray:
    """A random surface whose amplitudes fall as frequency to the `-power`, scaled to 0..1."""
    fy, fx = np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None]
    if rng.random() < 0.3:
        fx = fx * rng.uniform(1, 6)
    radius = np.sqrt(fx**2 + fy**2)
    radius[0, 0] = 1
    spectrum = rng.normal(size=radius.shape) + 1j * rng.normal(size=radius.shape)
    surface = np.fft.irfft2(spectrum * radius**-power, s=(side, side))
    surface -= surface.min()
    return surface / surface.max()


def ground(rng: np.random.Generator) -> np.ndarray:
    """Something to draw on: flat, a gradient, or a smooth surface."""
    kind = rng.random()
    level = rng.uniform(0, 1)
    if kind < 0.45:
        return np.full((TILE, TILE), level)
    y, x = np.mgrid[:TILE, :TILE] / TILE
    if kind < 0.7:
        a, b = rng.normal(size=2) * rng.uniform(0, 0.5)
        return np.clip(level + a * (x - 0.5) + b * (y - 0.5), 0, 1)
    amount = rng.uniform(0.02, 0.5)
    return np.clip(level + amount * (fractal(rng, TILE, rng.uniform(1.5, 3.5)) - 0.5), 0, 1)


def over(base: np.ndarray, cover: Image.Image | np.ndarray, ink: float | np.ndarray) -> np.ndarray:
    """`ink` where `cover` (0..255) is opaque."""
    alpha = np.asarray(cover, dtype=np.float64) / 255
    return base * (1 - alpha) + ink * alpha


def canvas(scale: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """Something to draw on that is `scale` times as large, and shrunk later."""
    image = Image.new("L", (TILE * scale, TILE * scale), 0)
    return image, ImageDraw.Draw(image)


def ink_for(rng: np.random.Generator, base: np.ndarray) -> float:
    """A level that differs from the ground, mostly by much."""
    level = float(base.mean())
    contrast = rng.uniform(0.08, 1) ** 0.6
    sign = 1 if level < 0.5 else -1
    if rng.random() < 0.15:
        sign = -sign
    return float(np.clip(level + sign * contrast, 0, 1))


def text(rng: np.random.Generator) -> np.ndarray:
    """Lines of words in one size, on a page or on any ground."""
    scale = int(rng.integers(2, 4))
    image, draw = canvas(scale)
    size = float(rng.uniform(6, 16) if rng.random() < 0.75 else rng.uniform(16, 60))
    font = ImageFont.load_default(max(6, round(size * scale)))
    pitch = size * rng.uniform(1.05, 1.9)
    margin, y = rng.uniform(-20, 30), rng.uniform(-size, 12)
    share = rng.uniform(0.3, 1)
    while y < TILE:
        if rng.random() < share:
            start = margin if rng.random() < 0.8 else rng.uniform(0, TILE)
            words = " ".join(WORDS[i] for i in rng.integers(len(WORDS), size=rng.integers(1, 12)))
            if rng.random() < 0.1:
                words = " ".join(str(v) for v in rng.integers(0, 10000, size=4))
            draw.text((start * scale, y * scale), words, fill=255, font=font)
        y += pitch
    if rng.random() < 0.3:
        image = image.rotate(rng.uniform(-8, 8), resample=Image.Resampling.BILINEAR)
    image = image.resize((TILE, TILE), Image.Resampling.BOX)
    if rng.random() < 0.3:
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 1.2)))
    base = ground(rng)
    if rng.random() < 0.6:  # a page: bright ground, dark ink
        base = 1 - 0.45 * base
    return over(base, image, ink_for(rng, base))


def spot(picture: np.ndarray, y: float, x: float, width: float, height: float, ratio: float, angle: float) -> None:
    """Add one Gaussian spot."""
    reach = int(np.ceil(4 * width)) + 1
    top, left = max(int(y) - reach, 0), max(int(x) - reach, 0)
    rows, columns = np.mgrid[top : min(int(y) + reach + 1, TILE), left : min(int(x) + reach + 1, TILE)]
    u = (columns - x) * np.cos(angle) + (rows - y) * np.sin(angle)
    v = (rows - y) * np.cos(angle) - (columns - x) * np.sin(angle)
    picture[rows, columns] += height * np.exp(-0.5 * ((u / width) ** 2 + (v / (width * ratio)) ** 2))


def stars(rng: np.random.Generator) -> np.ndarray:
    """Points and small extended things on a dark ground, from a few to thousands."""
    picture = rng.uniform(0, 0.12) + rng.uniform(0, 0.08) * fractal(rng, TILE, rng.uniform(1.5, 3))
    psf = rng.uniform(0.45, 1.4)
    many = np.exp(rng.uniform(np.log(2), np.log(2500)))
    share = rng.uniform(0, 0.5)
    for _ in range(int(many)):
        y, x = rng.uniform(0, TILE, 2)
        extended = rng.random() < share
        width = psf * rng.uniform(1.2, 5) if extended else psf
        brightness = min(1.2, 0.04 * rng.random() ** -rng.uniform(0.5, 1))
        spot(picture, y, x, width, brightness, rng.uniform(0.3, 1) if extended else 1.0, rng.uniform(0, np.pi))
    return np.clip(picture, 0, 1)


def dots(rng: np.random.Generator) -> np.ndarray:
    """A few small squares and spots."""
    picture = ground(rng)
    same = ink_for(rng, picture)
    size = rng.uniform(1, 5)
    for _ in range(int(np.exp(rng.uniform(0, np.log(60))))):
        y, x = rng.integers(0, TILE, 2)
        if rng.random() < 0.5:
            side = int(rng.integers(1, 5)), int(rng.integers(1, 5))
            picture[y : y + side[0], x : x + side[1]] = same if rng.random() < 0.7 else rng.uniform()
        else:
            spot(picture, y, x, size * rng.uniform(0.3, 1), (same - picture[y, x]) * rng.uniform(0.3, 1), 1.0, 0.0)
    return np.clip(picture, 0, 1)


def lines(rng: np.random.Generator) -> np.ndarray:
    """Straight and winding lines."""
    scale = 3
    image, draw = canvas(scale)
    wide = rng.uniform(0.7, 4)
    for _ in range(int(np.exp(rng.uniform(0, np.log(40))))):
        width = max(1, round(scale * wide * rng.uniform(0.6, 1.4)))
        if rng.random() < 0.5:
            ends = rng.uniform(-0.2, 1.2, 4) * TILE * scale
            draw.line(ends.tolist(), fill=255, width=width)
        else:  # a smooth walk
            heading, at, path = rng.uniform(0, 6.3), rng.uniform(0, TILE * scale, 2), []
            bend = rng.uniform(0.02, 0.3)
            for _ in range(int(rng.integers(10, 80))):
                heading += rng.normal() * bend
                at = at + 4 * scale * np.array([np.cos(heading), np.sin(heading)])
                path.append(tuple(at.tolist()))
            draw.line(path, fill=255, width=width, joint="curve")
    base = ground(rng)
    return over(base, image.resize((TILE, TILE), Image.Resampling.BOX), ink_for(rng, base))


def regions(rng: np.random.Generator) -> np.ndarray:
    """Cells of a Voronoi tessellation, flat or shaded; a few of them merged."""
    count = int(np.exp(rng.uniform(np.log(2), np.log(120))))
    y, x = np.mgrid[:TILE, :TILE].astype(np.float64)
    warp = rng.uniform(0, 20) * (rng.random() < 0.5)
    if warp:
        y = y + warp * (fractal(rng, TILE, 2.2) - 0.5)
        x = x + warp * (fractal(rng, TILE, 2.2) - 0.5)
    seeds = rng.uniform(-10, TILE + 10, (count, 2))
    distance = (y[..., None] - seeds[:, 0]) ** 2 + (x[..., None] - seeds[:, 1]) ** 2
    cell = distance.argmin(-1)
    tones = rng.uniform(0, 1, count)
    if rng.random() < 0.4:
        tones = rng.uniform(0, 1, int(rng.integers(2, 5)))[rng.integers(0, 2, count)]
    picture = tones[cell]
    if rng.random() < 0.4:
        slopes = rng.normal(size=(count, 2)) * rng.uniform(0, 0.01)
        picture = picture + slopes[cell, 0] * (y - TILE / 2) + slopes[cell, 1] * (x - TILE / 2)
    if rng.random() < 0.3:  # borders
        nearest = np.sort(distance, -1)[..., :2] if count > 1 else np.zeros((TILE, TILE, 2))
        edge = (np.sqrt(nearest[..., 1]) - np.sqrt(nearest[..., 0])) < rng.uniform(1, 4)
        picture = np.where(edge, rng.uniform(), picture)
    return np.clip(picture, 0, 1)


def shapes(rng: np.random.Generator) -> np.ndarray:
    """Polygons, boxes and ellipses on top of each other, each with its tone, some with a texture."""
    scale = 2
    picture = ground(rng)
    biggest = rng.uniform(0.08, 0.8)
    for _ in range(int(np.exp(rng.uniform(0, np.log(30))))):
        image, draw = canvas(scale)
        cy, cx = rng.uniform(0, TILE * scale, 2)
        ry, rx = rng.uniform(0.02, 1, 2) * biggest * TILE * scale / 2 + 1
        kind = rng.integers(3)
        if kind == 0:
            draw.ellipse((cx - rx, cy - ry, cx + rx, cy + ry), fill=255)
        elif kind == 1:
            draw.rectangle((cx - rx, cy - ry, cx + rx, cy + ry), fill=255)
        else:
            angles = np.sort(rng.uniform(0, 2 * np.pi, rng.integers(3, 8)))
            draw.polygon([(cx + rx * np.cos(a), cy + ry * np.sin(a)) for a in angles], fill=255)
        ink = rng.uniform() if rng.random() < 0.7 else ground(rng)
        picture = over(picture, image.resize((TILE, TILE), Image.Resampling.BOX), ink)
    return picture


def blobs(rng: np.random.Generator) -> np.ndarray:
    """Soft things such as cells: sums of wide spots."""
    picture = rng.uniform(0, 0.3) * np.ones((TILE, TILE))
    size = np.exp(rng.uniform(np.log(2), np.log(25)))
    for _ in range(int(np.exp(rng.uniform(0, np.log(40))))):
        y, x = rng.uniform(0, TILE, 2)
        spot(picture, y, x, size * rng.uniform(0.5, 1.5), rng.uniform(-0.3, 1), rng.uniform(0.4, 1), rng.uniform(0, 3))
    if rng.random() < 0.3:
        picture = 1 / (1 + np.exp(-(picture - rng.uniform(0.2, 0.6)) * rng.uniform(5, 60)))
    picture = picture - picture.min()
    return picture / max(picture.max(), 1e-6)


def surfaces(rng: np.random.Generator) -> np.ndarray:
    """Fractal surfaces as a scanning probe sees them: terraces, grains, streaks along the fast axis."""
    picture = fractal(rng, TILE, rng.uniform(0, 3.2))
    kind = rng.random()
    if kind < 0.15:
        picture = (picture > np.quantile(picture, rng.uniform(0.1, 0.9))) * rng.uniform(0.3, 1) + rng.uniform(0, 0.2)
    elif kind < 0.3:
        picture = np.floor(picture * rng.uniform(3, 12)) / 8 + rng.uniform(0, 0.1) * fractal(rng, TILE, 1.5)
    elif kind < 0.5:
        picture = np.exp(rng.uniform(2, 12) * (picture - 1))
    elif kind < 0.6:
        picture = np.abs(picture - 0.5) ** rng.uniform(0.4, 1)
    if rng.random() < 0.25:
        picture = picture + rng.normal(size=(TILE, 1)) * rng.uniform(0, 0.04)
    picture = picture - picture.min()
    return picture / max(picture.max(), 1e-6)


def gratings(rng: np.random.Generator) -> np.ndarray:
    """Periodic patterns: waves, bricks, lattices of dots; a little irregular."""
    y, x = np.mgrid[:TILE, :TILE].astype(np.float64)
    bend = rng.uniform(0, 6) * (rng.random() < 0.5)
    y, x = y + bend * fractal(rng, TILE, 2.5), x + bend * fractal(rng, TILE, 2.5)
    angle, period = rng.uniform(0, np.pi), np.exp(rng.uniform(np.log(4), np.log(50)))
    u, v = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    kind = rng.integers(4)
    if kind == 0:
        picture = 0.5 + 0.5 * np.sin(2 * np.pi * u / period)
    elif kind == 1:
        picture = 0.25 * (2 + np.sin(2 * np.pi * u / period) + np.sin(2 * np.pi * v / period / rng.uniform(0.5, 2)))
    elif kind == 2:  # bricks
        height, wide, gap = period, period * rng.uniform(1.2, 3), rng.uniform(0.8, 3)
        row = np.floor(v / height)
        along = np.mod(u + (row % 2) * wide / 2, wide)
        tone = np.random.default_rng(int(rng.integers(1 << 30))).uniform(0.3, 1, 4096)
        brick = tone[(row.astype(int) * 57 + np.floor((u + (row % 2) * wide / 2) / wide).astype(int)) % 4096]
        joint = (np.mod(v, height) < gap) | (along < gap)
        picture = np.where(joint, rng.uniform(0, 0.4), 0.4 + rng.uniform(0, 0.6) * (brick - 0.5))
    else:
        picture = (np.mod(u, period) < rng.uniform(0.2, 0.8) * period).astype(np.float64)
    strength = rng.uniform(0.2, 1)
    return np.clip((1 - strength) * ground(rng) + strength * picture, 0, 1)


def disks(rng: np.random.Generator) -> np.ndarray:
    """Round things with relief, such as coins or grains, on a shaded ground."""
    picture = ground(rng)
    y, x = np.mgrid[:TILE, :TILE].astype(np.float64)
    size = np.exp(rng.uniform(np.log(3), np.log(28)))
    for _ in range(int(rng.integers(2, 26))):
        cy, cx = rng.uniform(0, TILE, 2)
        radius = size * rng.uniform(0.7, 1.3)
        distance = np.hypot(y - cy, x - cx)
        alpha = np.clip(radius - distance + 0.5, 0, 1)
        relief = fractal(rng, TILE, rng.uniform(0.8, 2.5)) * rng.uniform(0, 0.9)
        rim = rng.uniform(0, 0.5) * np.exp(-(((distance - 0.85 * radius) / 1.2) ** 2))
        picture = picture * (1 - alpha) + alpha * np.clip(rng.uniform(0, 0.7) + relief + rim, 0, 1)
    return np.clip(picture, 0, 1)


def collage(rng: np.random.Generator) -> np.ndarray:
    """Two pictures in one, each with its own contrast: what holds in one part does not hold in the other."""
    kinds = [name for name in DRAWN if name != "collage"]
    one, other = (DRAWN[kinds[rng.integers(len(kinds))]][0](rng) for _ in range(2))
    for picture in (one, other):
        span = rng.uniform(0.05, 1)
        picture *= span
        picture += rng.uniform(0, 1 - span)
    border = fractal(rng, TILE, rng.uniform(2, 3.5))
    cover = border > np.quantile(border, rng.uniform(0.1, 0.9))
    return np.where(cover, one, other)


def flat(rng: np.random.Generator) -> np.ndarray:
    """Nearly nothing: a ground, sometimes with a single thing on it."""
    picture = ground(rng)
    if rng.random() < 0.5:
        y, x = rng.integers(0, TILE - 12, 2)
        picture[y : y + rng.integers(1, 13), x : x + rng.integers(1, 13)] = rng.uniform()
    return picture


DRAWN: dict[str, tuple[Draw, float]] = {
    "text": (text, 0.2),
    "stars": (stars, 0.12),
    "dots": (dots, 0.1),
    "lines": (lines, 0.08),
    "regions": (regions, 0.1),
    "shapes": (shapes, 0.1),
    "blobs": (blobs, 0.08),
    "surfaces": (surfaces, 0.14),
    "gratings": (gratings, 0.05),
    "disks": (disks, 0.06),
    "flat": (flat, 0.03),
    "collage": (collage, 0.12),
}
"""What is drawn, and its share."""


def drawn(count: int, seed: int) -> np.ndarray:
    """Pictures of all kinds, uint8 with shape `(count, TILE, TILE)`."""
    rng = np.random.default_rng(seed)
    draws, shares = zip(*DRAWN.values(), strict=True)
    kinds = rng.choice(len(draws), size=count, p=np.array(shares) / sum(shares))
    return np.stack([as_bytes(draws[kind](rng)) for kind in kinds])


def as_bytes(picture: np.ndarray) -> np.ndarray:
    """Intensities as 8-bit numbers."""
    return np.clip(np.round(picture * 255), 0, 255).astype(np.uint8)
