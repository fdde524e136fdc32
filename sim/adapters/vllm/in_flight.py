"""Steps of a live release that are under way: decided, and their outputs not handed over yet (vLLM's batch queue).

The worker is ahead of the scheduler: asynchronously a step is launched as soon as it is decided, on what the worker
itself has sampled and verified, and the scheduler hears of it a step later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field

from stateat.sim.cache.groups import CopyOnWrite
from stateat.sim.engine.request import Request, placeholders
from stateat.sim.events import Observer
from stateat.sim.worker.worker import Row


@dataclass(slots=True)
class Batch:
    """Decisions of one step, and what it sampled once it has run."""

    index: int
    rows: list[Row[Request]]
    copies: list[CopyOnWrite]
    given: list[list[int]]
    """Blocks newly given to each attention group."""
    sampled: dict[str, list[int]] = field(default_factory=dict)
    """Tokens of each row, none of a chunk that leaves some of its prompt."""
    drafts: dict[str, list[int]] = field(default_factory=dict)
    """Proposals for the next rows."""


class InFlight:
    """Batches under way, in order, an empty one too; at most ``depth``.

    ``ahead``: they have run when they get here.
    """

    def __init__(self, depth: int, ahead: bool) -> None:
        self.depth, self.ahead = depth, ahead
        self._batches: deque[Batch] = deque()

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def full(self) -> bool:
        """True if the oldest batch has to be over before another step can be decided."""
        return len(self._batches) >= self.depth

    def push(self, batch: Batch) -> None:
        """Take a batch in."""
        self._batches.append(batch)

    def pop(self) -> Batch:
        """Return the oldest batch, which is over."""
        return self._batches.popleft()

    def start(self, request: Request) -> int:
        """Return where the scheduler takes a request to be: beyond what the worker has computed for it by the rows that
        have not run, or, of those that have, by the drafts that were rejected and that it counts as accepted still."""
        rows = self._rows(request)
        return request.computed + sum(rejected(row) if self.ahead else row.end - row.start for row in rows)

    def waits(self, request: Request) -> bool:
        """Return True if a row of the request, or of what it was before it ended, has still to run."""
        return not self.ahead and any(row.request.worker is request.worker for row in self._all())

    def detach(self, request: Request) -> None:
        """Make the rows of a request that ends or is preempted those of a copy of it, on which they run."""
        ghost = copy(request)
        for row in self._rows(request):
            row.request, row.void = ghost, True

    def _all(self) -> Iterator[Row[Request]]:
        return (row for batch in self._batches for row in batch.rows)

    def _rows(self, request: Request) -> list[Row[Request]]:
        return [row for row in self._all() if row.request is request]


def rejected(row: Row[Request]) -> int:
    """Return how many of the drafts of a row that has run were rejected."""
    return row.drafted - max(row.emitted - 1, 0)


def proposed(request: Request, count: int) -> list[int]:
    """Return the drafts that the worker puts where the scheduler has placeholders: the request's own last proposal, or,
    where it has none, placeholders, which never match."""
    if not request.drafts:
        return placeholders(count)
    return request.draft_ids(request.num_tokens, request.acceptance.of(request.proposals - 1), count)


class Verified(Observer):
    """What comes of a row on the worker, before the scheduler hears of it: an ``output`` is not told yet."""

    def __init__(self, observer: Observer) -> None:
        self.accept = observer.accept  # type: ignore[method-assign]
