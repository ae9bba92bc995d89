"""Changes files and holds a reader to its contract: it takes them or says what is wrong, soon and in little memory."""

import gc
import io
import random
import re
import resource
import signal
import struct
import time
import zipfile
import zlib
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sensewise.errors import SensewiseError

SECONDS, BYTES = 2, 10**9  # of one processor; of memory
ADDRESSES = 2 * 10**9  # of the process, or so much more than it has already: a whole suite has loaded many libraries
NUMBERS = [0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 2**24, 2**28, 2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1]
WORDS = [b"-1", b"0", b"3", b"0.5", b"1e999", b"NaN", b"null", b"true", b'""', b"[]", b"{}", b"65536", b"99999999999"]
WORDS += [b"9" * 400, b"9" * 5000, b"\xff", b'"\\ud800"', b'"\xc3\xa9"']
TOKEN = re.compile(rb'"[^"]*"|[\w.+-]+')


class Hang(BaseException):
    """A reader took too long. Not an Exception: readers that catch everything must not catch it."""


@dataclass(frozen=True)
class Reader:
    """How one kind of file is written and read.

    Attributes:
        write: makes a folder that can be read.
        file: the one in it that is changed.
        read: takes its path.
    """

    write: Callable[[Path], None]
    file: str
    read: Callable[[Path], object]


def flip(content, at, length, value):
    return content[:at] + bytes([value % 256]) + content[at + 1 :]


def number(content, at, length, value):
    width = (1, 2, 4, 8)[length % 4]
    order = "big" if length & 4 else "little"
    return content[:at] + (value % 256**width).to_bytes(width, order) + content[at + width :]


def cut(content, at, length, value):
    return content[:at] + content[at + length :]


def cut_short(content, at, length, value):
    return content[:at]


def insert(content, at, length, value):
    return content[:at] + value.to_bytes(8, "little")[: 1 + length % 8] + content[at:]


def repeat(content, at, length, value):
    return content[:at] + content[at : at + length] * (2 + value % 5) + content[at + length :]


def nest(content, at, length, value):
    return content[:at] + (b"[", b"(", b'{"a":', b"a.")[value % 4] * (300 * length) + content[at:]


def say(content, at, length, value):
    """Another word in the place of one of a text."""
    found = list(TOKEN.finditer(content))
    if not found:
        return content + WORDS[value % len(WORDS)]
    start, end = found[at % len(found)].span()
    return content[:start] + WORDS[value % len(WORDS)] + content[end:]


CHANGES = [flip, flip, number, number, number, cut, cut_short, insert, repeat, nest, say, say, say]
CHANGE = struct.Struct("<BIHBB")  # which, where, how long, and a value
TAPE = st.binary(min_size=CHANGE.size, max_size=4 * CHANGE.size)  # one draw a file: many small ones take far longer
MOST_SHRUNK = 1000  # beyond that inputs are drawn plainly: Hypothesis takes three times as long as most readers


def spoil(valid, tape):
    """The valid content with the changes that the tape says; random content for every tenth tape."""
    if tape[0] % 10 == 9:
        return random.Random(tape).randbytes(tape[1] + tape[2])
    content = valid
    for which, at, length, pick, byte in CHANGE.iter_unpack(tape[: len(tape) // CHANGE.size * CHANGE.size]):
        at = at % 64 if pick & 1 else at
        length = length % 16 if pick & 2 else length % 2000
        value = NUMBERS[byte % len(NUMBERS)] if pick & 4 else byte
        content = CHANGES[which % len(CHANGES)](content, at % (len(content) + 1), length, value)
    return content


def out_of_time(begun):
    """A signal handler: other threads of this process take time too, and only this one's counts."""

    def handler(*_):
        if time.thread_time() - begun < SECONDS:
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
        else:
            raise Hang(f"more than {SECONDS} seconds")

    return handler


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@contextmanager
def limits():
    """Seconds of the processor, so that a busy machine changes nothing, and the highest memory inside the block."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # forget earlier peaks
    before = peak()
    unlimited = resource.getrlimit(resource.RLIMIT_AS)
    addresses = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (max(ADDRESSES, addresses + BYTES), unlimited[1]))
    gc.disable()  # a million objects of earlier tests, collected just now, are not the reader's time
    earlier = signal.signal(signal.SIGPROF, out_of_time(time.thread_time()))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        gc.enable()
        signal.signal(signal.SIGPROF, earlier)
        resource.setrlimit(resource.RLIMIT_AS, unlimited)
    assert peak() - before < BYTES


def check(reader, path, content):
    """The contract: a reader succeeds or raises an error of the project, within the limits."""
    path.write_bytes(content)
    with limits(), suppress(SensewiseError):
        reader.read(path)


def fuzz(reader, folder, examples):
    reader.write(folder)
    path = folder / reader.file
    valid = path.read_bytes()
    reader.read(path)

    def try_one(tape):
        content = spoil(valid, tape)
        try:
            check(reader, path, content)
        except BaseException as error:
            error.add_note(f"tape {tape!r}, {len(content)} bytes: {content[:2000]!r}")
            raise

    if examples <= MOST_SHRUNK:
        settings(max_examples=examples, suppress_health_check=list(HealthCheck))(given(TAPE)(try_one))()
        return
    draw = random.Random(examples)
    for _ in range(examples):
        try_one(draw.randbytes(draw.randint(CHANGE.size, 4 * CHANGE.size)))


def sealed(seal, read):
    """Mends the checksums and lengths of changed content, which would keep all that is behind them untested."""

    def read_sealed(path):
        path.write_bytes(seal(path.read_bytes()))
        return read(path)

    return read_sealed


def seal_png(content):
    """The checksums of the chunks."""
    sealed, at = content[:8], 8
    while at + 12 <= len(content):
        length = int.from_bytes(content[at : at + 4], "big")
        body = content[at + 4 : at + 8 + length]
        sealed += content[at : at + 4] + body + zlib.crc32(body).to_bytes(4, "big")
        at += 12 + length
    return sealed


def seal_npy(content):
    """The length of the header."""
    end = content.find(b"\n", 10) + 1
    return content[:8] + max(0, end - 10).to_bytes(4, "little")[:2] + content[10:]


def zipped(content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("images.npy", content)
    return buffer.getvalue()


def split_header(path):
    """The text at the head of a safetensors file, as a file of its own."""
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    path.with_name("header.json").write_bytes(content[8:end])
    path.with_name("tensors").write_bytes(content[end:])


def join_header(path, name):
    header, whole = path.read_bytes(), path.with_name(name)
    whole.write_bytes(len(header).to_bytes(8, "little") + header + path.with_name("tensors").read_bytes())
    return whole
