"""`sensewise acquire`: one picture from a file, acquired greedily, with everything a person wants to see of it."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from sensewise.checkpoint import atomic, load_prior, write_json
from sensewise.data import bundled_mnist
from sensewise.diffusion import sample
from sensewise.errors import DataError
from sensewise.experiments.examples import story_arrays
from sensewise.figures import pixels
from sensewise.figures.style import save
from sensewise.priors import Prior
from sensewise.tokens import quantize

MAX_PIXELS = 16_000_000


def read_picture(path: Path, prior: Prior) -> Tensor:
    """A grey picture as tokens `(1, 1, H, W)`, scaled to the prior's size."""
    channels, height, width = prior.shape
    if channels != 1:
        raise DataError("this prior is for colour images, which this command does not read yet")
    try:
        with Image.open(path) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise DataError(
                    f"{path} has {picture.width} x {picture.height} pixels; at most {MAX_PIXELS:,} are read"
                )
            grey = picture.convert("L")
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
        raise DataError(f"{path} is not a picture that can be read: {error}") from error
    if grey.size != (width, height):
        grey = grey.resize((width, height), Image.Resampling.BOX)
    return quantize(torch.from_numpy(np.asarray(grey).copy()).float() / 255, prior.num_states)[None, None]


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
    """Acquire one picture and write mask, reconstruction, uncertainty, possible images, figure and animation.

    Returns:
        A sentence that says how it went.
    """
    prior = load_prior(prior_name)
    if source.startswith("digit:"):
        number = source.removeprefix("digit:")
        if not number.isdigit():
            raise DataError(f"digit:{number} is not possible: give digit:0 to digit:2559")
        x = bundled_mnist(int(number) + 1)[slice(int(number), int(number) + 1)][0]
    else:
        x = read_picture(Path(source), prior)
    labels = prior.known_label(label)
    arrays = story_arrays(prior, x, labels, budget, steps)
    story = pixels.read_story(arrays)
    mask = story.observation[-1] > 0
    with atomic(folder / "mask.npy") as temporary, temporary.open("wb") as file:
        np.save(file, mask, allow_pickle=False)
    levels = prior.num_states - 1
    _write_grey(folder / "mask.png", mask * 255)
    _write_grey(folder / "reconstruction.png", (story.reconstruction[-1] - 1.0) * 255 / levels)
    with atomic(folder / "uncertainty.npy") as temporary, temporary.open("wb") as file:
        np.save(file, story.entropy[-1], allow_pickle=False)
    save(pixels.step_by_step(story, sorted({round(i * steps / 6) for i in range(7)})), folder / "steps.png")
    save(pixels.animation(story), folder / "animation.gif")
    if samples:
        y = torch.from_numpy(arrays["story/observation"][-1:].astype(np.int64))
        possible = sample(prior, y, labels, torch.Generator().manual_seed(seed), samples=samples)[:, 0, 0]
        sheet = np.concatenate([np.pad(p.numpy() - 1.0, 1, constant_values=0.5) for p in possible], axis=1)
        _write_grey(folder / "samples.png", np.kron(sheet * 255 / levels, np.ones((4, 4))))
    wrong, measured = int(story.errors[-1]), int(mask.sum())
    outcome = {"measured": measured, "density": measured / mask.size, "steps": steps, "errors": wrong}
    write_json(folder / "acquisition.json", outcome | {"nats_left": round(float(story.entropy[-1].sum()), 4)})
    return (
        f"{measured} of {mask.size} pixels measured in {steps} steps, {wrong} wrong in the reconstruction: see {folder}"
    )


def _write_grey(path: Path, values: np.ndarray) -> None:
    with atomic(path) as temporary:
        Image.fromarray(np.asarray(values).round().astype(np.uint8)).save(temporary, "png")
