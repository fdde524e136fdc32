"""I1 content: at the end of each step a claimed slot holds exactly what its claims name.

Verified:

- I1 content: at the end of each step a claimed slot holds exactly the state that each of its claims names

Not verified:

- I1: attention's blocks, which hold no state; slots written before anybody listened; claims whose step is still in
  flight when the log ends; claims made and withdrawn within a step, which nobody can hit
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stateat.oracle.evidence import Evidence
from stateat.oracle.lockstep import Lockstep
from stateat.oracle.numerics import ClaimedSlot, Numerics
from stateat.oracle.reachability import Reachability
from stateat.oracle.records import Claimed
from stateat.oracle.slots import Content
from stateat.sim.events import Holding

Awaiting = Callable[[int], Iterable[str]]
"""Requests that are to start from a slot, and have not read it yet."""


class Claims:
    """Claims of all slots, and the check that each is true."""

    def __init__(self, evidence: Evidence, numerics: Numerics | None, lockstep: Lockstep | None) -> None:
        self.evidence = evidence
        self.numerics = numerics
        self.lockstep = lockstep
        self.reachability = Reachability(evidence)
        self.by_slot: dict[int, dict[bytes, Claimed]] = {}
        self._named: dict[tuple[int, bytes], dict[int, Any]] = {}
        """(group, hash) -> the slots that it leads to, each with the state that it is claimed to hold."""
        self.due: dict[int, None] = {}
        """Slots that were claimed, or written while claimed, in this step."""
        self._withdrawn: list[tuple[int, Claimed]] = []
        """(slot, claim) withdrawn by the decision that is being told."""
        self._bare: list[int] = []
        """Slots that this decision left with no claim."""
        self._before = 0
        """Claims made before the decision that is being told."""
        self._pairs: dict[tuple[bytes, int], int] = {}
        """The finding of each (hash, slot) that was ever wrong."""

    def claim(self, group: int, slot: int, request: str, column: int, offset: int, hash: bytes) -> None:
        """Record that a slot is published as a state of this request's prefix."""
        evidence = self.evidence
        truth = evidence.state_at(request, offset)
        claim = Claimed(group, request, column, offset, truth, evidence.now.index, evidence.counts.claims)
        self.by_slot.setdefault(slot, {})[hash] = claim
        self._named.setdefault((group, hash), {})[slot] = truth
        self.due[slot] = None
        self.reachability.claim(group, truth, slot)
        evidence.counts.claims += 1

    def unclaim(self, group: int, slot: int, hash: bytes) -> None:
        """Withdraw one claim; a slot without claims is no longer checked."""
        claims = self.by_slot.get(slot, {})
        if hash not in claims:
            # It was advertised before anybody listened.
            return
        withdrawn = claims.pop(hash)
        named = self._named[group, hash]
        del named[slot]
        if not named:
            del self._named[group, hash]
        self._withdrawn.append((slot, withdrawn))
        truth = withdrawn.truth
        if all(c.truth != truth for c in claims.values()):
            self.reachability.unclaim(group, truth, slot)
        if not claims:
            del self.by_slot[slot]
            self.due.pop(slot, None)
            self._bare.append(slot)

    def decided(self) -> None:
        """A decision has been told with all that it publishes and withdraws: the next one finds the cache so."""
        self._before = self.evidence.counts.claims
        for slot in self._bare:
            self.evidence.lineage.heal(slot)
        self._bare.clear()
        self._withdrawn.clear()

    def found(self, slot: int) -> Iterator[Claimed]:
        """Yield the claims on a slot that the decision being told could see: what it publishes and withdraws itself is
        told before its hit, and does not count."""
        yield from (claim for claim in self.by_slot.get(slot, {}).values() if claim.number < self._before)
        yield from (claim for other, claim in self._withdrawn if other == slot and claim.number < self._before)

    def holds(self, slot: int, claim: Claimed) -> bool:
        """True if a slot holds what this claim says."""
        return self.evidence.holds(slot, claim.truth)

    def check(self, awaiting: Awaiting) -> None:
        """Check all slots that are due, in order of slots."""
        due = sorted(self.due)
        self.due.clear()
        for slot in due:
            self.check_content(slot, awaiting)

    def check_content(self, slot: int, awaiting: Awaiting) -> None:
        """I1 content, of one slot; I13 where its matrix is right."""
        evidence, counts = self.evidence, self.evidence.counts
        content, launched = evidence.slots.get(slot), evidence.now.launched
        evidence.lineage.heal(slot)
        for hash, claim in self.by_slot[slot].items():
            if claim.step > launched:
                # Its step is in flight.
                self.due[slot] = None
                continue
            if content is not None and not content.heard:
                counts.not_judged.add((hash, slot))
                continue
            counts.judged += 1
            if content is not None and content.state is not None and evidence.family.equal(content.state, claim.truth):
                lockstep = self.lockstep
                torn = None if lockstep is None else lockstep.check_window(evidence, hash, claim, slot, content)
                wrong = self._check_name(hash, claim, slot, content) if torn is None else torn
                if wrong is None:
                    self._measure(content, claim, slot, None)
                else:
                    counts.wrong.setdefault(claim.number, wrong)
                continue
            if (hash, slot) in self._pairs:
                counts.wrong.setdefault(claim.number, self._pairs[hash, slot])
                self._mark(slot, self._pairs[hash, slot])
                continue
            root = None if content is None else evidence.root(content)
            counts.poisoned += 1
            counts.poisoned_roots += root is None
            held, verdict, what = evidence.verdict(content, claim.request)
            name = evidence.groups[claim.group].name
            message = (
                f"{name} column {claim.column} (slot {slot}, request {claim.request}) is hashed as "
                f"state@{claim.offset} but {what}"
            )
            where = (claim.request, claim.group, claim.column, slot, claim.offset)
            by = f"{claim.request} in step {claim.step}"
            finding = evidence.poison("I1", *where, held, verdict, message, content, root, by)
            self._pairs[hash, slot] = finding
            counts.wrong.setdefault(claim.number, finding)
            self._mark(slot, finding)
            if not evidence.in_order:
                for reader in awaiting(slot):
                    evidence.lineage.read(slot, reader)
            counts.verdicts[verdict] = counts.verdicts.get(verdict, 0) + 1
            if content is not None and content.state is not None:
                self._measure(content, claim, slot, finding)

    def _check_name(self, hash: bytes, claim: Claimed, slot: int, content: Content) -> int | None:
        """I1 again: a hash that leads to several slots leads to one state. Returns the finding if it does not."""
        other, truth = next(iter(self._named[claim.group, hash].items()))
        if truth == claim.truth:
            return None
        if (hash, slot) not in self._pairs:
            evidence, counts = self.evidence, self.evidence.counts
            counts.poisoned += 1
            counts.poisoned_roots += 1
            counts.verdicts[Holding.FOREIGN] = counts.verdicts.get(Holding.FOREIGN, 0) + 1
            first = self.by_slot[other][hash]
            message = (
                f"{evidence.groups[claim.group].name} column {claim.column} (slot {slot}, request {claim.request}) is "
                f"hashed as state@{first.offset} of request {first.request} (slot {other}) but holds "
                f"state@{claim.offset} of another prefix"
            )
            where = (claim.request, claim.group, claim.column, slot, claim.offset, claim.offset, Holding.FOREIGN)
            by = f"{claim.request} in step {claim.step}"
            self._pairs[hash, slot] = evidence.poison("I1", *where, message, content, None, by)
        self._mark(slot, self._pairs[hash, slot])
        return self._pairs[hash, slot]

    def _mark(self, slot: int, finding: int) -> None:
        """Mark a slot: whoever reads it from now on reads what the finding is about."""
        self.evidence.lineage.poison(slot, finding)
        self.evidence.slots.blame(slot, finding)

    def _measure(self, content: Content, claim: Claimed, slot: int, finding: int | None) -> None:
        """Have a claimed slot compared in numbers too."""
        if self.numerics is not None:
            now, name = self.evidence.now, self.evidence.groups[claim.group].name
            where = (claim.request, name, claim.column, slot, claim.offset)
            self.numerics.note(ClaimedSlot(content.state, claim.truth, *where, now.index, now.time_us, finding))
