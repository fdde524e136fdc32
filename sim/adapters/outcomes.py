"""Outcomes in a log: what a row sampled, and when that may be told.

One step at a time, a row's outcome is told in its own step; in a pipeline, once it is launched; with asynchronous
scheduling, as many steps behind the row's own as are in flight, whether its request runs or was preempted meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from stateat.sim.adapters.heard import Heard, Life, PendingChunk
from stateat.sim.tokens import PLACEHOLDER


class Outcomes(Heard):
    """The questions that a log is asked about its outputs."""

    def _row(self, kind: str, request: str) -> PendingChunk:
        """The row of a request in the step that runs now."""
        row = self._batches.get(self._runs, {}).get(request)
        if row is None:
            raise self._impossible(f"{kind}.request", request, f"one that has a chunk in step {self._runs}")
        return row

    def _outcome(self, request: str, life: Life) -> PendingChunk:
        """The row of a request of which the outcome is told now."""
        quiet = self._quiet.get(request)
        if quiet is not None and not quiet.emitted:
            return quiet
        row = self._batches.get(self._hears, {}).get(request)
        if row is None:
            which = f"step {self._hears}" if self._hears >= 0 else "a step whose outcome is due"
            raise self._impossible("output.request", request, f"one that has a chunk in {which}")
        if life.era == row.era:
            self._life("output", request, "running")
        return row

    def _reaches(self, life: Life, request: str, end: int) -> tuple[int, bool]:
        """Return how far a request's tokens are known, and True if a row that ends there samples for sure."""
        if self.lag:
            # What a preempted request had in flight may be told when it runs again.
            return life.prompt + max(life.sampled, life.outputs), end >= life.prompt + life.sampled
        rows = (rows.get(request) for rows in self._batches.values())
        flying = sum(row is not None and row.era == life.era for row in rows)
        last = life.known + flying * (1 + self.num_drafts)
        return last, end >= last and not flying

    def _decoded(self, request: str, life: Life, run: PendingChunk, accepted: int) -> None:
        """A run of decode steps, of which the last accepted so many drafts: with steps in flight its outcome is to
        come, and that of the row before is told with the run."""
        self._quiet[request] = run
        if not self.lag:
            return
        row, life.owed = life.owed or self._batches.get(self._hears, {}).get(request), None
        if row is None or row.emitted or not row.emits or row.era != life.era:
            raise self._impossible("chunk.request", request, "one of which a row that samples is in flight")
        life.sampled += run.most
        run.most += row.accepted or 0
        run.most -= accepted
        last = PendingChunk(
            run.end - run.run - 1, run.end, run.drafts, run.run, 0, run.era, True, 1 + run.drafts, set()
        )
        last.accepted = accepted
        self._batches.setdefault(self._hears, {})[request] = last

    def _all_drafts(self, request: str, row: PendingChunk, drafts: Sequence[int]) -> None:
        """Behind placeholders that a split clipped a worker takes all tokens of a row but one for drafts."""
        tokens = row.end - row.start - 1
        if row.steps or not row.drafts or row.run == tokens or list(drafts) != [PLACEHOLDER] * tokens:
            return
        row.run = tokens
        if self.lag:
            life = self._lives[request]
            life.sampled -= row.emits
            row.emits = row.end - tokens >= life.prompt + life.sampled
            life.sampled += row.emits

    def accept(self, request: str, drafted: int, accepted: int) -> None:
        self._within("accept")
        life, row = self._life("accept", request, "running"), self._row("accept", request)
        self._check(row.accepted is None, "accept.request", request, "one for each chunk")
        self._check(0 < drafted == row.drafts, "accept.drafted", drafted, f"{row.drafts}, as its chunk says")
        self._check(0 <= accepted <= drafted, "accept.accepted", accepted, f"0 to {drafted}")
        self._check(row.emits or not self.lag, "accept.request", request, "one whose chunk ends at its last token")
        row.accepted = accepted
        life.sampled += accepted

    def output(self, request: str, count: int, tokens: tuple[int, ...] | None) -> None:
        self._within("output")
        life = self._life("output", request)
        row = self._outcome(request, life)
        # In a pipeline, of a row that runs on behind a preemption no accept is told.
        late = row.era != life.era and row.accepted is None and self.depth > 1
        most = row.most if row.steps or late else 1 + (row.accepted or 0)
        self._check(not row.emitted, "output.request", request, "one for each chunk")
        self._check(row.emits or self.depth > 1, "output.request", request, "one whose chunk ends at its last token")
        self._check(0 < count <= most, "output.count", count, f"1 to {most}")
        right = life.outputs + count
        self._check(right <= life.max_tokens, "output.count", count, f"{life.max_tokens - life.outputs} at most")
        given = None if tokens is None else list(tokens)
        which = "null, as of the prompt" if life.simulated else "ids, as of the prompt"
        self._check((tokens is None) == life.simulated, "output.tokens", given, which)
        if tokens is not None:
            self._check(len(tokens) == count, "output.tokens", list(tokens), f"{count}, as its count says")
        row.emitted = True
        life.outputs, life.heard = right, self._step
        if row.steps:
            life.covered = self._step - 1

    # What has to be told by then.

    def _all_told(self, kind: str, request: str) -> None:
        """All that comes of a request's rows is told before."""
        for step, ask in ((self._runs, self._all_ran), (self._hears, self._all_heard)):
            row = self._batches.get(step, {}).get(request)
            if row is not None:
                ask(kind, request, row)

    def _all_ran(self, kind: str, request: str, row: PendingChunk) -> None:
        """A row has run in all groups, unless its request stopped running."""
        if row.era != self._lives[request].era:
            return
        for group in sorted(row.left):
            self._check(False, kind, None, f"an advance of {request} in group {group} before, as its chunk says")
        if self.lag and row.emits and row.drafts and not row.steps:
            # Where the next chunk starts depends on it, before its outcome is told.
            told = row.accepted is not None
            self._check(told, kind, None, f"an accept of {request} before, as its chunk says")

    def _all_heard(self, kind: str, request: str, row: PendingChunk) -> None:
        """The outcome of a row is told, unless its request stopped running."""
        life = self._lives[request]
        if row.emitted or not row.emits:
            return
        if row.era != life.era:
            life.drops = max(life.drops - 1, 0)
        elif kind == "commit" and self.lag == 1 and row.drafts == self.num_drafts:
            life.owed = row
        else:
            self._owes(kind, request)

    def _pays(self, kind: str, request: str) -> None:
        """Nothing else comes of a request whose outcome was due."""
        life = self._lives[request]
        if life.owed is not None:
            life.owed = None
            self._owes(kind, request)

    def _owes(self, kind: str, request: str) -> None:
        life = self._lives[request]
        self._check(life.drops > 0, kind, None, f"an output of {request} before, as its chunk says")
        life.drops -= 1

    def _preempted(self, request: str, life: Life) -> None:
        """Count what was to come of a request that is preempted."""
        rows = (rows.get(request) for rows in self._batches.values())
        left = [row for row in rows if row is not None and row.era == life.era and row.emits and not row.emitted]
        self._put_back[request] = sum(1 + row.drafts for row in left)

    def _forgets(self) -> None:
        """A reset of the pool put back those who were preempted in its step, and drops what was to come of them."""
        for request, tokens in self._put_back.items():
            self._lives[request].drops += tokens
        self._put_back.clear()
