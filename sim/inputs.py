"""Input files, opened here alone, each with a limit, so that no file costs more memory than is said here.

A file may be packed with gzip where that is said: its unpacked size counts, and it is never unpacked whole.
"""

from __future__ import annotations

import csv
import gzip
import json
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from stateat.sim.errors import InputError
from stateat.sim.printable import short

MAX_DOCUMENT = 4 * 2**20
"""Bytes of a scenario, a sweep or a model's config."""
MAX_RECORDING = 16 * 2**20
"""Bytes of a recording, unpacked; eighty times the largest one."""
MAX_LINE = 16 * 2**20
"""Bytes of a line of a log, a trace or a journal: a prompt of two million token ids. Such files may have any number of
lines: one is held at a time."""
MAX_SHOWN = 60
"""Characters of what was found, in a message."""
_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


def read_bytes(file: Path, most: int, what: str, packed: bool = False) -> bytes:
    """Read a whole file of at most ``most`` bytes; ``what``: it should be (for the message). Raises InputError."""
    with _opened(file, what, packed) as stream, _told(file, what):
        raw = _whole(stream, most + 1)
    if len(raw) > most:
        raise InputError(f"{file}: found more than {most} bytes{' unpacked' * packed}, allowed {most} for {what}")
    return raw


def glance(file: Path) -> bytes:
    """Read the first bytes of a file, as many as a scenario may have; none of a pipe, or if it cannot be read."""
    try:
        if stat.S_ISREG(file.stat().st_mode):
            with file.open("rb") as stream:
                return stream.read(MAX_DOCUMENT)
    except (OSError, ValueError):
        pass
    return b""


@contextmanager
def open_lines(file: Path) -> Iterator[Iterator[str]]:
    """Open a UTF-8 file, packed or not, and give its lines with their ends; it is closed whatever becomes of them.

    Raises InputError, with the line, if one cannot be read.
    """
    with _opened(file, "a text file", packed=True) as stream:
        yield _lines(file, stream)


def _lines(file: Path, stream: BinaryIO) -> Iterator[str]:
    for number, raw in enumerate(bounded(file, stream), 1):
        try:
            yield (raw.removeprefix(_BOM) if number == 1 else raw).decode()
        except UnicodeDecodeError as error:
            raise InputError(f"{file}:{number}: not UTF-8: byte 0x{raw[error.start]:02x}") from None


def bounded(file: Path, stream: BinaryIO) -> Iterator[bytes]:
    """Lines of a stream. Raises InputError for one that is too long."""
    number = 0
    while True:
        number += 1
        with _told(file, "a text file", f":{number}"):
            raw = stream.readline(MAX_LINE + 1)
        if len(raw) > MAX_LINE:
            raise InputError(f"{file}:{number}: found a line of more than {MAX_LINE:,} bytes, allowed {MAX_LINE:,}")
        if not raw:
            return
        yield raw


def csv_rows(file: Path, lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Rows of a CSV file, each with the number of its last line; an empty line is an empty row.

    Raises InputError if it is no CSV.
    """
    rows = csv.reader(_one_row(file, lines, seen := [0]), strict=True)
    try:
        for row in rows:
            seen[0] = 0
            yield rows.line_num, row
    except csv.Error as error:
        raise InputError(f"{file}:{rows.line_num}: not CSV: {error}") from None


def _one_row(file: Path, lines: Iterable[str], seen: list[int]) -> Iterator[str]:
    """Lines, as long as no row with quoted line ends is too long; ``seen``: characters since the last row."""
    for number, line in enumerate(lines, 1):
        seen[0] += len(line)
        if seen[0] > MAX_LINE:
            raise InputError(f"{file}:{number}: found a row of more than {MAX_LINE:,} characters, allowed {MAX_LINE:,}")
        yield line


def shown(value: Any) -> str:
    """Text of a value for a message, as Python writes it, cut to be short."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"{value.bit_length()} bits"
    try:
        return short(repr(_part(value)), MAX_SHOWN)
    except RecursionError:
        return "something nested too deeply"


def as_json(value: Any) -> str:
    """Text of a value for a message, as JSON has it, cut to be short."""
    try:
        return "nothing" if value is None else short(json.dumps(_part(value), default=repr), MAX_SHOWN)
    except RecursionError:
        return "something nested too deeply"


def _part(value: Any) -> Any:
    """Part of a value that can be shown, so that not all of a long one is written down first."""
    if isinstance(value, dict):
        return dict(islice(value.items(), MAX_SHOWN))
    return value[:MAX_SHOWN] if isinstance(value, str | list) and len(value) > MAX_SHOWN else value


@contextmanager
def _opened(file: Path, what: str, packed: bool) -> Iterator[BinaryIO]:
    """Bytes of a file, unpacked if it may be packed and is."""
    with _told(file, what):
        stream = file.open("rb")
    with stream:
        with _told(file, what):
            zipped = packed and stream.peek(2)[:2] == _GZIP
        yield cast(BinaryIO, gzip.GzipFile(fileobj=stream)) if zipped else stream


@contextmanager
def _told(file: Path, what: str, line: str = "") -> Iterator[None]:
    """Raise InputError for whatever goes wrong with a file."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{file}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{file}: is a directory, allowed {what}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{file}{line}: not gzip: {error}") from None
    except (OSError, ValueError) as error:
        # A name that no file can have is a ValueError.
        raise InputError(f"{file}{line}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _whole(stream: BinaryIO, most: int) -> bytes:
    """Read ``most`` bytes, or all there are: a pipe gives a part at a time."""
    parts = []
    while most and (part := stream.read(min(most, 2**20))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)
