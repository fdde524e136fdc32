"""State families as the auditor sees them: what is state@n of a token sequence, and is this content equal to it?

``digest`` has a module of its own; the others are the records of :mod:`stateat.kernels.families`, in numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from stateat.kernels.families import FAMILIES
from stateat.oracle.states.digest import DigestFamily
from stateat.oracle.states.numeric import Arithmetic, Numeric
from stateat.sim.tokens import Tokens


class StateFamily(Protocol):
    """State family. States are opaque to the auditor: it stores, advances and compares them."""

    @property
    def name(self) -> str:
        """Name by which files and the command line ask for it."""

    def zero(self) -> Any:
        """The state before any token."""

    def advance(self, state: Any, tokens: Tokens, start: int, end: int, drafts: Sequence[int]) -> Any:
        """``state`` after tokens [start, end) of the stream, and then ``drafts``."""

    def state_at(self, tokens: Tokens, offset: int) -> Any:
        """The true state after exactly ``offset`` tokens of the stream."""

    def equal(self, one: Any, other: Any) -> bool:
        """True if two states are the same."""

    def find(self, state: Any, tokens: Tokens) -> int | None:
        """The offset n > 0 at which this is the stream's state@n, or None."""


FLOAT32 = Arithmetic()


def family(state: str, how: Arithmetic = FLOAT32) -> StateFamily:
    """Return the family that ``FAMILY`` or ``FAMILY:PRESET`` names.

    KeyError or ValueError for names that do not exist, ValueError for a backend or device that is not here.
    """
    name, _, preset = state.partition(":")
    if name == DigestFamily.name:
        return DigestFamily()
    return Numeric(FAMILIES[name], replace(how, preset=preset or how.preset))
