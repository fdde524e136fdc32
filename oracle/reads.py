"""Reads, from which a request continues: I10 seed, I12 boundary copy.

Verified:

- I10 seed: the column from which a request is started exists, is no null block, and holds state@start
- I12 boundary copy: later reads are state@computed too, and a boundary that verification passed is held by its own
  column

Not verified:

- I10: a read that follows from another finding, whose reader it is; slots written before anybody listened
- I12: a read or a copy that follows from another finding; boundary copies of a request that was preempted meanwhile
"""

from __future__ import annotations

from stateat.oracle.evidence import Evidence
from stateat.oracle.numerics import ClaimedSlot, Numerics
from stateat.oracle.records import Seen
from stateat.oracle.slots import Content
from stateat.sim.events import NULL, Holding


class Reads:
    """The reads of all requests, and the states that they keep for later ones."""

    def __init__(self, evidence: Evidence, numerics: Numerics | None) -> None:
        self.evidence = evidence
        self.numerics = numerics

    def check_read(
        self, request: str, seen: Seen, group: int, read: int, start: int, content: Content | None, times: int
    ) -> int | None:
        """I10 seed, I12 boundary copy: what a request reads is its state@start. Returns the root of what it read.

        Asked of a wrong read, which happened so many ``times``.
        """
        evidence, counts = self.evidence, self.evidence.counts
        now = evidence.now
        first = group in seen.unread
        if content is not None and not content.heard:
            counts.not_judged.add((request, group))
            return None
        counts.tainted.setdefault(request, now.time_us)
        restored = first and (seen.hit or seen.external) and not seen.misled
        if restored:
            counts.wrong_restores += 1
            seen.misled = True
        if seen.misread != (now.index, start):
            counts.wrong_reads += times - bool(restored)
        seen.misread = now.index, start
        root = None if content is None else evidence.root(content)
        if root is not None or (content is not None and content.ancestor is not None):
            return -1 if root is None else root
        held, verdict, what = evidence.verdict(content, request)
        name, invariant = evidence.groups[group].name, "I10" if first else "I12"
        right = (start - 1) // evidence.groups[group].block_size
        column, width = seen.seeds.get(group, (right, 0)) if first else (right, 0)
        null = ", the null block" if read == NULL else ""
        message = f"{request} continues at {start} from {name} slot {read}{null}, which {what}"
        outside = 0 < width <= column
        if column != right:
            row = f" of a row of {width}" if outside else ""
            message += f": it was taken from column {column}{row}, and state@{start} is in column {right}"
        elif null:
            message += f": state@{start} belongs in column {right}"
        if outside:
            verdict = Holding.OUT_OF_RANGE
        finding = evidence.poison(invariant, request, group, column, read, start, held, verdict, message, content)
        if self.numerics is not None and content is not None and content.state is not None:
            where = (request, name, column, read, start)
            truth = evidence.family.state_at(seen.tokens, start)
            self.numerics.note(ClaimedSlot(content.state, truth, *where, now.index, now.time_us, finding))
        if read >= 0:
            evidence.slots.blame(read, finding)
        return finding

    def check_boundary(self, request: str, group: int, slot: int) -> None:
        """I12: a boundary that verification passed is held by its own column."""
        evidence = self.evidence
        seen, content = evidence.requests[request], evidence.slots.get(slot)
        block, name = evidence.groups[group].block_size, evidence.groups[group].name
        boundary = seen.next // block * block
        if content is not None and (content.ancestor is not None or content.finding is not None or not content.heard):
            return
        if content is not None and evidence.holds(slot, evidence.family.state_at(seen.tokens, boundary)):
            return
        held, verdict, what = evidence.verdict(content, request)
        where = "the null block" if slot == NULL else "where that state is kept"
        message = f"{request} passed {boundary}, but {name} slot {slot}, {where}, {what}"
        finding = evidence.poison(
            "I12", request, group, boundary // block - 1, slot, boundary, held, verdict, message, content
        )
        evidence.slots.blame(slot, finding)
