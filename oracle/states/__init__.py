"""State families: what is state@n of a token sequence, and is this content equal to it?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from stateat.kernels.backends import Unavailable
from stateat.oracle.states.digest import Digest
from stateat.oracle.states.gated_delta import GatedDelta
from stateat.oracle.states.kda import Kda
from stateat.oracle.states.numeric import Arithmetic, Numeric
from stateat.oracle.states.ring import Ring
from stateat.oracle.states.selective_scan import SelectiveScan
from stateat.oracle.states.short_conv import ShortConv
from stateat.oracle.states.ssd import Ssd
from stateat.sim.tokens import Tokens


class Family(Protocol):
    """A state family. States are opaque to the auditor: it stores, advances and compares them."""

    name: str

    def zero(self) -> Any:
        """The state before any token."""

    def advance(self, state: Any, tokens: Tokens, start: int, end: int, drafts: Sequence[int]) -> Any:
        """``state`` after tokens [start, end) of the stream, and then ``drafts``."""

    def state_at(self, tokens: Tokens, offset: int) -> Any:
        """The true state after exactly ``offset`` tokens of the stream."""

    def equal(self, one: Any, other: Any) -> bool:
        """Whether two states are the same."""

    def find(self, state: Any, tokens: Tokens) -> int | None:
        """The offset n > 0 at which this is the stream's state@n, or None."""


NUMERIC: dict[str, type[Numeric]] = {
    family.name: family for family in (Ring, GatedDelta, Kda, Ssd, SelectiveScan, ShortConv)
}
"""The families whose states are arrays."""
FLOAT32 = Arithmetic()


def family(state: str, how: Arithmetic = FLOAT32) -> Family:
    """The family that ``FAMILY`` or ``FAMILY:PRESET`` names.

    ValueError for names that do not exist, and for a backend or device that is not here.
    """
    name, _, preset = state.partition(":")
    if name == Digest.name:
        return Digest()
    return NUMERIC[name](replace(how, preset=preset or how.preset))


__all__ = ["NUMERIC", "Arithmetic", "Digest", "Family", "Numeric", "Unavailable", "family"]
