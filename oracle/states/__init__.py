"""State families: what is state@n of a token sequence, and is this content equal to it?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from oracle.states.digest import Digest
from sim.tokens import Tokens


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


FAMILIES: dict[str, Callable[[], Family]] = {"digest": Digest}
