"""What an engine decides, heard step by step in a form in which two engines can be compared."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from stateat.sim.events import Observer, Refusal
from stateat.sim.run.result import Outcome


class Heard(Observer):
    """Decisions by step and kind. Kinds in whose order nothing lies are counted; the others stand in their order."""

    def __init__(self) -> None:
        self.steps: dict[int, dict[str, Any]] = {}
        self._now: dict[str, Any] = {}

    def plain(self) -> dict[str, Any]:
        """All of it as plain data, as JSON has it; equal where nothing that is compared differs."""
        told = {
            str(step): {kind: sorted(each.elements()) if isinstance(each, Counter) else each for kind, each in now}
            for step, now in ((step, self.steps[step].items()) for step in sorted(self.steps))
        }
        plain: dict[str, Any] = json.loads(json.dumps(told))
        return plain

    def _tell(self, kind: str, *what: Any) -> None:
        self._now.setdefault(kind, []).append(what)

    def _count(self, kind: str, *what: Any, times: int = 1) -> None:
        self._now.setdefault(kind, Counter())[what] += times

    def step(self, index: int, time_us: int, budget: int) -> None:
        self._now = self.steps.setdefault(index, {})

    def reset(self, done: bool) -> None:
        self._tell("reset", done)

    def abort(self, request: str) -> None:
        self._tell("abort", request)

    def refuse(self, request: str, reason: str) -> None:
        # Which room it lacks is told by the numbers that an engine counts with, and no decision.
        self._tell("refuse", request, reason if reason == Refusal.SAME_STEP or Refusal(reason).final else "room")

    def defer(self, request: str, offered: int, why: str) -> None:
        # Which of several caps took its tokens, and how many it was offered before it, is no decision.
        self._tell("defer", request)

    def preempt(self, request: str) -> None:
        self._tell("preempt", request)

    def admit(self, request: str, hit: int, external: int, resumed: bool) -> None:
        self._tell("admit", request, hit, external, resumed)

    def chunk(
        self, request: str, start: int, end: int, drafts: int, stop: str, steps: int, accepted: Sequence[int]
    ) -> None:
        self._count("chunk", request, start, end, drafts)

    def restore(self, request: str, group: int, slot: int, column: int, offset: int, group_hits: Sequence[int]) -> None:
        self._count("restore", request, group, slot, column, offset)

    def allocate(self, request: str, group: int, column: int, slots: Sequence[int]) -> None:
        if request:
            for i, slot in enumerate(slots):
                if slot:
                    self._count("allocate", request, group, column + i, slot)

    def release(self, request: str, group: int, slots: Sequence[int]) -> None:
        for slot in slots:
            if slot:
                self._count("release", request, group, slot)

    def claim(self, group: int, slot: int, request: str, column: int, offset: int, hash: bytes) -> None:
        self._count("claim", group, slot, request, column, offset)

    def unclaim(self, group: int, slot: int, hash: bytes, why: str) -> None:
        self._count("unclaim", group, slot, why)

    def load(self, request: str, group: int, key: str, slot: int, offset: int) -> None:
        self._count("load", request, group, slot, offset)

    def copy(self, request: str, group: int, kind: str, src: int, dst: int, conv_src: int, shift: int) -> None:
        self._count("copy", request, group, kind, src, dst, conv_src, shift)

    def advance(
        self,
        request: str,
        group: int,
        start: int,
        end: int,
        drafts: Sequence[int],
        read: int,
        writes: Sequence[tuple[int, int]],
        steps: int,
    ) -> None:
        self._count("launch", request, group, start, end, tuple(drafts), read, tuple(writes))

    def accept(self, request: str, drafted: int, accepted: int) -> None:
        self._count("accept", request, drafted, accepted)

    def output(self, request: str, count: int, tokens: tuple[int, ...] | None) -> None:
        self._count("output", request, count)

    def finish(self, request: str) -> None:
        self._count("finish", request)


ORDER = (
    "reset", "abort", "admit", "refuse", "defer", "preempt", "chunk", "restore", "load", "claim", "unclaim", "allocate",
    "release", "copy", "launch", "accept", "output", "finish",
)  # fmt: skip
"""Kinds in the order in which a difference is told."""


def totals(outcome: Outcome) -> dict[str, Any]:
    """What is compared of a whole run."""
    return {
        # Sorted: in which order decisions of a step are told decides in which order they are judged.
        "findings": sorted(
            (f.step, f.invariant, f.severity, f.request, f.group, f.slot, str(f.claimed), str(f.held))
            for f in outcome.findings
        ),
        "free blocks at the end": outcome.free_blocks,
        "livelock": outcome.livelock,
        "hits": dict(outcome.hits),
        "steps": outcome.steps,
        "digest": outcome.digest,
    }
