"""`sensewise acquire`: pictures from files, acquired greedily, with everything a person wants to see of them."""

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sensewise.checkpoint import load_prior, write_json
from sensewise.data import bundled_mnist
from sensewise.data.pictures import read_picture
from sensewise.diffusion import sample
from sensewise.errors import DataError
from sensewise.experiments.record import record
from sensewise.figures import film as pictures
from sensewise.figures.film import Film
from sensewise.figures.style import save
from sensewise.priors import Prior
from sensewise.tokens import quantize


def read_source(source: str, prior: Prior) -> Tensor:
    """A picture file, or `digit:N` for a bundled digit, as tokens `(1, C, H, W)` of the prior's size."""
    if not source.startswith("digit:"):
        return quantize(read_picture(Path(source), prior.shape), prior.num_states)[None]
    number = source.removeprefix("digit:")
    if not number.isdecimal() or len(number) > 4:
        raise DataError(f"digit:{number[:9]} is not possible: give digit:0 to digit:2559")
    return bundled_mnist(int(number) + 1)[slice(int(number), int(number) + 1)][0]


def acquire_image(
    source: str,
    budget: float | int,
    steps: int,
    label: int | None,
    prior_name: str,
    folder: Path,
    samples: int,
    seed: int,
) -> str:
    """Acquire one picture, or every picture of a folder, and write what came of it.

    Mask, reconstruction, uncertainty, possible images, figure and animation go into `folder`, those of a folder of
    pictures into one folder each.

    Returns:
        A sentence that says how it went.
    """
    prior = load_prior(prior_name)
    if source.startswith("digit:") or not Path(source).is_dir():
        return f"{_acquire_one(prior, source, budget, steps, label, folder, samples, seed)}: see {folder}"
    suffixes = set(Image.registered_extensions())
    paths = sorted(path for path in Path(source).iterdir() if path.suffix.lower() in suffixes)
    lines = []
    for path in paths:
        try:
            told = _acquire_one(prior, str(path), budget, steps, label, folder / path.name, samples, seed)
            lines.append(f"{path.name}: {told}")
        except DataError as error:
            lines.append(f"left out: {error}")
    if all(line.startswith("left out") for line in lines):
        raise DataError(f"no picture that can be read in {source}" + (f": {lines[0]}" if lines else ""))
    return "\n".join([*lines, f"See {folder}"])


def _acquire_one(
    prior: Prior,
    source: str,
    budget: float | int,
    steps: int,
    label: int | None,
    folder: Path,
    samples: int,
    seed: int,
) -> str:
    x, labels = read_source(source, prior), prior.known_label(label)
    film = record(prior, "greedy", x, labels, budget, steps=steps, seed=seed)
    last, levels = film.steps, film.levels
    mask = film.mask(last)
    save(_npy(mask), folder / "mask.npy")
    save(pictures.png(mask), folder / "mask.png")
    save(pictures.png(pictures.rgb(film.reconstruction[last], levels)), folder / "reconstruction.png")
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
    write_json(folder / "acquisition.json", outcome)
    return f"{measured} of {mask.size} pixels measured in {steps} steps, {wrong} wrong in the reconstruction"


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
