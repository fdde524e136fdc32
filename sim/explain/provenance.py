"""Provenance of findings, and what came of them: collected from the events of a second, equal run.

A run's findings are known when it is over. :class:`Chronicle` is told which of them to follow, hears the same run
again, and keeps for each who wrote the slot, who claimed it, what it had absorbed and who started from it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from stateat.sim.events import NULL, Finding, Group, Observer, decided_ahead, in_flight, tokens_behind
from stateat.sim.explain.explanation import TORN, ChunkDecision, Claim, Coverage, Piece, Reader, Span, Story, Subject
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import simulate
from stateat.sim.scenario.load import Run
from stateat.sim.tokens import Ids, Segments, Spans, Tokens


def explain(run: Run, outcome: Outcome, findings: Sequence[Finding]) -> list[Story]:
    """Return what led to these findings of a run, and what came of them: the same run again, followed."""
    chronicle = Chronicle(findings)
    simulate(run, [chronicle])
    return chronicle.stories(outcome.findings)


@dataclass(slots=True)
class _Moment:
    """An engine step."""

    index: int
    time_us: int
    budget: int
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class _Decision:
    moment: _Moment
    request: str
    start: int
    end: int
    stop: str
    steps: int

    def chunk(self) -> ChunkDecision:
        """Told when the step is over: then it is known what the others had."""
        at = self.moment
        others = 0 if self.steps else at.tokens - (self.end - self.start)
        step = at.index - (1 if self.steps else 0)
        return ChunkDecision(
            step, at.time_us, at.budget, self.request, self.start, self.end, self.stop, self.steps, max(others, 0)
        )


@dataclass(frozen=True, slots=True)
class _Held:
    """A state as a chain of what it absorbed; equal neighbours are one link."""

    piece: Piece
    before: _Held | None
    made: _Decision | None
    loaded: int | None = None

    def pieces(self) -> tuple[Piece, ...]:
        found: list[Piece] = []
        link: _Held | None = self
        while link is not None:
            found.append(link.piece)
            link = link.before
        return tuple(p for p in reversed(found) if p.end > p.start or p.drafts)


@dataclass(slots=True)
class _Case:
    """Collection for one finding."""

    finding: Finding
    caught: bool = False
    held: _Held | None = None
    claim: tuple[str, _Moment, int] | None = None
    claimed: _Decision | None = None
    readers: dict[str, Reader] = field(default_factory=dict)


class Chronicle(Observer):
    """Follows these findings through a run that is equal to the one in which they were made."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.cases = [_Case(finding) for finding in findings]
        self._slots = {case.finding.slot for case in self.cases}
        self._groups: tuple[Group, ...] = ()
        self._drafts = 0
        self._at = _Moment(0, 0, 0)
        self._told: list[_Moment] = []
        self._now: dict[str, _Decision] = {}
        self._in_order = True
        self._launched = 0
        """Steps that are launched and whose outcome is not known when the next one is decided."""
        self._behind = 0
        self._flying: dict[int, tuple[_Moment, dict[str, _Decision]]] = {}
        """Decisions of each step in flight."""
        self._ran = True
        """The step that is now told about has run."""
        self._held: dict[int, _Held | None] = {}
        """Contents by slot; None: made from a slot that was never written."""
        self._tier: dict[tuple[int, str], tuple[int, _Held | None]] = {}
        """States that an offload tier keeps, and the slot that each came from."""
        self._storing: dict[tuple[int, str], int] = {}
        self._streams: dict[str, Tokens] = {}
        self._again: dict[str, Any] = {}
        self._prompts: dict[str, int] = {}
        self._over: list[str] = []

    # What the engine says.

    def run(
        self, schema: str, engine: str, groups: tuple[Group, ...], num_speculative_tokens: int, options: dict[str, Any]
    ) -> None:
        self._groups, self._drafts = groups, num_speculative_tokens
        self._held[NULL] = _Held(Piece("", 0, 0), None, None)
        self._in_order = decided_ahead(options) == 0
        self._launched = in_flight(options) if self._in_order else 0
        self._behind = tokens_behind(options, num_speculative_tokens)

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
        if tokens is not None:
            stream = Tokens.explicit(tokens, encoder)
            self._again[request] = lambda: stream
        else:
            self._again[request] = partial(Tokens.generate, segments, index, max_tokens + self._behind, encoder)
        self._streams[request] = self._again[request]()
        self._prompts[request] = self._streams[request].num_prompt

    def step(self, index: int, time_us: int, budget: int) -> None:
        self._at = _Moment(index, time_us, budget)
        self._told.append(self._at)
        self._now = {}
        self._ran = self._in_order
        if not self._in_order:
            self._flying[index] = self._at, self._now

    def launch(self, index: int) -> None:
        self._at, self._now = self._flying.pop(index)
        self._ran = True

    def chunk(
        self, request: str, start: int, end: int, drafts: int, stop: str, steps: int, accepted: Sequence[int]
    ) -> None:
        if steps:
            # A run of decode steps that is over: it had its tokens of those that were told meanwhile.
            now = self._at.index
            first, last = (bisect_left(self._told, n, key=lambda moment: moment.index) for n in (now - steps, now))
            for moment in self._told[first:last]:
                moment.tokens += 1 + drafts
        else:
            self._at.tokens += end - start
        self._now[request] = _Decision(self._at, request, start, end, stop, steps)

    def store(self, group: int, slot: int, key: str, offset: int) -> None:
        self._storing[group, key] = slot

    def load(self, request: str, group: int, key: str, slot: int, offset: int) -> None:
        held = self._held.get(slot)
        if held is not None and held.made is not None and held.loaded is None:
            behind = self._at.index - held.made.moment.index
            if 0 < behind <= self._launched:
                # A launched step writes it too, and is taken to be the last.
                return
        if (group, key) not in self._tier:
            self._held[slot] = _Held(Piece(request, 0, offset), None, None, self._at.index)
            return
        kept, stored = self._tier[group, key]
        for case in self.cases:
            if case.finding.slot == kept and request in case.finding.readers:
                at = self._at
                case.readers.setdefault(request, Reader(request, at.index, at.time_us, offset, self._prompts[request]))
        if stored is None:
            self._held.pop(slot, None)
        else:
            self._held[slot] = replace(stored, loaded=self._at.index)

    def restore(self, request: str, group: int, slot: int, column: int, offset: int, group_hits: Sequence[int]) -> None:
        if slot not in self._slots:
            return
        at = self._at
        for case in self.cases:
            finding = case.finding
            if finding.slot == slot and request in finding.readers and at.index >= finding.step:
                reader = Reader(request, at.index, at.time_us, offset, self._prompts[request])
                case.readers.setdefault(request, reader)

    def claim(self, group: int, slot: int, request: str, column: int, offset: int, hash: bytes) -> None:
        if slot not in self._slots:
            return
        for case in self.cases:
            finding = case.finding
            if (finding.slot, finding.claimed) == (slot, offset) and self._at.index <= finding.step:
                case.claim, case.claimed = (request, self._at, offset), None

    def allocate(self, request: str, group: int, column: int, slots: Sequence[int]) -> None:
        if not self._groups[group].recurrent:
            self._erase([slot for slot in slots if slot != NULL])

    def copy(self, request: str, group: int, kind: str, src: int, dst: int, conv_src: int, shift: int) -> None:
        if not self._groups[group].recurrent or src not in self._held:
            self._erase([dst])
        else:
            self._held[dst] = self._held[src]
        if kind == "post":
            self._catch("I12", request, dst, None)

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
        self._catch("I10", request, read, start)
        self._catch("I12", request, read, start)
        lost = read >= 0 and self._held.get(read) is None
        before = self._held[read] if read >= 0 and not lost else None
        known = end - len(drafts)
        for offset, slot in writes:
            until = min(offset, known)
            absorbed = self._normal(Piece(request, start, until, tuple(drafts[: max(offset - known, 0)])))
            self._held[slot] = None if lost else _append(before, absorbed, self._now.get(request))

    def output(self, request: str, count: int, tokens: tuple[int, ...] | None) -> None:
        if tokens is not None:
            self._streams[request].extend(tokens)

    def finish(self, request: str) -> None:
        self._over.append(request)

    def abort(self, request: str) -> None:
        self._over.append(request)

    def commit(self, time_us: int) -> None:
        for case in self.cases:
            if case.claim is not None and case.claimed is None and case.claim[1] is self._at:
                case.claimed = self._now.get(case.claim[0])
            if self._ran and case.finding.step == self._at.index and not case.caught:
                case.held, case.caught = self._held.get(case.finding.slot), True
        for key, slot in self._storing.items():
            self._tier[key] = slot, self._held.get(slot)
        self._storing.clear()
        for request in self._over:
            self._streams.pop(request, None)
        self._over.clear()

    def _normal(self, piece: Piece) -> Piece:
        """Drafts that were right are tokens of the stream like any others."""
        # A step in flight may tell of a request that has ended.
        stream = self._streams.get(piece.request)
        ids = (self._again[piece.request]() if stream is None else stream).ids
        right = 0
        while right < len(piece.drafts) and piece.end + right < ids.size:
            if int(ids[piece.end + right]) != piece.drafts[right]:
                break
            right += 1
        return Piece(piece.request, piece.start, piece.end + right, piece.drafts[right:])

    def _erase(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self._held.pop(slot, None)

    def _catch(self, invariant: str, request: str, slot: int, offset: int | None) -> None:
        """A finding that is made in the middle of a step: what the slot holds now is what it is about."""
        if slot not in self._slots:
            return
        for case in self.cases:
            finding = case.finding
            if (
                not case.caught
                and (finding.invariant, finding.request, finding.slot) == (invariant, request, slot)
                and finding.step == self._at.index
                and offset in (None, finding.claimed)
            ):
                case.held, case.caught = self._held.get(slot), True

    # Afterwards.

    def stories(self, findings: Sequence[Finding]) -> list[Story]:
        """Return what was collected, in the order in which the findings were given; ``findings``: all of that run."""
        return [self._story(case, findings) for case in self.cases]

    def _story(self, case: _Case, findings: Sequence[Finding]) -> Story:
        finding = case.finding
        pieces = None if case.held is None else case.held.pieces()
        claim = None
        if case.claim is not None and finding.invariant == "I1":
            request, moment, offset = case.claim
            chunk = None if case.claimed is None else case.claimed.chunk()
            claim = Claim(request, moment.index, moment.time_us, offset, chunk)
        readers = tuple(case.readers.values())
        named = {finding.request, *(r.request for r in readers), *(p.request for p in pieces or ())}
        made = None if case.held is None else case.held.made
        return Story(
            finding,
            None if made is None else made.chunk(),
            None if case.held is None else case.held.loaded,
            pieces,
            claim,
            Coverage() if pieces is None or finding.claimed is None else self._coverage(finding, pieces),
            readers,
            sum(other.root == finding.id for other in findings),
            {name: self._prompts[name] for name in sorted(named) if name in self._prompts},
            self._subject(finding, pieces or (), readers),
        )

    def _ids(self, piece: Piece) -> Ids:
        stream: Tokens = self._again[piece.request]()
        return np.concatenate([stream.ids[: piece.end], np.array(piece.drafts, np.int64)])

    def _coverage(self, finding: Finding, pieces: Sequence[Piece]) -> Coverage:
        """Return how often each token of the claimed prefix was absorbed, at its own place."""
        claimed = finding.claimed or 0
        truth: Ids = self._again[finding.request]().ids
        times = np.zeros(truth.size, np.int64)
        foreign = 0
        for piece in pieces:
            ids = self._ids(piece)
            within = min(ids.size, truth.size)
            equal = ids[piece.start : within] == truth[piece.start : within]
            times[piece.start : within] += equal
            foreign += ids.size - piece.start - int(equal.sum())
        ahead = times.copy()
        ahead[:claimed] = 0
        return Coverage(_spans(times[:claimed] == 0), _spans(times[:claimed] > 1), _spans(ahead > 0), foreign)

    def _subject(self, finding: Finding, pieces: Sequence[Piece], readers: Sequence[Reader]) -> Subject | None:
        """The reader with the shortest prompt; without readers, the request of the finding once more."""
        if finding.slot < 0 or not finding.claimed or finding.verdict == TORN:
            return None
        held = tuple((self._ids(piece), piece.start) for piece in pieces)
        shortest = min(readers, key=lambda reader: reader.prompt, default=None)
        name, offset = (shortest.request, shortest.offset) if shortest else (finding.request, finding.claimed)
        stream: Tokens = self._again[name]()
        # A hit leaves a token to compute: where the prompt ends at the claim, the first output follows.
        prompt = stream.ids[: max(stream.num_prompt, offset + 1)]
        if prompt.size <= offset:
            return None
        return Subject(name, shortest is None and finding.invariant == "I1", prompt, offset, held)


def _append(before: _Held | None, piece: Piece, made: _Decision | None) -> _Held:
    """Return the pieces with one more, or the last one made longer where it goes on in the same stream."""
    if before is not None:
        last = before.piece
        if (last.request, last.end) == (piece.request, piece.start) and not last.drafts:
            return _Held(Piece(piece.request, last.start, piece.end, piece.drafts), before.before, made)
    return _Held(piece, before, made)


def _spans(marked: np.ndarray[Any, np.dtype[np.bool_]]) -> tuple[Span, ...]:
    """Runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], marked, [False]]).astype(np.int8)))
    return tuple((int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True))
