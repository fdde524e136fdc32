"""The standard streams of the process: what cannot be written there is dropped, and never becomes a verdict."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

NOBODY = (errno.EPIPE, errno.EBADF)
"""Nobody reads: the stream is closed, or its reader has gone."""


class Standard(io.RawIOBase):
    """A standard stream below its buffer; after the first error all is dropped, so that nothing turns up later."""

    def __init__(self, below: io.RawIOBase | None) -> None:
        super().__init__()
        self.below = below
        self.lost: OSError | None = None if below is not None else OSError(errno.EBADF, "closed")
        """Reason why something was dropped."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        if self.below is None:
            raise OSError(errno.EBADF, "closed")
        return self.below.fileno()

    def isatty(self) -> bool:
        return self.below is not None and self.below.isatty()

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type]
        if self.below is not None and self.lost is None:
            try:
                written = self.below.write(view)
                while written is None:
                    written = self._waited(view)
                return written
            except OSError as error:
                self.lost = error
        return view.nbytes

    def _waited(self, view: memoryview) -> int | None:
        """A pipe that does not block, and is full."""
        from select import select

        assert self.below is not None
        select([], [self.below], [])
        return self.below.write(view)


@contextmanager
def standard() -> Iterator[None]:
    """Puts such streams in the place of the process's own, for as long as this lasts."""
    before = sys.stdout, sys.stderr
    if sys.stdout is sys.__stdout__:
        sys.stdout = _over(sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _over(sys.stderr)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            if _raw(stream) is not None:
                stream.flush()
        sys.stdout, sys.stderr = before


def lost(stream: TextIO | None) -> OSError | None:
    """Reason why something that was written to a stream did not arrive."""
    raw = _raw(stream)
    if raw is None:
        return None
    assert stream is not None
    stream.flush()
    return raw.lost


def _raw(stream: TextIO | None) -> Standard | None:
    found = getattr(getattr(stream, "buffer", None), "raw", None)
    return found if isinstance(found, Standard) else None


def _over(stream: TextIO | None) -> TextIO:
    buffer = getattr(stream, "buffer", None)
    raw = Standard(getattr(buffer, "raw", buffer))
    # A terminal that lacks a character shows its code instead.
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(stream, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=getattr(stream, "line_buffering", False),
        write_through=getattr(stream, "write_through", False),
    )


def fill() -> None:
    """Open nothing under the numbers of closed streams: the next file would get one, and be printed into."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
