"""Steps in flight: how a step's decisions wait until they run, and what becomes of those of a request that ends."""

from __future__ import annotations

from stateat.sim.cache.interface import Cache
from stateat.sim.engine.request import Request
from stateat.sim.events import Observer
from stateat.sim.releases.rules import Rules
from stateat.sim.worker.pipeline import Batch, Pipeline
from stateat.sim.worker.worker import Row, Worker


class InFlight:
    """Steps that are decided and have not run yet: ``depth`` of them at most, the newest included."""

    def __init__(self, cache: Cache, worker: Worker, rules: Rules, observer: Observer, depth: int) -> None:
        self.cache, self.worker, self.rules, self.observer = cache, worker, rules, observer
        self.pipeline: Pipeline[Request] = Pipeline(depth)

    def add(self, index: int, rows: list[Row[Request]]) -> Batch[Request] | None:
        """Put what this step decided into the pipeline; return the batch that runs now."""
        copies, given, full, published = self.cache.decided()
        batch = Batch(index, rows, copies, copies, given, full, published)
        if self.pipeline.depth == 1:
            return batch
        if not self.worker.waits:
            self.worker.copy_on_write(copies)
            batch.copies = []
        for row in rows:
            row.request.computed = row.end
        runs = self.pipeline.push(batch)
        if runs is not None:
            self.observer.launch(runs.index)
        return runs

    def drop(self, request: Request) -> None:
        """Drop a request's steps in flight, if that is the rule."""
        if self.rules.aborted_steps.runs_on:
            return
        dropped = self.pipeline.drop(request, self.cache.held(request))
        if self.rules.aborted_steps.unpublishes or self.rules.publish.hides:
            self.cache.withdraw(dropped)

    def let_go(self, request: Request) -> None:
        """Free the blocks of a request that may have steps in flight, at once or once these have run."""
        waits_for = self.pipeline.newest if self.fenced(request) else None
        if not self.pipeline.has(request):
            # Else the worker hears of it behind those steps.
            self.worker.leave(request)
        self.pipeline.detach(request)
        self.cache.free(request, waits_for)

    def fenced(self, request: Request) -> bool:
        """Return True if the blocks of a request have to wait for a step in flight."""
        return self.rules.deferred_free.waits and self.pipeline.has(request)
