"""A run as a Chrome trace (ui.perfetto.dev): a process per variant, a thread per request, counters."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stateat.sim.events import Finding, Group, Observer
from stateat.sim.run.result import Outcome
from stateat.sim.run.step_times import StepTimes
from stateat.sim.tokens import Segments, Spans

STEP_US = 1000
"""Length of a step as it is drawn under ``clock: steps``, in microseconds."""
ENGINE = 0
"""The thread of what belongs to no request."""


class _Slice(NamedTuple):
    thread: int
    step: int
    steps: int
    name: str
    args: dict[str, Any]


class _Instant(NamedTuple):
    thread: int
    step: int
    at_end: bool
    name: str
    args: dict[str, Any]


class Perfetto(Observer):
    """Collects the trace of one variant; :func:`write` writes several into one file."""

    __slots__ = (
        "_groups", "_instants", "_leaving", "_queue", "_running", "_slices", "_threads", "_tokens", "_waiting",
        "steps",
    )  # fmt: skip

    def __init__(self) -> None:
        self.steps = StepTimes()
        self._groups: tuple[Group, ...] = ()
        self._threads: dict[str, int] = {}
        self._slices: list[_Slice] = []
        self._instants: list[_Instant] = []
        self._queue: list[tuple[int, bool, int, int]] = []
        self._tokens: defaultdict[int, int] = defaultdict(int)
        self._running: set[str] = set()
        self._waiting: set[str] = set()
        self._leaving: list[str] = []

    def write(self, path: str | Path) -> None:
        """Write the trace of this run alone, without findings."""
        _dump(path, self.events(1, "stateat"))

    def events(self, process: int, name: str, findings: Iterable[Finding] = ()) -> list[dict[str, Any]]:
        """The trace events of this run: names, then everything in the order of time.

        Findings are marked at the end of the step in which the oracle found them.
        """
        names = [_name(process, ENGINE, "process_name", name), _name(process, ENGINE, "thread_name", "engine")]
        for request, thread in self._threads.items():
            names.append(_name(process, thread, "thread_name", request))
            names.append(_sort(process, thread))
        timed = [*map(self._slice, self._slices), *self._counters()]
        timed += map(self._instant, [*self._instants, *map(self._found, findings)])
        timed.sort(key=lambda event: event["ts"])
        return names + [{**event, "pid": process} for event in timed]

    def _slice(self, run: _Slice) -> dict[str, Any]:
        begin, finish = self._ts(run.step), self._ts(run.step + run.steps - 1, at_end=True)
        return {
            "ph": "X", "cat": "chunk", "name": run.name, "tid": run.thread, "ts": begin, "dur": finish - begin,
            "args": run.args,
        }  # fmt: skip

    def _instant(self, instant: _Instant) -> dict[str, Any]:
        ts = self._ts(instant.step, instant.at_end)
        return {"ph": "i", "s": "t", "name": instant.name, "tid": instant.thread, "ts": ts, "args": instant.args}

    def _found(self, finding: Finding) -> _Instant:
        args = {"severity": finding.severity, "verdict": finding.verdict, "message": finding.message}
        thread = self._threads.get(finding.request, ENGINE)
        return _Instant(thread, finding.step, True, f"finding {finding.invariant}", args)

    def _counters(self) -> Iterable[dict[str, Any]]:
        for step, at_end, running, waiting in self._queue:
            yield _counter("requests", self._ts(step, at_end), {"running": running, "waiting": waiting})
        tokens = 0
        for step in sorted(self._tokens):
            tokens += self._tokens[step]
            yield _counter("step tokens", self._ts(step), {"tokens": tokens})

    def _ts(self, step: int, at_end: bool = False) -> int:
        time = self.steps.finish(step) if at_end else self.steps.begin(step)
        return round(time * STEP_US if self.steps.counts_steps else time)

    def _mark(self, request: str, name: str, **args: Any) -> None:
        self._instants.append(_Instant(self._thread(request), self.steps.current, False, name, args))

    def _thread(self, request: str) -> int:
        return self._threads.setdefault(request, len(self._threads) + 1)

    def run(
        self, schema: str, engine: str, groups: tuple[Group, ...], num_speculative_tokens: int, options: dict[str, Any]
    ) -> None:
        self._groups = groups
        self.steps = StepTimes(options)

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
        self._thread(request)
        self._waiting.add(request)

    def step(self, index: int, time_us: int, budget: int) -> None:
        self._close_step()
        self.steps.step(index, time_us)

    def commit(self, time_us: int) -> None:
        self.steps.commit(time_us)

    def end(self, steps: int, time_us: int, livelock: bool) -> None:
        self._close_step()
        self.steps.end(steps, time_us)

    def _close_step(self) -> None:
        """Count who ran in the step that is over, then let go of those who ended in it."""
        self._count(at_end=False)
        if self._leaving:
            self._running.difference_update(self._leaving)
            self._leaving.clear()
            self._count(at_end=True)

    def _count(self, at_end: bool) -> None:
        self._queue.append((self.steps.current, at_end, len(self._running), len(self._waiting)))

    def defer(self, request: str, offered: int, why: str) -> None:
        self._mark(request, "defer", offered=offered, why=why)

    def refuse(self, request: str, reason: str) -> None:
        self._mark(request, "refuse", reason=reason)

    def admit(self, request: str, hit: int, external: int, resumed: bool) -> None:
        self._waiting.discard(request)
        self._running.add(request)

    def restore(self, request: str, group: int, slot: int, column: int, offset: int, group_hits: Sequence[int]) -> None:
        self._mark(request, "restore", group=self._group(group), slot=slot, column=column, offset=offset)

    def claim(self, group: int, slot: int, request: str, column: int, offset: int, hash: bytes) -> None:
        name = self._group(group)
        self._mark(request, "claim", group=name, slot=slot, column=column, offset=offset, hash=hash.hex())

    def _group(self, group: int) -> str:
        return self._groups[group].name if group < len(self._groups) else str(group)

    def chunk(
        self, request: str, start: int, end: int, drafts: int, stop: str, steps: int, accepted: Sequence[int]
    ) -> None:
        first, lasts = self.steps.current - steps, max(steps, 1)
        tokens = 1 + drafts if steps else end - start
        args = {"start": start, "end": end, "drafts": drafts, "stop": stop, "steps": lasts}
        self._slices.append(_Slice(self._thread(request), first, lasts, f"{start} → {end}", args))
        self._tokens[first] += tokens
        self._tokens[first + lasts] -= tokens

    def preempt(self, request: str) -> None:
        self._mark(request, "preempt")
        self._running.discard(request)
        self._waiting.add(request)

    def finish(self, request: str) -> None:
        # One that was preempted may end on what it had in flight.
        self._waiting.discard(request)
        self._leaving.append(request)

    def abort(self, request: str) -> None:
        self._mark(request, "abort")
        self._waiting.discard(request)
        self._leaving.append(request)


def write(path: str | Path, panels: Sequence[tuple[str, Perfetto, Outcome]]) -> None:
    """Write variants (name, trace, outcome) as the processes 1, 2, ... of one trace."""
    numbered = enumerate(panels, 1)
    _dump(path, [e for process, (name, trace, o) in numbered for e in trace.events(process, name, o.findings)])


def _dump(path: str | Path, events: Sequence[dict[str, Any]]) -> None:
    tree = {"traceEvents": events, "displayTimeUnit": "ms"}
    Path(path).write_text(json.dumps(tree, separators=(",", ":"), allow_nan=False), encoding="utf-8")


def _name(process: int, thread: int, kind: str, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "ts": 0, "args": {"name": name}}


def _sort(process: int, thread: int) -> dict[str, Any]:
    args = {"sort_index": thread}
    return {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": thread, "ts": 0, "args": args}


def _counter(name: str, ts: int, args: dict[str, int]) -> dict[str, Any]:
    return {"ph": "C", "name": name, "tid": ENGINE, "ts": ts, "args": args}
