"""One scene's acquisition, frame by frame: what figures, the page and `sensewise acquire` show. NumPy only."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sensewise.errors import DataError
from sensewise.metrics import PSNR_CEILING

PLACE = "recording"


@dataclass(frozen=True)
class Recording:
    """Everything to see of one acquisition: frame 0 is before the first step, frame r after step r.

    Attributes:
        target: the true tokens 1..N, `(C, H, W)`.
        step: when each pixel was measured: 0 = start, 1..R, -1 = never, `(H, W)`.
        levels: `N`.
        mode: the most probable tokens, `(R + 1, C, H, W)`.
        mean: expected intensities in [0, 1], same shape; None in files that did not keep them.
        entropy: nats per pixel, `(R + 1, H, W)`.
        expected_errors: wrong sites that the prior itself expects, `(R + 1,)`; None in files that did not keep them.
        probs: the predictive distribution of every site, `(R + 1, C, H, W, N)`, or None where it was not kept.
    """

    target: np.ndarray
    step: np.ndarray
    levels: int
    mode: np.ndarray
    mean: np.ndarray | None
    entropy: np.ndarray
    expected_errors: np.ndarray | None = None
    probs: np.ndarray | None = None

    @property
    def steps(self) -> int:
        """`R`."""
        return len(self.entropy) - 1

    @property
    def nbytes(self) -> int:
        """Of all arrays."""
        return sum(part.nbytes for part in vars(self).values() if isinstance(part, np.ndarray))

    @property
    def errors(self) -> np.ndarray:
        """Wrong sites of the mode in each frame, `(R + 1,)`."""
        return (self.mode != self.target).sum((1, 2, 3))

    @property
    def psnr(self) -> np.ndarray:
        """Of the expected intensities in each frame, dB `(R + 1,)`."""
        if self.mean is None:
            raise DataError("this recording did not keep expected intensities: run its experiment again")
        truth = (self.target.astype(np.float32) - 1) / (self.levels - 1)
        mse = ((self.mean.astype(np.float32) - truth) ** 2).mean((1, 2, 3))
        with np.errstate(divide="ignore"):
            return np.minimum(-10 * np.log10(mse), PSNR_CEILING)

    def mask(self, frame: int) -> np.ndarray:
        """True where measured up to a frame, `(H, W)`."""
        return (self.step >= 0) & (self.step <= frame)

    def observation(self, frame: int) -> np.ndarray:
        """Tokens, 0 = hidden, `(C, H, W)`."""
        return np.where(self.mask(frame), self.target, 0)

    def store(self, place: str = PLACE) -> dict[str, np.ndarray]:
        """As arrays of a results file; probabilities are left out, they are large."""
        arrays = {
            f"{place}/target": self.target,
            f"{place}/step": self.step,
            f"{place}/levels": np.array(self.levels),
            f"{place}/mode": self.mode,
            f"{place}/entropy": self.entropy.astype(np.float16),
        }
        if self.mean is not None:
            arrays[f"{place}/mean"] = self.mean.astype(np.float16)
        if self.expected_errors is not None:
            arrays[f"{place}/expected_errors"] = self.expected_errors
        return arrays


def read_recording(arrays: Mapping[str, np.ndarray], place: str = PLACE) -> Recording:
    """The recording among the arrays of a results file, of this version or an older one (`film/`, `story/`)."""
    try:
        if f"{place}/step" in arrays:
            return _stored(arrays, place)
        return _film(arrays) if "film/step" in arrays else _story(arrays)
    except KeyError as error:
        raise DataError(f"these results hold no recording of an acquisition: {error} is missing") from error


def _stored(arrays: Mapping[str, np.ndarray], place: str) -> Recording:
    mean = arrays.get(f"{place}/mean")
    return Recording(
        target=arrays[f"{place}/target"],
        step=arrays[f"{place}/step"],
        levels=int(arrays[f"{place}/levels"]),
        mode=arrays[f"{place}/mode"],
        mean=None if mean is None else mean.astype(np.float32),
        entropy=arrays[f"{place}/entropy"].astype(np.float32),
        expected_errors=arrays.get(f"{place}/expected_errors"),
    )


def _film(arrays: Mapping[str, np.ndarray]) -> Recording:
    """What version 0.1 kept of any image: probabilities."""
    probs = arrays["film/probs"].astype(np.float32)  # (R + 1, C, H, W, N)
    levels = probs.shape[-1]
    return Recording(
        target=arrays["film/target"],
        step=arrays["film/step"],
        levels=levels,
        mode=(probs.argmax(-1) + 1).astype(np.uint8),
        mean=probs @ np.linspace(0, 1, levels, dtype=np.float32),
        entropy=arrays["film/entropy"].astype(np.float32),
        expected_errors=(1 - probs.max(-1).astype(np.float64)).sum((1, 2, 3)),
        probs=probs,
    )


def _story(arrays: Mapping[str, np.ndarray]) -> Recording:
    """What version 0.1 kept of a digit: observations and modes."""
    seen = np.all(arrays["story/observation"] > 0, axis=1)  # (R + 1, H, W)
    step = np.where(seen[-1], seen.argmax(0), -1).astype(np.int32)
    return Recording(
        target=arrays["story/target"],
        step=step,
        levels=2,
        mode=arrays["story/reconstruction"],
        mean=None,
        entropy=arrays["story/entropy"].astype(np.float32),
    )
