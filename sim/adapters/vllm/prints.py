"""Prints of a worker: passed on to standard error a line at a time, bounded and made printable."""

from __future__ import annotations

import sys
from collections import deque
from contextlib import suppress

from stateat.sim.printable import short

SHOWN_LINES = 1000
"""Lines shown of one worker; of the rest it is said that there is more."""
SHOWN_CHARACTERS = 500
"""Limit of one line."""
LAST_LINES = 12
"""Last lines, shown when it fails."""
LONGEST_LINE = 1 << 14
"""Bytes without a line break that are kept."""


class Prints:
    """The lines of one worker: those that wait to be passed on, and the last ones."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._begun = bytearray()
        """A line without its end yet."""
        self._waiting: list[str] = []
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._left = SHOWN_LINES
        self._more = False

    def hear(self, data: bytes) -> None:
        """Take what was read of it, in pieces of any size."""
        *whole, begun = data.split(b"\n")
        for piece in whole:
            self._line(bytes(self._begun + piece[:LONGEST_LINE]))
            self._begun.clear()
        self._begun += begun[: LONGEST_LINE - len(self._begun)]

    def end(self) -> None:
        """Nothing follows."""
        if self._begun:
            self._line(bytes(self._begun))
            self._begun.clear()

    def pass_on(self, keep: int = 0) -> None:
        """Print the lines that wait to standard error, but the last ``keep`` of them."""
        count = max(len(self._waiting) - keep, 0)
        for line in self._waiting[:count]:
            _print(f"{self.name}: {line}")
        del self._waiting[:count]
        if self._more:
            self._more = False
            _print(f"{self.name}: printed more than {SHOWN_LINES:,} lines, of which no more are shown")

    def last_lines(self) -> str:
        """Return what it printed last, indented, to be added to a message; '' for nothing. It is passed on no more."""
        self.end()
        self.pass_on(keep=len(self._last))
        self._waiting.clear()
        return "".join(f"\n  {line}" for line in ["it wrote last:", *self._last]) if self._last else ""

    def _line(self, data: bytes) -> None:
        text = data.decode(errors="replace").rstrip()
        if not text:
            return
        self._last.append(short(text, SHOWN_CHARACTERS))
        if self._left:
            self._left -= 1
            self._more = not self._left
            self._waiting.append(short(text, SHOWN_CHARACTERS))


def _print(line: str) -> None:
    """Print a line, if there is somebody to read it."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)
