"""Progress of a run, on stderr: at once, seldom, and at no cost to the run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self, TextIO, TypeVar

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.text import Text

from stateat.sim.printable import one_line, plural

T = TypeVar("T")
REFRESH_S = 0.1
"""Between two updates on a terminal."""
PIPE_S = 10.0
"""Between two lines where stderr is no terminal."""
_BAR = 20
"""Characters."""


class Progress:
    """A context manager; :meth:`update` may be called every step.

    The clock is the wall's: nothing that is decided or reported about a run comes from here.
    """

    def __init__(
        self,
        label: str,
        clock: str = "us",
        stream: TextIO | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label = one_line(label)
        self._counts_steps = clock == "steps"
        self._stream = sys.stderr if stream is None else stream
        self._now = now
        self._console = Console(file=self._stream)
        self._live: Live | None = None
        self._start = self._next = 0.0
        self._every = REFRESH_S

    def __enter__(self) -> Self:
        self._start = self._now()
        text = Text(f"{self._label}: starting")
        if self._console.is_terminal:
            self._live = Live(text, console=self._console, auto_refresh=False, transient=True)
            self._live.start(refresh=True)
        else:
            self._every = PIPE_S
            self._line(text.plain)
        self._next = self._start + self._every
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def update(self, done: int, total: int | None, step: int, time_us: int, poisoned: int) -> None:
        """Tell that so many of the requests are done, in this step; returns at once when it was called just before."""
        now = self._now()
        if now < self._next:
            return
        self._next = now + self._every
        self._show(self._text(done, total, step, time_us, poisoned, now - self._start))

    def measure(self, absorbed: int, wanted: int) -> None:
        """Tell that so many tokens, of those that are known to be needed, were absorbed by states in numbers."""
        now = self._now()
        if now < self._next:
            return
        self._next = now + self._every
        self._show(f"{self._label}: computing states · {absorbed:,}/{wanted:,} tokens")

    def count(self, done: int, total: int, unit: str) -> None:
        """Tell that so many of these are done."""
        now = self._now()
        if now < self._next:
            return
        self._next = now + self._every
        self._show(f"{self._label}: {self._bar(done, total, unit)}")

    def _show(self, text: str) -> None:
        if self._live is not None:
            self._live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
        else:
            self._line(text)

    def _line(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()

    def _text(self, done: int, total: int | None, step: int, time_us: int, poisoned: int, elapsed_s: float) -> str:
        rate = done / elapsed_s if elapsed_s > 0 else 0.0
        parts = [f"{self._label}: {self._bar(done, total)}", f"step {step:,}"]
        if not self._counts_steps:
            parts.append(f"{time_us / 1e6:,.1f} s simulated")
        parts.append(f"poisoned {poisoned:,}")
        parts.append(f"{rate:,.0f}/s")
        if total is not None and rate > 0:
            parts.append(f"ETA {_duration(max(total - done, 0) / rate)}")
        return " · ".join(parts)

    def _bar(self, done: int, total: int | None, unit: str = "request") -> str:
        if total is None:
            return plural(done, unit)
        counts = f"{done:,}/{plural(total, unit)}"
        if self._live is None or not total:
            return counts
        filled = _BAR * min(done, total) // total
        full, empty = ("━", "─") if self._console.encoding.startswith("utf") else ("#", "-")
        return full * filled + empty * (_BAR - filled) + " " + counts


class RunProgress(Progress):
    """The same for the runs of a sweep."""

    def __init__(self, label: str, stream: TextIO | None = None, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(label, stream=stream, now=now)
        self.done = 0
        self._before = 0
        """Runs of an earlier try: they say nothing about the rate."""
        self._failed = 0

    def told(self, done: int, total: int, row: Mapping[str, object] | None) -> None:
        """Tell that so many runs are done, this one last."""
        self.done = done
        if row is None:
            self._before = done
            if done:
                self._show(f"{self._label}: {done:,} of {total:,} runs are there")
        else:
            self._failed += bool(row["error"])
        now = self._now()
        if now >= self._next:
            self._next = now + self._every
            self._show(self._runs(total, now - self._start))

    def _runs(self, total: int, elapsed_s: float) -> str:
        rate = (self.done - self._before) / elapsed_s if elapsed_s > 0 else 0.0
        parts = [f"{self._label}: {self._bar(self.done, total, 'run')}", f"{rate:,.1f}/s"]
        if self._failed:
            parts.append(f"failed {self._failed:,}")
        if rate > 0:
            parts.append(f"ETA {_duration((total - self.done) / rate)}")
        return " · ".join(parts)


def counting(things: Sequence[T], console: Console, label: str) -> Iterator[T]:
    """The things one by one, with a bar below what is printed meanwhile; on a terminal alone."""
    if not console.is_terminal:
        yield from things
        return
    with Bars(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=console, transient=True,
    ) as bars:  # fmt: skip
        task = bars.add_task(label, total=len(things))
        for thing in things:
            bars.update(task, description=escape(one_line(f"{label} {thing}")))
            yield thing
            bars.advance(task)


def _duration(seconds: float) -> str:
    """``0:05``, ``2:03:04``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
