"""A user's own code as a rule: loaded, called, and held to its contract.

Whatever it does is told as what the rule did, with the line of the user's file: it may raise anything, answer
anything, print, close streams, change folders or replace handlers of signals.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import sysconfig
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import is_dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

from stateat.sim.errors import InputError, PolicyError
from stateat.sim.printable import short
from stateat.sim.rules.answers import MAX_BITS
from stateat.sim.rules.record import Read
from stateat.sim.signals import is_signal, last

T = TypeVar("T")
SHOWN = 200
"""Characters of what an exception says, or of an answer."""
STREAMS = ("stdout", "stderr", "__stdout__", "__stderr__")
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]

_OURS = tuple(f"{Path(__file__).resolve().parents[2] / name}{os.sep}" for name in ("sim", "oracle", "kernels"))
_INSTALLED = tuple(sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib"))
_PYTHONS = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))

entered: list[Callable[[str], None]] = []
"""Listeners that are told of each call which rule it is."""
inside: list[str] = []
"""The calls that last now; empty: the code that runs is ours."""


def load(what: str, value: str, read: Read, allowed: str) -> Callable[..., Any]:
    """The rule ``module:Name``, guarded; a class is called without arguments. ``what`` names it in messages.

    Raises InputError for what cannot be loaded.
    """
    module, _, attribute = value.partition(":")

    def make() -> object:
        found = getattr(importlib.import_module(module), attribute)
        return found() if issubclass(type(found), type) else found

    try:
        made = _apart(what, make)
    except BaseException as error:
        if is_signal(error):
            raise
        hint = (
            " (looked in the current folder and in PYTHONPATH)" if issubclass(type(error), ModuleNotFoundError) else ""
        )
        raise InputError(f"{what}: cannot load it: {told(error)}{hint}") from error
    if not callable(made):
        raise InputError(f"{what}: found {_kind(made)}, which cannot be called")
    return guarded(what, made, read, allowed)


def guarded(what: str, made: Callable[..., Any], read: Read, allowed: str) -> Callable[..., Any]:
    """A user's rule, whose errors and impossible answers are told as what they are."""

    def ask(*question: Any) -> Any:
        # What it does to them must not reach the engine.
        copies = [copy(part) if isinstance(part, list) or is_dataclass(part) else part for part in question]
        try:
            answer = _apart(what, lambda: made(*copies))
        except BaseException as error:
            if is_signal(error):
                raise
            raise PolicyError(f"{what} raised {told(error)}") from error
        try:
            return _apart(what, lambda: read(answer))
        except BaseException as error:
            if is_signal(error):
                raise
            raise PolicyError(f"{what} gave {shown(answer)}, allowed is {allowed}{_defined(made)}") from None

    return ask


def _apart(what: str, call: Callable[[], T]) -> T:
    """Call what is the user's, and put back what of the process it moved. What it prints goes to standard error: a
    machine may be reading the other one.

    A process that it forks ends with the call, and a signal that came in it is raised, whatever it made of that.
    """
    for hear in entered if what else ():
        hear(what)
    streams, folder, path = {name: getattr(sys, name) for name in STREAMS}, _folder(), list(sys.path)
    handlers = [signal.getsignal(number) for number in SIGNALS]
    process, before = os.getpid(), last()
    vars(sys).update(dict.fromkeys(STREAMS, sys.stderr))
    inside.append(what)
    try:
        return call()
    finally:
        if os.getpid() != process:
            os._exit(0)
        inside.pop()
        vars(sys).update(streams)
        if folder is not None and _folder() != folder:
            with suppress(OSError):
                os.chdir(folder)
        if sys.path != path:
            # What it added is searched after what was there, so that it hides no module of ours.
            sys.path[:] = path + [entry for entry in sys.path if entry not in path]
        _put_back(handlers)
        came = last()
        if came is not None and came is not before:
            raise came


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _put_back(handlers: Sequence[Any]) -> None:
    for number, handler in zip(SIGNALS, handlers, strict=True):
        if signal.getsignal(number) is not handler:
            # Not in the main thread, or not set from Python.
            with suppress(ValueError, TypeError):
                signal.signal(number, handler)


def told(error: BaseException) -> str:
    """``KeyError: 'oops' at my_split.py:7``: an exception of a user's code, and the line of the user's file."""
    words, place = _words(str, error), _raised(error)
    return f"{_kind(error)}{f': {words}' if words else ''}{f' at {place}' if place else ''}"


def shown(value: object) -> str:
    """An answer as Python writes it, cut where it gets long."""
    if type(value) is int and value.bit_length() > MAX_BITS:
        return f"a number of {value.bit_length()} bits"
    return _words(repr, value)


def _words(say: Callable[[Any], str], thing: object) -> str:
    try:
        return short(_apart("", lambda: say(thing)), SHOWN)
    except BaseException as error:
        if is_signal(error):
            raise
        return f"(a {_kind(thing)}, whose {say.__name__}() raises {_kind(error)})"


def _kind(thing: object) -> str:
    """The name of its type, as it was defined."""
    return str(type.__dict__["__name__"].__get__(type(thing)))


def _raised(error: BaseException) -> str:
    """FILE:LINE of the innermost frame that is neither ours nor a library's, or else that of an installed package; ''
    where there is neither."""
    if type(error) in (SyntaxError, IndentationError, TabError) and isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    places, trace = [], error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        installed = file.startswith(_INSTALLED)
        if installed or not file.startswith(("<frozen", *_OURS, *_PYTHONS)):
            places.append((installed, f"{file}:{trace.tb_lineno}"))
        trace = trace.tb_next
    own = [place for installed, place in places if not installed]
    return own[-1] if own else places[-1][1] if places else ""


def _defined(made: object) -> str:
    """`` at FILE:LINE``: where a rule is written; '' where nobody knows."""
    function = made if type(made) is FunctionType else vars(type(made)).get("__call__")
    code = function.__code__ if type(function) is FunctionType else None
    return "" if code is None else f" at {code.co_filename}:{code.co_firstlineno}"
