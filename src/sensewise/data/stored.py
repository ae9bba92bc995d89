"""k-space as a file holds it, and one slice of it as everything else here wants it: phase-encode lines as rows.

A reader opens its format and says in a `Stored` how the array lies; turning, removing the readout's oversampling and
cropping are the same for all formats. Slices are read one at a time, so that a large volume needs little memory.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from sensewise.data.sources import check_unpacked
from sensewise.errors import ConfigError, DataError
from sensewise.kspace import centre_crop, remove_oversampling

Axis = Literal["auto", "rows", "columns"]
"""Which of the last two axes of an array is phase-encoded; "auto" asks the file."""
AXES: tuple[Axis, ...] = ("auto", "rows", "columns")
MOST = 256_000_000  # bytes of one slice, all coils: 32 coils of 640 x 640 are 105 million


def parse_axis(text: str) -> Axis:
    """An axis from the command line."""
    for axis in AXES:
        if axis == text:
            return axis
    raise ConfigError(f"no axis {text!r}: choose one of {', '.join(AXES)}")


class ArrayLike(Protocol):
    """What `Stored` needs of an array: NumPy's, a memory map or an HDF5 data set."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __getitem__(self, index: Any) -> Any: ...


@dataclass(frozen=True)
class MRSlice:
    """Fully sampled k-space of one slice, and where its rows lie in what the scanner measured.

    Attributes:
        kspace: complex64, with shape `(1, rows, columns)`, or `(1, coils, rows, columns)` from two coils on.
        full: lines of the full matrix, of which the rows are the middle ones.
        origin: the scanner's number of the full matrix's first line; below 0 where a file holds lines before line 0.
        view: the share of the image's rows and columns that a reconstruction shows: scanners sample a wider field.
        aspect: the height of a pixel over its width, if those of the full matrix are square: a crop of k-space may keep
            another share of the lines than of the samples.
        done: what the reader did, in words.
    """

    kspace: Tensor
    full: int
    origin: int = 0
    view: tuple[float, float] = (1.0, 1.0)
    aspect: float = 1.0
    done: str = ""

    @property
    def rows(self) -> int:
        """Phase-encode rows that may be measured."""
        return self.kspace.shape[-2]

    @property
    def coils(self) -> int:
        """How many coils listened."""
        return self.kspace.shape[1] if self.kspace.dim() == 4 else 1

    @property
    def first(self) -> int:
        """The place of row 0 in the full matrix."""
        return self.full // 2 - self.rows // 2

    def full_mask(self, mask: Tensor) -> Tensor:
        """A mask of rows `(rows,)` as one of the full matrix, `(full,)`."""
        found = torch.zeros(self.full, dtype=torch.bool)
        found[self.first : self.first + self.rows] = mask
        return found

    def line_numbers(self, mask: Tensor) -> list[int]:
        """The scanner's numbers of the rows of a mask `(rows,)`."""
        return [int(row) + self.first + self.origin for row in mask.nonzero()[:, 0]]

    def shown(self, image: Tensor) -> Tensor:
        """The part of an image `(..., H, W)` that a reconstruction shows."""
        height, width = (max(1, round(side * part)) for side, part in zip(image.shape[-2:], self.view, strict=True))
        return centre_crop(image, height, width)


@dataclass(frozen=True)
class Stored:
    """An open file of k-space.

    Attributes:
        path: of the file.
        kspace: slices x two axes, or slices x coils x two axes.
        axis: which of the two is phase-encoded.
        why: how that is known.
        readout: samples of the readout without oversampling; None where there is none.
        shown: lines that an image shows; None for all.
        origin: as of `MRSlice`.
        independent: whether the slices have nothing to do with each other.
    """

    path: Path
    kspace: ArrayLike
    axis: Axis = "rows"
    why: str = ""
    readout: int | None = None
    shown: int | None = None
    origin: int = 0
    independent: bool = False

    def __post_init__(self) -> None:
        shape, kind = self.kspace.shape, self.kspace.dtype.kind
        if len(shape) not in (3, 4) or 0 in shape:
            raise DataError(
                f"{self.path}: kspace must be slices x rows x columns or slices x coils x rows x columns, "
                f"got shape {tuple(shape)}"
            )
        if kind != "c":
            raise DataError(f"{self.path}: kspace must be complex, got {self.kspace.dtype}: magnitudes are not k-space")

    def __len__(self) -> int:
        return int(self.kspace.shape[0])

    @property
    def lines(self) -> int:
        """Phase-encode lines of the full matrix."""
        return int(self.kspace.shape[-1 if self.axis == "columns" else -2])

    def slice(self, number: int, size: tuple[int, int]) -> MRSlice:
        """One slice, its middle rows and columns.

        Args:
            number: from 0.
            size: rows and columns.
        """
        if not 0 <= number < len(self):
            raise DataError(f"{self.path}: there is no slice {number}: give 0 to {len(self) - 1}")
        bytes_each = int(np.prod(self.kspace.shape[1:])) * self.kspace.dtype.itemsize
        check_unpacked(bytes_each, self.path)
        if bytes_each > MOST:
            raise DataError(f"{self.path}: one slice has {bytes_each:,} bytes, and at most {MOST:,} are read")
        with np.errstate(over="ignore", invalid="ignore"):
            found = torch.from_numpy(np.array(self.kspace[number], dtype=np.complex64))
        self._check_finite(found)
        if not bool(found.any()):
            raise DataError(f"{self.path}: a slice of k-space is zero everywhere")
        found = found.transpose(-2, -1) if self.axis == "columns" else found
        lines, samples = found.shape[-2:]
        if self.readout is not None and self.readout < samples:
            found = remove_oversampling(found, self.readout)
            self._check_finite(found)  # sums of numbers near the largest are beyond it
        rows, columns = found.shape[-2:]
        if rows < size[0] or columns < size[1]:
            raise DataError(
                f"{self.path}: k-space of {rows} x {columns} is smaller than the crop of {size[0]} x {size[1]}"
            )
        cropped = centre_crop(found, *size).contiguous()
        if cropped.dim() == 3 and len(cropped) == 1:
            cropped = cropped[0]
        done = f"{self._described(number)}, {lines} lines of {samples} samples"
        done += "" if columns == samples else f", oversampling removed: {columns} samples"
        done += "" if size == (rows, columns) else f", the middle {size[0]} x {size[1]} of k-space"
        view = (1.0 if self.shown is None else min(1.0, self.shown / lines), 1.0)
        aspect = (rows / size[0]) / (columns / size[1])
        return MRSlice(cropped[None], full=lines, origin=self.origin, view=view, aspect=aspect, done=done)

    def _check_finite(self, kspace: Tensor) -> None:
        if not bool(torch.isfinite(torch.view_as_real(kspace)).all()):
            raise DataError(f"{self.path}: k-space holds numbers that are not finite, or too large")

    def _described(self, number: int) -> str:
        coils = f", {self.kspace.shape[1]} coils" if len(self.kspace.shape) == 4 else ""
        return f"slice {number} of {len(self)}{coils}, phase-encode along the {self.axis} ({self.why})"
