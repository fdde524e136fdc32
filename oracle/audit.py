"""Events in, findings out: every claim against what the slot really holds (DESIGN 7).

The auditor runs what was launched on its own memory of slots, with states that it computes from the tokens alone. It
never sees why an engine decided anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from oracle.acceptance import Acceptance
from oracle.custody import Custody, Now
from oracle.grid import disagreements
from oracle.lineage import Draft, Lineage
from oracle.lockstep import Lockstep
from oracle.numerics import Check, Numerics
from oracle.records import Claimed, Counts, Seen
from oracle.slots import UNKNOWN, Content, Slots
from oracle.states import Digest, Family
from oracle.states.numeric import Numeric
from sim.events import Finding, Group, Observer, Write
from sim.tokens import Segments, Tokens

CAUSES = ("partial-tail", "junction", "checkpoint", "look-ahead", "encoder", "snapshot-point")
"""Stops off the grid that a chunk may have before the prefill's end (I2)."""

NULL = 0
"""The null block."""


class Auditor(Observer):
    """Listens to an engine and checks the invariants."""

    def __init__(self, family: Family | None = None) -> None:
        self.family: Family = Digest() if family is None else family
        numeric = self.family if isinstance(self.family, Numeric) else None
        self.numerics = None if numeric is None else Numerics(numeric)
        taps = 0 if numeric is None else numeric.shape.conv_width
        self.lockstep = Lockstep(taps) if taps > 1 else None
        self.acceptance = Acceptance()
        self.slots = Slots()
        self.lineage = Lineage()
        self.counts = Counts()
        self.groups: tuple[Group, ...] = ()
        self.recurrent: list[int] = []
        self.hash_unit = 0
        self.cap = 0
        self.index = 0
        self.time_us = 0
        self.requests: dict[str, Seen] = {}
        self.claims: dict[int, dict[bytes, Claimed]] = {}
        self._due: dict[int, None] = {}
        """Slots that were claimed, or written while claimed, in this step."""
        self._pairs: dict[tuple[bytes, int], int] = {}
        """The finding of each (hash, slot) that was ever wrong."""
        self._torn: dict[tuple[bytes, int], int] = {}
        """The finding of those whose components differed."""
        self._past: dict[str, Callable[[], Tokens]] = {}
        """The tokens of requests that ended: generated again if need be."""
        self._ever: set[tuple[int, Any]] = set()
        """(group, state) of every claim ever made."""
        self._live: dict[tuple[int, Any], dict[int, None]] = {}
        self._tier: dict[tuple[int, str], Content | None] = {}
        """What was stored under a key of a group; None: a slot without content."""
        self._storing: dict[tuple[int, str], int] = {}
        """The slots that are stored at the end of this step."""
        self._prefilled: list[str] = []
        self._ended: list[tuple[int, str]] = []
        """Requests, and the step in which they ended: steps in flight may still tell of them."""
        self.launched = 0
        """The last step that ran."""

    def findings(self) -> tuple[Finding, ...]:
        """What was found, in order."""
        self._settle()
        return self.lineage.findings()

    def _settle(self) -> None:
        """Numbers for what was found, and what the numbers alone show: I18, a state that is no number."""
        if self.numerics is None:
            return
        self.numerics.flush()
        done = self.numerics.measured
        for finding, error in done.errors.items():
            self.lineage.drafts[finding].error = error
        for check in done.infinite:
            message = (
                f"{check.group} column {check.column} (slot {check.slot}, request {check.request}) is hashed as "
                f"state@{check.claimed} and holds NaN or infinity"
            )
            self.lineage.add(
                Draft(
                    "I18", "numerics", check.step, check.time_us, check.request, check.group, check.column, check.slot,
                    check.claimed, check.claimed if check.finding is None else None, "not finite", message,
                )
            )  # fmt: skip
        done.infinite.clear()

    # What the engine says.

    def run(
        self, schema: str, engine: str, groups: tuple[Group, ...], num_speculative_tokens: int, options: dict[str, Any]
    ) -> None:
        self.groups = groups
        self.recurrent = [i for i, g in enumerate(groups) if g.recurrent]
        self.hash_unit = options["hash_unit"]
        threshold = options["long_prefill_token_threshold"]
        self.cap = options["max_num_batched_tokens"]
        if threshold > 0:
            self.cap = min(self.cap, threshold)
        self.lookups = options["enable_prefix_caching"]
        self.num_drafts = num_speculative_tokens
        self._check_grid(options)
        self.in_order = options.get("max_concurrent_batches", 1) == 1
        self.launched = 0 if self.in_order else -1
        self.custody = Custody(groups, num_speculative_tokens, options, self.claims, self._is, self.lineage.add)

    def arrive(
        self,
        request: str,
        index: int,
        time_us: int,
        segments: Segments,
        tokens: tuple[int, ...] | None,
        max_tokens: int,
    ) -> None:
        if tokens is not None:
            stream = Tokens.explicit(tokens)
            self._past[request] = lambda: stream
        else:
            again = partial(Tokens.generate, segments, index, max_tokens + self.num_drafts + 1)
            stream, self._past[request] = again(), again
        self.requests[request] = Seen(stream, stream.num_prompt)

    def step(self, index: int, time_us: int, budget: int) -> None:
        self.index = index
        self.time_us = time_us
        self.custody.now = Now(index, time_us)
        if self.in_order:
            self.launched = index

    def launch(self, index: int) -> None:
        self.index = self.launched = index
        self.custody.now = Now(index, self.time_us)

    def defer(self, request: str, offered: int, why: str) -> None:
        self.requests[request].waits = f"deferred by {why}"

    def refuse(self, request: str, reason: str) -> None:
        self.requests[request].waits = f"refused: {reason}"

    def preempt(self, request: str) -> None:
        seen = self.requests[request]
        seen.next, seen.since, seen.waits = 0, self.index, "preempted"
        self.acceptance.forget(request, self.recurrent)
        self.custody.leave(request)

    def admit(self, request: str, hit: int, external: int, resumed: bool) -> None:
        seen = self.requests[request]
        seen.hit, seen.external, seen.fresh, seen.misled = hit, external, True, False
        seen.unread = frozenset(self.recurrent)
        seen.next, seen.since = hit + external, self.index
        self.acceptance.forget(request, self.recurrent)
        seen.seeds.clear()

    def seed(self, request: str, group: int, column: int, width: int, slot: int) -> None:
        self.requests[request].seeds[group] = column, width
        if slot == NULL and self.slots.get(NULL) is None:
            # Memory comes zeroed, and nobody is given the null block.
            self.slots.put(NULL, Content(self.family.zero(), 0, Write(self.index, "", 0, 0, "null"), ""))

    def restore(self, request: str, group: int, slot: int, column: int, offset: int, group_hits: Sequence[int]) -> None:
        self.requests[request].next = offset
        self._check_agreement(request, group, slot, column, offset, group_hits)
        self.lineage.read(slot, request)
        self.custody.restore(request, group, slot, offset)

    def release(self, request: str, group: int, slots: Sequence[int]) -> None:
        self.custody.release(request, slots)

    def store(self, group: int, slot: int, key: str, offset: int) -> None:
        self._storing[group, key] = slot

    def load(self, request: str, group: int, key: str, slot: int, offset: int) -> None:
        write = Write(self.index, request, 0, offset, "load")
        self.custody.load(request, group, slot)
        if (group, key) not in self._tier:
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

    def claim(self, group: int, slot: int, request: str, column: int, offset: int, hash: bytes) -> None:
        # What a step publishes when it commits comes after the prefills that ended in it.
        self._count_prefilled()
        truth = self.family.state_at(self.requests[request].tokens, offset)
        self.claims.setdefault(slot, {})[hash] = Claimed(
            group, request, column, offset, truth, self.index, self.counts.claims
        )
        self._due[slot] = None
        self._ever.add((group, truth))
        self._live.setdefault((group, truth), {})[slot] = None
        self.counts.claims += 1

    def unclaim(self, group: int, slot: int, hash: bytes, why: str) -> None:
        claims = self.claims[slot]
        truth = claims.pop(hash).truth
        if all(c.truth != truth for c in claims.values()):
            self._live[group, truth].pop(slot, None)
        if not claims:
            del self.claims[slot]
            self._due.pop(slot, None)
            self.lineage.heal(slot)

    def allocate(self, request: str, group: int, column: int, slots: Sequence[int]) -> None:
        self.custody.allocate(request, group, slots)
        if not self.groups[group].recurrent:
            self._erase(slots)

    def copy(self, request: str, group: int, kind: str, src: int, dst: int, conv_src: int, shift: int) -> None:
        if not self.groups[group].recurrent:
            self.custody.erase(group, dst)
            self._erase([dst])
            return
        stale = kind != "cow" and self.index < self.requests[request].since
        if kind == "pre" and not stale:
            self._check_count(request, group, src)
            self.acceptance.row(request, group, [(0, dst)], 1)
        elif kind == "post" and not stale:
            self.acceptance.copied(request, group, src, dst)
        if self.lockstep is not None:
            self.lockstep.copy(conv_src, dst, shift)
        if src != dst:
            source = self.slots.get(src)
            self.custody.copy(request, group, kind, src, dst, source)
            absorbed = source.absorbed if source is not None else 0
            self.slots.copy(src, dst, Write(self.index, request, absorbed, absorbed, kind))
        if dst in self.claims:
            self._due[dst] = None
        if kind == "post" and not stale:
            self._check_boundary(request, group, dst)

    def chunk(
        self, request: str, start: int, end: int, drafts: int, stop: str, steps: int, accepted: Sequence[int]
    ) -> None:
        seen = self.requests[request]
        self._check_start(request, seen, start)
        if start < seen.prefill_end:
            self._check_shape(request, seen, start, end, stop)
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
            self.custody.read(request, group, read, content)
        known = end - len(drafts)
        stale = self.index < seen.since
        # It was preempted behind the step of this row.
        if not stale:
            self._check_count(request, group, read)
            # A row leaves a state after each token, or one at its end that counts (and others on its way).
            several = len(writes) == len(drafts) + 1 and writes[0][0] == known
            self.acceptance.row(request, group, writes if several else writes[-1:], seen.kept if steps else 1)
        ancestor: int | None = None
        state: Any
        if read < 0:
            state, absorbed, right = family.zero(), 0, start == 0
        elif content is None or content.state is None:
            state, absorbed, right = None, UNKNOWN, False
        else:
            state, absorbed = content.state, content.absorbed
            right = family.equal(state, family.state_at(seen.tokens, start))
        if not right:
            ancestor = self._check_read(request, seen, group, read, start, content, max(steps, 1))
        if not stale:
            seen.unread -= {group}
        if self.lockstep is not None:
            self._advance_inputs(seen, group, start, end, drafts, read, writes)
        # Of a run of decode steps the last one wrote what is there now.
        begin = known - 1 if steps > 1 else start
        write = Write(self.index - (1 if steps else 0), request, begin, end, "chunk")
        for offset, slot in writes:
            if state is None:
                made, count = None, UNKNOWN
            else:
                made = family.advance(state, seen.tokens, start, min(offset, known), drafts[: max(offset - known, 0)])
                count = absorbed + offset - start
            self.custody.write(request, group, slot)
            self._put(slot, Content(made, count, write, request, None, ancestor))

    def _advance_inputs(
        self,
        seen: Seen,
        group: int,
        start: int,
        end: int,
        drafts: Sequence[int],
        read: int,
        writes: Sequence[tuple[int, int]],
    ) -> None:
        """The window of inputs of a speculative row is that of the running column, wherever its state is."""
        assert self.lockstep is not None
        several = self.num_drafts > 0 and self.groups[group].aligned and len(writes) == len(drafts) + 1
        speculative = several and (len(drafts) > 0 or (start >= seen.num_prompt and writes[0][0] == start + 1))
        source, shift = read, 0
        if speculative and read >= 0 and (running := writes[0][1]) != read:
            at, kept = self.slots.get(read), self.slots.get(running)
            source, shift = running, (0 if at is None or kept is None else at.absorbed - kept.absorbed)
        self.lockstep.advance(seen.tokens, start, end, drafts, source, shift, writes, speculative)

    def accept(self, request: str, drafted: int, accepted: int) -> None:
        self.requests[request].next += accepted
        self.acceptance.verified(request, self.recurrent, accepted + 1)

    def output(self, request: str, count: int, tokens: tuple[int, ...] | None) -> None:
        seen = self.requests[request]
        if tokens is not None:
            seen.tokens.extend(tokens)
        seen.outputs += count
        if not seen.prefilled:
            seen.prefilled = True
            self._prefilled.append(request)

    def finish(self, request: str) -> None:
        self._ended.append((self.index, request))
        self.custody.leave(request)

    def abort(self, request: str) -> None:
        self._ended.append((self.index, request))
        self.custody.leave(request)

    def commit(self, time_us: int) -> None:
        due, self._due = sorted(self._due), {}
        for slot in due:
            self._check_claims(slot)
        for key, slot in self._storing.items():
            # After the checks: what is found wrong is stored as such.
            self._tier[key] = self.slots.get(slot)
            if self.lockstep is not None:
                self.lockstep.store(slot, key)
        self._storing.clear()
        self._count_prefilled()
        self.custody.commit(self.launched)
        for step, request in self._ended:
            if step <= self.launched:
                del self.requests[request]
                self.acceptance.forget(request, self.recurrent)
        self._ended = [(step, request) for step, request in self._ended if step > self.launched]

    def _count_prefilled(self) -> None:
        for request in self._prefilled:
            self._count_boundaries(self.requests[request])
        self._prefilled.clear()

    def end(self, steps: int, time_us: int, livelock: bool) -> None:
        if livelock:
            self._check_progress(steps, time_us)

    # The invariants.

    def _check_grid(self, options: dict[str, Any]) -> None:
        """I3 one grid: the options in force give every component the same block size for a group."""
        for wrong in disagreements(self.groups, options) if self.lookups else ():
            self._shape("I3", "shape", "", wrong.block, wrong.other, wrong.message, wrong.group)

    def _check_claims(self, slot: int) -> None:
        """I1 content: at the end of each step a claimed slot holds exactly what its claims name."""
        content = self.slots.get(slot)
        self.lineage.heal(slot)
        for hash, claim in self.claims[slot].items():
            if claim.step > self.launched:
                # Its step is in flight.
                self._due[slot] = None
                continue
            if content is not None and content.state is not None and self.family.equal(content.state, claim.truth):
                if self._is_torn(hash, claim, slot, content):
                    self.counts.wrong.setdefault(claim.number, self._torn[hash, slot])
                else:
                    self._measure(content, claim, slot, None)
                continue
            if (hash, slot) in self._pairs:
                self.counts.wrong.setdefault(claim.number, self._pairs[hash, slot])
                self._mark(slot, self._pairs[hash, slot])
                continue
            root = None if content is None else self._blame(content)
            self.counts.poisoned += 1
            self.counts.poisoned_roots += root is None
            held, verdict, what = self._verdict(content, claim.request)
            name = self.groups[claim.group].name
            message = (
                f"{name} column {claim.column} (slot {slot}, request {claim.request}) is hashed as "
                f"state@{claim.offset} but {what}"
            )
            finding = self._poison(
                "I1",
                claim.request,
                claim.group,
                claim.column,
                slot,
                claim.offset,
                held,
                verdict,
                message,
                content,
                root,
                f"{claim.request} in step {claim.step}",
            )
            self._pairs[hash, slot] = finding
            self.counts.wrong.setdefault(claim.number, finding)
            self._mark(slot, finding)
            if not self.in_order:
                for reader in self.custody.awaiting(slot):
                    self.lineage.read(slot, reader)
            self.counts.verdicts[verdict] = self.counts.verdicts.get(verdict, 0) + 1
            if content is not None and content.state is not None:
                self._measure(content, claim, slot, finding)

    def _measure(self, content: Content, claim: Claimed, slot: int, finding: int | None) -> None:
        """Have a claimed slot compared in numbers too."""
        if self.numerics is not None:
            where = (claim.request, self.groups[claim.group].name, claim.column, slot, claim.offset)
            self.numerics.note(Check(content.state, claim.truth, *where, self.index, self.time_us, finding))

    def _is_torn(self, hash: bytes, claim: Claimed, slot: int, content: Content) -> bool:
        """I13: where the matrix is right, the window of the convolution is too."""
        if self.lockstep is None or claim.request not in self.requests:
            return False
        window = self.lockstep.window(self.requests[claim.request].tokens, claim.offset)
        if self.lockstep.held(slot) == window:
            return False
        if (hash, slot) not in self._torn:
            self.counts.verdicts["torn"] = self.counts.verdicts.get("torn", 0) + 1
            message = (
                f"{self.groups[claim.group].name} column {claim.column} (slot {slot}, request {claim.request}) holds "
                f"state@{claim.offset}, but its convolution has the inputs of another offset"
            )
            where = (claim.request, claim.group, claim.column, slot, claim.offset, claim.offset)
            self._torn[hash, slot] = self._poison("I13", *where, "torn", message, content)
        self.lineage.poison(slot, self._torn[hash, slot])
        return True

    def _mark(self, slot: int, finding: int) -> None:
        """Whoever reads this slot from now on reads what the finding is about."""
        self.lineage.poison(slot, finding)
        self.slots.blame(slot, finding)

    def _blame(self, content: Content) -> int | None:
        """The root of a wrong content: None if the content itself is one."""
        if content.ancestor is not None and content.ancestor >= 0:
            return content.ancestor
        return self.lineage.root_of(content.finding)

    def _verdict(self, content: Content | None, request: str) -> tuple[int | None, str, str]:
        """What a slot really holds: the offset, the verdict, and both in words."""
        if content is None:
            return None, "never written", "was never written"
        if content.state is None:
            return None, "unknown", "holds a state made from a slot that was never written"
        held = content.absorbed
        if self.family.equal(content.state, self.family.zero()):
            return 0, "zero", "holds a zero state"
        offset = self._offset(content.state, request)
        if offset is not None:
            return offset, "wrong offset", f"holds state@{offset}"
        if content.ancestor is not None:
            return held, "tainted", f"holds {held} tokens counted from a wrong state"
        offset = self._offset(content.state, content.origin)
        if offset is not None:
            return offset, "foreign", f"holds state@{offset} of request {content.origin}"
        return held, "unknown", f"holds {held} tokens of no known prefix"

    def _offset(self, state: Any, request: str) -> int | None:
        """The offset at which this is the request's state, also if the request has ended."""
        seen = self.requests.get(request)
        if seen is not None:
            return self.family.find(state, seen.tokens)
        return self.family.find(state, self._past[request]()) if request in self._past else None

    def _check_read(
        self, request: str, seen: Seen, group: int, read: int, start: int, content: Content | None, times: int
    ) -> int:
        """I10 seed, I12 boundary copy: what a request reads is its state@start. Returns the root of what it read."""
        first = group in seen.unread
        self.counts.tainted[request] = None
        restored = first and (seen.hit or seen.external) and not seen.misled
        if restored:
            self.counts.wrong_restores += 1
            seen.misled = True
        if seen.misread != (self.index, start):
            self.counts.wrong_reads += times - bool(restored)
        seen.misread = self.index, start
        blamed = None if content is None else self._blame(content)
        if blamed is not None or (content is not None and content.ancestor is not None):
            return -1 if blamed is None else blamed
        held, verdict, what = self._verdict(content, request)
        name, invariant = self.groups[group].name, "I10" if first else "I12"
        right = (start - 1) // self.groups[group].block_size
        column, width = seen.seeds.get(group, (right, 0)) if first else (right, 0)
        message = f"{request} continues at {start} from {name} slot {read}, which {what}"
        outside = 0 < width <= column
        if column != right:
            row = f" of a row of {width}" if outside else ""
            message += f": it was taken from column {column}{row}, and state@{start} is in column {right}"
        if outside:
            verdict = "out of range"
        finding = self._poison(invariant, request, group, column, read, start, held, verdict, message, content)
        if self.numerics is not None and content is not None and content.state is not None:
            where = (request, name, column, read, start)
            truth = self.family.state_at(seen.tokens, start)
            self.numerics.note(Check(content.state, truth, *where, self.index, self.time_us, finding))
        if read >= 0:
            self.slots.blame(read, finding)
        return finding

    def _check_agreement(
        self, request: str, group: int, slot: int, column: int, offset: int, group_hits: Sequence[int]
    ) -> None:
        """I5 agreement: a hit is published in this recurrent group, and covered by every attention group."""
        seen = self.requests[request]
        truth = self.family.state_at(seen.tokens, offset)
        if all(c.group != group or c.truth != truth for c in self.claims.get(slot, {}).values()):
            name = self.groups[group].name
            message = f"{request} was given a hit of {offset} tokens, and {name} has no state@{offset} (slot {slot})"
            self._shape("I5", "poison", request, offset, group_hits[group], message, name, column)
        if group != self.recurrent[0]:
            return
        for other, hit in enumerate(group_hits):
            if hit < offset and not self.groups[other].recurrent and self.groups[other].prefix_cacheable:
                name = self.groups[other].name
                message = f"{request} was given a hit of {offset} tokens, and {name} has {hit} of them"
                self._shape("I5", "poison", request, offset, hit, message, name)

    def _check_count(self, request: str, group: int, slot: int) -> None:
        """I11 acceptance: the count that leads to this slot is the request's own."""
        wrong = self.acceptance.taken(request, group, slot)
        if wrong is None:
            return
        name = self.groups[group].name
        count = f"an accepted count of {wrong.applied}" if wrong.applied else "no accepted count of 1 to K + 1"
        self._shape(
            "I11", "shape", request, wrong.own, wrong.applied,
            f"{request}: {count} leads to {name} slot {slot}, its own is {wrong.own}", name,
        )  # fmt: skip

    def _check_boundary(self, request: str, group: int, slot: int) -> None:
        """I12: a boundary that verification passed is held by its own column."""
        seen, content = self.requests[request], self.slots.get(slot)
        block = self.groups[group].block_size
        boundary = seen.next // block * block
        if content is not None and (content.ancestor is not None or content.finding is not None):
            return
        if content is not None and content.state is not None:
            truth = self.family.state_at(seen.tokens, boundary)
            if self.family.equal(content.state, truth):
                return
        held, verdict, what = self._verdict(content, request)
        name = self.groups[group].name
        message = f"{request} passed {boundary}, but {name} slot {slot}, where that state is kept, {what}"
        finding = self._poison(
            "I12", request, group, boundary // block - 1, slot, boundary, held, verdict, message, content
        )
        self.slots.blame(slot, finding)

    def _check_start(self, request: str, seen: Seen, start: int) -> None:
        """I6 resume point, I17 honesty: no token twice, none skipped, and as many skipped as were reported."""
        told = seen.hit + seen.external
        if seen.fresh and start != told:
            self._shape("I17", "honesty", request, told, start, f"{request} was told {told} hit tokens, skips {start}")
        if start != seen.next:
            word = "twice" if start < seen.next else "never"
            span = f"[{min(start, seen.next)}, {max(start, seen.next)})"
            message = f"{request} continues at {start} instead of {seen.next}: tokens {span} run {word}"
            self._shape("I6", "poison", request, seen.next, start, message)

    def _check_shape(self, request: str, seen: Seen, start: int, end: int, stop: str) -> None:
        """I2 chunk shape: a mid-block start ends within its block; an end off the grid has a cause."""
        if not self.lookups:
            # Nothing is published: a chunk may end where it likes.
            return
        for group in self.recurrent:
            if not self.groups[group].aligned:
                # It leaves a state at every boundary that it passes, wherever it starts and ends.
                continue
            block, name = self.groups[group].block_size, self.groups[group].name
            boundary = (start // block + 1) * block
            if start % block and end > boundary:
                self.counts.mid_block += 1
                message = f"{request} [{start}, {end}) starts inside a block of {name} and runs past {boundary}"
                self._shape("I2", "shape", request, boundary, end, message, name, start // block)
            elif end < seen.prefill_end and end % block:
                tail = seen.num_prompt // self.hash_unit * self.hash_unit
                if end == tail or stop in CAUSES or block > self.cap:
                    continue
                message = f"{request} [{start}, {end}) ends off the grid of {name} ({block}) before {seen.prefill_end}"
                self._shape("I2", "shape", request, None, end, message, name, end // block)

    def _poison(
        self,
        invariant: str,
        request: str,
        group: int,
        column: int,
        slot: int,
        claimed: int,
        held: int | None,
        verdict: str,
        message: str,
        content: Content | None,
        root: int | None = None,
        claimed_by: str = "",
    ) -> int:
        """A finding about what a slot holds."""
        write, name = None if content is None else content.write, self.groups[group].name
        return self.lineage.add(
            Draft(
                invariant, "poison", self.index, self.time_us, request, name, column, slot, claimed, held, verdict,
                message, root, write, claimed_by,
            )
        )  # fmt: skip

    def _shape(
        self,
        invariant: str,
        severity: str,
        request: str,
        claimed: int | None,
        held: int | None,
        message: str,
        group: str = "",
        column: int = -1,
    ) -> None:
        """A finding about a chunk, not about a slot."""
        self.lineage.add(
            Draft(invariant, severity, self.index, self.time_us, request, group, column, -1, claimed, held, "", message)
        )

    def _count_boundaries(self, seen: Seen) -> None:
        """I4 reachability, as a measure: boundaries of a prefilled prompt that nobody ever claimed, and those live."""
        for group in self.recurrent:
            block = self.groups[group].block_size
            for offset in range(block, seen.num_prompt + 1, block):
                truth = self.family.state_at(seen.tokens, offset)
                if (group, truth) not in self._ever:
                    self.counts.null_boundaries += 1
                else:
                    self.counts.materialized_boundaries += self._holds(group, truth)

    def _holds(self, group: int, truth: Any) -> bool:
        """Whether a slot that is claimed as this state really holds it."""
        for slot in self._live.get((group, truth), ()):
            content = self.slots.get(slot)
            if content is not None and content.state is not None and self.family.equal(content.state, truth):
                return True
        return False

    def _is(self, slot: int, claim: Claimed) -> bool:
        """Whether a slot holds what this claim says."""
        content = self.slots.get(slot)
        return content is not None and content.state is not None and self.family.equal(content.state, claim.truth)

    def _check_progress(self, steps: int, time_us: int) -> None:
        """I14 liveness: a request that could run gets a token, or is rejected with a reason."""
        ended = {request for _, request in self._ended}
        stuck = [request for request in self.requests if request not in ended]
        if not stuck:
            return
        request = stuck[0]
        others = f" and {len(stuck) - 1} more" if len(stuck) > 1 else ""
        self.index, self.time_us = steps, time_us
        why = self.requests[request].waits
        last = f"; last {why}" if why else ""
        message = f"{request}{others}: no token in 200 steps, and nothing left to arrive{last}"
        self._shape("I14", "liveness", request, None, None, message)

    def _erase(self, slots: Sequence[int]) -> None:
        """Attention writes over these."""
        self.slots.erase(slots)
        if self.lockstep is not None:
            self.lockstep.erase(slots)
        for slot in slots:
            if slot in self.claims:
                self._due[slot] = None

    def _put(self, slot: int, content: Content) -> None:
        self.slots.put(slot, content)
        if slot in self.claims:
            self._due[slot] = None
