"""Counts of what an engine decided, and the first decisions of each request."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stateat.sim.events import Observer, Refusal, Withdrawal
from stateat.sim.run.result import LISTED_REQUESTS
from stateat.sim.tokens import Segments, Spans


class Tally(Observer):
    """Listener that counts what an engine decides; its counts are those of :mod:`stateat.sim.scenario.counts`."""

    def __init__(self) -> None:
        self.requests = 0
        self.finished = 0
        self.prompt_tokens = 0
        self.output_tokens = 0
        self.deferred = 0
        self.same_step_refused = 0
        self.hit_tokens = 0
        self.resume_hit_tokens = 0
        self.restores = 0
        self.starts = 0
        self.chunks = 0
        self.preempted = 0
        self.evicted = 0
        self.loaded_tokens = 0
        self.prefill_tokens = 0
        self.resets = 0
        self.rejected = 0
        self.steps = 0
        self.time_us = 0
        self.livelock = False
        self.ends: dict[str, list[int]] = {}
        self.hits: dict[str, int] = {}
        self.loads: dict[str, int] = {}
        self._prompts: dict[str, int] = {}
        self._arrived: dict[str, int] = {}
        self._outputs: dict[str, int] = {}
        self._first: list[str] = []
        self._ttft: list[int] = []
        self._claims: dict[int, int] = {}

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
        self.requests += 1
        length = len(tokens) if tokens is not None else sum(n for _, n in segments)
        self.prompt_tokens += length
        self._prompts[request] = length
        self._arrived[request] = time_us
        if len(self.ends) < LISTED_REQUESTS:
            self.ends[request] = []

    def step(self, index: int, time_us: int, budget: int) -> None:
        # A log that was cut off has no `end`.
        self.steps = index + 1

    def defer(self, request: str, offered: int, why: str) -> None:
        self.deferred += 1

    def refuse(self, request: str, reason: str) -> None:
        self.same_step_refused += reason == Refusal.SAME_STEP
        self.rejected += Refusal(reason).final

    def admit(self, request: str, hit: int, external: int, resumed: bool) -> None:
        self.restores += hit > 0
        self.starts += hit + external > 0
        if resumed:
            self.resume_hit_tokens += hit
            return
        self.hit_tokens += hit
        self.loaded_tokens += external
        if request in self.ends:
            self.hits[request], self.loads[request] = hit, external

    def claim(self, group: int, slot: int, request: str, column: int, offset: int, hash: bytes) -> None:
        self._claims[slot] = self._claims.get(slot, 0) + 1

    def unclaim(self, group: int, slot: int, hash: bytes, why: str) -> None:
        # One that was made before the log began is the slot's last.
        left = self._claims.pop(slot, 1) - 1
        if left:
            self._claims[slot] = left
        else:
            self.evicted += why == Withdrawal.EVICT

    def chunk(
        self, request: str, start: int, end: int, drafts: int, stop: str, steps: int, accepted: Sequence[int]
    ) -> None:
        self.chunks += max(steps, 1)
        outputs = self._outputs.get(request, 0)
        if start < self._prompts[request] + max(outputs - 1, 0):
            self.prefill_tokens += max(end - start - drafts, 1)
            if request in self.ends:
                self.ends[request].append(end)

    def output(self, request: str, count: int, tokens: tuple[int, ...] | None) -> None:
        if request not in self._outputs:
            self._outputs[request] = 0
            self._first.append(request)
        self._outputs[request] += count
        self.output_tokens += count

    def preempt(self, request: str) -> None:
        self.preempted += 1

    def reset(self, done: bool) -> None:
        self.resets += done

    def finish(self, request: str) -> None:
        self.finished += 1

    def commit(self, time_us: int) -> None:
        for request in self._first:
            self._ttft.append(time_us - self._arrived[request])
        self._first.clear()

    def end(self, steps: int, time_us: int, livelock: bool) -> None:
        self.steps, self.time_us, self.livelock = steps, time_us, livelock

    def ttft_us(self) -> dict[str, float]:
        """Percentiles of the time from a request's arrival to its first token."""
        if not self._ttft:
            return {}
        p50, p95, p99 = np.percentile(np.array(self._ttft), [50, 95, 99]).tolist()
        return {"p50": p50, "p95": p95, "p99": p99}
