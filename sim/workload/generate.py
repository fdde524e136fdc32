"""The workload of a scenario: what the file may say of it, and the requests that follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from stateat.sim.errors import InputError
from stateat.sim.schema import MAX_REQUESTS, MAX_STEP_TOKENS, Count, Strict, Time
from stateat.sim.tokens import Segments
from stateat.sim.workload import Arrival
from stateat.sim.workload.arrivals import Arrivals, Start, Steps, schedule
from stateat.sim.workload.files import resolve
from stateat.sim.workload.inline import Request, arrivals_of
from stateat.sim.workload.lengths import Empirical, Fixed, Lengths, draw
from stateat.sim.workload.named_states import NamedState
from stateat.sim.workload.prefixes import (
    MultiTurn,
    NoPrefixes,
    Prefixes,
    Repeat,
    Tree,
    conversation,
    own,
    repeated_prompts,
    tree_prompts,
)
from stateat.sim.workload.streams import stream
from stateat.sim.workload.traces import Trace, read

MAX_TURN_SEGMENTS = 2**26
"""Bound of count * turns**2: each turn's prompt repeats the segments of all turns before."""

Budget = Annotated[int, Field(ge=0, le=MAX_STEP_TOKENS)]


class Workload(Strict):
    """Requests: `requests` written out, a `trace`, or generated from `arrivals`, `count`, `prompt` and so on."""

    budgets: list[Budget] = Field(default_factory=list, max_length=MAX_REQUESTS)
    """Token budget of step 0, 1, ...; later steps have max_num_batched_tokens. Steps that schedule nothing use one."""
    resets: list[Time] = Field(default_factory=list, max_length=MAX_REQUESTS)
    """Resets of the pool's prefix cache: before the first step at or after each time (microseconds, or a
    step under `clock: steps`); the offload tier stays. As in vLLM nothing happens while a block is in use."""
    reset_running_requests: bool = False
    """Resets first put the running requests back to the head of the queue, as preempted ones, so that no block is
    in use; they are admitted again in the same step."""
    evict: list[NamedState] = Field(default_factory=list, max_length=MAX_REQUESTS)
    """States, and blocks of attention, that are evicted by name, with whatever else their slots stand for; who uses
    such a slot keeps it. One that is not there then is an error."""
    place: list[NamedState] = Field(default_factory=list, max_length=MAX_REQUESTS)
    """States that are placed: published in a slot of their own, which holds the true state of that prefix; of
    attention all blocks up to the offset that are not there. Behind what is evicted at the same time. No live
    release can do it."""
    requests: list[Request] | None = None
    """Requests written out."""
    trace: Trace | None = None
    """Requests from a file."""
    arrivals: Annotated[Arrivals, Field(discriminator="kind")] | None = None
    """Generated: when requests (under multi-turn: conversations) arrive."""
    count: Count | None = None
    """Generated: how many requests (under multi-turn: conversations) arrive. Given by `arrivals.at`, if that is."""
    prompt: Annotated[Lengths, Field(discriminator="kind")] | None = None
    """Generated: tokens of a prompt, its shared prefix included (at least that and one). Under multi-turn: of the
    new text of each turn."""
    output: Annotated[Lengths, Field(discriminator="kind")] | None = None
    """Generated: tokens of an output; none means 1."""
    prefixes: Annotated[Prefixes, Field(discriminator="kind")] | None = None
    """Generated: what prompts share; none means nothing."""

    @model_validator(mode="after")
    def _one_source(self) -> Workload:
        generated = [k for k in ("arrivals", "count", "prompt", "output", "prefixes") if getattr(self, k) is not None]
        sources = [k for k in ("requests", "trace") if getattr(self, k) is not None] + generated[:1]
        if len(sources) != 1:
            raise ValueError(
                f"found {' and '.join(sources) or 'no request (the workload is empty)'}, "
                "allowed one of: requests; trace; arrivals with count and prompt"
            )
        if generated:
            self._check_generated()
        if self.reset_running_requests and not self.resets:
            raise ValueError("found reset_running_requests without resets, allowed beside them")
        return self

    def _check_generated(self) -> None:
        at = self.arrivals.at if isinstance(self.arrivals, Steps) else None
        required = ("arrivals", "prompt") if at else ("arrivals", "count", "prompt")
        missing = [k for k in required if getattr(self, k) is None]
        if missing:
            raise ValueError(f"found no {' and no '.join(missing)}, required for a generated workload")
        if at and self.count not in (None, len(at)):
            raise ValueError(f"found count {self.count} and {len(at)} times in arrivals.at, allowed the same number")
        multi = self.prefixes if isinstance(self.prefixes, MultiTurn) else None
        if multi and self.units * multi.turns > MAX_REQUESTS:
            raise ValueError(f"found {self.units * multi.turns} turns in all, allowed at most {MAX_REQUESTS}")
        if multi and self.units * multi.turns**2 > MAX_TURN_SEGMENTS:
            raise ValueError(f"found count * turns**2 above {MAX_TURN_SEGMENTS}, allowed less")

    @property
    def paths(self) -> list[str]:
        """The files that it names."""
        named = [self.trace.path] if self.trace is not None else []
        return named + [lengths.path for lengths in (self.prompt, self.output) if isinstance(lengths, Empirical)]

    def files(self, base: Path) -> Iterator[Path]:
        """The files that it reads, as far as they are there."""
        for path in self.paths:
            with suppress(InputError):
                yield resolve(path, base, "")

    @property
    def units(self) -> int:
        """Generated: requests, or conversations."""
        at = self.arrivals.at if isinstance(self.arrivals, Steps) else None
        return len(at) if at else self.count or 0


def requests(workload: Workload, seed: int, clock: str, base: Path, where: str) -> list[Arrival]:
    """The requests of a workload, by index; ``base`` and ``where`` serve the files that it names."""
    if workload.requests is not None:
        return arrivals_of(workload.requests)
    if workload.trace is not None:
        return read(workload.trace, base, where)
    assert workload.arrivals is not None and workload.prompt is not None
    starts = schedule(workload.arrivals, workload.units, seed, clock)
    prefixes = workload.prefixes or NoPrefixes(kind="none")
    turns = prefixes.turns if isinstance(prefixes, MultiTurn) else 1
    count = workload.units * turns
    lengths = draw(workload.prompt, count, stream(seed, "prompt"), base, where)
    outputs = draw(workload.output or Fixed(kind="fixed", length=1), count, stream(seed, "output"), base, where)
    if isinstance(prefixes, MultiTurn):
        return list(_conversations(prefixes, starts, lengths, outputs))
    prompts = _prompts(prefixes, lengths, seed)
    return [
        Arrival(
            f"r{i}", i, start.time, prompts[i], outputs[i], after=None if start.after is None else f"r{start.after}"
        )
        for i, start in enumerate(starts)
    ]


def _prompts(prefixes: NoPrefixes | Tree | Repeat, lengths: Sequence[int], seed: int) -> list[Segments]:
    match prefixes:
        case Tree():
            return tree_prompts(prefixes, lengths, stream(seed, "prefixes"))
        case Repeat():
            return repeated_prompts(prefixes, lengths)
        case _:
            return [((own(i), length),) for i, length in enumerate(lengths)]


def _conversations(
    multi: MultiTurn, starts: Sequence[Start], lengths: Sequence[int], outputs: Sequence[int]
) -> Iterator[Arrival]:
    """Turn t of conversation c has the index ``c * turns + t`` and the id ``c{c}t{t}``."""
    for c, start in enumerate(starts):
        first = c * multi.turns
        turns = slice(first, first + multi.turns)
        prompts = conversation(multi, first, lengths[turns], outputs[turns])
        for t, prompt in enumerate(prompts):
            time = multi.think_us if t else start.time
            before = None if start.after is None else f"c{start.after}t{multi.turns - 1}"
            after = f"c{c}t{t - 1}" if t else before
            yield Arrival(f"c{c}t{t}", first + t, time, prompt, outputs[first + t], after=after)
