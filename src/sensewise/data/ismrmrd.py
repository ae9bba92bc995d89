"""ISMRMRD: its XML header, which fastMRI's files hold too, and raw acquisitions in an HDF5 file.

Inati et al., "ISMRM Raw Data Format", 2017. The file is read with h5py as its format says: the group `dataset` has
`xml` and `data`, a table with one acquisition per line. Cartesian 2-D scans only, one image per slice.
"""

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from sensewise.data.stored import Stored
from sensewise.errors import DataError
from sensewise.files import check_size

MOST_HEADER = 2_000_000  # characters
MOST_LINES = 200_000  # acquisitions in a file
LARGEST_VOLUME = 64_000_000_000  # bytes of a file
SKIPPED = (19, 20, 23, 24, 26, 27, 28)  # noise, calibration, navigator, phase correction, HP feedback, dummies, surface
REVERSE = 22
LATER = ("kspace_encode_step_2", "contrast", "phase", "repetition", "set")  # counters of which only 0 is read


@dataclass(frozen=True)
class Header:
    """What a header says about the size of an image.

    Attributes:
        samples: of the readout, oversampling included.
        lines: phase-encode lines of the full matrix.
        readout: samples of the image along the readout.
        shown: lines of the image.
        centre: the number of the line through the middle of k-space.
        first: the lowest line number that is measured.
        last: the highest.
    """

    samples: int
    lines: int
    readout: int
    shown: int
    centre: int
    first: int
    last: int

    @property
    def origin(self) -> int:
        """The number of the full matrix's first line."""
        return self.centre - self.lines // 2


def parse_header(text: bytes | str, path: Path) -> Header:
    """The sizes of the first encoding in an XML header."""
    plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    if len(plain) > MOST_HEADER or "<!DOCTYPE" in plain or "<!ENTITY" in plain:
        raise DataError(f"{path}: its ISMRMRD header is too long or defines entities, which is not read")
    try:
        root = ET.fromstring(plain)
    except ET.ParseError as error:
        raise DataError(f"{path}: its ISMRMRD header is not valid XML: {error}") from error
    encoding = root.find("{*}encoding")
    if encoding is None:
        raise DataError(f"{path}: its ISMRMRD header has no encoding")
    trajectory = encoding.findtext("{*}trajectory", "cartesian").strip()
    if trajectory.lower() != "cartesian":
        raise DataError(f"{path}: a {trajectory[:40]} scan has no phase-encode lines: only Cartesian ones are read")

    def number(place: str, default: int | None = None) -> int:
        found = encoding.findtext("/".join(f"{{*}}{part}" for part in place.split("/")))
        if found is None and default is not None:
            return default
        try:
            return int(found or "")
        except ValueError:
            raise DataError(f"{path}: its ISMRMRD header has no whole number at encoding/{place}") from None

    samples, lines = number("encodedSpace/matrixSize/x"), number("encodedSpace/matrixSize/y")
    limits = "encodingLimits/kspace_encoding_step_1"
    header = Header(
        samples=samples,
        lines=lines,
        readout=number("reconSpace/matrixSize/x", samples),
        shown=number("reconSpace/matrixSize/y", lines),
        centre=number(f"{limits}/center", lines // 2),
        first=number(f"{limits}/minimum", 0),
        last=number(f"{limits}/maximum", lines - 1),
    )
    if min(samples, lines, header.readout, header.shown) < 1 or max(samples, lines) > 65535:
        raise DataError(f"{path}: its ISMRMRD header gives a matrix of {samples} x {lines}, which is not possible")
    if not 0 <= header.first <= header.centre <= header.last < lines + header.first:
        raise DataError(f"{path}: its ISMRMRD header gives line limits that do not fit its {lines} lines")
    return header


def is_raw(file: Any) -> bool:
    """Whether an open HDF5 file holds raw acquisitions."""
    group = file.get("dataset", getlink=True)
    return isinstance(group, h5py.HardLink) and isinstance(file["dataset"], h5py.Group) and "data" in file["dataset"]


def read_raw(file: Any, path: Path) -> Stored:
    """The acquisitions of an open HDF5 file, sorted into slices x coils x lines x samples; all lines must be there."""
    kspace, seen, header = _sorted(file, path)
    within = np.arange(header.first, header.last + 1) - header.origin
    missing = int((~seen[:, within]).sum())
    if missing:
        raise DataError(
            f"{path} is undersampled: {missing} lines are missing, and only a full scan can be measured again"
        )
    return Stored(
        path,
        kspace,
        axis="rows",
        why="ISMRMRD acquisitions",
        readout=min(header.readout, header.samples),
        shown=header.shown,
        origin=header.origin,
    )


def read_measured(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """What a scan of some lines measured.

    Returns:
        Complex64 k-space, slices x coils x lines x samples, zero where nothing was measured, and True where a line was,
        slices x lines.
    """
    try:
        with h5py.File(check_size(path, LARGEST_VOLUME), "r") as file:
            if not is_raw(file):
                raise DataError(f"{path} holds no ISMRMRD acquisitions")
            kspace, seen, _ = _sorted(file, path)
    except DataError:
        raise
    except Exception as error:  # a damaged file can raise almost anything
        raise DataError(f"{path} is damaged, cut short or not an ISMRMRD file: {error}") from error
    return kspace, seen


def read_text(dataset: Any, path: Path) -> bytes:
    """The text of a data set; a damaged length, for which HDF5 would set aside gigabytes, is refused."""
    kind, length = h5py.check_string_dtype(dataset.dtype), dataset.dtype.itemsize
    if kind is None or dataset.size != 1:
        raise DataError(f"{path}: {dataset.name} is not a text")
    if kind.length is None:
        (length,) = _lengths(_stored_bytes(dataset, path), offset=0, each=16)
    if length > MOST_HEADER:
        raise DataError(f"{path}: {dataset.name} has {length:,} characters, and at most {MOST_HEADER:,} are read")
    value = dataset[()] if dataset.shape == () else dataset[0]
    return value if isinstance(value, bytes) else str(value).encode()


def _stored_bytes(dataset: Any, path: Path) -> bytes:
    """What of a small data set lies in its own place in the file: of texts and lists, their lengths."""
    if dataset.chunks is not None:
        parts = [dataset.id.get_chunk_info(number) for number in range(dataset.id.get_num_chunks())]
        parts.sort(key=lambda part: part.chunk_offset)
        places = [(part.byte_offset, part.size) for part in parts]
        if dataset.id.get_create_plist().get_nfilters():
            raise DataError(f"{path}: {dataset.name} is compressed, which is not read: store it without filters")
    else:
        places = [(dataset.id.get_offset(), dataset.id.get_storage_size())]
    with path.open("rb") as file:
        found = []
        for place, size in places:
            if place is None or size > MOST_LINES * 1024:
                raise DataError(f"{path}: {dataset.name} is stored in a way that is not read")
            file.seek(place)
            found.append(file.read(size))
    return b"".join(found)


def _lengths(content: bytes, offset: int, each: int) -> list[int]:
    """The lengths, one every `each` bytes, of lists whose elements lie elsewhere in the file."""
    starts = range(offset, len(content) - 3, each)
    return [int.from_bytes(content[start : start + 4], "little") for start in starts] or [0]


def _check_lists(table: Any, path: Path) -> None:
    """Refuse acquisitions that say they are longer than the file."""
    kind = table.id.get_type()
    offset = kind.get_member_offset(kind.get_member_index(b"data"))
    longest = max(_lengths(_stored_bytes(table, path), offset, kind.get_size()))
    if 4 * longest > path.stat().st_size:
        raise DataError(f"{path}: an acquisition of {longest:,} numbers is longer than the file: it is damaged")


def _sorted(file: Any, path: Path) -> tuple[np.ndarray, np.ndarray, Header]:
    """Imaging acquisitions at their places, repeated ones averaged; which lines there are; and the header."""
    group = file["dataset"]
    for name in ("xml", "data"):
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise DataError(f"{path}: dataset/{name} is missing or lies in another file")
    table = group["data"]
    if table.external or table.is_virtual or not {"head", "data"} <= set(table.dtype.names or ()):
        raise DataError(f"{path}: dataset/data is not a table of ISMRMRD acquisitions in the file itself")
    if not 1 <= len(table) <= MOST_LINES:
        raise DataError(f"{path}: {len(table)} acquisitions: 1 to {MOST_LINES:,} are read")
    header = parse_header(read_text(group["xml"], path), path)
    _check_lists(table, path)
    heads = table.fields("head")[:]
    wanted = np.ones(len(heads), dtype=bool)
    for bit in SKIPPED:
        wanted &= (heads["flags"] >> np.uint64(bit - 1)) & np.uint64(1) == 0
    for counter in LATER:
        wanted &= heads["idx"][counter] == 0
    kspace, seen = _filled(table, heads, np.flatnonzero(wanted), header, path)
    return kspace, seen, header


def _filled(
    table: Any, heads: np.ndarray, wanted: np.ndarray, header: Header, path: Path
) -> tuple[np.ndarray, np.ndarray]:
    """Complex64 slices x coils x lines x samples, and True where a line was measured, slices x lines."""
    if not len(wanted):
        raise DataError(f"{path} holds no imaging acquisition")
    coils = np.unique(heads["active_channels"][wanted])
    if len(coils) > 1:
        raise DataError(f"{path}: acquisitions have {coils[0]} to {coils[-1]} coils, and all must have the same")
    numbers, lines = heads["idx"]["slice"][wanted], heads["idx"]["kspace_encode_step_1"][wanted]
    places = lines.astype(np.int64) - header.origin
    if places.min() < 0 or places.max() >= header.lines:
        raise DataError(
            f"{path}: the header has {header.lines} lines with line {header.centre} in the middle, but the "
            f"acquisitions are lines {lines.min()} to {lines.max()}"
        )
    shape = (int(numbers.max()) + 1, int(coils[0]), header.lines, header.samples)
    if 8 * int(np.prod(shape, dtype=np.float64)) > max(64_000_000, 4 * path.stat().st_size):
        raise DataError(f"{path}: the header describes k-space of {shape}, far more than the file holds")
    kspace, seen = np.zeros(shape, np.complex64), np.zeros(shape[:1] + shape[2:3], np.int64)
    samples_of = table.fields("data")
    for acquisition, number, place in zip(wanted, numbers, places, strict=True):
        head, values = heads[acquisition], samples_of[int(acquisition)]
        count, centre = int(head["number_of_samples"]), int(head["center_sample"])
        if len(values) != 2 * count * shape[1]:
            raise DataError(
                f"{path}: acquisition {acquisition} holds {len(values)} numbers, not {2 * count * shape[1]}"
            )
        samples = np.asarray(values, np.float32).view(np.complex64).reshape(shape[1], count)
        if int(head["flags"]) >> (REVERSE - 1) & 1:
            samples = samples[:, ::-1]
        left = header.samples // 2 - centre
        if left < 0 or left + count > header.samples:
            raise DataError(
                f"{path}: the header has {header.samples} samples per line, but acquisition {acquisition} has {count} "
                f"around sample {centre}"
            )
        kspace[number, :, place, left : left + count] += samples
        seen[number, place] += 1
    return kspace / np.maximum(seen, 1)[:, None, :, None].astype(np.float32), seen > 0
