"""Steps in flight: how a step's decisions wait until their outcome is known, and what becomes of those of a request
that ends.

A pipeline runs a step when it leaves the queue. Asynchronous scheduling launches it at once, and only its outcome
waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from stateat.sim.cache.interface import Cache
from stateat.sim.engine.request import Request
from stateat.sim.engine.sampling import verify
from stateat.sim.events import Observer
from stateat.sim.options import Options
from stateat.sim.releases.rules import Rules
from stateat.sim.worker.pipeline import Batch, Pipeline
from stateat.sim.worker.worker import Row, Worker


class InFlight:
    """Steps that are decided and whose outcome is not known, the newest included."""

    def __init__(self, cache: Cache, worker: Worker, rules: Rules, observer: Observer, options: Options) -> None:
        self.cache, self.worker, self.rules, self.observer = cache, worker, rules, observer
        self.pipeline: Pipeline[Request] = Pipeline(options.batch_queue)
        self.several = options.batch_queue > 1
        self.asynchronous = options.async_scheduling is True
        self.speculative = options.speculative
        self.stages = options.batch_queue - 1 if self.asynchronous and worker.staggers else 1
        """Stages of an asynchronous pipeline, whose steps a request takes turns in."""
        self.loads = options.kv_consumer or options.offload.blocks > 0
        """Something writes into blocks beside the steps: a tier, or a connector."""
        self._unheard: int | None = None
        """Step that has left the queue, and that nobody has heard of."""

    @property
    def waits(self) -> bool:
        """True if blocks that steps in flight may use are freed late."""
        return self.several and self.loads and self.rules.deferred_free.waits

    def add(self, index: int, rows: list[Row[Request]]) -> Batch[Request]:
        """Put what this step decided into the queue."""
        copies, given, full, published = self.cache.decided()
        batch = Batch(index, rows, copies, copies, given, full, published)
        if not self.several:
            return batch
        if not self.worker.waits:
            self.worker.copy_on_write(copies)
            batch.copies = []
        # In a line with what ends or is preempted before and behind it.
        self.cache.unpin(batch.pinned, index if self.waits else None)
        if not (self.waits or self.asynchronous):
            self._unpinned(batch)
        batch.pinned = []
        drafts = self.speculative.drafts_behind(len(rows))
        for row in rows:
            self._scheduled(row, index, drafts)
        self.pipeline.push(batch)
        return batch

    def _unpinned(self, batch: Batch[Request]) -> None:
        """Tell that a shared state is nobody's while the copy of it that a request is to have waits for the step."""
        held = {row.request.id: self.cache.held(row.request) for row in batch.rows} if batch.pinned else {}
        for copy in batch.pinned:
            if self.worker.kinds[copy.group].recurrent and copy.source not in held.get(copy.request, ()):
                self.observer.release(copy.request, copy.group, [copy.source])

    def _scheduled(self, row: Row[Request], index: int, drafts: int) -> None:
        """Count a row in, as if all its drafts were right; behind it a drafter is asked for so many ``drafts``."""
        request, tokens = row.request, row.end - row.start
        request.computed += tokens
        request.in_flight += tokens
        request.prefilling = request.computed < request.num_tokens + request.placeholders
        if self.asynchronous and not request.prefilling:
            request.placeholders += 1 + row.drafted
            request.drafts = drafts
            request.eligible = index + self.stages

    def rests(self, request: Request, index: int) -> bool:
        """Return True if a request with steps in flight is left out of a step: those surely reach its last token, or
        it takes turns with others in an asynchronous pipeline."""
        if index < request.eligible:
            return True
        # Its tokens if none of the drafts in flight is right.
        surely = request.computed + 2 - request.placeholders
        return request.placeholders > 0 and surely >= request.num_prompt + request.max_tokens

    def launch(self, batch: Batch[Request]) -> None:
        """Run a batch on the worker."""
        if self.several and not self.asynchronous:
            self.observer.launch(batch.index)
        self.worker.before(batch.index, batch.rows, batch.copies, batch.given)
        asked = self.speculative.drafts_behind(len(batch.rows))
        for row in batch.rows:
            verify(row, asked, self.observer)
        self.worker.after(batch.rows)

    def forget(self, rows: Sequence[Row[Request]]) -> None:
        """Forget copies of removed requests whose last row has run."""
        for request in self.pipeline.left(rows):
            self.worker.leave(request)

    def done(self) -> Batch[Request] | None:
        """Return the step whose outcome is known now, if the queue is full."""
        batch = self.pipeline.pop()
        self._unheard = None if batch is None or not (batch.rows or batch.copies) else batch.index
        return batch

    def hear(self, batch: Batch[Request]) -> None:
        """Free the blocks that waited for a step to be heard of."""
        self._unheard = None
        self.cache.unpin(batch.pinned)
        self.cache.run(batch.index)

    def drop(self, request: Request) -> None:
        """Drop a request's steps that have not run, if that is the rule."""
        if self.rules.aborted_steps.runs_on or self.asynchronous:
            return
        dropped = self.pipeline.drop(request, self.cache.held(request))
        if self.rules.aborted_steps.unpublishes or self.rules.publish.hides:
            self.cache.withdraw(dropped)

    def let_go(self, request: Request) -> None:
        """Free the blocks of a request that may have steps in flight, at once or once these have run."""
        newest = self.pipeline.newest
        waits_for = (self._unheard if newest is None else newest) if self.fenced(request) else None
        if self.asynchronous or not self.pipeline.has(request):
            # Else the worker hears of it behind those steps.
            self.worker.leave(request)
        self.cache.free(request, waits_for)

    def fenced(self, request: Request) -> bool:
        """Return True if the blocks of a request have to wait for a step in flight."""
        return self.waits and request.in_flight > 0

    def end(self, request: Request) -> None:
        """Let a request go that ended or was taken away: its steps run, and nobody hears of what they sample."""
        request.gone = True
        self.let_go(request)
        if self.several and not self.asynchronous:
            self.pipeline.detach(request)

    def preempt(self, request: Request, told: bool, drops: bool) -> None:
        """Let a request go that starts anew, of which the worker is ``told``; what its steps in flight sample comes
        late, or if it ``drops`` that, is not heard of."""
        self.let_go(request)
        if request.in_flight:
            self._age(request, drops)
            if not self.asynchronous:
                self.pipeline.detach(request, gone=False)
        request.reset(told)

    def _age(self, request: Request, drops: bool) -> None:
        """Make what a preempted request has in flight stale, as the release counts that."""
        if self.rules.stale_output.counted:
            if drops:
                request.discards, request.placeholders = request.placeholders, 0
            return
        request.drops_stale = drops or (request.drops_stale and request.stale > 0)
        request.stale = request.in_flight
        request.placeholders = 0
        for row in self.pipeline.rows():
            if row.request is request or row.owner is request:
                row.stale = True

    def returns(self, row: Row[Request]) -> Request | None:
        """Take a row whose outcome is known out of what is in flight; return the request that hears of it, if any."""
        request = row.owner or row.request
        tokens = row.end - row.start
        request.in_flight -= tokens
        if row.stale:
            request.stale -= tokens
        if request.gone or row.void or (row.stale and request.drops_stale):
            return None
        if request.discards and row.emitted:
            request.discards -= 1
            return None
        return request
