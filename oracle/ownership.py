"""Ownership of slots, who may read and write which, and when: I7 commit, I8 ownership, I9 immutability, I16 retention.

Followed from the events alone: who was handed a slot and has not let go of it, since when a slot is claimed, and which
step was the last to commit. A violation is a hazard: it need not leave a wrong state (the order of launches may save
it), and where it does, that is found as such.

Verified:

- I7 commit: no *other* request reads a state, by a chunk or a copy, before the step that writes it has committed
- I8 ownership: no slot is handed out or written while *another* request uses it, nor read by a step in flight behind
  whose back it was handed on
- I9 immutability: a slot claimed in an *earlier* step is never written while that claim stands; a partial tail's claim
  moves to its copy first
- I16 retention: a request holds at most 2 + K state blocks of a group in `align` mode, one more for a checkpoint, and
  one for each step in flight behind the first

Not verified:

- I7: a request's own states, which its next step may read before they are committed
- I8: holders of attention's blocks, which share them as they like; logs that do not tell `release`; attention's
  hand-outs with a sliding window and steps in flight, which are told after they may have been handed on
- I9: claims of the step in which the slot is written, which the write makes true
- I16: logs that do not tell `release`; groups in `all` mode; what is published where `prefix_cache_retention_interval`
  pins it
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from stateat.oracle.lineage import Draft
from stateat.oracle.records import Claimed, Now
from stateat.oracle.slots import Content
from stateat.sim.events import CopyKind, Group, Severity, Write, decided_ahead, in_flight

Holds = Callable[[int, Claimed], bool]
"""True of (slot, claim) if the slot holds what the claim says."""
Report = Callable[[Draft], object]


class Ownership:
    """The holders of all slots of recurrent groups."""

    def __init__(
        self,
        groups: Sequence[Group],
        num_drafts: int,
        options: Mapping[str, Any],
        now: Now,
        claims: Mapping[int, Mapping[bytes, Claimed]],
        holds: Holds,
        report: Report,
    ) -> None:
        self.groups = groups
        self.now = now
        self.claims = claims
        self.holds = holds
        self.report = report
        self.in_flight = steps = in_flight(options)
        checkpoint = int(options.get("num_prefill_checkpoint_blocks", 0))
        # Each step in flight may export one; drafts as wide as a block take one column more before they are let go.
        self.bounds = [
            2 + num_drafts + steps + checkpoint * (1 + steps) + (num_drafts >= group.block_size) for group in groups
        ]
        """State blocks of each group that a request may hold (I16)."""
        self.launched = 0 if decided_ahead(options) else steps
        """Steps that are launched and whose outcome is not known when the next one is decided."""
        self.late = decided_ahead(options) > 0 and any(group.sliding_window for group in groups)
        """True if attention's blocks are told after they may have been handed on: with a window, steps in flight."""
        own: Mapping[str, int | None] = options.get("group_retention_intervals", {})
        intervals = [options.get("prefix_cache_retention_interval"), *own.values()]
        self.serves = any(interval is not None for interval in intervals)
        """True if only what a resend needs stays published, so that a claimed slot is pinned rather than left over."""
        self.committed = -1
        """The last step that has committed."""
        self._holders: dict[int, dict[str, bool]] = {}
        """Users of each slot: True if it was handed out to them, False if it is shared by a hit."""
        self._handed: dict[int, int] = {}
        """Step in which each slot was handed out last."""
        self._loaded: dict[int, int] = {}
        """Step in which each slot was loaded last."""
        self._left: dict[str, int] = {}
        """Step in which each request was preempted last; steps before that may be in flight."""
        self._held: dict[str, dict[int, int]] = {}
        """Slots of each request, with their groups."""
        self._restored: dict[tuple[str, int], tuple[int, int, tuple[Claimed, ...]]] = {}
        """(request, group) -> slot and offset from which it starts, and the claims that it found, until it has read."""
        self._told: set[tuple[str, str, int]] = set()
        self._grown: dict[str, None] = {}
        """Requests that were handed slots since the last commit."""
        self._releases = False
        """True once the run has told what is let go of; a log need not."""
        self._pending: list[Draft] = []
        """Findings that stand if it does."""

    # What is handed out, and what comes back.

    def restore(self, request: str, group: int, slot: int, offset: int, found: tuple[Claimed, ...]) -> None:
        """A hit on what these claims say: one more holder."""
        self._restored[request, group] = slot, offset, found
        self._hold(request, group, slot, own=False)

    def load(self, request: str, group: int, slot: int, content: Content | None) -> bool:
        """A connector or a tier writes a slot for a request; True if a step in flight writes it too, and may be last.

        Only asynchronously: there a step is launched at once, and its outcome heard of later.
        """
        self._check_owner(request, group, slot, "is loaded for")
        self._hold(request, group, slot)
        self._loaded[slot] = self.now.index
        if not self.launched or content is None or content.write.kind not in ("chunk", *CopyKind):
            return False
        step = content.write.step
        if not self.now.index - self.launched <= step < self.now.index:
            return False
        name = self.groups[group].name
        message = (
            f"{name} slot {slot} is loaded for request {request} while step {step} of request {content.write.request}, "
            "which writes it, is in flight"
        )
        self._hazard("I8", content.write.request, group, -1, slot, None, message, content.write)
        return True

    def place(self, request: str, group: int, slot: int) -> None:
        """A state of this request's tokens is put into a slot, which nobody may use."""
        self._check_owner("", group, slot, "is placed for")

    def allocate(self, request: str, group: int, slots: Iterable[int]) -> None:
        """Slots handed out; attention's groups have no holders of their own."""
        recurrent = self.groups[group].recurrent
        for slot in slots:
            if slot:
                if recurrent or not self.late:
                    self._check_owner(request, group, slot, "is handed to")
                if recurrent:
                    self._hold(request, group, slot)

    def release(self, request: str, slots: Iterable[int]) -> None:
        """A request lets go of slots."""
        if not self._releases:
            self._releases = True
            for draft in self._pending:
                self.report(draft)
        for slot in slots:
            self._let_go(request, slot)

    def leave(self, request: str) -> None:
        """A request ended, or starts again: it holds nothing."""
        if self.in_flight:
            self._left[request] = self.now.index
        for slot in tuple(self._held.pop(request, ())):
            self._let_go(request, slot)
        for group in range(len(self.groups)):
            self._restored.pop((request, group), None)

    def _hold(self, request: str, group: int, slot: int, own: bool = True) -> None:
        if slot <= 0:
            # The null block is nobody's.
            return
        self._holders.setdefault(slot, {})[request] = own
        if own and self.in_flight:
            self._handed[slot] = self.now.index
        self._held.setdefault(request, {})[slot] = group
        self._grown[request] = None

    def _let_go(self, request: str, slot: int) -> None:
        holders = self._holders.get(slot)
        if holders is not None:
            holders.pop(request, None)
            if not holders:
                del self._holders[slot]
        held = self._held.get(request)
        if held is not None:
            held.pop(slot, None)

    # What is read and written.

    def copy(self, request: str, group: int, kind: str, src: int, dst: int, content: Content | None) -> None:
        """A copy reads one slot and writes another."""
        own = self._start(request, group)
        if own is not None and own[0] == src:
            self._check_commit(request, group, src, content)
            if kind == CopyKind.COW:
                # The copy takes the shared slot's place.
                self._let_go(request, src)
                self._hold(request, group, dst)
        elif kind != CopyKind.COW:
            self._check_reader(request, group, src)
        self.write(request, group, dst)

    def read(self, request: str, group: int, slot: int, content: Content | None) -> None:
        """A chunk starts from a slot."""
        own = self._start(request, group)
        if own is not None and own[0] == slot:
            self._check_commit(request, group, slot, content)
        self._check_reader(request, group, slot)

    def _start(self, request: str, group: int) -> tuple[int, int, tuple[Claimed, ...]] | None:
        """Return the slot, offset and claims from which a request starts in this step, if it has not read them."""
        if not self._restored or self.now.index < self._left.get(request, 0):
            return None
        return self._restored.get((request, group))

    def awaiting(self, slot: int) -> list[str]:
        """Requests that are to start from a slot, and have not read it yet."""
        return [request for (request, _), (wanted, *_) in self._restored.items() if wanted == slot]

    def write(self, request: str, group: int, slot: int) -> None:
        """A chunk or a copy leaves a state in a slot."""
        claims = self.claims.get(slot)
        if not claims:
            self._check_owner(request, group, slot, "is written by")
            return
        if not any(claim.step >= self.now.index and claim.request == request for claim in claims.values()):
            # What it is to make true may be shared already.
            self._check_owner(request, group, slot, "is written by")
        for claim in claims.values():
            if claim.step <= self.committed and claim.step < self.now.index:
                self._check_immutable(request, slot, claim)
                break

    def erase(self, group: int, slot: int) -> None:
        """A copy of attention's overwrites a slot."""
        self._check_owner("", group, slot, "is written by")

    def commit(self, step: int) -> None:
        """A step is over."""
        self.committed = step
        for request in self._grown:
            self._check_retention(request)
        self._grown.clear()

    # The invariants.

    def _check_commit(self, request: str, group: int, slot: int, content: Content | None) -> None:
        """I7 commit: no other request reads a state before its step has committed."""
        _, offset, found = self._restored.pop((request, group))
        standing = tuple(self.claims.get(slot, {}).values())
        for claim in (*standing, *(gone for gone in found if all(gone is not claim for claim in standing))):
            if claim.offset != offset or claim.request == request:
                continue
            write = None if content is None else content.write
            # What is placed from outside is there at once.
            stepped = write is not None and write.kind != "place" and write.request != request
            if write is not None and stepped and write.step > self.committed:
                step = write.step
            elif claim.step > self.committed and not self.holds(slot, claim):
                step = claim.step
            else:
                continue
            name = self.groups[group].name
            message = (
                f"{request} reads state@{offset} from {name} slot {slot} before step {step} of request "
                f"{claim.request}, which writes it, has committed"
            )
            self._hazard("I7", request, claim.group, claim.column, slot, offset, message, write)
            return

    def _check_owner(self, request: str, group: int, slot: int, what: str) -> None:
        """I8 ownership: no slot is rewritten or handed out while another request uses it."""
        holders = self._holders.get(slot)
        if not holders or (len(holders) == 1 and request in holders):
            return
        if self._handed.get(slot, 0) > self.now.index >= self._loaded.get(slot, 0):
            # Steps run in order, so that who was handed it behind this one uses it later, unless it is loaded.
            return
        other = next((name for name in holders if name != request), None)
        if other is None or (request, other, slot) in self._told:
            return
        self._told.add((request, other, slot))
        by = f"request {request}" if request else "attention"
        name = self.groups[self._held[other][slot]].name
        message = f"{name} slot {slot} {what} {by} while request {other} uses it"
        self._hazard("I8", request or other, group, -1, slot, None, message)

    def _check_reader(self, request: str, group: int, slot: int) -> None:
        """I8 again: nor is it handed on while a step in flight is still to read it."""
        holders = self._holders.get(slot)
        if not holders or request in holders or not any(holders.values()):
            return
        if not self.in_flight or self._handed.get(slot, 0) > self.now.index:
            self._check_owner(request, group, slot, "is read by")

    def _check_immutable(self, request: str, slot: int, claim: Claimed) -> None:
        """I9 immutability: a slot claimed in an earlier step is never written while that claim stands."""
        name = self.groups[claim.group].name
        message = (
            f"{request} writes {name} slot {slot}, which step {claim.step} claimed as state@{claim.offset} of request "
            f"{claim.request}, and that claim stands"
        )
        self._hazard("I9", request, claim.group, claim.column, slot, claim.offset, message)

    def _check_retention(self, request: str) -> None:
        """I16 retention: a request holds no more state blocks than it can use."""
        counts: dict[int, int] = {}
        for slot, group in self._held.get(request, {}).items():
            if self.groups[group].aligned and not (self.serves and slot in self.claims):
                counts[group] = counts.get(group, 0) + 1
        for group, count in counts.items():
            if count <= self.bounds[group] or (request, "", group) in self._told:
                continue
            self._told.add((request, "", group))
            message = f"{request} holds {count} blocks of {self.groups[group].name}, more than {self.bounds[group]}"
            self._hazard("I16", request, group, -1, -1, None, message, severity=Severity.LOSS)

    def _hazard(
        self,
        invariant: str,
        request: str,
        group: int,
        column: int,
        slot: int,
        claimed: int | None,
        message: str,
        write: Write | None = None,
        severity: Severity = Severity.HAZARD,
    ) -> None:
        now, name = self.now, self.groups[group].name
        draft = Draft(
            invariant, severity, now.index, now.time_us, request, name, column, slot, claimed, None, "", message,
            write=write,
        )  # fmt: skip
        if self._releases or invariant not in ("I8", "I16"):
            self.report(draft)
        else:
            self._pending.append(draft)
