"""Fast-forward requests that only decode: until a known step they allocate, publish, copy and finish nothing.

A request is quiet while its chunks stay within the blocks that it has, publish nothing, write nothing that is
claimed, free nothing and do not end it, and while all its proposals have K drafts. Asynchronously one row of it is
always in flight: the one before the first step that is fast-forwarded is taken out of its batch, and the last one is
put into its own. What it did meanwhile follows in closed form from how many of its drafts are right, and is told when
it wakes: because its time has come, because the budget gets short, or because it is preempted. The decisions are the
same as without (``fast_forward=False`` turns it off, and tests compare).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from heapq import heappop, heappush

import numpy as np

from stateat.sim.cache.interface import Cache
from stateat.sim.engine.request import Request
from stateat.sim.events import Observer
from stateat.sim.worker.pipeline import Batch, Pipeline
from stateat.sim.worker.worker import Row, Worker

NEVER = 1 << 62
WORTHWHILE_STEPS = 2
"""Steps below which a run is not worth the bookkeeping."""


class Quiet:
    """Quiet requests of a scheduler, in the order in which they run."""

    def __init__(
        self,
        cache: Cache,
        worker: Worker,
        observer: Observer,
        num_drafts: int,
        enabled: bool,
        pipeline: Pipeline[Request] | None = None,
    ) -> None:
        """``pipeline``: steps in flight, of two at a time; None: a step runs before the next one is decided."""
        self.cache = cache
        self.pipeline = pipeline
        self.worker = worker
        self.observer = observer
        self.num_drafts = num_drafts
        self.enabled = enabled
        self._orders: list[int] = []
        self._members: dict[int, Request] = {}
        self._due: list[tuple[int, int]] = []

    @property
    def tokens(self) -> int:
        """Tokens that quiet requests take in each step together."""
        return len(self._orders) * (1 + self.num_drafts)

    def tokens_before(self, order: int) -> int:
        """Return the tokens that those before a place in the order take."""
        return bisect_left(self._orders, order) * (1 + self.num_drafts)

    def tokens_after(self, order: int) -> int:
        """Return the tokens that those behind a place in the order take."""
        return self.tokens - bisect_right(self._orders, order) * (1 + self.num_drafts)

    def later_than(self, order: int) -> list[Request]:
        """Return the quiet requests behind a place in the order."""
        return [self._members[o] for o in self._orders[bisect_right(self._orders, order) :]]

    def until(self) -> int:
        """Return the first step at which a request wakes."""
        while self._due and not self._current(self._due[0]):
            heappop(self._due)
        return self._due[0][0] if self._due else NEVER

    def due(self, step: int) -> list[Request]:
        """Return the requests that wake at this step."""
        found = []
        while self._due and self._due[0][0] <= step:
            entry = heappop(self._due)
            if self._current(entry):
                found.append(self._members[entry[1]])
        return found

    def _current(self, entry: tuple[int, int]) -> bool:
        """Return True if a heap entry is of a request that has not left (and perhaps come back) since."""
        request = self._members.get(entry[1])
        return request is not None and request.wakes == entry[0]

    def enter(self, request: Request, step: int) -> bool:
        """Let a request be quiet from ``step`` on, if that is worth while."""
        if not self.enabled or request.acceptance.vary or request.drafts != self.num_drafts:
            return False
        batch = None if self.pipeline is None else self.pipeline.last
        row = None if batch is None else self._in_flight(request, batch)
        if self.pipeline is not None and row is None:
            return False
        steps = self._steps(request)
        if steps < WORTHWHILE_STEPS:
            return False
        if batch is not None and row is not None:
            step = batch.index + 1
            batch.rows.remove(row)
            batch.quiet_tokens += 1 + self.num_drafts
        request.quiet_row = row
        request.quiet_since = step
        request.wakes = step + steps
        insort(self._orders, request.order)
        self._members[request.order] = request
        heappush(self._due, (request.wakes, request.order))
        return True

    def _in_flight(self, request: Request, batch: Batch[Request]) -> Row[Request] | None:
        """Return the row that a request has in flight, if it is a decode like those to come."""
        row = next((row for row in batch.rows if row.request is request), None)
        # When the first output comes is told, so that it is waited for.
        if row is None or not request.outputs or not row.emitted:
            return None
        if row.drafted != self.num_drafts or row.end - row.start != 1 + row.drafted:
            return None
        return row if request.proposed or not self.num_drafts else None

    def _steps(self, request: Request) -> int:
        """Return for how many steps nothing of a request could be seen."""
        # What is in flight counts as accepted until it is known, so that a chunk may start so much later.
        ahead = 0 if self.pipeline is None else self.num_drafts
        starts = self.cache.quiet_until(request) - 1 - self.num_drafts - ahead - request.at
        outputs = request.max_outputs - request.sampled
        if starts <= 0 or outputs <= 1:
            return 0
        first = max(request.proposals - 1, 0) if self.num_drafts else request.sampled
        emitted = request.acceptance.emitted(first + outputs)
        base = emitted.item(first)
        # The i-th step starts at computed + emitted[first + i] - base, which must stay below the bound; after n
        # steps one token at least must be missing.
        by_place = int(np.searchsorted(emitted, base + starts, side="left")) - first
        by_outputs = int(np.searchsorted(emitted, base + outputs, side="left")) - 1 - first
        return min(by_place, by_outputs)

    def leave(self, request: Request, step: int) -> None:
        """Bring a request up to ``step``, and tell what it did."""
        since, request.quiet_since = request.quiet_since, -1
        self._orders.remove(request.order)
        del self._members[request.order]
        steps = step - since
        last = self._run(request, step, steps) if steps > 0 else request.quiet_row
        if last is not None and self.pipeline is not None:
            self._put_back(request, last)

    def _run(self, request: Request, step: int, steps: int) -> Row[Request]:
        """Run a request's steps up to ``step``; return the last one's row."""
        drafts = self.num_drafts
        first = request.proposals - 1 if drafts else request.sampled
        emitted = request.acceptance.emitted(first + steps)
        start, base = request.at, emitted.item(first)
        last_start = start + emitted.item(first + steps - 1) - base
        accepted = np.diff(emitted[first : first + steps + 1]) - 1
        right = int(accepted[-1])
        last = Row(
            request,
            last_start,
            last_start + 1 + drafts,
            request.draft_ids(last_start + 1, right, drafts) if drafts else [],
            drafts,
            right + 1,
        )
        produced = emitted.item(first + steps) - base
        self.observer.chunk(request.id, start, last.end, drafts, "decode", steps, accepted.tolist())
        self.worker.run(request, start, last, steps)
        before = request.quiet_row
        heard = produced if before is None else before.emitted + produced - last.emitted
        self.observer.output(request.id, heard, None)
        request.at = start + produced
        request.computed = request.at if before is None else last.end
        request.outputs += heard
        request.sampled += produced
        request.worker.last_step = step - 1
        if drafts:
            request.proposals += steps
        return last

    def _put_back(self, request: Request, row: Row[Request]) -> None:
        """Put the row that a request has in flight into its batch, at its place."""
        assert self.pipeline is not None and self.pipeline.last is not None
        batch = self.pipeline.last
        batch.quiet_tokens -= 1 + self.num_drafts
        place = next((i for i, other in enumerate(batch.rows) if other.request.order > request.order), len(batch.rows))
        batch.rows.insert(place, row)
