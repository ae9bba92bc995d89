"""Your own images as a data set: a folder of pictures or an array becomes tokens with labels and three splits.

A data set is a folder with `dataset.json` (what it is) and `images.npz` (tokens and labels; training images first, then
validation, then test). Images that are the same after scaling are kept once, so that no test image was trained on.
"""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sensewise.data.arrays import LARGEST_UNPACKED, load_arrays
from sensewise.data.pictures import find_pictures, fit, read_array, read_picture, scaled
from sensewise.data.scenes import SPLITS, Scenes, check_split
from sensewise.errors import CheckpointError, DataError
from sensewise.files import atomic, read_json, write_json
from sensewise.tokens import quantize

FEWEST = 20  # different images
AT_ONCE = 2_000_000  # pixels that are scaled together: as floats they stay in the cache
HELD_OUT = 0.1  # of the images, for validation and again for test
SIZES = range(24, 257, 8)  # below 24, a budget of 5% has fewer pixels than 16 steps need
LEVELS = range(2, 65)


@dataclass(frozen=True)
class Imported:
    """What an import found.

    Attributes:
        folder: of the data set.
        counts: images in each split.
        classes: names, or empty.
        notes: what a person should know: files left out, images that were the same.
    """

    folder: Path
    counts: dict[str, int]
    classes: tuple[str, ...]
    notes: tuple[str, ...]


def _from_folder(
    folder: Path, shape: tuple[int, int, int], levels: int, by_folder: bool
) -> Iterator[tuple[Tensor | None, str | None, str]]:
    """Tokens (None where a file cannot be read), class and the reason, file by file."""
    paths = find_pictures(folder, "**/*")
    _check_amount(len(paths), shape)
    for path in paths:
        place = path.relative_to(folder)
        name = place.parts[0] if by_folder and len(place.parts) > 1 else None
        try:
            yield quantize(read_picture(path, shape), levels).to(torch.uint8), name, ""
        except DataError as error:
            yield None, name, str(error)


def _gather(
    source: Path, shape: tuple[int, int, int], levels: int, by_folder: bool
) -> tuple[list[Tensor], list[str | None], list[str]]:
    """Every image as tokens, its class, and notes."""
    if source.is_dir():
        found = list(_from_folder(source, shape, levels, by_folder))
        bad = [reason for tokens, _, reason in found if tokens is None]
        notes = [f"{len(bad)} files were left out, such as {bad[0]}"] if bad else []
        good = [(tokens, name) for tokens, name, _ in found if tokens is not None]
        return [tokens for tokens, _ in good], [name for _, name in good], notes
    if source.suffix not in (".npy", ".npz"):
        raise DataError(f"{source} is not there, or is neither a folder of pictures nor an .npy or .npz array")
    values, labels = read_array(source)
    _check_amount(len(values), shape)
    names: list[str | None] = [None] * len(values) if labels is None else [str(label) for label in labels.tolist()]
    try:
        return [tokens for part in _parts(values) for tokens in _tokens(part, shape, levels)], names, []
    except DataError as error:
        raise DataError(f"{source}: {error}") from error


def _check_amount(count: int, shape: tuple[int, int, int]) -> None:
    """Refuse more images than a data set can hold, before any is read."""
    if count * math.prod(shape) > LARGEST_UNPACKED:
        most = LARGEST_UNPACKED // math.prod(shape)
        raise DataError(f"{count:,} images, and at most {most:,} of this size are taken: give fewer, or a smaller size")


def _parts(values: np.ndarray) -> Iterator[np.ndarray]:
    """Images some at a time, so that the memory stays small however many there are."""
    chunk = min(512, max(1, AT_ONCE // math.prod(values.shape[1:])))
    for first in range(0, len(values), chunk):
        yield values[first : first + chunk]


def _tokens(part: np.ndarray, shape: tuple[int, int, int], levels: int) -> Tensor:
    """Images `(n, c, h, w)` of an array as tokens, uint8 `(n, C, H, W)`."""
    images = torch.from_numpy(scaled(part))
    if shape[0] != images.shape[1]:
        images = images.mean(1, keepdim=True).expand(-1, shape[0], -1, -1)
    return quantize(fit(images, shape), levels).to(torch.uint8)


def _distinct(images: list[Tensor], notes: list[str]) -> list[int]:
    """Indices of the first of each group of equal images; refuses too few."""
    first: dict[bytes, int] = {}
    for index, tokens in enumerate(images):
        first.setdefault(hashlib.sha256(tokens.numpy().tobytes()).digest(), index)
    if len(first) == 1 and len(images) > 1:
        raise DataError(f"all {len(images)} images are the same after scaling: there is nothing to learn")
    if len(first) < FEWEST:
        raise DataError(f"{len(first)} different images: at least {FEWEST} are needed to learn from")
    if len(first) < len(images):
        notes.append(f"{len(images) - len(first)} images were the same as another one and are left out")
    return sorted(first.values())


def import_images(
    source: Path,
    out: Path,
    *,
    size: int = 32,
    levels: int = 4,
    labels: str | None = None,
    colour: bool = False,
    licence: str = "",
    seed: int = 0,
) -> Imported:
    """Make a data set in `out`.

    Args:
        source: a folder of pictures, or an `.npy` / `.npz` array.
        size: of the square images, a multiple of 8 from 24 on.
        levels: data states `N` per channel.
        labels: "folders" to take the first folder below `source` as the class, or None.
        colour: keep three channels instead of grey.
        licence: of the images, for the prior's card.
        seed: of the splits.
    """
    if size not in SIZES or levels not in LEVELS:
        raise DataError(f"size must be a multiple of 8 from {SIZES[0]} to {SIZES[-1]}, and levels 2 to {LEVELS[-1]}")
    if labels not in (None, "folders"):
        raise DataError(f"labels {labels!r} is not known: leave it out, or give folders")
    if (out / "dataset.json").exists():
        raise DataError(f"{out} holds a data set already: choose another folder with --out")
    shape = (3 if colour else 1, size, size)
    images, names, notes = _gather(source, shape, levels, labels == "folders")
    if not images:
        raise DataError(f"no picture that can be read in {source}" + (f": {notes[0]}" if notes else ""))
    kept = _distinct(images, notes)
    order = [kept[i] for i in torch.randperm(len(kept), generator=torch.Generator().manual_seed(seed)).tolist()]
    classes, codes = _classes([names[i] for i in order], notes)
    tokens = torch.stack([images[i] for i in order])
    held = max(1, round(HELD_OUT * len(order)))
    counts = {"train": len(order) - 2 * held, "validation": held, "test": held}
    about = {"name": out.name, "num_states": levels, "classes": list(classes), "licence": licence, "counts": counts}
    _write(out, tokens, codes, about | {"source": str(source), "notes": notes})
    return Imported(out, counts, classes, tuple(notes))


def _classes(names: list[str | None], notes: list[str]) -> tuple[tuple[str, ...], list[int]]:
    """Class names in order and each image's number; none unless every image has one and there are two or more."""
    classes = tuple(sorted({name for name in names if name is not None}))
    if len(classes) == 1:
        notes.append(f"there is one class only ({classes[0]}): labels are left out")
    if len(classes) > 1 and None in names:
        notes.append(f"{names.count(None)} images lie in no class folder: labels are left out")
    if len(classes) < 2 or None in names:
        return (), []
    return classes, [classes.index(name) for name in names if name is not None]


def _write(out: Path, tokens: Tensor, codes: list[int], about: dict[str, Any]) -> None:
    with atomic(out / "images.npz") as temporary:
        arrays = {"tokens": tokens.numpy(), "labels": np.array(codes, dtype=np.int64)}
        np.savez_compressed(temporary, allow_pickle=False, **arrays)
    write_json(out / "dataset.json", about)


def is_imported(folder: str | Path | None) -> bool:
    """Whether a folder is a data set that was imported."""
    return folder is not None and (Path(folder) / "dataset.json").is_file()


def _check(about: dict[str, Any], tokens: np.ndarray, labels: np.ndarray) -> None:
    """Refuse arrays that are not what `dataset.json` says."""
    counts, states, classes = [about["counts"][name] for name in SPLITS], about["num_states"], len(about["classes"])
    if not all(isinstance(n, int) and n >= 1 for n in counts) or sum(counts) != len(tokens):
        raise ValueError(f"{len(tokens)} images, and splits of {counts}")
    if not isinstance(about["name"], str) or not isinstance(about["licence"], str):
        raise ValueError("name and licence must be text")
    if states not in LEVELS:
        raise ValueError(f"num_states must be 2 to {LEVELS[-1]}, got {states!r}")
    if tokens.dtype != np.uint8 or tokens.ndim != 4 or not 1 <= tokens.min() <= tokens.max() <= states:
        raise ValueError(f"tokens must be bytes 1..{states} of shape (n, C, H, W), got {tokens.dtype} {tokens.shape}")
    if labels.dtype != np.int64 or labels.shape != (len(tokens) if classes else 0,):
        raise ValueError(f"{len(tokens)} images of {classes} classes, and labels of shape {labels.shape}")
    if classes and not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(f"labels must be 0..{classes - 1}")


def load_imported(folder: str | Path, split: str) -> Scenes:
    """One split of an imported data set."""
    check_split(split)
    folder = Path(folder)
    if not is_imported(folder):
        raise DataError(f"{folder} holds no data set: make one with `sensewise data import`")
    try:
        about = read_json(folder / "dataset.json")
        arrays = load_arrays(folder / "images.npz")
        tokens, labels = arrays["tokens"], arrays["labels"]
        _check(about, tokens, labels)
        counts = [about["counts"][name] for name in SPLITS]
        first = sum(counts[: SPLITS.index(split)])
        part = slice(first, first + about["counts"][split])
        known = len(about["classes"]) or None
        return Scenes(
            name=about["name"],
            split=split,
            values=torch.from_numpy(tokens[part]),
            labels=torch.from_numpy(labels[part]) if known else None,
            num_states=about["num_states"],
            num_labels=known,
            licence=about["licence"],
        )
    except (ValueError, KeyError, TypeError, CheckpointError, DataError) as error:
        raise DataError(f"{folder} is not a complete data set: {error}") from error
