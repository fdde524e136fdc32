"""Recorder of what the frames of a result need of a run: its events, in columns of integers.

A row for each request, told step, claim and chunk. :mod:`stateat.sim.run.frames` makes pandas frames of them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from stateat.sim.events import Group, Observer
from stateat.sim.run.step_times import StepTimes
from stateat.sim.tokens import Segments, Spans

MISSING = -1
"""No number, in a column whose numbers are never negative."""


def _column() -> array[int]:
    return array("q")


class Columns(Observer):
    """Listens to a run. A request, a step and a claim are known by their row."""

    def __init__(self) -> None:
        self.groups: tuple[Group, ...] = ()
        self.times = StepTimes()
        self.requests: list[str] = []
        self.index = _column()
        self.arrive_us = _column()
        self.prompts = _column()
        self.outputs = _column()
        self.admitted = _column()
        """1 for a request that was admitted."""
        self.hits = _column()
        self.external = _column()
        self.first_step = _column()
        self.ttft_us = _column()
        self.finish_us = _column()
        self.preempted = _column()
        self.deferred = _column()
        self.step_index = _column()
        self.step_us = _column()
        self.step_commit_us = _column()
        self.step_budget = _column()
        self.claim_step = _column()
        self.claim_request = _column()
        self.claim_group = _column()
        self.claim_column = _column()
        self.claim_slot = _column()
        self.claim_offset = _column()
        self.claim_hash: list[bytes] = []
        self.claim_end = _column()
        self.claim_why: list[str] = []
        self.claim_restores = _column()
        self.chunk_step = _column()
        """The first of its steps."""
        self.chunk_request = _column()
        self.chunk_start = _column()
        self.chunk_end = _column()
        self.chunk_drafts = _column()
        self.chunk_steps = _column()
        self.chunk_fast = _column()
        """1 for a chunk that was fast-forwarded, and told when its steps were over."""
        self.chunk_prefill = _column()
        """1 for a chunk of a prefill."""
        self.chunk_stop: list[str] = []
        self._row: dict[str, int] = {}
        self._at = MISSING
        """The row of the step that events belong to."""
        self._claimed: dict[int, dict[bytes, int]] = {}
        """Claims that stand, by slot."""
        self._first: list[int] = []
        """Requests with their first token in this step."""
        self._over: list[int] = []

    def run(
        self, schema: str, engine: str, groups: tuple[Group, ...], num_speculative_tokens: int, options: dict[str, Any]
    ) -> None:
        self.groups = groups
        self.times = StepTimes(options)

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
        self._row[request] = len(self.requests)
        self.requests.append(request)
        self.index.append(index)
        self.arrive_us.append(time_us)
        self.prompts.append(len(tokens) if tokens is not None else sum(n for _, n in segments))
        for column in (self.outputs, self.admitted, self.hits, self.external, self.preempted, self.deferred):
            column.append(0)
        for column in (self.first_step, self.ttft_us, self.finish_us):
            column.append(MISSING)

    def step(self, index: int, time_us: int, budget: int) -> None:
        self.times.step(index, time_us)
        self._at = len(self.step_index)
        self.step_index.append(index)
        self.step_us.append(time_us)
        self.step_commit_us.append(MISSING)
        self.step_budget.append(budget)

    def launch(self, index: int) -> None:
        self._at = bisect_left(self.step_index, index)

    def defer(self, request: str, offered: int, why: str) -> None:
        self.deferred[self._row[request]] += 1

    def admit(self, request: str, hit: int, external: int, resumed: bool) -> None:
        row = self._row[request]
        if not resumed:
            self.admitted[row], self.hits[row], self.external[row] = 1, hit, external

    def claim(self, group: int, slot: int, request: str, column: int, offset: int, hash: bytes) -> None:
        self._claimed.setdefault(slot, {})[hash] = len(self.claim_step)
        self.claim_step.append(self.step_index[self._at])
        self.claim_request.append(self._row[request])
        self.claim_group.append(group)
        self.claim_column.append(column)
        self.claim_slot.append(slot)
        self.claim_offset.append(offset)
        self.claim_hash.append(hash)
        self.claim_end.append(MISSING)
        self.claim_why.append("")
        self.claim_restores.append(0)

    def unclaim(self, group: int, slot: int, hash: bytes, why: str) -> None:
        claims = self._claimed[slot]
        row = claims.pop(hash)
        if not claims:
            del self._claimed[slot]
        self.claim_end[row] = self.step_index[self._at]
        self.claim_why[row] = why

    def restore(self, request: str, group: int, slot: int, column: int, offset: int, group_hits: Sequence[int]) -> None:
        for row in self._claimed.get(slot, {}).values():
            self.claim_restores[row] += self.claim_group[row] == group and self.claim_offset[row] == offset

    def chunk(
        self, request: str, start: int, end: int, drafts: int, stop: str, steps: int, accepted: Sequence[int]
    ) -> None:
        row, step = self._row[request], self.step_index[self._at]
        self.chunk_step.append(step - steps)
        self.chunk_request.append(row)
        self.chunk_start.append(start)
        self.chunk_end.append(end)
        self.chunk_drafts.append(drafts)
        self.chunk_steps.append(max(steps, 1))
        self.chunk_stop.append(stop)
        if self.first_step[row] == MISSING:
            self.first_step[row] = step
        self.chunk_fast.append(steps > 0)
        self.chunk_prefill.append(start < self.prompts[row] + max(self.outputs[row] - 1, 0))

    def output(self, request: str, count: int, tokens: tuple[int, ...] | None) -> None:
        row = self._row[request]
        if not self.outputs[row]:
            self._first.append(row)
        self.outputs[row] += count

    def preempt(self, request: str) -> None:
        self.preempted[self._row[request]] += 1

    def finish(self, request: str) -> None:
        self._over.append(self._row[request])

    def commit(self, time_us: int) -> None:
        self.times.commit(time_us)
        self.step_commit_us[self._at] = time_us
        for row in self._first:
            self.ttft_us[row] = time_us - self.arrive_us[row]
        for row in self._over:
            self.finish_us[row] = time_us
        self._first.clear()
        self._over.clear()

    def end(self, steps: int, time_us: int, livelock: bool) -> None:
        self.times.end(steps, time_us)
