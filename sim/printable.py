"""Text from outside, made so that a terminal shows it and does not obey it.

Keys, names, paths and words of exceptions and workers may hold control characters (C0, C1, DEL), characters that turn
the direction of writing, or line separators. Whatever is not printable is shown as its code: ``\\x1b``, ``\\u202e``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import Any


def one_line(text: str) -> str:
    """Text without line breaks and control characters (these as ``\\x1b``), so that it stays one line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else _escaped(c) for c in text)


def printable(text: str) -> str:
    """Text of several lines, which stay lines, without control characters."""
    return text if text.isprintable() else "\n".join(map(one_line, text.split("\n")))


def short(text: str, most: int = 80) -> str:
    """Text cut to one line of at most ``most`` characters."""
    text = one_line(text[: most + 1])
    return text if len(text) <= most else text[: most - 1] + "…"


def plural(count: int, noun: str) -> str:
    """``1 root``, ``3 roots``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def few(texts: Sequence[str], most: int) -> str:
    """First ``most`` texts with commas between them, and how many more there are."""
    more = [f"and {len(texts) - most:,} more"] if len(texts) > most else []
    return ", ".join([*texts[:most], *more])


class PrintableStream:
    """Stream that writes printable text to the stream below, which stays open when this one is closed.

    Rich writes to ``rich_proxied_file`` instead, since it makes the colours itself.
    """

    def __init__(self, below: Any) -> None:
        self.rich_proxied_file = below

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            # Click asks a stream so whether it takes bytes.
            raise TypeError(f"found {type(text).__name__}, allowed text")
        self.rich_proxied_file.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def close(self) -> None:
        self.flush()

    def flush(self) -> None:
        self.rich_proxied_file.flush()

    @property
    def encoding(self) -> str:
        return str(self.rich_proxied_file.encoding)

    @property
    def errors(self) -> str | None:
        found: str | None = self.rich_proxied_file.errors
        return found

    @property
    def closed(self) -> bool:
        return bool(self.rich_proxied_file.closed)

    def isatty(self) -> bool:
        return bool(self.rich_proxied_file.isatty())

    def fileno(self) -> int:
        return int(self.rich_proxied_file.fileno())

    def writable(self) -> bool:
        return True


@contextmanager
def readable_stderr() -> Iterator[None]:
    """Make all printable that is written to standard error, as long as this lasts."""
    if sys.stderr is None:
        yield
        return
    with redirect_stderr(PrintableStream(sys.stderr)):
        yield


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
