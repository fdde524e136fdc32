"""Errors of which a user is told: one message, one exit code, no traceback."""

from __future__ import annotations

from stateat.sim.printable import printable

STOP = 128
"""Exit code from which on git bisect gives up: no commit is at fault."""


class StateatError(Exception):
    """Base of all errors that a user can cause; the command line prints its text and exits with its code.

    Its text is made printable, since part of it comes from outside and Python's own tracebacks reach terminals too.
    """

    exit_code = 1

    def __init__(self, *words: object) -> None:
        super().__init__(*(printable(word) if isinstance(word, str) else word for word in words))


class InputError(StateatError):
    """Usage or input is bad: the message names the file, line, key, what was found and what is allowed."""

    exit_code = 2


class MissingError(InputError):
    """Something that good input needs (a package, a trace) is not here; the message says what would bring it."""


class ChangeError(InputError):
    """State that a scenario evicts or places by name, and that is not there, or cannot be placed, when it is time."""


class PolicyError(StateatError):
    """Rule of a user that broke its contract (more tokens than offered, fewer than none) or raised."""

    exit_code = 2


class EngineError(StateatError):
    """Live engine that cannot start, crashed or hangs; the message ends with the last lines that it wrote."""

    exit_code = 2


class RefusedError(EngineError):
    """Live engine that works and has no such feature; the message names it."""


class NotAsExpected(StateatError):
    """Result that is not as expected, or of which something could not be run; one line for each."""


class Stopped(KeyboardInterrupt):
    """Signal that ends the program. No SystemExit: a user's rule may raise that, and is blamed for it."""

    def __init__(self, number: int) -> None:
        # In args too: SimPy makes an exception that passes through it anew from them.
        super().__init__(number)
        self.number = number


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Exit code of a process that a signal ended; after Ctrl-C 130."""
    return 128 + interrupt.number if isinstance(interrupt, Stopped) else 130


class DepartureWarning(UserWarning):
    """Preset that is known not to decide as its release with an option of the scenario; the message names it."""
