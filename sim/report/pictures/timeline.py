"""Timeline of a run, collected from its events for pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING, Any

from stateat.sim.events import Group, Observer
from stateat.sim.run.step_times import StepTimes
from stateat.sim.tokens import Segments, Spans

if TYPE_CHECKING:
    from pandas import DataFrame

LIMIT = 400
"""Requests that a timeline collects, unless told otherwise: more cannot be told apart in a picture."""


@dataclass(frozen=True, slots=True)
class DrawnChunk:
    """Tokens [start, end) of a request, in steps [step, step + steps)."""

    step: int
    steps: int
    time_us: int
    """The time of the step in which the chunk was told."""
    start: int
    end: int
    drafts: int
    stop: str


@dataclass(frozen=True, slots=True)
class State:
    """A recurrent state that the cache advertises (claim), or that a request starts from (restore)."""

    step: int
    group: int
    slot: int
    column: int
    offset: int


@dataclass(slots=True)
class Track:
    """A request."""

    request: str
    time_us: int
    """Arrival; a step number under ``clock: steps``."""
    prompt: int
    """Tokens."""
    chunks: list[DrawnChunk] = field(default_factory=list)
    claims: list[State] = field(default_factory=list)
    unclaims: list[tuple[int, State, str]] = field(default_factory=list)
    """Step, claim and reason of each claim of this request that stopped."""
    restores: list[State] = field(default_factory=list)
    admits: list[tuple[int, int, bool]] = field(default_factory=list)
    """Step, tokens it starts at, and whether it was resumed."""
    defers: list[tuple[int, int, str]] = field(default_factory=list)
    """Step, tokens offered, and why none was taken."""
    preempts: list[int] = field(default_factory=list)
    """Steps."""
    finish: int | None = None
    """Step."""
    aborted: bool = False


class Timeline(Observer):
    """Collects chunks, claims, restores and turns of the first ``limit`` requests; ``omitted`` counts the rest."""

    __slots__ = ("_live", "groups", "limit", "omitted", "steps", "tracks")

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.omitted = 0
        self.groups: tuple[Group, ...] = ()
        self.tracks: dict[str, Track] = {}
        """Requests in the order of arrival."""
        self.steps = StepTimes()
        self._live: dict[tuple[int, int, bytes], tuple[Track, State]] = {}

    @property
    def note(self) -> str:
        """Note of what is not in the picture; '' if all is."""
        if not self.omitted:
            return ""
        return f"the first {len(self.tracks):,} of {len(self.tracks) + self.omitted:,} requests"

    @property
    def block_size(self) -> int:
        """Tokens in a block of the first recurrent group; 0 without one."""
        return next((group.block_size for group in self.groups if group.recurrent), 0)

    def span(self, piece: DrawnChunk) -> tuple[float, float]:
        """Start and end of a chunk: microseconds, or steps under ``clock: steps``."""
        return self.steps.begin(piece.step), self.steps.finish(piece.step + piece.steps - 1)

    def run(
        self, schema: str, engine: str, groups: tuple[Group, ...], num_speculative_tokens: int, options: dict[str, Any]
    ) -> None:
        self.groups = groups
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
        if len(self.tracks) >= self.limit:
            self.omitted += 1
            return
        prompt = sum(length for _, length in segments) if tokens is None else len(tokens)
        self.tracks[request] = Track(request, time_us, prompt)

    def step(self, index: int, time_us: int, budget: int) -> None:
        self.steps.step(index, time_us)

    def commit(self, time_us: int) -> None:
        self.steps.commit(time_us)

    def end(self, steps: int, time_us: int, livelock: bool) -> None:
        self.steps.end(steps, time_us)

    def defer(self, request: str, offered: int, why: str) -> None:
        if track := self.tracks.get(request):
            track.defers.append((self.steps.current, offered, why))

    def admit(self, request: str, hit: int, external: int, resumed: bool) -> None:
        if track := self.tracks.get(request):
            track.admits.append((self.steps.current, hit + external, resumed))

    def restore(self, request: str, group: int, slot: int, column: int, offset: int, group_hits: object) -> None:
        if track := self.tracks.get(request):
            track.restores.append(State(self.steps.current, group, slot, column, offset))

    def claim(self, group: int, slot: int, request: str, column: int, offset: int, hash: bytes) -> None:
        track = self.tracks.get(request)
        if track is None or not self.groups[group].recurrent:
            return
        state = State(self.steps.current, group, slot, column, offset)
        track.claims.append(state)
        self._live[group, slot, hash] = track, state

    def unclaim(self, group: int, slot: int, hash: bytes, why: str) -> None:
        if owner := self._live.pop((group, slot, hash), None):
            track, state = owner
            track.unclaims.append((self.steps.current, state, why))

    def chunk(self, request: str, start: int, end: int, drafts: int, stop: str, steps: int, accepted: object) -> None:
        if track := self.tracks.get(request):
            first = self.steps.current - steps
            track.chunks.append(DrawnChunk(first, max(steps, 1), self._time_us(), start, end, drafts, stop))

    def preempt(self, request: str) -> None:
        if track := self.tracks.get(request):
            track.preempts.append(self.steps.current)

    def finish(self, request: str) -> None:
        if track := self.tracks.get(request):
            track.finish = self.steps.current

    def abort(self, request: str) -> None:
        if track := self.tracks.get(request):
            track.finish, track.aborted = self.steps.current, True

    def _time_us(self) -> int:
        return round(self.steps.begin(self.steps.current))


def from_chunks(chunks: DataFrame, block: int = 0) -> Timeline:
    """A timeline of one run's frame of chunks; ``block``: tokens in a block of its recurrent group, 0 if unknown.

    A request's arrival is its first chunk, and it starts where that chunk does.
    """
    timeline = Timeline()
    lasting = chunks["duration_us"].fillna(0) > chunks["steps"]
    counts_steps = bool((chunks["time_us"] == chunks["step"]).all() and not lasting.any())
    timeline.steps = StepTimes({"clock": "steps" if counts_steps else "us"})
    if block:
        timeline.groups = (Group("recurrent", "recurrent", block),)
    begins: dict[int, int] = {}
    commits: dict[int, int] = {}
    rows: Iterator[Any] = chunks.itertuples(index=False)
    for row in rows:
        begins[row.step] = row.time_us
        if isinstance(row.duration_us, Integral):  # else its step never committed
            if row.steps == 1:
                commits[row.step] = row.time_us + row.duration_us
            else:
                begins.setdefault(row.step + row.steps, row.time_us + row.duration_us)
        track = timeline.tracks.get(row.request)
        if track is None and len(timeline.tracks) < timeline.limit:
            track = timeline.tracks[row.request] = Track(row.request, row.time_us, 0)
            track.admits.append((row.step, row.start, False))
        if track is not None:
            track.chunks.append(DrawnChunk(row.step, row.steps, row.time_us, row.start, row.end, row.drafts, row.stop))
    timeline.omitted = chunks["request"].nunique() - len(timeline.tracks)
    for step, begin in sorted(begins.items()):
        timeline.steps.step(step, begin)
        if step in commits:
            timeline.steps.commit(commits[step])
    return timeline
