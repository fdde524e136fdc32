"""Lineage: which findings follow from which, and who read what was wrong."""

from __future__ import annotations

from dataclasses import dataclass, field

from stateat.sim.events import Finding, Severity, Write


@dataclass(slots=True)
class Draft:
    """A finding while the run goes on: its readers are still to come."""

    invariant: str
    severity: Severity
    step: int
    time_us: int
    request: str
    group: str
    column: int
    slot: int
    claimed: int | None
    held: int | None
    verdict: str
    message: str
    root: int | None = None
    write: Write | None = None
    claimed_by: str = ""
    readers: dict[str, None] = field(default_factory=dict)
    error: float | None = None


class Lineage:
    """Findings of a run, in the order in which they were made."""

    __slots__ = ("_by_slot", "drafts")

    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self._by_slot: dict[int, list[int]] = {}

    def add(self, draft: Draft) -> int:
        """Record a finding; returns its id."""
        self.drafts.append(draft)
        return len(self.drafts) - 1

    def root_of(self, finding: int | None) -> int | None:
        """The root that a finding goes back to: itself, if it is one."""
        if finding is None or finding < 0:
            return finding
        root = self.drafts[finding].root
        return finding if root is None else root

    def poison(self, slot: int, finding: int) -> None:
        """Mark a slot: whoever restores from it is a reader of the finding, until it is healed."""
        self._by_slot.setdefault(slot, []).append(finding)

    def heal(self, slot: int) -> None:
        """The slot's claims are gone: nobody can restore from it any more."""
        self._by_slot.pop(slot, None)

    def read(self, slot: int, request: str) -> None:
        """A request restored from a slot."""
        for finding in self._by_slot.get(slot, ()):
            self.drafts[finding].readers[request] = None

    def loaded(self, finding: int | None, request: str) -> None:
        """A request got what a finding is about from elsewhere."""
        if finding is not None:
            self.drafts[finding].readers[request] = None

    def findings(self) -> tuple[Finding, ...]:
        """The findings, closed."""
        return tuple(
            Finding(
                i, d.invariant, d.severity, d.step, d.time_us, d.request, d.group, d.column, d.slot, d.claimed,
                d.held, d.verdict, d.root, tuple(d.readers), d.message, d.write, d.claimed_by, d.error,
            )
            for i, d in enumerate(self.drafts)
        )  # fmt: skip
