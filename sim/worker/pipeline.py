"""Steps in flight: decided, and not run yet (vLLM's batch queue, as deep as ``max_concurrent_batches``).

A step is decided on what the steps before it *will* have computed, published and let go of. With one batch at a time it
runs at once, and nothing here makes a difference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stateat.sim.cache.pool import Entry

if TYPE_CHECKING:
    from stateat.sim.cache.groups import CopyOnWrite
    from stateat.sim.cache.ledger import FullBlock
    from stateat.sim.engine.request import Request
    from stateat.sim.worker.worker import Row


@dataclass(slots=True)
class Batch:
    """What one step decided."""

    index: int
    rows: list[Row]
    copies: list[CopyOnWrite] = field(default_factory=list)
    pinned: list[CopyOnWrite] = field(default_factory=list)
    """Copies whose slots stay pinned until it runs."""
    given: list[list[int]] = field(default_factory=list)
    """What attention was given."""
    full: list[FullBlock] = field(default_factory=list)
    """Full blocks that it advertises, where there is a tier to store them in."""
    published: list[tuple[str, Entry]] = field(default_factory=list)
    """Requests, and the hashes that they are to make true in it."""


@dataclass(frozen=True, slots=True)
class Abort:
    """What becomes of a request's steps in flight when it is taken away."""

    runs_on: bool
    """They run to their end; nobody hears of what they sampled."""
    unpublishes: bool = False
    """Whether what they were to make true is withdrawn with them."""


@dataclass(frozen=True, slots=True)
class Free:
    """When blocks that steps in flight may use go back to the pool."""

    waits: bool = True
    """Those of a request that ends or is preempted: once its steps have run (vLLM's deferred frees)."""
    guards: bool = True
    """Whether nobody is preempted whose blocks would have to wait: that frees nothing now (vLLM 0.30)."""
    confirmed: bool = True
    """Whether a state is retired by what has been computed, or by what steps in flight will have computed too."""


class Pipeline:
    """At most ``depth`` batches in flight, in order."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._batches: deque[Batch] = deque()

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def newest(self) -> int | None:
        """The step of the last batch that has not run."""
        return self._batches[-1].index if self._batches else None

    def push(self, batch: Batch) -> Batch | None:
        """Take a batch in; returns the one that runs now. An empty one waits for nobody."""
        if batch.rows or batch.copies:
            self._batches.append(batch)
            if len(self._batches) < self.depth:
                return None
        return self._batches.popleft() if self._batches else None

    def has(self, request: Request) -> bool:
        """Whether a step of this request is in flight."""
        return any(row.request is request for batch in self._batches for row in batch.rows)

    def tokens(self, request: Request) -> int:
        """Tokens of this request in flight."""
        return sum(row.end - row.start for batch in self._batches for row in batch.rows if row.request is request)

    def detach(self, request: Request) -> None:
        """Its steps in flight run on, with what it had when they were decided; what they sample is nobody's."""
        ghost = copy(request)
        for batch in self._batches:
            for row in batch.rows:
                if row.request is request:
                    row.request, row.void = ghost, True

    def drop(self, request: Request, blocks: Collection[int]) -> list[Entry]:
        """Its steps in flight do not run, nor are its ``blocks`` given; returns what they were to make true."""
        entries = []
        for batch in self._batches:
            if any(row.request is request for row in batch.rows):
                batch.rows = [row for row in batch.rows if row.request is not request]
                batch.copies = [copy for copy in batch.copies if copy.request != request.id]
                batch.given = [[block for block in given if block not in blocks] for given in batch.given]
                entries += [entry for name, entry in batch.published if name == request.id]
                batch.published = [(name, entry) for name, entry in batch.published if name != request.id]
        return entries
