"""Siemens raw data (`meas_*.dat`), read with twixtools (the extra `twix`). Only k-space is taken, never header data."""

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np

from sensewise.data.sources import ALWAYS
from sensewise.data.stored import Stored
from sensewise.errors import DataError

KEPT = ("Sli", "Cha", "Lin", "Col")  # of every other counter only the first is read; segments and averages are joined


def read_twix(path: Path) -> Stored:
    """The imaging scan of the last measurement, slices x coils x lines x samples."""
    try:
        import twixtools
    except ImportError as error:
        raise DataError(f"{path} needs a package that is not installed: install the extra `twix`") from error
    if not path.is_file():
        raise DataError(f"{path} does not exist")
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):  # a progress bar
            scan = twixtools.map_twix(str(path), verbose=False)[-1]["image"]
            kspace = _slices(scan, path)
    except DataError:
        raise
    except Exception as error:  # a damaged file can raise almost anything
        reason = error or type(error).__name__
        raise DataError(f"{path} is damaged or not a Siemens raw data file: {reason}") from error
    return Stored(path, kspace, axis="rows", why="Siemens raw data")


def _slices(scan: Any, path: Path) -> np.ndarray:
    scan.flags["remove_os"] = True
    scan.flags["average"]["Seg"] = scan.flags["average"]["Ave"] = True
    sizes = dict(zip(scan.dims, scan.shape, strict=True))
    if sizes["Par"] > 1:
        raise DataError(f"{path} is a 3-D scan of {sizes['Par']} partitions: only 2-D scans are read")
    kept = 8 * int(np.prod([sizes[name] for name in KEPT], dtype=np.float64))
    if kept > max(ALWAYS, 4 * path.stat().st_size):
        raise DataError(f"{path} describes {kept:,} bytes of k-space, far more than the file holds")
    wanted = tuple(slice(None) if name in KEPT else slice(0, 1) for name in scan.dims)
    found = np.asarray(scan[wanted])
    order = [scan.dims.index(name) for name in KEPT]
    return np.moveaxis(found, order, range(4)).reshape([sizes[name] for name in KEPT])
