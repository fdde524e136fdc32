"""I11 acceptance: the accepted count that a worker applies is the request's own.

A speculative row leaves a state after each of its tokens, each in a slot of its own; verification keeps some of the
tokens, and the next read takes the state of the last one kept. Which slot that is follows from the row's writes and
from what was accepted, so the slot that is really taken tells the count that was applied.

Verified:

- I11 acceptance: the accepted count that is applied is the request's own, in 1..K+1

Not verified:

- I11: rows that leave one state, and in `all` mode rows of fewer than K drafts (the next column follows from what is
  computed, not from where the row ended); what is then read, which I12 judges
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stateat.oracle.evidence import Evidence
from stateat.sim.events import Severity


@dataclass(slots=True)
class Last:
    """Slots that a request's last row wrote in a group, and how many of its tokens were kept."""

    slots: tuple[int, ...]
    """Slot of the state after each of its tokens."""
    kept: int = 1
    """Tokens that verification kept: the request's own count."""
    moved: set[int] = field(default_factory=set)
    """Slots to which copies took the state of the last token kept."""

    def applied(self, slot: int) -> int | None:
        """The count that takes this slot; None: its own, or there is nothing to count; 0: none of 1 to K + 1 does."""
        if len(self.slots) == 1 or slot == self.slots[self.kept - 1] or slot in self.moved:
            return None
        return self.slots.index(slot) + 1 if slot in self.slots else 0


@dataclass(frozen=True, slots=True)
class Misapplied:
    """A count that is not the request's own."""

    applied: int
    """1 to K + 1; 0: none of them."""
    own: int


class Acceptance:
    """The counts of all requests."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], Last] = {}

    def forget(self, request: str, groups: Sequence[int]) -> None:
        """Forget a request's rows: it starts from elsewhere, or is gone."""
        for group in groups:
            self._last.pop((request, group), None)

    def row(self, request: str, group: int, writes: Sequence[tuple[int, int]], kept: int) -> None:
        """A row left these; a run of rows has been verified already, and ``kept`` of the last one's tokens stay."""
        if writes:
            self._last[request, group] = Last(tuple(slot for _, slot in writes), min(kept, len(writes)))
        else:
            self._last.pop((request, group), None)

    def verified(self, request: str, groups: Sequence[int], kept: int) -> None:
        """Verification kept so many tokens of its row."""
        for group in groups:
            last = self._last.get((request, group))
            if last is not None:
                last.kept = min(kept, len(last.slots))

    def copied(self, request: str, group: int, source: int, target: int) -> None:
        """A state was copied, by a worker that need not read it next."""
        last = self._last.get((request, group))
        if last is not None and source == last.slots[last.kept - 1]:
            last.moved.add(target)

    def taken(self, request: str, group: int, slot: int) -> Misapplied | None:
        """A worker goes on from this slot: what is wrong with the count that leads there."""
        last = self._last.pop((request, group), None)
        applied = None if last is None else last.applied(slot)
        return None if last is None or applied is None else Misapplied(applied, last.kept)

    def check_count(self, evidence: Evidence, request: str, group: int, slot: int) -> None:
        """I11 acceptance: the count that leads to this slot is the request's own."""
        wrong = self.taken(request, group, slot)
        if wrong is None:
            return
        name = evidence.groups[group].name
        count = f"an accepted count of {wrong.applied}" if wrong.applied else "no accepted count of 1 to K + 1"
        message = f"{request}: {count} leads to {name} slot {slot}, its own is {wrong.own}"
        evidence.shape("I11", Severity.SHAPE, request, wrong.own, wrong.applied, message, name)
