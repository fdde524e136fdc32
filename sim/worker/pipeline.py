"""Steps in flight: decided, and not run yet (vLLM's batch queue, as deep as ``max_concurrent_batches``).

A step is decided on what the steps before it *will* have computed, published and let go of. With one batch at a time it
runs at once, and nothing here makes a difference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Generic

from stateat.sim.cache.groups import CopyOnWrite
from stateat.sim.cache.ledger import FullBlock
from stateat.sim.cache.pool import Entry
from stateat.sim.worker.state import R
from stateat.sim.worker.worker import Row


@dataclass(slots=True)
class Batch(Generic[R]):
    """Decisions of one step."""

    index: int
    rows: list[Row[R]]
    copies: list[CopyOnWrite] = field(default_factory=list)
    pinned: list[CopyOnWrite] = field(default_factory=list)
    """Copies whose slots stay pinned until it runs."""
    given: list[list[int]] = field(default_factory=list)
    """Blocks newly given to each attention group."""
    full: list[FullBlock] = field(default_factory=list)
    """Full blocks that it advertises, where there is a tier to store them in."""
    published: list[tuple[str, Entry]] = field(default_factory=list)
    """Requests, and the hashes that they are to make true in it."""
    quiet_tokens: int = 0
    """Tokens of requests that are fast-forwarded."""


class Pipeline(Generic[R]):
    """Batches in flight, at most ``depth``, in order; an empty one takes a place too."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._batches: deque[Batch[R]] = deque()

    def __bool__(self) -> bool:
        """True while a batch in flight has something to do."""
        return any(batch.rows or batch.copies for batch in self._batches)

    @property
    def newest(self) -> int | None:
        """Step of the last batch in flight that has something to do."""
        return next((batch.index for batch in reversed(self._batches) if batch.rows or batch.copies), None)

    @property
    def last(self) -> Batch[R] | None:
        """The batch that was decided last, unless its outcome is known."""
        return self._batches[-1] if self._batches else None

    def push(self, batch: Batch[R]) -> None:
        """Take a batch in."""
        self._batches.append(batch)

    def pop(self) -> Batch[R] | None:
        """Return the oldest batch once so many are in flight: its outcome is waited for."""
        return self._batches.popleft() if len(self._batches) >= self.depth else None

    def clear(self) -> None:
        """Forget empty batches: nobody is left for whom anything would be decided."""
        self._batches.clear()

    def rows(self) -> Iterator[Row[R]]:
        """Yield the rows in flight, the oldest first."""
        return (row for batch in self._batches for row in batch.rows)

    def has(self, request: R) -> bool:
        """Return True if a step of this request is in flight."""
        return any(row.request is request for row in self.rows())

    def detach(self, request: R, gone: bool = True) -> None:
        """Let in-flight steps of a removed request finish on a copy of it; if it is ``gone``, nobody hears of them."""
        ghost = copy(request)
        for row in self.rows():
            if row.request is request:
                row.request, row.owner, row.void = ghost, request, gone

    def left(self, rows: Sequence[Row[R]]) -> list[R]:
        """Return the copies of removed requests of which no row is in flight behind these."""
        return [row.request for row in rows if row.owner is not None and not self.has(row.request)]

    def drop(self, request: R, blocks: Collection[int]) -> list[Entry]:
        """Take a request's steps and its ``blocks`` out of the batches in flight; return what they were to publish."""
        entries = []
        for batch in self._batches:
            if any(row.request is request for row in batch.rows):
                batch.rows = [row for row in batch.rows if row.request is not request]
                batch.copies = [copy for copy in batch.copies if copy.request != request.id]
                batch.given = [[block for block in given if block not in blocks] for given in batch.given]
                entries += [entry for name, entry in batch.published if name == request.id]
                batch.published = [(name, entry) for name, entry in batch.published if name != request.id]
        return entries
