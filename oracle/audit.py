"""Events in, findings out: what was launched runs on a memory of slots of our own.

The auditor follows the slots, with states that it computes from the tokens alone, and asks each of
:data:`stateat.oracle.checks.CHECKS` where it applies. It never sees why an engine decided anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stateat.oracle.acceptance import Acceptance
from stateat.oracle.checks import CHECKS, Moment
from stateat.oracle.claims import Claims
from stateat.oracle.evidence import Evidence
from stateat.oracle.lockstep import Lockstep
from stateat.oracle.numerics import Numerics
from stateat.oracle.ownership import Ownership
from stateat.oracle.reads import Reads
from stateat.oracle.slots import UNHEARD, UNKNOWN, Content
from stateat.oracle.states import DigestFamily, StateFamily
from stateat.oracle.states.numeric import Numeric
from stateat.sim.events import NULL, CopyKind, Finding, Group, Observer, Withdrawal, Write
from stateat.sim.tokens import Segments, Spans


class Auditor(Observer):
    """Listens to an engine and checks the invariants."""

    def __init__(self, family: StateFamily | None = None) -> None:
        self.family: StateFamily = DigestFamily() if family is None else family
        numeric = self.family if isinstance(self.family, Numeric) else None
        self.numerics = None if numeric is None else Numerics(numeric)
        taps = 0 if numeric is None else numeric.shape.conv_width
        self.lockstep = Lockstep(taps) if taps > 1 else None
        self.evidence = evidence = Evidence(self.family)
        self.now, self.requests, self.slots = evidence.now, evidence.requests, evidence.slots
        self.lineage, self.counts = evidence.lineage, evidence.counts
        self._checks = {moment: [c.check for c in CHECKS if c.moment is moment] for moment in Moment}
        self.acceptance = Acceptance()
        self.claims = Claims(evidence, self.numerics, self.lockstep)
        self.reads = Reads(evidence, self.numerics)
        self._tier: dict[tuple[int, str], Content | None] = {}
        """Content stored in a tier by (group, key); None: a slot without content."""
        self._storing: dict[tuple[int, str], int] = {}
        """The slots that are stored at the end of this step."""
        self._hands_out = False
        """True once the run has told which slots requests are given; a log need not."""
        self._placed = -1
        """The slot of a placement whose claim is still to come."""
        self._outcome = False
        """True once an outcome has been told in this step, behind what ran."""
        self._prefilled: list[str] = []
        self._ended: list[tuple[int, str]] = []
        """Requests, and the step in which they ended: steps in flight may still tell of them."""

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings, in the order in which they were made."""
        if self.numerics is not None:
            self.numerics.settle(self.lineage)
        return self.lineage.findings()

    # What the engine decides.

    def run(
        self, schema: str, engine: str, groups: tuple[Group, ...], num_speculative_tokens: int, options: dict[str, Any]
    ) -> None:
        evidence, claims = self.evidence, self.claims
        evidence.configure(groups, num_speculative_tokens, options)
        self.groups, self.recurrent = groups, evidence.recurrent
        for check in self._checks[Moment.RUN]:
            check(evidence, options)
        # Memory comes zeroed, and nobody is given the null block.
        self.slots.put(NULL, Content(self.family.zero(), 0, Write(-1, "", 0, 0, "null"), ""))
        self.ownership = Ownership(
            groups, num_speculative_tokens, options, self.now, claims.by_slot, claims.holds, self.lineage.add
        )

    def arrive(
        self,
        request: str,
        index: int,
        time_us: int,
        segments: Segments,
        tokens: tuple[int, ...] | None,
        max_tokens: int,
        encoder: Spans = (),
    ) -> None:
        self.evidence.arrive(request, index, segments, tokens, max_tokens, encoder)

    def step(self, index: int, time_us: int, budget: int) -> None:
        self.claims.decided()
        now = self.now
        now.index, now.time_us, now.decided = index, time_us, index
        if self.evidence.in_order:
            now.launched = index

    def launch(self, index: int) -> None:
        self.claims.decided()
        self.now.index = self.now.launched = index

    def defer(self, request: str, offered: int, why: str) -> None:
        self.claims.decided()
        self.requests[request].waits = f"deferred by {why}"

    def refuse(self, request: str, reason: str) -> None:
        self.claims.decided()
        self.requests[request].waits = f"refused: {reason}"

    def reset(self, done: bool) -> None:
        self.claims.decided()

    def preempt(self, request: str) -> None:
        self.claims.decided()
        seen = self.requests[request]
        seen.next, seen.since, seen.waits, seen.brought = 0, self.now.index, "preempted", False
        self.acceptance.forget(request, self.recurrent)
        self.ownership.leave(request)

    def admit(self, request: str, hit: int, external: int, resumed: bool) -> None:
        seen = self.requests[request]
        seen.hit, seen.external, seen.fresh, seen.misled, seen.brought = hit, external, True, False, False
        seen.unread = frozenset(self.recurrent)
        seen.next, seen.since = hit + external, self.now.index
        self.acceptance.forget(request, self.recurrent)
        seen.seeds.clear()

    def seed(self, request: str, group: int, column: int, width: int, slot: int) -> None:
        self.requests[request].seeds[group] = column, width

    def restore(self, request: str, group: int, slot: int, column: int, offset: int, group_hits: Sequence[int]) -> None:
        seen = self.requests[request]
        seen.next, seen.brought = offset, True
        for check in self._checks[Moment.RESTORE]:
            check(self.evidence, self.claims, request, group, slot, column, offset, group_hits)
        self.lineage.read(slot, request)
        self.slots.meet(slot)
        self.ownership.restore(request, group, slot, offset, tuple(self.claims.found(slot)))

    def release(self, request: str, group: int, slots: Sequence[int]) -> None:
        self.ownership.release(request, slots)

    def store(self, group: int, slot: int, key: str, offset: int) -> None:
        self._storing[group, key] = slot

    def load(self, request: str, group: int, key: str, slot: int, offset: int) -> None:
        write = Write(self.now.index, request, 0, offset, "load")
        self.requests[request].brought = True
        if self.ownership.load(request, group, slot, self.slots.get(slot)):
            # Nothing orders the two; the step's state is what is wrong.
            return
        if (group, key) not in self._tier:
            if key != request:
                # It was stored before anybody listened.
                self._put(slot, replace(UNHEARD, write=write))
                return
            # A connector's, of which nothing is known but what it says.
            state = self.family.state_at(self.requests[request].tokens, offset)
            self._put(slot, Content(state, offset, write, request))
            if self.lockstep is not None:
                self.lockstep.load(slot, self.requests[request].tokens, offset)
            return
        stored = self._tier[group, key]
        if stored is None:
            self._erase([slot])
            return
        self._put(slot, replace(stored, write=write))
        if self.lockstep is not None:
            self.lockstep.fetch((group, key), slot)
        self.lineage.loaded(stored.finding, request)

    def place(self, request: str, group: int, slot: int, offset: int) -> None:
        self.ownership.place(request, group, slot)
        write = Write(self.now.index, request, 0, offset, "place")
        self._put(slot, Content(self.evidence.state_at(request, offset), offset, write, request))
        if self.lockstep is not None and (tokens := self.evidence.tokens(request)) is not None:
            self.lockstep.load(slot, tokens, offset)
        self._placed = slot

    def claim(self, group: int, slot: int, request: str, column: int, offset: int, hash: bytes) -> None:
        if self._outcome:
            # What is published once an outcome is known comes after the prefills that ended in this step.
            self._count_prefilled()
        if self._hands_out:
            # A slot that only a copy is to fill is told of with its claim.
            self.slots.expect(slot)
        self.claims.claim(group, slot, request, column, offset, hash)
        if slot == self._placed:
            # The first decision of the step finds it.
            self._placed = -1
            self.claims.decided()

    def unclaim(self, group: int, slot: int, hash: bytes, why: str) -> None:
        self.claims.unclaim(group, slot, hash)
        if why == Withdrawal.ASKED:
            self.claims.decided()

    def allocate(self, request: str, group: int, column: int, slots: Sequence[int]) -> None:
        self.ownership.allocate(request, group, slots)
        self.slots.hand(slots)
        if self.groups[group].recurrent:
            self._hands_out = True
        else:
            self._erase([slot for slot in slots if slot != NULL])

    def copy(self, request: str, group: int, kind: str, src: int, dst: int, conv_src: int, shift: int) -> None:
        if not self.groups[group].recurrent:
            self.ownership.erase(group, dst)
            self._erase([dst])
            return
        stale = kind != CopyKind.COW and self.now.index < self.requests[request].since
        if kind == CopyKind.PRE and not stale:
            self.acceptance.check_count(self.evidence, request, group, src)
            self.acceptance.row(request, group, [(0, dst)], 1)
        elif kind == CopyKind.POST and not stale:
            self.acceptance.copied(request, group, src, dst)
        if self.lockstep is not None:
            self.lockstep.copy(conv_src, dst, shift)
        if src != dst:
            source = self.slots.get(src)
            self.ownership.copy(request, group, kind, src, dst, source)
            absorbed = source.absorbed if source is not None else 0
            self.slots.copy(src, dst, Write(self.now.index, request, absorbed, absorbed, kind))
        if dst in self.claims.by_slot:
            self.claims.due[dst] = None
        if kind == CopyKind.POST and not stale:
            self.reads.check_boundary(request, group, dst)

    # What is launched, and what comes of it.

    def chunk(
        self, request: str, start: int, end: int, drafts: int, stop: str, steps: int, accepted: Sequence[int]
    ) -> None:
        self.claims.decided()
        seen = self.requests[request]
        for check in self._checks[Moment.CHUNK]:
            check(self.evidence, request, seen, start, end, stop)
        if start < seen.prefill_end:
            for check in self._checks[Moment.PREFILL]:
                check(self.evidence, request, seen, start, end, stop)
        seen.fresh = False
        seen.known = max(end - drafts, start + 1) if drafts else end
        seen.next = seen.known + (accepted[-1] if steps else 0)
        seen.kept = accepted[-1] + 1 if steps else 1

    def advance(
        self,
        request: str,
        group: int,
        start: int,
        end: int,
        drafts: Sequence[int],
        read: int,
        writes: Sequence[tuple[int, int]],
        steps: int,
    ) -> None:
        seen, family = self.requests[request], self.family
        content = self.slots.get(read) if read >= 0 else None
        if read >= 0:
            self.ownership.read(request, group, read, content)
        known = end - len(drafts)
        self._outcome = False
        if end >= seen.num_prompt and not seen.prefilled:
            seen.prefilled = True
            self._prefilled.append(request)
        stale = self.now.index < seen.since
        # It was preempted behind the step of this row.
        if not stale:
            self.acceptance.check_count(self.evidence, request, group, read)
            # A row leaves a state after each token, or one at its end that counts (and others on its way). In all mode
            # no count leads on from a row of fewer drafts than K: the next one's column follows from what is computed.
            wide = len(drafts) > self.evidence.num_drafts
            several = (wide or len(writes) == len(drafts) + 1) and writes[0][0] == known
            several = several and (len(writes) == self.evidence.num_drafts + 1 or self.groups[group].aligned)
            self.acceptance.row(request, group, writes if several else writes[-1:], seen.kept if steps else 1)
        ancestor: int | None = None
        heard = content is None or content.heard
        state: Any
        if read < 0:
            state, absorbed, right = family.zero(), 0, start == 0
        elif content is None or content.state is None:
            state, absorbed, right = None, UNKNOWN, False
        else:
            state, absorbed = content.state, content.absorbed
            right = family.equal(state, family.state_at(seen.tokens, start))
        if heard and group in seen.unread and (seen.hit or seen.external):
            self.counts.judged += 1
        if not right:
            ancestor = self.reads.check_read(request, seen, group, read, start, content, max(steps, 1))
        if not stale:
            seen.unread -= {group}
        if self.lockstep is not None:
            self.lockstep.row(self.evidence, seen, group, start, end, drafts, read, writes)
        # Of a run of decode steps the last one wrote what is there now.
        begin = known - 1 if steps > 1 else start
        write = Write(self.now.index - (1 if steps else 0), request, begin, end, "chunk")
        for offset, slot in writes:
            if state is None:
                made, count = None, UNKNOWN
            else:
                made = family.advance(state, seen.tokens, start, min(offset, known), drafts[: max(offset - known, 0)])
                count = absorbed + offset - start
            self.ownership.write(request, group, slot)
            self._put(slot, Content(made, count, write, request, None, ancestor, heard))

    def accept(self, request: str, drafted: int, accepted: int) -> None:
        self.requests[request].next += accepted
        self.acceptance.verified(request, self.recurrent, accepted + 1)

    def output(self, request: str, count: int, tokens: tuple[int, ...] | None) -> None:
        seen = self.requests[request]
        if tokens is not None:
            seen.tokens.extend(tokens)
        seen.outputs += count
        self._outcome = True

    def finish(self, request: str) -> None:
        # A step in flight may have a row of it yet.
        self._ended.append((self.now.decided, request))
        self.ownership.leave(request)

    def abort(self, request: str) -> None:
        self.claims.decided()
        self._ended.append((self.now.decided, request))
        self.ownership.leave(request)

    def commit(self, time_us: int) -> None:
        self.claims.check(self.ownership.awaiting)
        for key, slot in self._storing.items():
            # After the checks: what is found wrong is stored as such.
            self._tier[key] = self.slots.get(slot)
            if self.lockstep is not None:
                self.lockstep.store(slot, key)
        self._storing.clear()
        self._count_prefilled()
        self.ownership.commit(self.now.launched)
        for step, request in self._ended:
            if step <= self.now.launched:
                del self.requests[request]
                self.acceptance.forget(request, self.recurrent)
        self._ended = [(step, request) for step, request in self._ended if step > self.now.launched]

    def _count_prefilled(self) -> None:
        for request in self._prefilled:
            self.claims.reachability.count_boundaries(self.requests[request])
        self._prefilled.clear()

    def end(self, steps: int, time_us: int, livelock: bool) -> None:
        if livelock:
            for check in self._checks[Moment.LIVELOCK]:
                check(self.evidence, {request for _, request in self._ended}, steps, time_us)

    def close(self) -> None:
        """No more will be told: what is due, or is to be read, is not judged."""
        for slot in self.claims.due:
            self.counts.not_judged.update((hash, slot) for hash in self.claims.by_slot[slot])
        ended = {request for _, request in self._ended}
        for request, seen in self.requests.items():
            if seen.brought and request not in ended:
                self.counts.not_judged.update((request, group) for group in seen.unread)

    # The slots.

    def _erase(self, slots: Sequence[int]) -> None:
        """Erase slots over which attention writes."""
        self.slots.erase(slots)
        if self.lockstep is not None:
            self.lockstep.erase(slots)
        claimed = self.claims.by_slot
        for slot in slots:
            if slot in claimed:
                self.claims.due[slot] = None

    def _put(self, slot: int, content: Content) -> None:
        self.slots.put(slot, content)
        if slot in self.claims.by_slot:
            self.claims.due[slot] = None
