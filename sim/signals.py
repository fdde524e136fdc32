"""Signals that end the program: wherever one comes, it is raised as :class:`Stopped` and told in one line."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stateat.sim.errors import Stopped

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
INTERRUPTED = "stateat: interrupted; nothing was written"
_AGAIN_S = 0.01
_came: list[Stopped] = []
_hearing: list[bool] = []
"""Entries, one for each :func:`raising` that lasts."""


@contextmanager
def raising() -> Iterator[None]:
    """Raise Stopped in the main thread on Ctrl-C, SIGTERM and SIGHUP; a signal that is ignored (``nohup``) stays so."""
    before: dict[int, Any] = {}
    hook = sys.unraisablehook
    _came.clear()
    try:
        for number in _numbers():
            # Only the main thread may; elsewhere whoever called has its own handlers.
            before[number] = signal.signal(number, _raise)
        sys.unraisablehook = lambda told: _again(told.exc_value) or hook(told)
    except ValueError:
        pass
    _hearing.append(True)
    try:
        yield
    finally:
        _hearing.pop()
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


def last() -> Stopped | None:
    """Last signal that came, whatever became of its exception on the way."""
    return _came[-1] if _came else None


def is_signal(error: BaseException | None) -> bool:
    """True if an exception is that of a signal, and not one that other code made.

    In a program that hears signals itself (a notebook) that can be a plain KeyboardInterrupt only.
    """
    if not issubclass(type(error), KeyboardInterrupt):
        return False
    return bool(_came) if _hearing else not issubclass(type(error), Stopped)


def forget() -> None:
    """Ignore signals from now on: all is written, and the process is about to end."""
    for number in _numbers():
        signal.signal(number, signal.SIG_IGN)


def _numbers() -> list[int]:
    known = [int(getattr(signal, name)) for name in NAMES if hasattr(signal, name)]
    return [number for number in known if signal.getsignal(number) is not signal.SIG_IGN]


def _raise(number: int, _frame: object) -> None:
    _came.append(Stopped(number))
    raise _came[-1]


def _again(error: BaseException | None) -> bool:
    """Send a signal once more that came where nothing can be raised (a callback of the collector, an import)."""
    if not (isinstance(error, Stopped) and is_signal(error)):
        return False
    from threading import Timer, main_thread

    # To the main thread, which may be waiting for something: one that another thread raises would not wake it.
    later = Timer(_AGAIN_S, signal.pthread_kill, [main_thread().ident, error.number])
    later.daemon = True
    later.start()
    return True
