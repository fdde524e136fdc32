"""Sampling: what the model does with a row. It verifies its drafts, emits tokens, and lets the drafter propose
again."""

from __future__ import annotations

from stateat.sim.engine.request import Request
from stateat.sim.events import Observer
from stateat.sim.worker.worker import Row


def sample(row: Row[Request], num_drafts: int, observer: Observer) -> bool:
    """Advance a row's request, and let its drafter propose up to ``num_drafts``; return True if it is further than it
    ever was."""
    request = row.request
    # With steps in flight it is further already.
    request.computed = max(request.computed, row.end)
    further = row.end > request.furthest
    if further:
        request.furthest = row.end
    request.prefilling = row.end < request.num_tokens
    if request.prefilling:
        return further
    accepted = 0
    if row.drafted:
        if row.drafts and row.drafts[0] >= 0:
            accepted = min(request.acceptance.of(request.proposals - 1), row.drafted)
        request.computed -= row.drafted - accepted
        observer.accept(request.id, row.drafted, accepted)
    row.emitted = accepted + 1
    count = min(accepted + 1, request.max_outputs - request.outputs)
    request.outputs += count
    observer.output(request.id, count, None)
    if num_drafts and request.outputs < request.max_outputs:
        request.drafts = min(request.acceptance.size(request.proposals), num_drafts)
        request.proposals += 1
    return further
