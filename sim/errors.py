"""What stateat says when it cannot go on: one message, one exit code, no traceback."""

from __future__ import annotations

from stateat.sim.printable import printable

STOP = 128
"""The exit code from which on git bisect gives up: it is nobody's commit that is at fault."""


class StateatError(Exception):
    """The base of all errors that a user can cause; the command line prints its text and exits with its code.

    What of the text comes from outside is made printable, since Python's own tracebacks reach terminals too.
    """

    exit_code = 1

    def __init__(self, *words: object) -> None:
        super().__init__(*(printable(word) if isinstance(word, str) else word for word in words))


class InputError(StateatError):
    """Bad usage or input: the message names the file, line, key, what was found and what is allowed."""

    exit_code = 2


class MissingError(InputError):
    """What good input needs (what computes its states, a trace) is not here; the message says what would bring it."""


class PolicyError(StateatError):
    """A user's rule broke its contract (more tokens than offered, fewer than none) or raised."""

    exit_code = 2


class EngineError(StateatError):
    """A live engine cannot start, crashed or hangs; the message ends with the last lines that it wrote."""

    exit_code = 2


class RefusedError(EngineError):
    """A live engine works and has no such feature; the message names it."""


class NotAsExpected(StateatError):
    """A result came to something else than expected, or something of it could not be run; one line for each."""


class Stopped(KeyboardInterrupt):
    """Told to stop by a signal. Not a SystemExit: that is what a user's rule may raise, and is blamed for."""

    def __init__(self, number: int) -> None:
        # In args too: SimPy makes an exception that passes through it anew from them.
        super().__init__(number)
        self.number = number


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """That of a process that a signal ended; of Ctrl-C 130."""
    return 128 + interrupt.number if isinstance(interrupt, Stopped) else 130


class DepartureWarning(UserWarning):
    """A preset is known not to decide as its release with an option that a scenario has; the message names it."""
