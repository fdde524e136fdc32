"""Digest of a run's decisions: equal digests, equal schedules.

Per request, SHA-256 over little-endian int64 rows (step, start, end, drafts), with (step, -1, hit, 0) for an
admission, (step, -2, 0, 0) for a preemption and (step, -3, 0, 0) for the end; the run's is SHA-256 over these in
workload order and a byte that says livelock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from struct import Struct

import numpy as np

from stateat.sim.events import Observer
from stateat.sim.tokens import Segments, Spans

_ROW = Struct("<4q").pack


class Digest(Observer):
    """Listens to decisions, and sums them up."""

    __slots__ = ("_done", "_order", "_rows", "_step", "livelock")

    def __init__(self) -> None:
        self._order: dict[str, int] = {}
        self._rows: dict[str, bytearray] = {}
        self._done: dict[str, bytes] = {}
        self._step = 0
        self.livelock = False

    def arrive(
        self,
        request: str,
        index: int,
        time_us: int,
        segments: Segments,
        tokens: tuple[int, ...] | None,
        max_tokens: int,
        encoder: Spans = (),
    ) -> None:
        self._order[request] = index
        self._rows[request] = bytearray()

    def step(self, index: int, time_us: int, budget: int) -> None:
        self._step = index

    def admit(self, request: str, hit: int, external: int, resumed: bool) -> None:
        self._rows[request] += _ROW(self._step, -1, hit, 0)

    def chunk(
        self, request: str, start: int, end: int, drafts: int, stop: str, steps: int, accepted: Sequence[int]
    ) -> None:
        if not steps:
            self._rows[request] += _ROW(self._step, start, end, drafts)
            return
        rows = np.empty((steps, 4), "<i8")
        rows[:, 0] = np.arange(self._step - steps, self._step)
        emitted = np.cumsum(np.asarray(accepted, np.int64) + 1)
        rows[0, 1] = start
        rows[1:, 1] = start + emitted[:-1]
        rows[:, 2] = rows[:, 1] + 1 + drafts
        rows[:, 3] = drafts
        self._rows[request] += rows.tobytes()

    def preempt(self, request: str) -> None:
        self._rows[request] += _ROW(self._step, -2, 0, 0)

    def finish(self, request: str) -> None:
        self._rows[request] += _ROW(self._step, -3, 0, 0)
        self._done[request] = hashlib.sha256(self._rows.pop(request)).digest()

    def abort(self, request: str) -> None:
        self.finish(request)

    def end(self, steps: int, time_us: int, livelock: bool) -> None:
        self.livelock = livelock

    def hexdigest(self) -> str:
        """The run's digest."""
        for request, rows in self._rows.items():
            self._done[request] = hashlib.sha256(rows).digest()
        whole = hashlib.sha256()
        for request in sorted(self._order, key=self._order.__getitem__):
            whole.update(self._done[request])
        whole.update(bytes([self.livelock]))
        return whole.hexdigest()
