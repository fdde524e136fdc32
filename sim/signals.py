"""Signals that end the program: wherever one comes it is raised as :class:`Stopped`, and told in one line."""

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
"""Something for each :func:`raising` that lasts."""


@contextmanager
def raising() -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP raise Stopped in the main thread; one that is ignored (``nohup``) stays so."""
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
    """The last signal that came, whatever became of its exception on the way."""
    return _came[-1] if _came else None


def is_signal(error: BaseException | None) -> bool:
    """Whether an exception is that of a signal, and not one that other code made. Of a program that hears signals
    itself (a notebook) only a KeyboardInterrupt can be."""
    if not issubclass(type(error), KeyboardInterrupt):
        return False
    return bool(_came) if _hearing else not issubclass(type(error), Stopped)


def forget() -> None:
    """From now on they change nothing: all is written, and the process is about to end."""
    for number in _numbers():
        signal.signal(number, signal.SIG_IGN)


def _numbers() -> list[int]:
    known = [int(getattr(signal, name)) for name in NAMES if hasattr(signal, name)]
    return [number for number in known if signal.getsignal(number) is not signal.SIG_IGN]


def _raise(number: int, _frame: object) -> None:
    _came.append(Stopped(number))
    raise _came[-1]


def _again(error: BaseException | None) -> bool:
    """Where nothing can be raised (a callback of the garbage collector, of an import), the signal comes once more."""
    if not (isinstance(error, Stopped) and is_signal(error)):
        return False
    from threading import Timer, main_thread

    # To the main thread, which may be waiting for something: one that another thread raises would not wake it.
    later = Timer(_AGAIN_S, signal.pthread_kill, [main_thread().ident, error.number])
    later.daemon = True
    later.start()
    return True
