"""The ledger of what a step publishes: told to the observer, and noted for those who store, hide or withdraw it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from stateat.sim.cache.pool import Entry

OnClaim = Callable[[int, int, str, int, int, bytes], None]
"""(group, block, request, column, offset in tokens, hash)"""


class FullBlock(NamedTuple):
    """A full block that was published."""

    request: str
    group: int
    hash: bytes
    block: int
    tokens: int


@dataclass(slots=True)
class Ledger:
    """Publications of one cache."""

    claim: OnClaim
    """Hears of each state."""
    stores: bool = False
    """Full blocks are noted, for a tier to store them."""
    tails: tuple[bool, bool] = False, False
    """Tails inside a block are noted too: those that a copy keeps, and those that are published."""
    traces: bool = False
    """Publications are noted with their requests, to be revealed or withdrawn."""
    hides: bool = False
    """A publication is found by nobody until its step has committed."""
    full: list[FullBlock] = field(default_factory=list)
    """Full blocks of this step."""
    journal: list[tuple[str, Entry]] = field(default_factory=list)
    """Requests and what they published since :meth:`take_journal`."""

    def take_journal(self) -> list[tuple[str, Entry]]:
        """Return the publications since the last call."""
        taken = self.journal.copy()
        self.journal.clear()
        return taken
