"""`sensewise acquire`: pictures from files, acquired greedily, with everything a person wants to see of them."""

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sensewise.checkpoint import load_prior, write_json
from sensewise.data import bundled_cifar10, bundled_mnist
from sensewise.data.pictures import read_picture
from sensewise.diffusion import sample
from sensewise.errors import DataError
from sensewise.experiments.record import record
from sensewise.figures import film as pictures
from sensewise.figures.film import Film
from sensewise.figures.style import save
from sensewise.priors import Prior
from sensewise.tokens import quantize

BUNDLED = {"digit": (bundled_mnist, 2560, "mnist"), "photo": (bundled_cifar10, 512, "cifar10")}
"""What `NAME:N` means: the images, how many there are, and the prior for them."""


def bundled_kind(source: str) -> str | None:
    """ "digit" for `digit:N`, "photo" for `photo:N`, None for a path."""
    kind, colon, _ = source.partition(":")
    return kind if colon and kind in BUNDLED else None


def read_source(source: str, prior: Prior) -> Tensor:
    """A picture file, `digit:N` or `photo:N` for a bundled image, as tokens `(1, C, H, W)` of the prior's size."""
    kind = bundled_kind(source)
    if kind is None:
        return quantize(read_picture(Path(source), prior.shape), prior.num_states)[None]
    load, count, _ = BUNDLED[kind]
    number = source.partition(":")[2]
    if not number.isdecimal() or len(number) > 4 or int(number) >= count:
        raise DataError(f"{kind}:{number[:9]} is not possible: give {kind}:0 to {kind}:{count - 1}")
    return load(int(number) + 1)[slice(int(number), int(number) + 1)][0]


def acquire_image(
    source: str,
    budget: float | int,
    steps: int,
    label: int | None,
    prior_name: str | None,
    folder: Path,
    samples: int,
    seed: int,
    method: str | None = None,
) -> str:
    """Acquire one picture, or every picture of a folder, and write what came of it.

    Mask, reconstruction, uncertainty, possible images, figure and animation go into `folder`, those of a folder of
    pictures into one folder each.

    Args:
        prior_name: None takes the bundled one for `digit:N` and `photo:N`, and that of digits for files.
        method: a key of `STRATEGIES`; None takes "greedy" for two levels and "spread-variance-greedy" for more.

    Returns:
        A sentence that says how it went.
    """
    kind = bundled_kind(source)
    prior = load_prior(prior_name or BUNDLED[kind or "digit"][2])
    method = method or ("greedy" if prior.num_states == 2 else "spread-variance-greedy")
    if kind or not Path(source).is_dir():
        return f"{_acquire_one(prior, method, source, budget, steps, label, folder, samples, seed)}: see {folder}"
    suffixes = set(Image.registered_extensions())
    paths = sorted(path for path in Path(source).iterdir() if path.suffix.lower() in suffixes)
    lines = []
    for path in paths:
        try:
            told = _acquire_one(prior, method, str(path), budget, steps, label, folder / path.name, samples, seed)
            lines.append(f"{path.name}: {told}")
        except DataError as error:
            lines.append(f"left out: {error}")
    if all(line.startswith("left out") for line in lines):
        raise DataError(f"no picture that can be read in {source}" + (f": {lines[0]}" if lines else ""))
    return "\n".join([*lines, f"See {folder}"])


def _acquire_one(
    prior: Prior,
    method: str,
    source: str,
    budget: float | int,
    steps: int,
    label: int | None,
    folder: Path,
    samples: int,
    seed: int,
) -> str:
    x, labels = read_source(source, prior), prior.known_label(label)
    film = record(prior, method, x, labels, budget, steps=steps, seed=seed)
    last = film.steps
    mask = film.mask(last)
    save(_npy(mask), folder / "mask.npy")
    save(pictures.png(mask), folder / "mask.png")
    rebuilt = pictures.rgb(film.reconstruction[last], 2) if film.levels == 2 else pictures.rebuilt(film, last)
    save(pictures.png(rebuilt), folder / "reconstruction.png")
    save(_npy(film.entropy[last]), folder / "uncertainty.npy")
    save(pictures.png(film.entropy[last] / max(float(film.entropy.max()), 1e-9)), folder / "uncertainty.png")
    save(pictures.sheet(film), folder / "steps.png")
    save(pictures.gif(film), folder / "animation.gif")
    if samples:
        save(_possible(prior, film, labels, samples, seed), folder / "samples.png")
    wrong, measured = int(film.errors[last]), int(mask.sum())
    outcome = {"measured": measured, "density": measured / mask.size, "steps": steps, "errors": wrong}
    outcome["expected_errors"] = round(float(film.expected_errors[last]), 4)
    outcome["nats_left"] = round(float(film.entropy[last].sum()), 4)
    told = f"{wrong} wrong in the reconstruction"
    if film.levels > 2:
        outcome["psnr"] = round(float(film.psnr[last]), 3)
        told = f"{pictures.verdict(film, last)} in the reconstruction"
    write_json(folder / "acquisition.json", outcome)
    return f"{measured} of {mask.size} pixels measured in {steps} steps, {told}"


def _possible(prior: Prior, film: Film, labels: Tensor | None, samples: int, seed: int) -> bytes:
    """Images that agree with what was measured, side by side, as PNG."""
    y = torch.from_numpy(film.observation(film.steps).astype(np.int64))[None]
    drawn = sample(prior, y, labels, torch.Generator().manual_seed(seed), samples=samples)[:, 0]  # (samples, C, H, W)
    framed = [
        np.pad(pictures.rgb(x.numpy(), film.levels), ((1, 1), (1, 1), (0, 0)), constant_values=0.5) for x in drawn
    ]
    sheet = np.concatenate(framed, axis=1)  # (H + 2, samples (W + 2), 3)
    return pictures.png(sheet, side=4 * sheet.shape[1])


def _npy(values: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=False)
    return buffer.getvalue()
