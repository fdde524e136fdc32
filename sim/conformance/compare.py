"""Comparison with recorded decisions of real releases (:mod:`.recording`), decision by decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from stateat.sim.conformance.recording import Recording, arrivals_of, options_of
from stateat.sim.errors import EngineError, InputError, RefusedError
from stateat.sim.events import NULL, Group, Observer
from stateat.sim.releases.presets import PRESETS, table
from stateat.sim.releases.support import lacks
from stateat.sim.run.engine import Make
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive


@dataclass(frozen=True, slots=True)
class Divergence:
    """First decision in which our engine differs from a recording.

    ``step`` and ``request`` are None for numbers of the whole run; ``what`` names the kind of decision.
    """

    step: int | None
    request: str | None
    what: str
    recorded: Any
    ours: Any
    rule: str | None
    """Stop that ended our chunk (docs/rules.md); None where no chunk differs."""


@dataclass(frozen=True, slots=True)
class Conformance:
    """Outcome of one comparison."""

    scenario: str
    release: str
    status: str
    """``equal``, ``divergent``, ``unsupported``, or ``error`` where the engine failed."""
    first_divergence: Divergence | None = None


Launch = tuple[int, int, int, int, int]
"""Launch of a row: start, end, drafts, the block read (-1: none), the block of the running column."""
Copied = tuple[str, int, int, str]
"""Copy: kind, source block (for an exported state its offset), target block, request."""


NOTHING: Mapping[str, Any] = {"scheduled": (), "preempted": []}
"""Stand-in for a step that is not recorded."""


class Decisions(Observer):
    """Decisions of an engine, as a recording has them: by step, offsets in tokens, blocks by their ids."""

    def __init__(self) -> None:
        self.index = 0
        self.scheduled: dict[int, dict[str, tuple[int, int, int]]] = {}
        self.stops: dict[tuple[int, str], str] = {}
        self.preempted: dict[int, list[str]] = {}
        self.hits: dict[str, int] = {}
        self.refused: dict[int, list[str]] = {}
        self.claims: dict[int, Counter[tuple[str, int]]] = {}
        self.copies: dict[int, Counter[Copied]] = {}
        self.launches: dict[tuple[int, str], Launch] = {}
        self.repeated: set[tuple[int, str]] = set()
        """(step, request) of launches that were told as a run of steps: nothing is copied, the blocks stay."""
        self.finished: dict[str, int] = {}
        self._evicted: dict[int, dict[int, list[int]]] = {}
        self._offsets: dict[int, dict[bytes, int]] = {}
        self._groups: tuple[Group, ...] = ()

    def evictions(self, step: int) -> Counter[tuple[int, ...]]:
        """Count the recurrent slots that lost their claims in a step, by the offsets claimed."""
        return Counter(tuple(sorted(offsets)) for offsets in self._evicted.get(step, {}).values())

    def run(
        self, schema: str, engine: str, groups: tuple[Group, ...], num_speculative_tokens: int, options: dict[str, Any]
    ) -> None:
        self._groups = groups

    def step(self, index: int, time_us: int, budget: int) -> None:
        self.index = index

    def chunk(
        self, request: str, start: int, end: int, drafts: int, stop: str, steps: int, accepted: Sequence[int]
    ) -> None:
        if not steps:
            self.scheduled.setdefault(self.index, {})[request] = start, end, drafts
            self.stops[self.index, request] = stop
        self.repeated.update((self.index - steps + i, request) for i in range(steps))
        for i, right in enumerate(accepted):
            self.scheduled.setdefault(self.index - steps + i, {})[request] = start, start + 1 + drafts, drafts
            start += right + 1

    def defer(self, request: str, offered: int, why: str) -> None:
        self.stops[self.index, request] = why

    def admit(self, request: str, hit: int, external: int, resumed: bool) -> None:
        self.hits.setdefault(request, hit)

    def preempt(self, request: str) -> None:
        self.preempted.setdefault(self.index, []).append(request)

    def refuse(self, request: str, reason: str) -> None:
        if reason == "same_step":
            self.refused.setdefault(self.index, []).append(request)

    def claim(self, group: int, slot: int, request: str, column: int, offset: int, hash: bytes) -> None:
        self.claims.setdefault(self.index, Counter())[request, offset] += 1
        self._offsets.setdefault(slot, {})[hash] = offset

    def unclaim(self, group: int, slot: int, hash: bytes, why: str) -> None:
        offset = self._offsets[slot].pop(hash)
        if why in ("evict", "transient"):
            self._evicted.setdefault(self.index, {}).setdefault(slot, []).append(offset)

    def copy(self, request: str, group: int, kind: str, src: int, dst: int, conv_src: int, shift: int) -> None:
        # The recordings follow matrices, not attention or what stays in its block, and name no request of a
        # copy-on-write.
        if self._groups[group].recurrent and src != dst:
            copied = kind, src, dst, "" if kind == "cow" else request
            self.copies.setdefault(self.index, Counter())[copied] += 1

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
        if steps or not self._groups[group].recurrent:
            return
        # A row with a state after each draft starts in the running column; any other one ends there. One whose columns
        # are all without a slot writes nothing.
        running = (0, NULL) if not writes else writes[0] if writes[0][0] == end - len(drafts) else writes[-1]
        self.launches[self.index, request] = start, end, len(drafts), read, running[1]
        if self._groups[group].aligned and len(writes) > len(drafts) + 1:
            offset, slot = writes[0]
            self.copies.setdefault(self.index, Counter())["ckpt", offset, slot, request] += 1

    def finish(self, request: str) -> None:
        self.finished[request] = self.index


def compare(
    recording: Recording, fast_forward: bool = True, preset: str | None = None, make: Make | None = None
) -> Conformance:
    """Compare our engine, under a recorded load, with what the release decided.

    ``preset``: rules of another release than the recorded one; ``make``: another engine (a live release).
    """
    result = recording.result
    name = recording.scenario, recording.release
    if result["status"] == "unsupported":
        return Conformance(*name, "unsupported")
    try:
        first = _first_divergence(recording, fast_forward, preset or f"vllm-{recording.release}", make)
    except EngineError as error:
        return Conformance(
            *name, "error", Divergence(None, None, "engine", recording.result["status"], str(error), None)
        )
    return Conformance(*name, "equal" if first is None else "divergent", first)


def _first_divergence(recording: Recording, fast_forward: bool, preset: str, make: Make | None) -> Divergence | None:
    if recording.result["status"] != "ok":
        return Divergence(None, None, "status", recording.result["status"], "runs", None)
    try:
        ours, outcome = run(recording, fast_forward, preset, make)
    except (InputError, RefusedError) as error:
        return Divergence(None, None, "configuration", recording.result["status"], str(error), None)
    for divergence in _by_step(recording.result, ours):
        return divergence
    return next(_totals(recording.result, ours, outcome), None)


def run(recording: Recording, fast_forward: bool, preset: str, make: Make | None = None) -> tuple[Decisions, Outcome]:
    """Run our engine (or another) under a recorded load: its decisions and outcome.

    Raises InputError for an unknown preset, and for an option that the release does not have.
    """
    if preset not in PRESETS:
        raise InputError(f"no preset {preset} (there are {', '.join(PRESETS)})")
    options = options_of(recording.config, preset.removeprefix("vllm-"), recording.asynchronous)
    for key, text in lacks(options, table(preset, options.rules)):
        raise InputError(f"{'.'.join(map(str, key))}: {text}")
    ours = Decisions()
    requests = arrivals_of(recording.requests)
    outcome = drive(options, requests, observers=[ours], fast_forward=fast_forward, make=make)
    return ours, outcome


def _by_step(recorded: Mapping[str, Any], ours: Decisions) -> Iterator[Divergence]:
    claims, evictions, copies, refused = _recorded_by_step(recorded)
    launches: dict[int, dict[str, Launch]] = {}
    for n, request, *launch in recorded["launches"]:
        launches.setdefault(n, {})[request] = tuple(launch)
    steps = {step["n"]: step for step in recorded["steps"]}
    launched: dict[int, dict[str, Launch]] = {}
    for (n, request), told_launch in ours.launches.items():
        launched.setdefault(n, {})[request] = told_launch
    told = (steps, claims, evictions, copies, refused, launches, ours.scheduled, ours.claims, ours.copies, launched)
    last = max(steps, default=0) if recorded.get("truncated") else inf
    for n in sorted({n for some in told for n in some if n <= last}):
        step = steps.get(n, NOTHING)
        theirs = {row[0]: tuple(row[1:]) for row in step["scheduled"]}
        own = ours.scheduled.get(n, {})
        for request in sorted(theirs.keys() | own.keys()):
            if theirs.get(request) != own.get(request):
                rule = ours.stops.get((n, request))
                yield Divergence(n, request, "chunk", theirs.get(request), own.get(request), rule)
        pairs: list[tuple[str, Any, Any]] = [
            ("preempted", step["preempted"], ours.preempted.get(n, [])),
            ("same-step refusals", refused.get(n, []), ours.refused.get(n, [])),
            ("claims", claims.get(n, Counter()), ours.claims.get(n, Counter())),
            ("evictions", evictions.get(n, Counter()), ours.evictions(n)),
            ("copies", copies.get(n, Counter()), ours.copies.get(n, Counter())),
        ]
        for what, recorded_value, own_value in pairs:
            if recorded_value != own_value:
                yield Divergence(n, None, what, _plain(recorded_value), _plain(own_value), None)
        for request in sorted({*launches.get(n, {}), *launched.get(n, {})}):
            launch, own_launch = launches.get(n, {}).get(request), launched.get(n, {}).get(request)
            if launch != own_launch and (n, request) not in ours.repeated:
                yield Divergence(n, request, "launch", launch, own_launch, None)


def _recorded_by_step(
    recorded: Mapping[str, Any],
) -> tuple[
    dict[int, Counter[tuple[str, int]]],
    dict[int, Counter[tuple[int, ...]]],
    dict[int, Counter[Copied]],
    dict[int, list[str]],
]:
    claims: dict[int, Counter[tuple[str, int]]] = {}
    for row in recorded["claims"]:
        claims.setdefault(row[0], Counter())[row[1], row[3]] += 1
    evictions: dict[int, Counter[tuple[int, ...]]] = {}
    for row in recorded["evictions"]:
        evictions.setdefault(row[0], Counter())[tuple(sorted(row[2]))] += 1
    copies: dict[int, Counter[Copied]] = {}
    for step, request, kind, source, target in recorded["copies"]:
        copies.setdefault(step, Counter())[kind, source, target, "" if kind == "cow" else request] += 1
    refused: dict[int, list[str]] = {}
    for step, request in recorded["deferred"]:
        refused.setdefault(step, []).append(request)
    return claims, evictions, copies, refused


def _totals(recorded: Mapping[str, Any], ours: Decisions, outcome: Outcome) -> Iterator[Divergence]:
    hits = {name: hit[0] for name, hit in recorded["hits"].items()}
    for request in sorted(hits.keys() | ours.hits.keys()):
        if hits.get(request) != ours.hits.get(request):
            yield Divergence(None, request, "hit", hits.get(request), ours.hits.get(request), None)
    boundaries = recorded["boundaries"].values()
    poisoned = sorted((row[0], row[1], row[3], -1 if row[4] is None else row[4]) for row in recorded["poisoned"])
    pairs = [
        ("finished", recorded["finished"], ours.finished),
        ("poisoned (step, request, claimed, held)", poisoned, _poisoned(outcome)),
        ("wrong restores", len(recorded["wrong_resumes"]), outcome.wrong_restores),
        ("wrong reads", len(recorded["wrong_reads"]), outcome.wrong_reads),
        ("null boundaries", sum(len(b["null"]) for b in boundaries), outcome.null_boundaries),
        ("materialized boundaries", sum(len(b["materialized"]) for b in boundaries), outcome.materialized_boundaries),
        ("livelock", recorded["livelock"], outcome.livelock),
        ("free blocks at the end", recorded["free_blocks_end"], outcome.free_blocks),
    ]
    for what, theirs, own in pairs:
        if theirs != own:
            yield Divergence(None, None, what, _plain(theirs), _plain(own), None)


def _poisoned(outcome: Outcome) -> list[tuple[int, str, int | None, int]]:
    return sorted(
        (f.step, f.request, f.claimed, -1 if f.held is None else f.held)
        for f in outcome.findings
        if f.invariant == "I1"
    )


def _plain(value: Any) -> Any:
    """Value as JSON has it: lists in place of counters and tuples."""
    if isinstance(value, Counter):
        return [[list(key) if isinstance(key, tuple) else key, count] for key, count in sorted(value.items())]
    if isinstance(value, list):
        return [list(item) if isinstance(item, tuple) else item for item in value]
    return value


def to_json(results: Sequence[Conformance], engine: str = "") -> dict[str, Any]:
    """Results as plain data; ``engine``: the live one that was compared, '' for ours."""
    return ({"engine": engine} if engine else {}) | {
        "results": [
            {
                "scenario": r.scenario,
                "release": r.release,
                "status": r.status,
                "first_divergence": None
                if (d := r.first_divergence) is None
                else {
                    "step": d.step,
                    "request": d.request,
                    "what": d.what,
                    "recorded": _plain(list(d.recorded) if isinstance(d.recorded, tuple) else d.recorded),
                    "ours": _plain(list(d.ours) if isinstance(d.ours, tuple) else d.ours),
                    "rule": d.rule,
                },
            }
            for r in results
        ]
    }
