"""I4 reachability, as a measure: which boundaries of a prompt can be hit once it is prefilled.

Verified:

- I4 reachability, as a measure and no finding: a prompt longer than a block can be hit again, by itself and by a longer
  one

Not verified:

- I4: whether a boundary should have been kept, since a policy may leave out what nobody asks for again; boundaries of
  what was generated
"""

from __future__ import annotations

from typing import Any

from stateat.oracle.evidence import Evidence
from stateat.oracle.records import Seen


class Reachability:
    """The states that were ever claimed, and the slots in which they are now."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self._claimed: dict[tuple[int, Any], dict[int, None]] = {}
        """(group, state) -> slots with a claim on it; empty where none has one any more."""

    def claim(self, group: int, truth: Any, slot: int) -> None:
        """A slot is claimed as this state."""
        self._claimed.setdefault((group, truth), {})[slot] = None

    def unclaim(self, group: int, truth: Any, slot: int) -> None:
        """Withdraw a slot as a place of this state."""
        self._claimed[group, truth].pop(slot, None)

    def count_boundaries(self, seen: Seen) -> None:
        """Boundaries of a prefilled prompt that nobody ever claimed, and those that somebody can restore from."""
        evidence, counts = self.evidence, self.evidence.counts
        for group in evidence.recurrent:
            block = evidence.groups[group].block_size
            for offset in range(block, seen.num_prompt + 1, block):
                truth = evidence.family.state_at(seen.tokens, offset)
                slots = self._claimed.get((group, truth))
                if slots is None:
                    counts.null_boundaries += 1
                else:
                    counts.materialized_boundaries += any(evidence.holds(slot, truth) for slot in slots)
