"""Sampling: what the model does with a row, and what the scheduler makes of that.

The worker verifies a row's drafts, samples, and lets the drafter propose again. The scheduler hears of it at once, or
with steps in flight once it has decided others.
"""

from __future__ import annotations

from stateat.sim.engine.request import Request
from stateat.sim.events import Observer
from stateat.sim.worker.worker import Row


def verify(row: Row[Request], num_drafts: int, observer: Observer) -> None:
    """Run the model's end of a row: verify its drafts, sample, and let the drafter propose up to ``num_drafts``."""
    request = row.request
    request.at = row.end
    request.proposed = 0
    if row.end - len(row.drafts) < request.num_prompt + request.sampled:
        return
    accepted = 0
    if row.drafted:
        if row.drafts and row.drafts[0] >= 0:
            accepted = min(request.acceptance.of(request.proposals - 1), row.drafted)
        request.at -= row.drafted - accepted
        if row.owner is None:
            observer.accept(request.id, row.drafted, accepted)
    row.emitted = accepted + 1
    request.sampled += row.emitted
    if num_drafts:
        request.proposed = min(request.acceptance.size(request.proposals), num_drafts)
        request.proposals += 1
        if row.owner is not None:
            row.owner.proposals = request.proposals


def settle(row: Row[Request], request: Request, observer: Observer) -> bool:
    """Correct what the scheduler counts of a row's request by what the row sampled; return True if that got further
    than the request ever was."""
    further = row.end > request.furthest
    if further:
        request.furthest = row.end
    if not row.emitted:
        return further
    if not row.stale and row.rejected:
        if request.computed > 0:
            request.computed -= row.rejected
        if request.placeholders > 0:
            request.placeholders -= row.rejected
    count = min(row.emitted, request.max_outputs - request.outputs)
    request.outputs += count
    if not row.stale and request.placeholders > 0:
        request.placeholders -= count
    observer.output(request.id, count, None)
    return further
