"""Other tools on the same pictures, unmodified, each run once: what they measured and drew is kept beside the data.

FAST (Argonne; SLADS-Net) runs from a clone of its repository; its network was trained on `camera`. As its beamline
runner does it: 1% of the pixels at first, from a low-discrepancy sequence, then 50 per batch.

gpCAM (Berkeley; Gaussian processes) runs as its documentation has it: the default kernel, hyperparameters by maximum
likelihood, the candidate of highest posterior variance, point by point, from 512 candidates drawn among the free
pixels; it is trained again whenever the readings are half as many more.

One run passes through all budgets. Seconds are of the processor, so that other work on the machine does not count.
"""

import hashlib
import importlib
import importlib.metadata
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import qmc

from sensewise.data.arrays import load_arrays
from sensewise.data.sources import data_root
from sensewise.errors import ConfigError
from sensewise.files import atomic

FAST_BATCH, FAST_START = 50, 0.01
GP_CANDIDATES, GP_GROWTH, GP_ITERATIONS, GP_NOISE = 512, 1.5, 40, 1e-5


@dataclass(frozen=True)
class Peer:
    """What a tool had at one budget.

    Attributes:
        order: places in raster order, in the order of measurement, `(n,)`.
        picture: its reconstruction, `(H, W)`.
        seconds: of the processor up to there.
    """

    order: np.ndarray
    picture: np.ndarray
    seconds: float


Runner = Callable[[np.ndarray, Sequence[float]], list[Peer]]
"""A picture in [0, 1] and budgets in rising order to what there was at each of them."""


@dataclass(frozen=True)
class Tool:
    """A tool that is run beside ours.

    Attributes:
        name: of its rows.
        version: of what it did; another one is run again.
        run: what it does with a picture.
        batch: readings per decision.
        sides: sizes of pictures that it is run on, or None for all.
    """

    name: str
    version: str
    run: Runner
    batch: int = 1
    sides: tuple[int, ...] | None = None

    def __call__(self, picture: np.ndarray, budgets: Sequence[float]) -> list[Peer]:
        """What it did with a picture, from an earlier run if there was one."""
        content = picture.astype(np.float32).tobytes() + repr((self.version, tuple(budgets))).encode()
        side, name = len(picture), hashlib.sha256(content).hexdigest()[:20]
        path = data_root() / "peers" / self.name / f"{side}-{name}.npz"
        if path.is_file():
            kept = load_arrays(path)
            return [
                Peer(kept["order"][: int(kept["counts"][i])], kept["pictures"][i], float(kept["seconds"][i]))
                for i in range(len(budgets))
            ]
        found = self.run(picture, budgets)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as temporary:
            np.savez_compressed(
                temporary,
                allow_pickle=False,
                order=found[-1].order.astype(np.int32),
                counts=np.array([len(peer.order) for peer in found]),
                pictures=np.stack([peer.picture for peer in found]).astype(np.float32),
                seconds=np.array([peer.seconds for peer in found]),
            )
        return found


def fast(folder: Path) -> Tool:
    """FAST from a clone of its repository; its version is a digest of its code and network."""
    parts = [*sorted((folder / "fast").rglob("*.py")), *sorted(folder.rglob("*.pkl"))]
    if not (folder / "fast" / "core").is_dir():
        raise ConfigError(
            f"{folder} is not a clone of FAST: git clone https://github.com/saugatkandel/fast_smart_scanning, and give "
            "its folder with --fast"
        )
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        utils = importlib.import_module("fast.s26_analysis.utils")
    except ImportError as error:
        raise ConfigError(f"{folder}: FAST needs a package that is not installed: {error.name}") from error
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in parts)).hexdigest()[:12]

    def run(picture: np.ndarray, budgets: Sequence[float]) -> list[Peer]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _run_fast(utils.create_experiment_sample, picture.astype(np.float64), budgets)

    return Tool("fast", digest, run, FAST_BATCH)


def _run_fast(make: Callable[..., Any], picture: np.ndarray, budgets: Sequence[float]) -> list[Peer]:
    height, width = picture.shape
    new = _low_discrepancy(height, width)
    sample = make(width, height, new, inner_batch_size=FAST_BATCH, stop_ratio=0.95)
    order: list[np.ndarray] = []
    found, begun = [], time.process_time()
    for budget in budgets:
        total = round(budget * picture.size)
        while (measured := sum(map(len, order))) < total:
            new = new[: total - measured]
            sample.measurement_interface.finalize_external_measurement(picture[new[:, 0], new[:, 1]])
            sample.perform_measurements(new)
            sample.reconstruct_and_compute_erd()
            order.append(new[:, 0] * width + new[:, 1])
            new = np.asarray(sample.find_new_measurement_idxs()).astype(int)
        read = sample.measurement_info.unnormalized_values
        drawn = sample.recon_image / 100 * (read.max() - read.min()) + read.min()
        found.append(Peer(np.concatenate(order), np.clip(drawn, 0, 1).copy(), time.process_time() - begun))
    return found


def _low_discrepancy(height: int, width: int) -> np.ndarray:
    """1% of the pixels, a Halton sequence, each once; rows and columns `(n, 2)`."""
    count = max(1, round(FAST_START * height * width))
    halton = qmc.Halton(d=2, scramble=False)
    points = halton.integers(n=4 * count, l_bounds=[0, 0], u_bounds=[height, width])
    _, first = np.unique(points, axis=0, return_index=True)
    return np.asarray(points[np.sort(first)][:count])


def gpcam(sides: tuple[int, ...]) -> Tool:
    """gpCAM as it is installed, on pictures of some sizes."""
    try:
        optimizer = importlib.import_module("gpcam").GPOptimizer
        importlib.import_module("loguru").logger.disable("gpcam")
    except ImportError as error:
        raise ConfigError(f"gpCAM needs a package that is not installed: {error.name}: pip install gpcam") from error

    def run(picture: np.ndarray, budgets: Sequence[float]) -> list[Peer]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _run_gpcam(optimizer, picture.astype(np.float64), budgets)

    settings = (GP_CANDIDATES, GP_GROWTH, GP_ITERATIONS, GP_NOISE)
    return Tool("gpcam", f"{importlib.metadata.version('gpcam')} {settings}", run, sides=sides)


def _run_gpcam(make: Callable[..., Any], picture: np.ndarray, budgets: Sequence[float]) -> list[Peer]:
    height, width = picture.shape
    values, places = picture.ravel(), np.indices(picture.shape).reshape(2, -1).T.astype(float)
    start = _low_discrepancy(height, width)
    order = list(start[:, 0] * width + start[:, 1])
    generator = np.random.default_rng(0)
    bounds = np.array([[1e-4, 10.0], [1.0, height], [1.0, width]])
    found, begun = [], time.process_time()
    process = make(
        places[order],
        values[order],
        init_hyperparameters=np.array([0.1, 8.0, 8.0]),
        noise_variances=np.full(len(order), GP_NOISE),
    )
    trained = 0
    for budget in budgets:
        while len(order) < round(budget * picture.size):
            if len(order) >= GP_GROWTH * trained:
                process.train(hyperparameter_bounds=bounds, method="local", max_iter=GP_ITERATIONS)
                trained = len(order)
            free = np.setdiff1d(np.arange(picture.size), order)
            free = generator.choice(free, min(len(free), GP_CANDIDATES), replace=False)
            asked = process.ask(list(places[free]), n=1, acquisition_function="variance")["x"]
            row, column = np.asarray(asked, dtype=int).ravel()
            order.append(row * width + column)
            new = order[-1:]
            process.tell(places[new], values[new], noise_variances=np.full(1, GP_NOISE), append=True)
        drawn = np.asarray(process.posterior_mean(places)["m(x)"]).reshape(picture.shape)
        found.append(Peer(np.array(order), np.clip(drawn, 0, 1), time.process_time() - begun))
    return found
