"""Steps of a live release that are under way: decided, and their outcome not handed over yet.

Asynchronously the worker is ahead of the scheduler: a step is launched as soon as it is decided, on what the worker
itself has sampled and verified (:attr:`Request.at`, :attr:`Request.sampled`), and the scheduler hears of it later.
"""

from __future__ import annotations

from collections.abc import Sequence

from stateat.sim.engine.request import Request, placeholders
from stateat.sim.worker.pipeline import Batch, Pipeline
from stateat.sim.worker.worker import Worker


class InFlight:
    """Steps under way, ``depth`` of them at most; ``ahead``: they have run when they get here."""

    def __init__(self, depth: int, ahead: bool, worker: Worker) -> None:
        self.pipeline: Pipeline[Request] = Pipeline(depth)
        self.several = depth > 1
        self.ahead = ahead
        self.waits = depth > 1 and not ahead
        """Steps run when they leave the queue."""
        self.worker = worker

    def __bool__(self) -> bool:
        return bool(self.pipeline)

    def push(self, batch: Batch[Request]) -> Batch[Request] | None:
        """Take a batch in; return the oldest one, if its outcome is waited for now."""
        self.pipeline.push(batch)
        return self.pipeline.pop()

    def clear(self) -> bool:
        """Forget the steps under way, which are empty; return True if there were any."""
        left = self.pipeline.last is not None
        self.pipeline.clear()
        return left

    def start(self, request: Request) -> int:
        """Return where the scheduler takes a request to be: further than the worker by the rows that have not run, or,
        of those that have, by the drafts that were rejected and that it counts still."""
        rows = [row for row in self.pipeline.rows() if row.request is request and not row.stale]
        return request.at + sum(row.rejected if self.ahead else row.end - row.start for row in rows)

    def drafts(self, request: Request, scheduled: Sequence[int], count: int, admitted: bool) -> list[int]:
        """Return the drafts that a row of ``count`` tokens runs with.

        Where the scheduler has placeholders the worker puts the request's own last proposal. Without one, and in a row
        that a split clipped, all tokens but the first are as good as placeholders, which never match.
        """
        if not scheduled:
            return []
        if count != len(scheduled) + 1 or admitted or not request.proposed:
            return placeholders(count - 1)
        if not self.ahead:
            return list(scheduled)
        right = request.acceptance.of(request.proposals - 1)
        return request.draft_ids(request.num_prompt + request.sampled, right, len(scheduled))

    def end(self, request: Request) -> None:
        """Let a request go that ended or was taken away; nobody hears of what its rows under way sample."""
        request.gone = True
        self._let_go(request, gone=True)

    def preempt(self, request: Request) -> None:
        """Let a request go that starts anew; its rows under way, and what they sample, are those from before."""
        for row in self.pipeline.rows():
            if request in (row.request, row.owner):
                row.stale = True
        self._let_go(request, gone=False)
        request.reset()

    def _let_go(self, request: Request, gone: bool) -> None:
        if self.ahead or not self.pipeline.has(request):
            self.worker.leave(request)
        else:
            # They have still to run, on what the worker knows of it now.
            self.pipeline.detach(request, gone)

    def over(self, batch: Batch[Request]) -> None:
        """Let those go who went meanwhile, and whose last row this batch had."""
        for request in self.pipeline.left(batch.rows):
            self.worker.leave(request)
