"""A run of a user's code has a parent that watches it: an end without a result is no success.

Code can end its process at once (``os._exit(0)``, ``exec``), or keep it alive with a thread. So the command runs in a
child, which tells its exit code last; a child that goes without has failed, and one that stays is ended.
"""

from __future__ import annotations

import mmap
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from typing import NoReturn

from stateat.sim.errors import Stopped, exit_code
from stateat.sim.printable import one_line

STAY_S = 0.8
"""Seconds that a child may take to end once all is written."""
REACT_S = 0.5
"""Seconds to hear a signal by itself (a terminal, or ``timeout``, sends it to both) before it is passed on."""
LOOK_S = 0.02
_NAMED = 1024
"""Bytes of the name of the rule that was called last."""
_MARK = _NAMED + 2
"""Bytes of the page that both share: the name, the child's exit code, and whether it is there. Unlike a pipe no code
can close it."""
_HIGH = 200
"""The streams get numbers from here on: above those that code may close by the way, and that a new file gets."""
_CODE = re.compile(r"(--rule=)?\w+=[\w.]+:\w+")


def runs_code(arguments: Sequence[str]) -> bool:
    """True if a command may run code of a user: that of its files, or a rule of the command line."""
    allowed = "--allow-code" in arguments or bool(os.environ.get("STATEAT_ALLOW_CODE"))
    return allowed or any(map(_CODE.fullmatch, arguments))


@contextmanager
def watched(arguments: Sequence[str], unusable: int = 2) -> Iterator[None]:
    """Runs what follows in a child, if it may run a user's code and is a process of its own. ``unusable``: the exit
    code where that code leaves no result."""
    # In a program that caught the streams, or without fork, the code is guarded alone.
    if not (hasattr(os, "fork") and sys.stdout is sys.__stdout__ and runs_code(arguments)):
        yield
        return
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()
    page = mmap.mmap(-1, _MARK)
    alive, held = os.pipe()
    child = os.fork()
    if child:
        os.close(alive)
        _watch(child, page, unusable)
    os.close(held)
    threading.Thread(target=_end_with_parent, args=(alive,), daemon=True).start()
    _name_rules(page)
    _keep_streams()
    _end_forks()
    try:
        yield
    except (SystemExit, KeyboardInterrupt) as end:
        code: object = exit_code(end) if isinstance(end, KeyboardInterrupt) else end.code
        _tell(page, code if isinstance(code, int) else int(code is not None))
        raise
    except Exception as error:
        rule = _called(page)
        if not rule:
            raise
        _say(f"{type(error).__name__}: {error}: the program does not work any more, after {rule} ran in it")
        _tell(page, unusable)
        sys.exit(unusable)


def _tell(page: mmap.mmap, code: int) -> None:
    page[_NAMED] = code & 0xFF
    page[_NAMED + 1] = 1


def _told(page: mmap.mmap) -> int | None:
    """The exit code that the child told."""
    return page[_NAMED] if page[_NAMED + 1] else None


def _name_rules(page: mmap.mmap) -> None:
    from stateat.sim.releases import plugins

    def enter(what: str) -> None:
        page[:_NAMED] = what.encode(errors="replace")[:_NAMED].ljust(_NAMED, b"\0")

    plugins.entered.append(enter)


def _keep_streams() -> None:
    """The streams get numbers of their own, so that closing 1 or 2 takes nothing away; what code writes to 1, or a
    program that it starts, goes to standard error: the other one is for results."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        below = getattr(sys, name)
        with suppress(OSError, AttributeError, ValueError):
            stream = open(  # noqa: SIM115 - as long as the process
                _copied(number), "w", encoding=below.encoding, errors=below.errors, buffering=1
            )
            vars(sys)[name] = vars(sys)[f"__{name}__"] = stream
    with suppress(OSError):
        os.dup2(2, 1)


def _copied(number: int) -> int:
    """Another number of an open file, a high one where so many are allowed."""
    from fcntl import F_DUPFD_CLOEXEC, fcntl

    try:
        return fcntl(number, F_DUPFD_CLOEXEC, _HIGH)
    except OSError:
        return os.dup(number)


def _end_forks() -> None:
    """A process that code forks has no result to tell: it loses standard output, and ends when it leaves the rule (see
    :mod:`stateat.sim.releases.plugins`), or at once where the code was called from elsewhere."""
    from stateat.sim.releases import plugins

    thread, stdout = threading.get_ident(), sys.stdout

    def forked() -> None:
        if threading.get_ident() == thread and not plugins.inside:
            os._exit(0)
        with suppress(OSError, AttributeError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())

    os.register_at_fork(after_in_child=forked)


def _end_with_parent(alive: int) -> None:
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STAY_S)
    os.kill(os.getpid(), signal.SIGKILL)


def _watch(child: int, page: mmap.mmap, unusable: int) -> NoReturn:
    """The parent: ends as its child did, or says that it went without a result."""
    asked, until = 0, inf
    for name in ("SIGTERM", "SIGHUP"):
        if signal.getsignal(getattr(signal, name)) is signal.SIG_DFL:
            signal.signal(getattr(signal, name), _stop)
    while True:
        try:
            status = _ended(child, page, until)
            break
        except TimeoutError:
            until = inf
            with suppress(ProcessLookupError):
                os.kill(child, asked)
        except KeyboardInterrupt as interrupt:
            if asked:
                _kill(child)
                os._exit(exit_code(interrupt))
            asked = interrupt.number if isinstance(interrupt, Stopped) else signal.SIGINT
            until = time.monotonic() + REACT_S
    code = _told(page)
    if code is not None:
        _end(child, status)
        os._exit(code)
    how = f"exit code {os.waitstatus_to_exitcode(status)}" if status is not None else "no exit code"
    rule = _called(page)
    _say(f"the process ended with {how} before there was a result{f'; last it was in {rule}' if rule else ''}")
    os._exit(unusable)


def _called(page: mmap.mmap) -> str:
    """The rule that was called last."""
    return page[:_NAMED].rstrip(b"\0").decode(errors="replace")


def _say(text: str) -> None:
    with suppress(OSError):
        os.write(2, f"stateat: {one_line(text)}\n".encode(errors="backslashreplace"))


def _stop(number: int, _frame: object) -> None:
    raise Stopped(number)


def _ended(child: int, page: mmap.mmap, until: float) -> int | None:
    """Waits until a child has told its result (None) or has ended (its status); raises TimeoutError."""
    while _told(page) is None:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(LOOK_S)
    return None


def _end(child: int, status: int | None) -> None:
    """Wait for a child whose result is written; a thread that it left does not keep it."""
    until = time.monotonic() + STAY_S
    while status is None and time.monotonic() < until:
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        time.sleep(LOOK_S / 4)
    if status is None:
        _kill(child)


def _kill(child: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(child, 0)
